//! Logs go to standard error: for people on a terminal, as JSON lines anywhere else.

use std::io::{self, IsTerminal};

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// Begins logging. Libraries are heard from `warn` on, whatever the level of our own lines.
pub(crate) fn start(level: Level) {
    let filter = Targets::new()
        .with_default(LevelFilter::from_level(level.min(Level::WARN)))
        .with_target("wavehouse", level)
        .with_target("wavehouse_api", level)
        .with_target("wavehouse_worker", level)
        .with_target("wavehouse_clickhouse", level)
        .with_target("wavehouse_broker_embedded", level)
        .with_target("wavehouse_broker", level)
        .with_target("wavehouse_broker_nats", level)
        .with_target("wavehouse_nats", level)
        .with_target("engine", level);
    let registry = tracing_subscriber::registry().with(filter);
    // Standard error may be closed; to complain there about that would be a panic.
    let format = tracing_subscriber::fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    // A second start, as in tests, keeps the first.
    let _already = if io::stderr().is_terminal() {
        registry.with(format.with_target(false).compact()).try_init()
    } else {
        registry.with(format.json().flatten_event(true).with_ansi(false)).try_init()
    };
}
