//! What `wavehouse dev` does beyond serving: a sample table, and a page of what to try.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use wavehouse_clickhouse::{Catalog, Client, Target};

/// The sample table: columns suited to a first hour, and a window in which ClickHouse knows a repeated insert, so that a
/// kill at any instant leaves no row twice.
const SAMPLE_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS events (
    event_id UUID DEFAULT generateUUIDv4(),
    name LowCardinality(String),
    user_id UInt64 DEFAULT 0,
    value Float64 DEFAULT 0,
    properties JSON DEFAULT '{}',
    received_timestamp DateTime64(3, 'UTC') DEFAULT now64(3, 'UTC')
) ENGINE = MergeTree ORDER BY (name, received_timestamp)
SETTINGS non_replicated_deduplication_window = 10000";

/// Between two tries while ClickHouse is not there.
const RETRY: Duration = Duration::from_millis(100);

/// Creates the sample table if it is absent and makes it known, trying until ClickHouse is there.
pub(crate) async fn sample_table(client: &Client, catalog: &Catalog, stop: &CancellationToken) {
    let mut told = false;
    loop {
        let made = match client.query(SAMPLE_TABLE, &[]).await {
            Ok(_answer) => catalog.refresh().await.map(drop),
            Err(error) => Err(error),
        };
        match made {
            Ok(()) => return info!(table = "events", "the sample table is there"),
            Err(error) if !told => {
                told = true;
                warn!(error = %wavehouse_core::chain(&error), "the sample table waits for ClickHouse");
            }
            Err(_) => {}
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

/// What the page tells.
pub(crate) struct Page<'a> {
    /// Where the gateway listens.
    pub(crate) address: SocketAddr,
    /// The ClickHouse behind it.
    pub(crate) clickhouse: &'a Target,
    /// The engine's password file, if the engine is ours.
    pub(crate) password_file: Option<&'a Path>,
    /// Where everything lives.
    pub(crate) data_dir: &'a Path,
}

/// The page of what to try.
pub(crate) fn page(page: &Page<'_>) -> String {
    let url = format!("http://{}", page.address);
    let mut text = format!(
        "
  WaveHouse is ready at {url}

  Send a row; the answer comes when it is safe on disk:
    curl -s '{url}/v1/ingest?table=events' -d '{{\"name\":\"signup\",\"user_id\":7,\"properties\":{{\"plan\":\"pro\"}}}}'

  Send many, one a line:
    curl -s '{url}/v1/ingest?table=events' -H 'Content-Type: application/x-ndjson' --data-binary \\
      $'{{\"name\":\"click\",\"user_id\":8}}\\n{{\"name\":\"click\",\"user_id\":9}}'

  Watch rows as they come, in another terminal:
    curl -sN '{url}/v1/stream?table=events'

  Read them from ClickHouse a second later:
    curl -s {url}/v1/ops/query -d '{{\"sql\":\"SELECT name, user_id, received_timestamp FROM events\"}}'

  Metrics: {url}/metrics    Health: {url}/readyz
"
    );
    // Writing to a String cannot fail.
    let _written = match page.password_file {
        Some(file) => writeln!(
            text,
            "  ClickHouse itself: {}, user {}, password in {}\n  Everything lives in {}. Stop with Ctrl-C.\n",
            page.clickhouse.url,
            page.clickhouse.user,
            file.display(),
            page.data_dir.display()
        ),
        None => writeln!(
            text,
            "  ClickHouse: {}\n  The queue lives in {}. Stop with Ctrl-C.\n",
            page.clickhouse.url,
            page.data_dir.display()
        ),
    };
    text
}

#[cfg(test)]
mod tests {
    use wavehouse_clickhouse::Secret;

    use super::*;

    #[test]
    fn the_page_has_the_real_address() {
        let text = page(&Page {
            address: ([127, 0, 0, 1], 9999).into(),
            clickhouse: &Target::new("http://127.0.0.1:8123", "default", Secret::default(), "default"),
            password_file: Some(Path::new("data/clickhouse.password")),
            data_dir: Path::new("data"),
        });
        insta::assert_snapshot!("page", text);
    }
}
