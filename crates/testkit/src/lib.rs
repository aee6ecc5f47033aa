//! For tests only: real servers, free ports, waiting for facts, house rules.
