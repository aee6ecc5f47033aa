//! ClickHouse over HTTP: the client, the catalogue of tables, the sink that inserts batches, and what its errors mean.
