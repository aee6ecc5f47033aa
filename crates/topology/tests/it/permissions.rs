//! The permission set, entry for entry.

use wavehouse_topology::{Permissions, TopologyInput, permissions};

use crate::kit::spec;

fn of(shards: u64, domain: Option<&str>) -> Permissions {
    let js_domain = domain.map(str::to_owned);
    permissions(&spec(TopologyInput { shards, js_domain, ..TopologyInput::default() }))
}

fn yaml(shards: u64, domain: Option<&str>) -> String {
    let js_domain = domain.map(str::to_owned);
    let spec = spec(TopologyInput { shards, js_domain, ..TopologyInput::default() });
    permissions(&spec).to_yaml(&spec)
}

#[test]
fn two_shards_word_for_word() {
    insta::assert_snapshot!("permissions", yaml(2, None));
}

#[test]
fn two_shards_under_a_domain_word_for_word() {
    insta::assert_snapshot!("permissions_domain", yaml(2, Some("hub")));
}

#[test]
fn entries_are_counted() {
    for (shards, allowed) in [(8, 55), (32, 175), (256, 1_295)] {
        let set = of(shards, None);
        assert_eq!(
            (set.publish_allow.len(), set.publish_deny.len(), set.subscribe_allow.len()),
            (allowed, 6, 2)
        );
    }
    let set = of(8, Some("hub"));
    assert_eq!((set.publish_allow.len(), set.publish_deny.len(), set.subscribe_allow.len()), (91, 11, 2));
}

#[test]
fn case_34_a_domain_only_adds_the_twin_of_every_request() {
    let (plain, domain) = (of(8, None), of(8, Some("hub")));
    for (plain, domain) in
        [(&plain.publish_allow, &domain.publish_allow), (&plain.publish_deny, &domain.publish_deny)]
    {
        let mut rest = domain.iter();
        for subject in plain {
            assert_eq!(rest.next(), Some(subject), "in the same order");
            if let Some(request) = subject.strip_prefix("$JS.API.") {
                assert_eq!(rest.next(), Some(&format!("$JS.hub.API.{request}")));
            }
            if subject.starts_with("$KV.") {
                assert_eq!(rest.next(), Some(&format!("$JS.hub.API.{subject}")));
            }
        }
        assert_eq!(rest.next(), None);
    }
    assert!(!domain.publish_allow.iter().any(|subject| subject == "$JS.ACK.>"));
    let two = TopologyInput { js_domain: Some("two.tokens".to_owned()), ..TopologyInput::default() };
    assert!(two.check().is_err());
}

// Case 86.
#[test]
fn no_wildcard_stands_for_a_part_of_a_token() {
    let set = of(8, Some("hub"));
    for subject in set.publish_allow.iter().chain(&set.publish_deny).chain(&set.subscribe_allow) {
        let tokens: Vec<_> = subject.split('.').collect();
        assert!(tokens.iter().all(|token| !token.contains(['*', '>']) || token.len() == 1), "{subject}");
        assert!(tokens.iter().rev().skip(1).all(|token| *token != ">"), "{subject}");
    }
}
