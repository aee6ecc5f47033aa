//! Rules about the durables that shards are read through.

use std::fmt::Display;

use wavehouse_core::{PartitionId, ShardId, UnitId};

use super::{Check, listed, or_default, or_unset};
use crate::config::{ConsumerConfig, Nanos};
use crate::limits::{
    ACK_PENDING_MAX, ACK_WAIT, LEASE_DURATION, PIN_RENEWAL, PINNED_TTL_MIN, PRIORITY_GROUP,
    PULL_MESSAGES_MAX, PULLS_WAITING_MIN,
};
use crate::observed::{ConsumerInfo, StreamObserved};
use crate::rules::{
    DURABLE_ACK_POLICY, DURABLE_ACK_WAIT, DURABLE_BACKOFF, DURABLE_BATCH, DURABLE_BYTES,
    DURABLE_DELIVER_POLICY, DURABLE_EXPIRES, DURABLE_FILTER, DURABLE_HEADERS, DURABLE_INACTIVE,
    DURABLE_MAX_DELIVER, DURABLE_MEMORY, DURABLE_MISSING, DURABLE_PAUSED, DURABLE_PENDING,
    DURABLE_PENDING_LOW, DURABLE_PINNED_LONG, DURABLE_PINNED_SHORT, DURABLE_PRIORITY_GROUPS,
    DURABLE_PRIORITY_POLICY, DURABLE_PUSH, DURABLE_REPLAY, DURABLE_REPLICAS, DURABLE_UNKNOWN_FIELD,
    DURABLE_WAITING,
};

/// A duration that must be reached.
fn at_least(floor: std::time::Duration) -> impl Display {
    format!("{} or longer", Nanos::from(floor))
}

impl Check<'_> {
    pub(super) fn durables(&mut self, partition: PartitionId, stream: &StreamObserved) {
        for shard in (0..self.spec.placement().shards()).map(ShardId) {
            let durable = self.spec.durable(shard);
            let object = format!("consumer {}/{durable}", stream.name());
            let Some(consumer) = stream.consumer(&durable) else {
                self.want(false, DURABLE_MISSING, &object, "there", "missing");
                continue;
            };
            let unit = UnitId { partition, shard };
            self.durable_delivery(unit, &object, consumer);
            self.durable_acks(&object, &consumer.config);
            self.durable_pulls(&object, &consumer.config);
            self.durable_pin(&object, &consumer.config);
            self.durable_keeping(&object, &consumer.config, stream.info.config.num_replicas);
        }
    }

    fn durable_delivery(&mut self, unit: UnitId, object: &str, consumer: &ConsumerInfo) {
        let config = &consumer.config;
        let pulls = config.deliver_subject.is_empty();
        self.want(pulls, DURABLE_PUSH, object, "unset", &config.deliver_subject);
        self.want(
            config.deliver_policy == "all",
            DURABLE_DELIVER_POLICY,
            object,
            "all",
            &config.deliver_policy,
        );
        let (filter, filters) = (self.spec.prefix().unit_filter(unit), config.filters());
        self.want(filters == [filter.as_str()], DURABLE_FILTER, object, &filter, listed(&filters));
        self.want(!config.headers_only, DURABLE_HEADERS, object, "false", "true");
        self.want(
            config.replay_policy == "instant",
            DURABLE_REPLAY,
            object,
            "instant",
            &config.replay_policy,
        );
        // A pause that is over is still in the configuration and does no harm.
        let until = config.pause_until.as_deref().unwrap_or("some time");
        self.want(!consumer.paused, DURABLE_PAUSED, object, "in the past", until);
    }

    fn durable_acks(&mut self, object: &str, config: &ConsumerConfig) {
        self.want(
            config.ack_policy == "explicit",
            DURABLE_ACK_POLICY,
            object,
            "explicit",
            &config.ack_policy,
        );
        let long = config.ack_wait.duration() >= ACK_WAIT;
        self.want(long, DURABLE_ACK_WAIT, object, at_least(ACK_WAIT), config.ack_wait);
        let backoff: Vec<_> = config.backoff.iter().map(ToString::to_string).collect();
        self.want(backoff.is_empty(), DURABLE_BACKOFF, object, "unset", listed(&backoff));
        self.want(config.max_deliver == -1, DURABLE_MAX_DELIVER, object, "-1", config.max_deliver);
        let pending = config.max_ack_pending;
        self.want(pending > 0, DURABLE_PENDING, object, ACK_PENDING_MAX, or_unset(pending));
        let low = (1..ACK_PENDING_MAX).contains(&pending);
        self.want(!low, DURABLE_PENDING_LOW, object, format_args!("{ACK_PENDING_MAX} or more"), pending);
    }

    fn durable_pulls(&mut self, object: &str, config: &ConsumerConfig) {
        let expires = config.max_expires;
        let long = expires.is_unset() || expires.duration() >= PIN_RENEWAL;
        self.want(long, DURABLE_EXPIRES, object, format_args!("unset or {}", at_least(PIN_RENEWAL)), expires);
        let mut bound = |number: i64, floor: i64, rule| {
            let expected = format!("unset or at least {floor}");
            self.want(number <= 0 || number >= floor, rule, object, expected, number);
        };
        bound(config.max_batch, PULL_MESSAGES_MAX, DURABLE_BATCH);
        bound(config.max_waiting, PULLS_WAITING_MIN, DURABLE_WAITING);
        let pull_bytes = i64::try_from(self.spec.input().pull_bytes).unwrap_or(i64::MAX);
        let expected = format!("unset or at least {pull_bytes}");
        let fits = config.max_bytes <= 0 || config.max_bytes >= pull_bytes;
        self.want(fits, DURABLE_BYTES, object, expected, config.max_bytes);
    }

    fn durable_pin(&mut self, object: &str, config: &ConsumerConfig) {
        let pinned = config.priority_policy == "pinned_client";
        let found = or_default(&config.priority_policy);
        self.want(pinned, DURABLE_PRIORITY_POLICY, object, "pinned_client", found);
        let groups = &config.priority_groups;
        let ours = *groups == [PRIORITY_GROUP];
        self.want(ours, DURABLE_PRIORITY_GROUPS, object, listed(&[PRIORITY_GROUP]), listed(groups));
        let ttl = config.priority_timeout;
        let short = pinned && ttl.duration() < PINNED_TTL_MIN;
        self.want(!short, DURABLE_PINNED_SHORT, object, at_least(PINNED_TTL_MIN), ttl);
        let long = pinned && ttl.duration() >= LEASE_DURATION;
        let expected = format!("shorter than {}", Nanos::from(LEASE_DURATION));
        self.want(!long, DURABLE_PINNED_LONG, object, expected, ttl);
    }

    fn durable_keeping(&mut self, object: &str, config: &ConsumerConfig, of_stream: u32) {
        let idle = config.inactive_threshold;
        self.want(idle.is_unset(), DURABLE_INACTIVE, object, "unset", idle);
        self.want(!config.mem_storage, DURABLE_MEMORY, object, "false", "true");
        let replicas = config.num_replicas;
        let same = replicas == 0 || replicas >= of_stream;
        self.want(same, DURABLE_REPLICAS, object, format_args!("unset or {of_stream}"), replicas);
        for field in config.unknown_fields() {
            let found = format!("with an unknown {field}");
            self.want(false, DURABLE_UNKNOWN_FIELD, object, "without it", found);
        }
    }
}
