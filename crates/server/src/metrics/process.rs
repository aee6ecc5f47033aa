//! The process itself, under the names that every Prometheus client uses, and what was built.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Reads `/proc/self` when asked.
#[derive(Debug)]
pub(crate) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        if let Some((cpu_s, resident_bytes)) = usage(&stat) {
            let help = "CPU time used by this process, in seconds";
            let family = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
            ConstCounter::new(cpu_s).encode(family)?;
            let help = "Memory in use by this process";
            let family =
                encoder.encode_descriptor("process_resident_memory_bytes", help, None, MetricType::Gauge)?;
            ConstGauge::new(resident_bytes).encode(family)?;
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            let help = "Files and sockets that are open";
            let family = encoder.encode_descriptor("process_open_fds", help, None, MetricType::Gauge)?;
            ConstGauge::new(files.count() as f64).encode(family)?;
        }
        let help = "What was built; always 1";
        let mut family = encoder.encode_descriptor("wavehouse_build_info", help, None, MetricType::Gauge)?;
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        ConstGauge::new(1.0).encode(family.encode_family(&version)?)
    }
}

/// CPU seconds and resident bytes out of `/proc/PID/stat`. The name in brackets may hold anything.
fn usage(stat: &str) -> Option<(f64, f64)> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
    // Fields 14, 15 and 24 of proc(5), counted from the third.
    let ticks = number(11)? + number(12)?;
    let pages = number(21)?;
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    Some((ticks / ticks_per_s, pages * rustix::param::page_size() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_fields_behind_any_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 200 100 0 0 20 0 5 0 99 4096 3 18446744073709551615 1";
        let (cpu_s, resident) = usage(stat).unwrap();
        assert!(cpu_s > 0.0 && resident > 0.0);
        let pages = 3.0 * rustix::param::page_size() as f64;
        assert!((resident - pages).abs() < 1.0, "{resident}");
        assert_eq!(usage("nonsense"), None);
    }
}
