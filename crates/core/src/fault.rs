//! What the caller of a failed operation should do. Decided once, where the foreign error is known, and used by the
//! HTTP layer (which status), the worker (wait, bury or end) and the supervisor (go on or stop the process).

use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

/// The three things that a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The same call may work later; `after` says when, if the failing side knows.
    Retry {
        /// How long to wait before the next try.
        after: Option<Duration>,
    },
    /// The same call can never work; the input is at fault.
    Reject,
    /// The process is broken and must not go on.
    Stop,
}

/// Prints an error and its sources on one line, outermost first, separated by `: `.
///
/// Errors of this project print their own layer only, so the chain repeats nothing.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        // Writing to a String cannot fail.
        let _written = write!(text, ": {source}");
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_chain_names_each_layer_once() {
        let error = Outer(std::io::Error::other("inner"));
        assert_eq!(chain(&error), "outer: inner");
    }
}
