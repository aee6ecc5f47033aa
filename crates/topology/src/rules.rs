//! The rules: what each is called, how bad a breach is, which field it is about, and what for.

use crate::finding::Severity;

/// What mends a breach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mend {
    /// Applying the generated manifests.
    Apply,
    /// The field cannot be changed: the stream must be drained, removed and made again.
    Rebuild,
    /// The field cannot be changed, and removing a durable loses no row.
    RebuildDurable,
    /// Giving the user the generated permissions.
    Permissions,
    /// What it says.
    Say(&'static str),
}

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Its name, which does not change.
    pub id: &'static str,
    /// How bad a breach is.
    pub severity: Severity,
    /// The field that it is about.
    pub field: &'static str,
    /// What it is for.
    pub why: &'static str,
    /// What mends a breach.
    pub mend: Mend,
}

macro_rules! rules {
    ($($name:ident $severity:ident $id:literal $field:literal $mend:expr, $why:literal;)*) => {
        $(pub(crate) const $name: Rule = Rule {
            id: $id, severity: Severity::$severity, field: $field, why: $why, mend: $mend,
        };)*
        /// Every rule there is.
        pub const RULES: &[Rule] = &[$($name),*];
    };
}

const COUNTS: Mend =
    Mend::Say("set mq.nats.partitions to what the servers have, or apply the manifests of the new count");
const SHARDS: Mend =
    Mend::Say("set mq.nats.shards to what the servers have, or apply the manifests of the new count");
const UPGRADE: Mend = Mend::Say("run nats-server 2.14.6 or a later 2.14");
const REMOVE: Mend = Mend::Say("remove the field from the object's configuration");
const DRAINED: Mend = Mend::Say(
    "once it is empty and no process of the older counts runs, remove it with operator credentials",
);
const PAYLOAD: Mend = Mend::Say("set max_payload to 1MB in the servers' configuration");

