//! ClickHouse over HTTP: the client, the catalogue of tables, the sink that inserts batches, and what its errors mean.
//!
//! [`Connection`] ties one tenant's [`Client`] to its [`Catalog`]; [`Targets`] finds the connection of a tenant.
//! [`RowSink`] is what the worker writes through; [`ClickHouseSink`] is the one that inserts. Every failure is a
//! [`ClickHouseError`] whose [`Class`] is decided once, in `error::classify`.

mod body;
mod catalog;
mod client;
mod error;
mod metrics;
mod raw;
mod response;
mod sink;
mod target;
mod targets;
mod tls;

pub use catalog::{Catalog, CatalogOptions, CatalogStatus, Snapshot, TableInfo};
pub use client::{Client, Request};
pub use error::{
    Cause, Class, ClickHouseError, ClientError, MESSAGE_BYTES_MAX, Scope, bad_row, classify, refusal,
};
pub use metrics::ClickHouseMetrics;
pub use raw::{RAW_BYTES_MAX, RawAnswer};
pub use response::{Response, ResponseBody};
pub use sink::{
    BATCH_ROWS_LIMIT, ClickHouseSink, INSERT_SETTINGS, INSERT_TIMEOUT, RowBatch, RowSink, WriteError,
};
pub use target::{Secret, Target, Tls};
pub use targets::{Connection, Targets};
