//! What a run cost the machine: CPU and memory of given processes, flushes of the disks, fsyncs by the server's own
//! count. Whatever the system does not tell is left out.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::proc;

/// How often memory is looked at.
pub(super) const MEMORY_EVERY: Duration = Duration::from_millis(200);

/// Readings at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    cpu_ticks: Option<u64>,
    flushes: Option<u64>,
}

/// The cost of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Cost {
    /// CPU seconds of the processes named, user and system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_s: Option<f64>,
    /// Most memory that the processes held together, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rss_bytes_max: Option<u64>,
    /// Flush commands that all disks of the machine received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device_flushes: Option<u64>,
    /// Fsyncs that the server counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fsyncs: Option<u64>,
}

/// Reads now.
pub(super) fn read(pids: &[u32]) -> Reading {
    let ticks: Option<u64> = pids.iter().map(|pid| proc::cpu_ticks(*pid)).sum();
    Reading { cpu_ticks: ticks.filter(|_| !pids.is_empty()), flushes: device_flushes() }
}

/// The difference between two readings.
pub(super) fn between(before: &Reading, after: &Reading) -> Cost {
    let less = |after: Option<u64>, before: Option<u64>| Some(after?.saturating_sub(before?));
    Cost {
        cpu_s: less(after.cpu_ticks, before.cpu_ticks).map(proc::seconds),
        device_flushes: less(after.flushes, before.flushes),
        ..Cost::default()
    }
}

/// Memory of the processes now, in bytes.
pub(super) fn rss_bytes(pids: &[u32]) -> Option<u64> {
    let all: Option<u64> = pids.iter().map(|pid| proc::rss_bytes(*pid)).sum();
    all.filter(|_| !pids.is_empty())
}

/// Flushes of all whole disks since boot: field 16 of their `stat`.
fn device_flushes() -> Option<u64> {
    let counts: Vec<u64> = fs::read_dir("/sys/block")
        .ok()?
        .flatten()
        .filter_map(|disk| flushes_in(&fs::read_to_string(disk.path().join("stat")).ok()?))
        .collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

fn flushes_in(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(15)?.parse().ok()
}

/// The sum of all counters of a metrics page whose names speak of fsyncs.
pub(super) fn fsyncs_in(page: &str) -> Option<u64> {
    counted(page, |name| name.contains("fsync") && name.ends_with("_total"))
}

/// Inserts into ClickHouse that a metrics page counts, over all tables.
pub(super) fn inserts_in(page: &str) -> Option<u64> {
    counted(page, |name| name == "wavehouse_ingest_batches_total")
}

fn counted(page: &str, is_meant: impl Fn(&str) -> bool) -> Option<u64> {
    let counts: Vec<f64> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (sample, value) = line.rsplit_once(' ')?;
            let name = sample.split('{').next()?;
            is_meant(name).then(|| value.parse().ok())?
        })
        .collect();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
    (!counts.is_empty()).then(|| counts.iter().sum::<f64>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_s_texts_are_read() {
        assert_eq!(flushes_in(" 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n"), Some(16));
        assert_eq!(flushes_in(" 1 2 3 4 5 6 7 8 9 10 11"), None);
        let page = "# TYPE wavehouse_queue_fsyncs_total counter\nwavehouse_queue_fsyncs_total{tenant=\"0\"} 12\n\
                    wavehouse_fsync_seconds_count 3\nwavehouse_fsync_seconds_sum 0.5\nother_total 4\n";
        assert_eq!(fsyncs_in(page), Some(12));
        assert_eq!(fsyncs_in("other_total 4\n"), None);
        let page =
            "wavehouse_ingest_batches_total{table=\"a\"} 2\nwavehouse_ingest_batches_total{table=\"b\"} 3\n";
        assert_eq!(inserts_in(page), Some(5));
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(rss_bytes(&[std::process::id()]).is_some_and(|bytes| bytes > 100_000));
        assert_eq!(rss_bytes(&[]), None);
        assert_eq!(rss_bytes(&[std::process::id(), u32::MAX]), None);
    }
}
