//! The one-process broker: an append-only log on local disk with group commit.
