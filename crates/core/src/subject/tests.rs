//! Every subject comes back as what it was made from, and what is not of the queue is never dropped.

use proptest::prelude::*;

use super::*;
use crate::assign::MemberSlot;
use crate::ids::{Scope, ShardId, TableName, TableRef};

fn prefix() -> SubjectPrefix {
    SubjectPrefix::parse("wh").unwrap()
}

fn topic(tenant: &str, table: &str, scope: &str) -> Topic {
    Topic {
        table: TableRef::new(TenantId::parse(tenant).unwrap(), TableName::parse(table).unwrap()),
        scope: Scope::parse(scope).unwrap(),
    }
}

fn unit(partition: u16, shard: u16) -> UnitId {
    UnitId { partition: PartitionId(partition), shard: ShardId(shard) }
}

#[test]
fn prefixes_are_one_lower_case_token() {
    for good in ["wh", "a-b_9", "0", "-"] {
        assert_eq!(SubjectPrefix::parse(good).unwrap().as_str(), good);
    }
    for bad in ["", "WH", "a.b", "a b", "é", "*", ">", "$JS"] {
        assert_eq!(SubjectPrefix::parse(bad), Err(PrefixError(bad.to_owned())));
    }
}

#[test]
fn subjects_are_written_as_the_grammar_says() {
    let (wh, plain, scoped) =
        (prefix(), topic("acme", "page views", ""), topic("acme", "page views", "eu.west"));
    assert_eq!(wh.ingest(unit(3, 17), &plain), "wh.ingest.3.17.acme.page%20views");
    assert_eq!(wh.ingest(unit(0, 0), &scoped), "wh.ingest.0.0.acme.page%20views.eu%2Ewest");
    assert_eq!(wh.history(&scoped), "wh.hist.acme.page%20views.eu%2Ewest");
    assert_eq!(wh.dead_letter(&plain), "wh.dlq.acme.page%20views");
    assert_eq!(wh.dead_letters_of(&plain.table.tenant), "wh.dlq.acme.>");
    assert_eq!(wh.live("s1"), "wh.live.s1");
    assert_eq!(wh.partition_filter(PartitionId(2)), "wh.ingest.2.>");
    assert_eq!(wh.unit_filter(unit(2, 5)), "wh.ingest.2.5.>");
    assert_eq!(wh.republish_source(PartitionId(2)), "wh.ingest.2.*.>");
    assert_eq!(wh.partition_probe(PartitionId(2)), "wh.ingest.2.x");
    assert_eq!(wh.dead_letter_probe(), "wh.dlq.x");
    let filters = [wh.ingest_filter(), wh.history_filter(), wh.dead_letter_filter(), wh.live_filter()];
    assert_eq!(filters, ["wh.ingest.>", "wh.hist.>", "wh.dlq.>", "wh.live.>"]);
}

#[test]
fn keys_of_every_age_are_read() {
    let known = |tenant, table, scope| TopicKey::Known(topic(tenant, table, scope));
    let cases = [
        ("acme.events", known("acme", "events", "")),
        ("acme.a%2Eb.s", known("acme", "a.b", "s")),
        ("events", known("0", "events", "")),
        ("a%2Db", known("0", "a-b", "")),
        ("acme.a%2db", known("acme", "a-b", "")),
    ];
    for (tail, expected) in cases {
        assert_eq!(TopicKey::parse(tail), expected, "{tail}");
    }
    let long = "x".repeat(256);
    let unknown = [
        "",
        "a.b.c.d",
        "%",
        "acme.%GG",
        "ac%20me.events",
        "acme.",
        ".events",
        "acme.t.",
        "%FF",
        "t%0A",
        &long,
    ];
    for tail in unknown {
        assert_eq!(TopicKey::parse(tail), TopicKey::Unknown(tail.to_owned()), "{tail}");
    }
}

