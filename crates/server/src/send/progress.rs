//! What the person sees while a load runs: a bar on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::state::Counts;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows how far a load is.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    total_bytes: Option<u64>,
    read_bytes: Arc<AtomicU64>,
    begun: Instant,
    said: Mutex<Said>,
}

struct Said {
    at: Instant,
    note: String,
}

impl Progress {
    /// `total_bytes` is the length of the file as it lies on disk, `read_bytes` what was read of it.
    pub(super) fn new(total_bytes: Option<u64>, read_bytes: Arc<AtomicU64>) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = total_bytes.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
            let template = if total_bytes.is_some() {
                "{bar:30} {percent:>3}% {bytes}/{total_bytes} {msg}"
            } else {
                "{spinner} {bytes} {msg}"
            };
            bar.with_style(
                ProgressStyle::with_template(template).unwrap_or_else(|_error| ProgressStyle::default_bar()),
            )
        });
        let begun = Instant::now();
        let said = Mutex::new(Said { at: begun, note: String::new() });
        Self { bar, total_bytes, read_bytes, begun, said }
    }

    /// How long the load runs.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Counts after one more batch.
    pub(super) fn advance(&self, counts: &Counts) {
        let read_bytes = self.read_bytes.load(Ordering::Relaxed);
        let text = format!("{} records, {} refused", counts.records(), counts.refused);
        if let Some(bar) = &self.bar {
            bar.set_position(read_bytes);
            bar.set_message(text);
            return;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.at.elapsed() < LINE_EVERY {
            return;
        }
        said.at = Instant::now();
        let part = self.total_bytes.filter(|total| *total > 0).map_or_else(String::new, |total| {
            format!(", {} % of the file", read_bytes.saturating_mul(100) / total)
        });
        line(&format!("{text}{part}"));
    }

    /// Says why nothing moves. The same text is said once.
    pub(super) fn note(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
            return;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.note != text {
            text.clone_into(&mut said.note);
            line(text);
        }
    }

    /// It moves again.
    pub(super) fn clear_note(&self) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).note.clear();
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A closed terminal is no reason to stop a load.
fn line(text: &str) {
    let _closed = writeln!(io::stderr().lock(), "send: {text}");
}
