//! The figures of one run, as a page for people and as a line of JSON for `bench compare`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::host::Cost;

/// Percentiles of a latency, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Latency {
    /// Median.
    pub(super) p50_us: f64,
    /// 99 of 100 are faster.
    pub(super) p99_us: f64,
    /// 999 of 1,000 are faster.
    pub(super) p999_us: f64,
    /// The slowest.
    pub(super) max_us: f64,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RunResult {
    /// Which measure this is; runs of one name are compared.
    pub(super) label: String,
    /// What was done, in words.
    pub(super) what: String,
    /// Seconds measured.
    pub(super) seconds: f64,
    /// Rows taken.
    pub(super) rows: u64,
    /// Rows taken a second.
    pub(super) rows_per_s: f64,
    /// Megabytes of rows taken a second.
    pub(super) mb_per_s: f64,
    /// How latency was counted, and the latency of requests that were taken.
    pub(super) latency: Option<Latency>,
    /// Latency of requests that were refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_refused: Option<Latency>,
    /// Answers by status.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) statuses: BTreeMap<u16, u64>,
    /// What it cost.
    #[serde(flatten)]
    pub(super) cost: Cost,
    /// Rows a second for each core that the server kept busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows_per_core: Option<f64>,
    /// Further figures, by name with the unit last.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) more: BTreeMap<String, f64>,
}

impl Latency {
    /// From a histogram of nanoseconds; none when it is empty.
    #[expect(clippy::cast_precision_loss, reason = "three digits count")]
    pub(super) fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let us = |ns: u64| ns as f64 / 1_000.0;
        (!histogram.is_empty()).then(|| Self {
            p50_us: us(histogram.value_at_quantile(0.5)),
            p99_us: us(histogram.value_at_quantile(0.99)),
            p999_us: us(histogram.value_at_quantile(0.999)),
            max_us: us(histogram.max()),
        })
    }
}

impl RunResult {
    /// A figure by name, for comparisons.
    pub(super) fn figure(&self, name: &str) -> Option<f64> {
        match name {
            "rows_per_s" => Some(self.rows_per_s),
            "mb_per_s" => Some(self.mb_per_s),
            "rows_per_core" => self.rows_per_core,
            "p50_us" => self.latency.map(|latency| latency.p50_us),
            "p99_us" => self.latency.map(|latency| latency.p99_us),
            "refused_p99_us" => self.latency_refused.map(|latency| latency.p99_us),
            #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
            "rss_mb" => self.cost.rss_bytes_max.map(|bytes| bytes as f64 / 1e6),
            // A server that stores before it answers stores what it takes.
            "stored_rows_per_s" => self.more.get(name).copied().or(Some(self.rows_per_s)),
            _ => self.more.get(name).copied(),
        }
    }

    /// Sets rows a second and what follows from it.
    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    pub(super) fn derive(&mut self, row_bytes: usize) {
        self.rows_per_s = self.rows as f64 / self.seconds;
        self.mb_per_s = self.rows_per_s * row_bytes as f64 / 1e6;
        self.rows_per_core =
            self.cost.cpu_s.filter(|cpu_s| *cpu_s > 0.0).map(|cpu_s| self.rows as f64 / cpu_s);
    }

    /// Prints it to standard output.
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        let text = if json { serde_json::to_string(self)? + "\n" } else { self.page() };
        io::stdout().lock().write_all(text.as_bytes())?;
        Ok(())
    }

    fn page(&self) -> String {
        let mut page = format!("{}\n", self.what);
        let mut line = |name: &str, text: String| {
            // Writing to a string does not fail.
            let _written = writeln!(page, "  {name:<18} {text}");
        };
        line("rows", format!("{} in {:.1} s", grouped(self.rows as f64), self.seconds));
        line("rows/s", format!("{}   {:.1} MB/s", grouped(self.rows_per_s), self.mb_per_s));
        for (name, latency) in [("latency", self.latency), ("latency, refused", self.latency_refused)] {
            if let Some(l) = latency {
                let us = [l.p50_us, l.p99_us, l.p999_us, l.max_us].map(micros);
                line(name, format!("p50 {}  p99 {}  p99.9 {}  max {}", us[0], us[1], us[2], us[3]));
            }
        }
        if !self.statuses.is_empty() {
            let all: Vec<String> =
                self.statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
            line("answers", all.join("  "));
        }
        if let Some(cpu_s) = self.cost.cpu_s {
            let per_core = self
                .rows_per_core
                .map_or_else(String::new, |rows| format!("   {} rows/s a core", grouped(rows)));
            line("server CPU", format!("{cpu_s:.2} s{per_core}"));
        }
        if let Some(bytes) = self.cost.rss_bytes_max {
            line("server memory", format!("{:.0} MB at most", bytes as f64 / 1e6));
        }
        if let Some(flushes) = self.cost.device_flushes {
            line("device flushes", format!("{} (all disks of the machine)", grouped(flushes as f64)));
        }
        if let Some(fsyncs) = self.cost.fsyncs {
            line("server fsyncs", grouped(fsyncs as f64));
        }
        for (name, value) in &self.more {
            line(name, if value.fract() == 0.0 { grouped(*value) } else { format!("{value:.3}") });
        }
        page
    }
}

/// A whole number with commas.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts and rates are not negative"
)]
pub(super) fn grouped(value: f64) -> String {
    let digits = (value.round() as u64).to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Microseconds in the unit that reads best.
pub(super) fn micros(us: f64) -> String {
    match us {
        ..1_000.0 => format!("{us:.0} us"),
        ..1_000_000.0 => format!("{:.2} ms", us / 1_000.0),
        _ => format!("{:.2} s", us / 1_000_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0.0, 999.0, 1_000.0, 1_234_567.4].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([12.4, 1_500.0, 2_000_000.0].map(micros), ["12 us", "1.50 ms", "2.00 s"]);
    }

    #[test]
    fn a_result_survives_its_line() {
        let mut result = RunResult { label: "a".into(), rows: 512, seconds: 2.0, ..RunResult::default() };
        result.cost =
            Cost { cpu_s: Some(1.0), rss_bytes_max: Some(5), device_flushes: None, fsyncs: Some(3) };
        result.statuses.insert(200, 512);
        result.derive(256);
        assert_eq!((result.rows_per_s, result.rows_per_core), (256.0, Some(512.0)));
        let line = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<RunResult>(&line).unwrap(), result);
        assert!(result.page().contains("512 in 2.0 s"));
    }
}
