//! From the queue into ClickHouse: batches, cuts, retries, refusals, fair turns.