rules! {
    SERVER_VERSION_UNREADABLE Required "server-version-unreadable" "version" UPGRADE,
        "pinned readers and resets need 2.14.0";
    SERVER_VERSION_OLD Required "server-version-old" "version" UPGRADE, "pinned readers and resets need 2.14.0";
    SERVER_VERSION_UNTESTED Recommended "server-version-untested" "version" UPGRADE, "no other line is tested";
    SERVER_UNREACHED Recommended "server-unreached" "version" Mend::Say("see that every server can be reached"),
        "another server may lead a durable and be too old";
    SERVER_MAX_PAYLOAD_SMALL Required "server-max-payload-small" "max_payload" PAYLOAD,
        "blocks of rows must fit one message";
    SERVER_MAX_PAYLOAD_LOW Recommended "server-max-payload-low" "max_payload" PAYLOAD,
        "rows are refused that fit elsewhere";

    PARTITION_MISSING Required "partition-missing" "subjects" Mend::Apply, "its rows have no place";
    PARTITION_AMBIGUOUS Required "partition-ambiguous" "subjects"
        Mend::Say("take the partition's subjects out of all streams but one"), "exactly one may hold a partition";
    PARTITION_GONE Required "partition-gone" "name" Mend::Apply, "the stream went away while it was read";
    PARTITION_SUBJECTS Required "partition-subjects" "subjects" Mend::Apply, "every row of the partition needs a place";
    PARTITION_RETENTION Required "partition-retention" "retention" Mend::Rebuild, "a row stays until it is acked";
    PARTITION_REPUBLISH_MISSING Required "partition-republish-missing" "republish" Mend::Apply,
        "the history gets nothing without it";
    PARTITION_REPUBLISH_WRONG Required "partition-republish-wrong" "republish" Mend::Apply,
        "the history keeps rows by topic alone";
    PARTITION_REPUBLISH_HEADERS Required "partition-republish-headers-only" "republish" Mend::Apply,
        "the history needs the rows themselves";
    PARTITION_DISCARD Required "partition-discard" "discard" Mend::Apply,
        "a full partition refuses new rows and drops none";
    PARTITION_MAX_BYTES Required "partition-max-bytes" "max_bytes" Mend::Apply,
        "a bound keeps the disk and tells clients to wait";
    PARTITION_MAX_AGE Required "partition-max-age" "max_age" Mend::Apply, "rows that are not written yet would be dropped";
    PARTITION_STORAGE Required "partition-storage" "storage" Mend::Rebuild, "rows must survive a restart";
    PARTITION_DUPLICATE_WINDOW Required "partition-duplicate-window" "duplicate_window" Mend::Apply,
        "every attempt of a publish is stored once";
    PARTITION_DUPLICATE_WINDOW_DEDUPE Required "partition-duplicate-window-dedupe" "duplicate_window" Mend::Apply,
        "a row id must stay known until its claim of dedupe.lease has ended and the client has tried again";
    PARTITION_NO_ACK Required "partition-no-ack" "no_ack" Mend::Apply, "an accepted row must be known to be stored";
    PARTITION_SEALED Required "partition-sealed" "sealed" Mend::Rebuild, "a sealed stream takes no rows";
    PARTITION_MIRROR Required "partition-mirror" "mirror" Mend::Rebuild, "a mirror takes no rows";
    PARTITION_SOURCES Required "partition-sources" "sources" Mend::Apply,
        "rows that come from elsewhere are checked by nobody";
    PARTITION_TRANSFORM Required "partition-subject-transform" "subject_transform" Mend::Apply,
        "the subject is the row's table";
    PARTITION_COUNTER Required "partition-msg-counter" "allow_msg_counter" Mend::Rebuild,
        "a stream of counters takes no rows";
    PARTITION_CAP_DISCARD Required "partition-topic-cap-discard" "discard_new_per_subject" Mend::Apply,
        "else a topic at its cap loses its oldest rows, unwritten";
    PARTITION_CAP Recommended "partition-topic-cap" "max_msgs_per_subject" Mend::Apply,
        "one topic could fill the partition for all";
    PARTITION_DENY Recommended "partition-deny" "deny_purge" Mend::Apply, "nobody should remove rows that are not written";
    PARTITION_PERSIST Required "partition-persist-mode" "persist_mode" Mend::Rebuild,
        "the answer would come before the write";
    PARTITION_MAX_MSGS Recommended "partition-max-msgs" "max_msgs" Mend::Apply,
        "rows would be refused while there is room, since a message holds any number of rows";
    PARTITION_MAX_MSG_SIZE Required "partition-max-msg-size" "max_msg_size" Mend::Apply,
        "blocks that the servers take would be refused by the stream";
    PARTITION_REPLICAS_ONE Recommended "partition-replicas-one" "num_replicas" Mend::Apply,
        "an accepted row rests on one disk, and on its sync_interval; have 3, in different failure domains";
    PARTITION_REPLICAS_TWO Recommended "partition-replicas-two" "num_replicas" Mend::Apply,
        "two servers have no majority when one is lost";
    PARTITION_METADATA_MISSING Recommended "partition-metadata-missing" "metadata" Mend::Apply,
        "it lets a process notice that its counts are not the servers'";
    PARTITION_METADATA_WRONG Required "partition-metadata-wrong" "metadata" COUNTS,
        "rows would go where no other process looks for them";
    PARTITION_SHARDS_MISSING Recommended "partition-shards-missing" "metadata" Mend::Apply,
        "it lets a process notice that its counts are not the servers'";
    PARTITION_SHARDS_WRONG Required "partition-shards-wrong" "metadata" SHARDS,
        "rows would go where no other process looks for them";
    PARTITION_SHARED Required "partition-shared" "subjects" Mend::Rebuild, "each partition needs a stream of its own";
    STREAM_UNKNOWN_FIELD Recommended "stream-unknown-field" "config" REMOVE, "nobody knows what it does to the rows";

    DURABLE_MISSING Required "durable-missing" "durable_name" Mend::Apply, "nobody can read the shard";
    DURABLE_PUSH Required "durable-push" "deliver_subject" Mend::RebuildDurable, "readers pull";
    DURABLE_ACK_POLICY Required "durable-ack-policy" "ack_policy" Mend::RebuildDurable, "each block is acked by itself";
    DURABLE_ACK_WAIT Required "durable-ack-wait" "ack_wait" Mend::Apply,
        "rows come back while the worker still holds them";
    DURABLE_BACKOFF Required "durable-backoff" "backoff" Mend::Apply, "it takes the place of ack_wait";
    DURABLE_MAX_DELIVER Required "durable-max-deliver" "max_deliver" Mend::Apply,
        "rows wait out an outage, however long";
    DURABLE_PENDING Required "durable-max-ack-pending" "max_ack_pending" Mend::Apply, "what is held must be bounded";
    DURABLE_PENDING_LOW Recommended "durable-max-ack-pending-low" "max_ack_pending" Mend::Apply,
        "one slow table would hold up the shard";
    DURABLE_DELIVER_POLICY Required "durable-deliver-policy" "deliver_policy" Mend::RebuildDurable,
        "no row may be left out";
    DURABLE_FILTER Required "durable-filter" "filter_subject" Mend::Apply, "a durable reads its shard and nothing else";
    DURABLE_HEADERS Required "durable-headers-only" "headers_only" Mend::Apply, "the rows are in the body";
    DURABLE_REPLAY Required "durable-replay-policy" "replay_policy" Mend::RebuildDurable,
        "rows are not held back to their old pace";
    DURABLE_INACTIVE Required "durable-inactive-threshold" "inactive_threshold" Mend::Apply,
        "the servers would remove it when nobody reads";
    DURABLE_EXPIRES Required "durable-max-expires" "max_expires" Mend::Apply, "a pull must outlast the renewal of a pin";
    DURABLE_BATCH Required "durable-max-request-batch" "max_request_batch" Mend::Apply, "larger pulls are refused";
    DURABLE_BYTES Required "durable-max-bytes" "max_bytes" Mend::Apply,
        "pulls are refused, and a message that is larger is never delivered, nor anything behind it";
    DURABLE_WAITING Required "durable-max-waiting" "max_waiting" Mend::RebuildDurable,
        "every member may have a pull waiting while units change hands";
    DURABLE_PAUSED Required "durable-paused" "pause_until" Mend::Apply, "nothing is delivered until then";
    DURABLE_MEMORY Recommended "durable-mem-storage" "mem_storage" Mend::Apply,
        "what was acked is forgotten when its server restarts, and comes again";
    DURABLE_REPLICAS Recommended "durable-num-replicas" "num_replicas" Mend::Apply,
        "the shard stands still when a server is lost that the stream survives";
    DURABLE_PRIORITY_POLICY Required "durable-priority-policy" "priority_policy" Mend::RebuildDurable,
        "one reader at a time keeps rows in order";
    DURABLE_PRIORITY_GROUPS Required "durable-priority-groups" "priority_groups" Mend::RebuildDurable,
        "readers pin themselves in this group";
    DURABLE_PINNED_SHORT Required "durable-pinned-ttl-short" "priority_timeout" Mend::Apply,
        "a reader that misses one renewal would lose its pin";
    DURABLE_PINNED_LONG Recommended "durable-pinned-ttl-long" "priority_timeout" Mend::Apply,
        "a pin that outlives a lease delays every takeover";
    DURABLE_UNKNOWN_FIELD Recommended "durable-unknown-field" "config" REMOVE, "nobody knows what it does to the rows";

    EXTRA_STREAM Recommended "extra-stream" "subjects"
        Mend::Say("raise mq.nats.partitions, or drain it by hand and remove it with operator credentials"),
        "nothing drains its rows";
    EXTRA_DURABLE Recommended "extra-durable" "durable_name" DRAINED, "the workers drain what older counts left in it";

    HISTORY_MISSING Required "history-missing" "name" Mend::Apply, "live streams read it";
    HISTORY_SUBJECTS Required "history-subjects" "subjects" Mend::Apply, "it holds what partitions republish, and that alone";
    HISTORY_SOURCES Required "history-sources" "sources" Mend::Rebuild, "it gets each row once, from its partition";
    HISTORY_RETENTION Required "history-retention" "retention" Mend::Rebuild, "many readers read the same rows";
    HISTORY_TRANSFORM Required "history-subject-transform" "subject_transform" Mend::Apply,
        "the subject is the row's table";
    HISTORY_DISCARD Recommended "history-discard" "discard" Mend::Apply, "a full history should lose its oldest rows";
    HISTORY_MAX_AGE Required "history-max-age" "max_age" Mend::Apply, "rows must leave it at some time";
    HISTORY_MAX_BYTES Recommended "history-max-bytes" "max_bytes" Mend::Apply, "a bound keeps the disk";
    HISTORY_MAX_MSGS Recommended "history-max-msgs" "max_msgs" Mend::Apply,
        "rows leave early, since a message holds any number of rows";
    HISTORY_MAX_MSG_SIZE Recommended "history-max-msg-size" "max_msg_size" Mend::Apply,
        "larger blocks never reach live streams";
    HISTORY_REPLICAS_ONE Recommended "history-replicas-one" "num_replicas" Mend::Apply, "it is lost with one server";
    HISTORY_REPLICAS_TWO Recommended "history-replicas-two" "num_replicas" Mend::Apply,
        "two servers have no majority when one is lost";

    LETTERS_HOLDER Required "dlq-stream" "subjects" Mend::Apply, "exactly one stream holds the dead letters";
    LETTERS_SUBJECTS Required "dlq-subjects" "subjects" Mend::Apply, "every dead letter needs a place";
    LETTERS_RETENTION Required "dlq-retention" "retention" Mend::Rebuild, "letters stay until they are removed";
    LETTERS_DISCARD Required "dlq-discard" "discard" Mend::Apply, "a full stream would stop the worker";
    LETTERS_STORAGE Required "dlq-storage" "storage" Mend::Rebuild, "letters must survive a restart";
    LETTERS_MAX_BYTES Required "dlq-max-bytes" "max_bytes" Mend::Apply, "a bound keeps the disk";
    LETTERS_CAP Recommended "dlq-topic-cap" "max_msgs_per_subject" Mend::Apply,
        "a flood should push out letters of its own topic";
    LETTERS_PERSIST Recommended "dlq-persist-mode" "persist_mode" Mend::Rebuild, "the answer would come before the write";
    LETTERS_TRANSFORM Required "dlq-subject-transform" "subject_transform" Mend::Apply, "the subject is the letter's table";
    LETTERS_MAX_MSGS Recommended "dlq-max-msgs" "max_msgs" Mend::Apply, "letters of all tables would be lost to a flood of one";
    LETTERS_MAX_MSG_SIZE Required "dlq-max-msg-size" "max_msg_size" Mend::Apply,
        "a row that cannot be buried holds up its shard";
    LETTERS_NAME Recommended "dlq-name" "name" Mend::Say("set mq.nats.dlq_stream to its name, and give --dlq-stream to mq permissions"),
        "letters are read and removed by name";
    LETTERS_DENY_DELETE Recommended "dlq-deny-delete" "deny_delete" Mend::Rebuild, "letters cannot be removed one by one";
    LETTERS_REPLICAS_ONE Recommended "dlq-replicas-one" "num_replicas" Mend::Apply, "letters are lost with one server";
    LETTERS_REPLICAS_TWO Recommended "dlq-replicas-two" "num_replicas" Mend::Apply,
        "two servers have no majority when one is lost";

    BUCKET_MISSING Required "bucket-missing" "bucket" Mend::Apply, "members share the units by leases";
    BUCKET_HISTORY Required "bucket-history" "history" Mend::Apply, "a lease must keep its last value";
    BUCKET_DIRECT Required "bucket-allow-direct" "allow_direct" Mend::Apply, "leases are read directly";
    BUCKET_TTL Required "bucket-ttl" "ttl" Mend::Apply, "a lease ends by its own rules, not by the servers' clock";
    BUCKET_STORAGE Recommended "bucket-storage" "storage" Mend::Rebuild, "leases should survive a restart";
    BUCKET_REPLICAS Recommended "bucket-replicas" "num_replicas" Mend::Apply, "no unit can change hands without the bucket";

    PERMISSION_DURABLE Required "permission-durable" "permissions" Mend::Permissions,
        "a refused pull is never answered, as if the servers were gone";
    PERMISSION_LETTERS Recommended "permission-dlq" "permissions" Mend::Permissions,
        "dead letters can be neither read nor removed";
    PERMISSION_LIVE Recommended "permission-live" "permissions" Mend::Permissions,
        "a dead process is noticed only when its lease ends";
}