#[test]
fn a_key_is_recovered_from_any_subject() {
    let wh = prefix();
    let known = TopicKey::Known(topic("acme", "events", ""));
    for subject in [
        "wh.dlq.acme.events",
        "wh.hist.acme.events",
        "wh.ingest.0.0.acme.events",
        "wh.ingest.2147483647.9.acme.events",
    ] {
        assert_eq!(wh.topic_key(subject), known, "{subject}");
        assert_eq!(wh.dead_letter_of(subject), "wh.dlq.acme.events");
    }
    // The key is the whole subject when nothing matches.
    for subject in [
        "wh.ingest.x.0.acme.events",
        "wh.ingest.2147483648.0.acme.events",
        "wh.ingest.+1.0.acme.events",
        "wh.ingest.1.-0.acme.events",
        "wh.ingest.0.0.",
        "wh.ingest.0.0",
        "wh.hist.",
        "wh.other.acme.events",
        "whx.dlq.acme.events",
    ] {
        assert_eq!(wh.parse_subject(subject), None, "{subject}");
        assert_eq!(wh.topic_key(subject), TopicKey::parse(subject), "{subject}");
    }
    assert_eq!(
        wh.parse_subject("wh.ingest.3.17.acme.events"),
        Some(Subject::Ingest { partition: 3, shard: 17, key: known })
    );
}

#[test]
fn lease_keys_come_back() {
    let cases = [
        (LeaseKey::Member(MemberSlot(0)), "$KV.wh_coord.lease.ingest.m0"),
        (LeaseKey::Member(MemberSlot(63)), "$KV.wh_coord.lease.ingest.m63"),
        (LeaseKey::Batch(unit(3, 17)), "$KV.wh_coord.lease.batch.3.17"),
    ];
    for (key, subject) in cases {
        assert_eq!(lease_subject("wh_coord", key), subject);
        assert_eq!(LeaseKey::parse(&key.to_string()), Some(key));
        assert!(subjects_overlap(&lease_filter("wh_coord"), subject));
    }
    for other in
        ["", "lease.", "lease.ingest.m", "lease.ingest.m01", "lease.batch.1", "lease.batch.1.x", "ingest.m0"]
    {
        assert_eq!(LeaseKey::parse(other), None, "{other}");
    }
}

#[test]
fn patterns_overlap_where_a_subject_fits_both() {
    for (one, other) in [
        ("wh.ingest.0.>", "wh.ingest.0.x"),
        ("wh.>", "wh.ingest.0.x"),
        (">", "wh"),
        ("wh.*.0.x", "wh.ingest.0.x"),
        ("wh.ingest.*.>", "*.ingest.0.>"),
        ("a", "a"),
    ] {
        assert!(subjects_overlap(one, other) && subjects_overlap(other, one), "{one} {other}");
    }
    for (one, other) in [
        ("wh.ingest.0.>", "wh.ingest.1.x"),
        ("wh.ingest.0.>", "wh.ingest.0"),
        ("wh.ingest.*", "wh.ingest.0.x"),
        ("wh", "wh.x"),
    ] {
        assert!(!subjects_overlap(one, other) && !subjects_overlap(other, one), "{one} {other}");
    }
}

proptest! {
    #[test]
    fn every_topic_comes_back(
        tenant in "[A-Za-z0-9_-]{1,64}",
        table in "[^\\p{Cc}]{1,60}",
        scope in "[^\\p{Cc}]{0,60}",
        prefix in "[a-z0-9_-]{1,8}",
        (partition, shard) in (0_u16..1024, 0_u16..256),
    ) {
        let prefix = SubjectPrefix::parse(&prefix).unwrap();
        let topic = topic(&tenant, &table, &scope);
        let key = TopicKey::Known(topic.clone());
        let ingest = prefix.ingest(unit(partition, shard), &topic);
        prop_assert_eq!(
            prefix.parse_subject(&ingest),
            Some(Subject::Ingest { partition: partition.into(), shard: shard.into(), key: key.clone() })
        );
        prop_assert_eq!(prefix.parse_subject(&prefix.history(&topic)), Some(Subject::History(key.clone())));
        let letter = prefix.dead_letter(&topic);
        prop_assert_eq!(prefix.parse_subject(&letter), Some(Subject::DeadLetter(key)));
        prop_assert_eq!(prefix.dead_letter_of(&ingest), letter);
        prop_assert!(subjects_overlap(&ingest, &prefix.unit_filter(unit(partition, shard))));
    }

    #[test]
    fn any_subject_has_a_key(subject in any::<String>()) {
        let _key = prefix().topic_key(&subject);
    }
}
