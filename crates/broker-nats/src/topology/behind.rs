//! How far the history is behind the partitions that republish into it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::{sleep, timeout};
use wavehouse_core::Timestamp;
use wavehouse_nats::{CallError, StreamInfo};

use crate::shared::Shared;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(30);
/// Longest look.
const LOOK_MAX: Duration = Duration::from_secs(30);
/// Requests on their way at once.
const AT_ONCE: usize = 16;

/// By how much the history's newest copy is older than the newest row of any partition; none of them has one when nothing
/// was ever stored. A history without copies counts from its creation. A partition keeps the time of its newest row when
/// that has left it.
#[must_use]
pub fn history_behind(partitions: &[StreamInfo], history: &StreamInfo) -> Duration {
    let newest = |info: &StreamInfo| {
        (info.state.last_seq > 0).then(|| Timestamp::parse_rfc3339(&info.state.last_ts).ok()).flatten()
    };
    let copied = newest(history).or_else(|| Timestamp::parse_rfc3339(&history.created).ok());
    let stored = partitions.iter().filter_map(newest).max();
    stored.zip(copied).map_or(Duration::ZERO, |(stored, copied)| stored.since(copied))
}

/// Looks every so often until the queue is closed; what was found stays where a look comes to nothing.
pub(crate) async fn watch_history(shared: Arc<Shared>) {
    let closed = shared.closed.clone();
    let looking = async {
        loop {
            match timeout(LOOK_MAX, look(&shared)).await {
                Ok(Ok(behind)) => drop(shared.history_behind.send_replace(Some(behind))),
                Ok(Err(error)) => tracing::debug!(%error, "the history's lag is not known"),
                Err(_elapsed) => {}
            }
            sleep(EVERY).await;
        }
    };
    tokio::select! {
        () = closed.cancelled() => {}
        () = looking => {}
    }
}

/// The partitions first, so that a row that is stored meanwhile is not taken for one that is missing.
async fn look(shared: &Shared) -> Result<Duration, CallError> {
    let names = shared.partitions.iter().map(|partition| partition.stream.as_str());
    let asked: Vec<_> = names.map(|name| shared.jetstream.stream_info(name)).collect();
    let partitions: Vec<StreamInfo> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    let history = shared.jetstream.stream_info(&shared.spec().history_stream()).await?;
    let age_ns = history.config.get("max_age").and_then(serde_json::Value::as_u64).filter(|age| *age > 0);
    shared.gaps.there_is(age_ns.map(Duration::from_nanos));
    Ok(history_behind(&partitions, &history))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn info(last_s: Option<u64>, created_s: u64) -> StreamInfo {
        let text = |second: u64| Timestamp(second * 1_000_000_000).to_string();
        let last = last_s.map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), text);
        let state = json!({"last_seq": u64::from(last_s.is_some()), "last_ts": last});
        serde_json::from_value(json!({"config": {}, "created": text(created_s), "state": state}))
            .expect("an answer")
    }

    #[test]
    fn the_history_is_behind_by_what_it_has_not_got() {
        for (partitions, history, behind_s) in [
            (vec![], info(None, 50), 0),
            (vec![info(None, 1)], info(None, 50), 0),
            (vec![info(Some(100), 1), info(Some(90), 1)], info(Some(95), 50), 5),
            (vec![info(Some(100), 1)], info(Some(110), 50), 0),
            (vec![info(Some(100), 1)], info(None, 60), 40),
            (vec![info(Some(50), 1)], info(None, 60), 0),
        ] {
            assert_eq!(history_behind(&partitions, &history), Duration::from_secs(behind_s));
        }
    }
}
