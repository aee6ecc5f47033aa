//! Rules about what the connecting user may do.

use super::Check;
use crate::observed::Refusal;
use crate::rules::{PERMISSION_DURABLE, PERMISSION_LETTERS, PERMISSION_LIVE};

impl Check<'_> {
    pub(super) fn permissions(&mut self) {
        let observed = self.observed;
        for refusal in &observed.refusals {
            let (rule, object, subject) = match refusal {
                Refusal::Durable { stream, durable, subject } => {
                    (PERMISSION_DURABLE, format!("consumer {stream}/{durable}"), subject)
                }
                Refusal::DeadLetters(subject) => {
                    (PERMISSION_LETTERS, format!("stream {}", self.spec.dlq_stream()), subject)
                }
                Refusal::Live(subject) => (PERMISSION_LIVE, "server".to_owned(), subject),
            };
            let expected = format!("with {subject}");
            self.want(false, rule, &object, expected, format_args!("without {subject}"));
        }
    }
}
