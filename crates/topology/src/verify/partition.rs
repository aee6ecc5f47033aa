//! Rules about the streams that hold rows on their way.

use std::time::Duration;

use wavehouse_core::{PartitionId, subjects_overlap};

use super::{Check, Replicas, listed, or_default, or_unset};
use crate::config::{Nanos, StreamConfig};
use crate::desired::{PARTITION_KEY, PARTITIONS_KEY, SHARDS_KEY};
use crate::limits::{TOPIC_MESSAGES_MAX, dedupe_floor, publish_floor};
use crate::observed::StreamObserved;
use crate::rules::{
    PARTITION_AMBIGUOUS, PARTITION_CAP, PARTITION_CAP_DISCARD, PARTITION_COUNTER, PARTITION_DENY,
    PARTITION_DISCARD, PARTITION_DUPLICATE_WINDOW, PARTITION_DUPLICATE_WINDOW_DEDUPE, PARTITION_GONE,
    PARTITION_MAX_AGE, PARTITION_MAX_BYTES, PARTITION_MAX_MSG_SIZE, PARTITION_MAX_MSGS,
    PARTITION_METADATA_MISSING, PARTITION_METADATA_WRONG, PARTITION_MIRROR, PARTITION_MISSING,
    PARTITION_NO_ACK, PARTITION_PERSIST, PARTITION_REPLICAS_ONE, PARTITION_REPLICAS_TWO,
    PARTITION_REPUBLISH_HEADERS, PARTITION_REPUBLISH_MISSING, PARTITION_REPUBLISH_WRONG, PARTITION_RETENTION,
    PARTITION_SEALED, PARTITION_SHARDS_MISSING, PARTITION_SHARDS_WRONG, PARTITION_SHARED, PARTITION_SOURCES,
    PARTITION_STORAGE, PARTITION_SUBJECTS, PARTITION_TRANSFORM,
};

const REPLICAS: Replicas = Replicas { one: PARTITION_REPLICAS_ONE, two: PARTITION_REPLICAS_TWO };

impl<'a> Check<'a> {
    /// Judges every partition and its durables, and says which stream holds which.
    pub(super) fn partitions(&mut self) -> Vec<(PartitionId, &'a StreamObserved)> {
        let mut streams = Vec::new();
        for partition in (0..self.spec.placement().partitions()).map(PartitionId) {
            let Some(stream) = self.holder(partition) else { continue };
            let (object, config) = (format!("stream {}", stream.name()), &stream.info.config);
            self.partition_place(partition, &object, config);
            self.partition_republish(partition, &object, config);
            self.partition_keeping(&object, config);
            self.partition_taking(&object, config);
            self.partition_bounds(&object, config);
            self.replicas(&REPLICAS, &object, config);
            self.partition_metadata(partition, &object, config);
            self.unknown_fields(&object, config);
            self.durables(partition, stream);
            streams.push((partition, stream));
        }
        streams
    }

