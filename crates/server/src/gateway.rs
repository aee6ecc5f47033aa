//! The running gateway.

use tokio::task::JoinSet;

use crate::config::{Config, Mode};
use crate::supervisor::{Outcome, StopBudget, Supervisor, listen};

pub(crate) async fn run(config: Config) -> anyhow::Result<Outcome> {
    let mut tasks = JoinSet::new();
    let signals = listen(config.mode == Mode::Dev, &mut tasks)?;
    let supervisor = Supervisor::new(StopBudget { drain: config.server.shutdown_timeout });
    Ok(supervisor.run(signals).await)
}
