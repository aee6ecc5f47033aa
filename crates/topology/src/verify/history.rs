//! Rules about the stream that live streams read.

use super::{Check, Replicas, listed, or_unset};
use crate::rules::{
    HISTORY_DISCARD, HISTORY_MAX_AGE, HISTORY_MAX_BYTES, HISTORY_MAX_MSG_SIZE, HISTORY_MAX_MSGS,
    HISTORY_MISSING, HISTORY_REPLICAS_ONE, HISTORY_REPLICAS_TWO, HISTORY_RETENTION, HISTORY_SOURCES,
    HISTORY_SUBJECTS, HISTORY_TRANSFORM,
};

const REPLICAS: Replicas = Replicas { one: HISTORY_REPLICAS_ONE, two: HISTORY_REPLICAS_TWO };

impl Check<'_> {
    pub(super) fn history(&mut self) {
        let (observed, name) = (self.observed, self.spec.history_stream());
        let object = format!("stream {name}");
        let Some(stream) = observed.stream(&name) else {
            return self.want(false, HISTORY_MISSING, &object, "there", "missing");
        };
        let config = &stream.info.config;
        let filter = self.spec.prefix().history_filter();
        let exact = config.subjects == [filter.as_str()];
        self.want(exact, HISTORY_SUBJECTS, &object, listed(&[filter]), listed(&config.subjects));
        let own = config.sources.is_empty() && config.mirror.is_none();
        self.want(own, HISTORY_SOURCES, &object, "unset, as the mirror", "set");
        self.want(config.retention == "limits", HISTORY_RETENTION, &object, "limits", &config.retention);
        self.want(config.subject_transform.is_none(), HISTORY_TRANSFORM, &object, "unset", "set");
        self.want(config.discard == "old", HISTORY_DISCARD, &object, "old", &config.discard);
        let ages = !config.max_age.is_unset();
        self.want(ages, HISTORY_MAX_AGE, &object, "the longest gap window of a tenant", "unset");
        let bounded = config.max_bytes > 0;
        self.want(bounded, HISTORY_MAX_BYTES, &object, "above zero", or_unset(config.max_bytes));
        self.want(config.max_msgs <= 0, HISTORY_MAX_MSGS, &object, "unset", config.max_msgs);
        self.message_size(HISTORY_MAX_MSG_SIZE, &object, config);
        self.replicas(&REPLICAS, &object, config);
        self.unknown_fields(&object, config);
    }
}