    /// The one stream of a partition.
    fn holder(&mut self, partition: PartitionId) -> Option<&'a StreamObserved> {
        let observed = self.observed;
        let (object, probe) =
            (format!("ingest partition {}", partition.0), self.spec.prefix().partition_probe(partition));
        let holders: Vec<_> = observed.holding(&probe).collect();
        if let [only] = holders[..] {
            return Some(only);
        }
        let filter = self.spec.prefix().partition_filter(partition);
        let gone = observed.gone.iter().find(|gone| subjects_overlap(&gone.listed_for, &probe));
        match gone {
            _ if !holders.is_empty() => {
                let names: Vec<_> = holders.iter().map(|stream| stream.name()).collect();
                let found = format!("held by {}", listed(&names));
                self.want(false, PARTITION_AMBIGUOUS, &object, format_args!("{filter} in one stream"), found);
            }
            Some(gone) => {
                let found = format!("{}, which does not exist any more", gone.name);
                self.want(false, PARTITION_GONE, &object, "a stream", found);
            }
            None => {
                let expected = format!("{filter} in a stream");
                self.want(false, PARTITION_MISSING, &object, expected, "held by no stream");
            }
        }
        None
    }

    fn partition_place(&mut self, partition: PartitionId, object: &str, config: &StreamConfig) {
        let filter = self.spec.prefix().partition_filter(partition);
        let holds = config.subjects.contains(&filter);
        let found = listed(&config.subjects);
        self.want(holds, PARTITION_SUBJECTS, object, format_args!("with {filter}"), found);
        let workqueue = config.retention == "workqueue";
        self.want(workqueue, PARTITION_RETENTION, object, "workqueue", &config.retention);
    }

    fn partition_republish(&mut self, partition: PartitionId, object: &str, config: &StreamConfig) {
        let prefix = self.spec.prefix();
        let (src, dest) = (prefix.republish_source(partition), prefix.history_filter());
        let expected = format!("from {src} to {dest}");
        let Some(republish) = &config.republish else {
            return self.want(false, PARTITION_REPUBLISH_MISSING, object, expected, "unset");
        };
        let right = republish.src == src && republish.dest == dest;
        let found = format!("from {} to {}", republish.src, republish.dest);
        self.want(right, PARTITION_REPUBLISH_WRONG, object, expected, found);
        let bodies = !republish.headers_only;
        self.want(bodies, PARTITION_REPUBLISH_HEADERS, object, "with bodies", "headers only");
    }

    /// What keeps rows from being lost.
    fn partition_keeping(&mut self, object: &str, config: &StreamConfig) {
        self.want(config.discard == "new", PARTITION_DISCARD, object, "new", &config.discard);
        let bounded = config.max_bytes > 0;
        self.want(bounded, PARTITION_MAX_BYTES, object, "above zero", or_unset(config.max_bytes));
        self.want(config.max_age.is_unset(), PARTITION_MAX_AGE, object, "unset", config.max_age);
        self.want(config.storage == "file", PARTITION_STORAGE, object, "file", &config.storage);
        let (input, window) = (self.spec.input(), config.duplicate_window);
        let at_least =
            |floor: Duration| (window.duration() >= floor, format!("{} or longer", Nanos::from(floor)));
        let (covers, expected) = at_least(publish_floor(input.publish_timeout));
        self.want(covers, PARTITION_DUPLICATE_WINDOW, object, expected, window);
        if let Some((covers, expected)) = dedupe_floor(input.dedupe_lease).map(at_least) {
            self.want(covers, PARTITION_DUPLICATE_WINDOW_DEDUPE, object, expected, window);
        }
        let persist = or_default(&config.persist_mode);
        self.want(persist != "async", PARTITION_PERSIST, object, "default", persist);
        let denied = config.deny_purge && config.deny_delete;
        let found = format!("{}, deny_delete is {}", config.deny_purge, config.deny_delete);
        self.want(denied, PARTITION_DENY, object, "true, both", found);
    }

    /// What would keep rows out, or let in others.
    fn partition_taking(&mut self, object: &str, config: &StreamConfig) {
        self.want(!config.no_ack, PARTITION_NO_ACK, object, "false", "true");
        self.want(!config.sealed, PARTITION_SEALED, object, "false", "true");
        self.want(config.mirror.is_none(), PARTITION_MIRROR, object, "unset", "set");
        self.want(config.sources.is_empty(), PARTITION_SOURCES, object, "unset", "set");
        self.want(config.subject_transform.is_none(), PARTITION_TRANSFORM, object, "unset", "set");
        self.want(!config.allow_msg_counter, PARTITION_COUNTER, object, "false", "true");
    }

    fn partition_bounds(&mut self, object: &str, config: &StreamConfig) {
        let capped = config.max_msgs_per_subject > 0;
        let refuses = config.discard_new_per_subject;
        self.want(!capped || refuses, PARTITION_CAP_DISCARD, object, "true", "false");
        self.want(capped, PARTITION_CAP, object, TOPIC_MESSAGES_MAX, "unset");
        self.want(config.max_msgs <= 0, PARTITION_MAX_MSGS, object, "unset", config.max_msgs);
        self.message_size(PARTITION_MAX_MSG_SIZE, object, config);
    }

    fn partition_metadata(&mut self, partition: PartitionId, object: &str, config: &StreamConfig) {
        let placement = self.spec.placement();
        let numbers = [(PARTITION_KEY, partition.0), (PARTITIONS_KEY, placement.partitions())];
        let missing: Vec<_> =
            numbers.iter().map(|(key, _)| *key).filter(|key| !config.metadata.contains_key(*key)).collect();
        let expected = format!("with {}", listed(&numbers.map(|(key, number)| format!("{key}: {number}"))));
        let found = format!("without {}", listed(&missing));
        self.want(missing.is_empty(), PARTITION_METADATA_MISSING, object, &expected, found);
        let wrong: Vec<_> = numbers
            .iter()
            .filter_map(|(key, number)| Some((key, config.metadata.get(*key)?, number.to_string())))
            .filter(|(_, found, number)| *found != number)
            .map(|(key, found, _)| format!("{key}: {found}"))
            .collect();
        self.want(
            wrong.is_empty(),
            PARTITION_METADATA_WRONG,
            object,
            expected,
            format_args!("with {}", listed(&wrong)),
        );
        let shards = placement.shards().to_string();
        let expected = format!("with {SHARDS_KEY}: {shards}");
        match config.metadata.get(SHARDS_KEY) {
            None => {
                let found = format!("without {SHARDS_KEY}");
                self.want(false, PARTITION_SHARDS_MISSING, object, expected, found);
            }
            Some(found) => {
                let right = *found == shards;
                let found = format!("with {SHARDS_KEY}: {found}");
                self.want(right, PARTITION_SHARDS_WRONG, object, expected, found);
            }
        }
    }

    /// No stream may hold two partitions.
    pub(super) fn shared_streams(&mut self, streams: &[(PartitionId, &StreamObserved)]) {
        for (at, (partition, stream)) in streams.iter().enumerate() {
            let before = streams.iter().take(at).find(|(_, before)| before.name() == stream.name());
            if let Some((first, _)) = before {
                let found = format!("holding partitions {} and {}", first.0, partition.0);
                let object = format!("stream {}", stream.name());
                self.want(false, PARTITION_SHARED, &object, "holding one partition", found);
            }
        }
    }
}
