//! The process itself, under the names that every Prometheus client uses, and what was built.

use std::fmt;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::proc;

/// Reads `/proc/self` when asked.
#[derive(Debug)]
pub(crate) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let pid = std::process::id();
        if let Some(ticks) = proc::cpu_ticks(pid) {
            let help = "CPU time used by this process, in seconds";
            let family = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
            ConstCounter::new(proc::seconds(ticks)).encode(family)?;
        }
        if let Some(bytes) = proc::rss_bytes(pid) {
            let help = "Memory in use by this process";
            let family =
                encoder.encode_descriptor("process_resident_memory_bytes", help, None, MetricType::Gauge)?;
            ConstGauge::new(bytes as f64).encode(family)?;
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
