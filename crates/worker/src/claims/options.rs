//! How a process takes its share of a queue that many read.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::lease::LeaseTimings;

/// Who this process is among those that share the queue's units.
#[derive(Debug, Clone)]
pub struct ClaimOptions {
    /// The process's name for the operator. One that starts anew under the same name takes its former slot over as soon
    /// as nobody answers there any more.
    pub instance_id: String,
    /// One life of this process, unlike any other's: two processes of one name still compete. Letters and digits.
    pub session: String,
    /// How leases are timed.
    pub timings: LeaseTimings,
}

impl ClaimOptions {
    /// The usual timings and a random session.
    #[must_use]
    pub fn new(instance_id: impl Into<String>) -> Self {
        let random = || RandomState::new().build_hasher().finish();
        let session = format!("{:016x}{:016x}", random(), random());
        Self { instance_id: instance_id.into(), session, timings: LeaseTimings::default() }
    }
}

impl Default for ClaimOptions {
    fn default() -> Self {
        let mut options = Self::new("");
        options.instance_id.clone_from(&options.session);
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_differ() {
        let (one, two) = (ClaimOptions::new("a"), ClaimOptions::new("a"));
        assert_ne!(one.session, two.session);
        assert!(one.session.len() == 32 && one.session.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }
}
