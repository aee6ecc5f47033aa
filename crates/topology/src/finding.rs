//! One thing on the servers that is not as it must or should be.

use std::fmt;

use serde::Serialize;

/// How bad a finding is. Required ones sort first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A process does not start with it: rows could be lost, doubled or stuck.
    Required,
    /// Logged as a warning.
    Recommended,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Required => "required",
            Self::Recommended => "recommended",
        })
    }
}

/// What was found, where, and what mends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which rule found it; the text does not change.
    pub rule: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// `server`, `ingest partition 0`, `stream WH_INGEST_0`, `consumer WH_INGEST_0/wh-ingest-0`, `dead-letter stream` or
    /// `kv bucket wh_coord`.
    pub object: String,
    /// The field of its configuration, as JetStream's JSON calls it.
    pub field: &'static str,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub found: String,
    /// What it is for.
    pub why: &'static str,
    /// The command or the setting that mends it.
    pub mend: String,
}

/// `<severity>: <object>: <field>: <problem>`, on one line.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, object, field, expected, found, why, mend, .. } = self;
        let verb = match severity {
            Severity::Required => "must",
            Severity::Recommended => "should",
        };
        write!(f, "{severity}: {object}: {field}: {found}, {verb} be {expected}: {why}; {mend}")
    }
}

/// The servers lack something without which nothing can start: every finding, required ones first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyError(pub Vec<Finding>);

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let required = self.0.iter().filter(|finding| finding.severity == Severity::Required).count();
        write!(f, "the topology on the message servers is not what it must be: {required} required")?;
        write!(f, " and {} recommended findings", self.0.len() - required)?;
        self.0.iter().try_for_each(|finding| write!(f, "\n  - {finding}"))
    }
}

impl std::error::Error for TopologyError {}
