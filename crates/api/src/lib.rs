//! The HTTP face of the gateway: ingest, operator routes, health, metrics.
