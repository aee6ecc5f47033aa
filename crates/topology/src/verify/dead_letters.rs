//! Rules about the stream of rows that can never be written.

use super::{Check, Replicas, listed, or_default, or_unset};
use crate::limits::TOPIC_LETTERS_MAX;
use crate::rules::{
    LETTERS_CAP, LETTERS_DENY_DELETE, LETTERS_DISCARD, LETTERS_HOLDER, LETTERS_MAX_BYTES,
    LETTERS_MAX_MSG_SIZE, LETTERS_MAX_MSGS, LETTERS_NAME, LETTERS_PERSIST, LETTERS_REPLICAS_ONE,
    LETTERS_REPLICAS_TWO, LETTERS_RETENTION, LETTERS_STORAGE, LETTERS_SUBJECTS, LETTERS_TRANSFORM,
};

const REPLICAS: Replicas = Replicas { one: LETTERS_REPLICAS_ONE, two: LETTERS_REPLICAS_TWO };

impl Check<'_> {
    pub(super) fn dead_letters(&mut self) {
        let (observed, probe) = (self.observed, self.spec.prefix().dead_letter_probe());
        let filter = self.spec.prefix().dead_letter_filter();
        let holders: Vec<_> = observed.holding(&probe).collect();
        let [stream] = holders[..] else {
            let names: Vec<_> = holders.iter().map(|stream| stream.name()).collect();
            let found = format!("held by {}", listed(&names));
            return self.want(
                false,
                LETTERS_HOLDER,
                "dead-letter stream",
                format_args!("{filter} in one stream"),
                found,
            );
        };
        let (object, config) = (format!("stream {}", stream.name()), &stream.info.config);
        let holds = config.subjects.contains(&filter);
        let found = listed(&config.subjects);
        self.want(holds, LETTERS_SUBJECTS, &object, format_args!("with {filter}"), found);
        self.want(config.retention == "limits", LETTERS_RETENTION, &object, "limits", &config.retention);
        self.want(config.discard == "old", LETTERS_DISCARD, &object, "old", &config.discard);
        self.want(config.storage == "file", LETTERS_STORAGE, &object, "file", &config.storage);
        let bounded = config.max_bytes > 0;
        self.want(bounded, LETTERS_MAX_BYTES, &object, "above zero", or_unset(config.max_bytes));
        let capped = config.max_msgs_per_subject > 0;
        self.want(capped, LETTERS_CAP, &object, TOPIC_LETTERS_MAX, "unset");
        let persist = or_default(&config.persist_mode);
        self.want(persist != "async", LETTERS_PERSIST, &object, "default", persist);
        self.want(config.subject_transform.is_none(), LETTERS_TRANSFORM, &object, "unset", "set");
        self.want(config.max_msgs <= 0, LETTERS_MAX_MSGS, &object, "unset", config.max_msgs);
        self.message_size(LETTERS_MAX_MSG_SIZE, &object, config);
        let name = self.spec.dlq_stream();
        self.want(stream.name() == name, LETTERS_NAME, &object, name, stream.name());
        self.want(!config.deny_delete, LETTERS_DENY_DELETE, &object, "false", "true");
        self.replicas(&REPLICAS, &object, config);
        self.unknown_fields(&object, config);
    }
}
