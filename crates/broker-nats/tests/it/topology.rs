//! What is on the servers, looked at before the queue opens and while it is open.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use tokio::time::sleep;
use wavehouse_broker::{Broker, BrokerHealth, HistoryFilter, HistoryStart};
use wavehouse_broker_nats::{NatsBroker, OpenError, Options, observe};
use wavehouse_core::TenantId;
use wavehouse_nats::ConnectOptions;
use wavehouse_testkit::{NatsServer, free_port, wait_for};
use wavehouse_topology::{
    Desired, Finding, Permissions, Severity, TopologyInput, TopologySpec, permissions, verify,
};

use crate::publish::table;
use crate::stage::{LONG, Stage, config, input, spec};
use crate::units::{AMPLE, cut_of, next, pin, send};

/// What a look as the restricted user finds.
async fn findings(stage: &Stage) -> Vec<Finding> {
    let user = stage.user().await;
    let observed = observe(&user, &stage.spec).await.expect("a look");
    verify(&stage.spec, &observed)
}

/// Options of the restricted user that give up soon.
fn options(stage: &Stage) -> Options {
    options_at(&stage.spec, stage.server.url(), stage.server.dir())
}

fn options_at(spec: &TopologySpec, url: String, dir: &std::path::Path) -> Options {
    let password_file = dir.join("wavehouse.password");
    std::fs::write(&password_file, "wavehouse").expect("written");
    let connect = ConnectOptions {
        urls: vec![url],
        user: Some("wavehouse".to_owned()),
        password_file: Some(password_file),
        connect_timeout: Duration::from_secs(2),
        ..ConnectOptions::default()
    };
    let mut options = Options::new(spec.clone(), connect);
    options.topology_wait = Duration::from_millis(500);
    options.topology_recheck = Duration::from_millis(200);
    options
}

async fn refused(options: Options) -> OpenError {
    match NatsBroker::open(options).await {
        Ok(_) => panic!("the queue opens"),
        Err(error) => error,
    }
}

/// The generated permissions without the publishes that `out` says.
fn without(spec: &TopologySpec, out: impl Fn(&str) -> bool) -> Permissions {
    let mut allowed = permissions(spec);
    allowed.publish_allow.retain(|subject| !out(subject));
    allowed
}

async fn remove(stage: &Stage, verb: &str) {
    let removed = stage.operator.call::<Value>(verb, Bytes::new()).await;
    removed.unwrap_or_else(|error| panic!("{verb}: {error}"));
}

#[tokio::test]
async fn case_19_on_one_server_only_replicas_are_missed() {
    let stage = Stage::start(TopologyInput { partitions: 2, ..input() }).await;
    let found = findings(&stage).await;
    let rules: Vec<_> = found.iter().map(|finding| finding.rule).collect();
    let one =
        ["partition-replicas-one", "partition-replicas-one", "history-replicas-one", "dlq-replicas-one"];
    assert_eq!(rules, [&one[..], &["bucket-replicas"]].concat(), "{found:#?}");
}

#[tokio::test]
async fn case_23_the_operator_may_come_after_us() {
    let stage = Stage::bare(input()).await;
    let mut options = options(&stage);
    options.topology_wait = LONG;
    let open = NatsBroker::open(options);
    let provision = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.provision().await;
    };
    let (broker, ()) = tokio::join!(open, provision);
    broker.expect("the queue opens").close().await.expect("closed");
}

#[tokio::test]
async fn case_24_everything_that_is_amiss_is_told_at_once() {
    let stage = Stage::start(input()).await;
    for verb in
        ["STREAM.DELETE.WH_HISTORY", "STREAM.DELETE.KV_wh_coord", "CONSUMER.DELETE.WH_INGEST_0.wh-ingest-1"]
    {
        remove(&stage, verb).await;
    }
    let OpenError::Topology(error) = refused(options(&stage)).await else { panic!("another error") };
    let required: Vec<_> = error.0.iter().take_while(|one| one.severity == Severity::Required).collect();
    let rules: Vec<_> = required.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["durable-missing", "history-missing", "bucket-missing"], "{error}");
    assert!(error.0.len() > required.len(), "recommended ones come after: {error}");
    assert!(error.to_string().contains("WH_INGEST_0/wh-ingest-1"), "{error}");
}

#[tokio::test]
async fn case_54_servers_that_are_not_there_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("nats://127.0.0.1:{}", free_port());
    let started = Instant::now();
    let error = refused(options_at(&spec(input()), url.clone(), dir.path())).await;
    assert!(started.elapsed() < Duration::from_secs(10));
    let OpenError::NotConnected { urls, reason, .. } = &error else { panic!("{error}") };
    assert_eq!(*urls, url);
    assert!(reason.contains("nothing listens there"), "{reason}");
}

#[tokio::test]
async fn a_wrong_password_is_told() {
    let stage = Stage::start(input()).await;
    let options = options(&stage);
    std::fs::write(stage.server.dir().join("wavehouse.password"), "wrong").expect("written");
    let error = refused(options).await;
    let OpenError::NotConnected { reason, .. } = &error else { panic!("{error}") };
    assert!(reason.contains("authorization"), "{reason}");
}

#[tokio::test]
async fn case_37_permissions_for_fewer_shards_are_found_durable_by_durable() {
    let many = spec(TopologyInput { partitions: 4, shards: 16, ..input() });
    let few = permissions(&spec(TopologyInput { shards: 8, ..input() }));
    let stage = Stage::bare_with(&many, &few).await;
    stage.provision().await;
    let found = findings(&stage).await;
    let refused: Vec<_> = found.iter().filter(|finding| finding.rule == "permission-durable").collect();
    assert_eq!(refused.len(), 32);
    assert!(refused.iter().all(|finding| finding.severity == Severity::Required));
    let first = refused[0].to_string();
    for told in [
        "WH_INGEST_0/wh-ingest-8",
        "$JS.API.CONSUMER.MSG.NEXT.WH_INGEST_0.wh-ingest-8",
        "mq permissions --shards 16",
    ] {
        assert!(first.contains(told), "{told} is not in {first}");
    }
    let few_of_them = (0..8).map(|shard| format!("/wh-ingest-{shard}"));
    for durable in few_of_them {
        assert!(!refused.iter().any(|finding| finding.object.ends_with(&durable)), "{durable}");
    }
}

#[tokio::test]
async fn case_38_under_a_domain_the_refusal_is_found_too() {
    let of = |shards| TopologyInput { shards, js_domain: Some("hub".to_owned()), ..input() };
    let stage = Stage::bare_with(&spec(of(3)), &permissions(&spec(of(2)))).await;
    stage.provision().await;
    let found = findings(&stage).await;
    let refused: Vec<_> = found.iter().filter(|finding| finding.rule == "permission-durable").collect();
    let [refused] = refused[..] else { panic!("{found:#?}") };
    let told = refused.to_string();
    assert!(told.contains("$JS.API.CONSUMER.MSG.NEXT.WH_INGEST_0.wh-ingest-2"), "{told}");
    assert!(told.contains("--js-domain hub"), "{told}");
}

#[tokio::test]
async fn case_39_a_look_touches_nothing() {
    let stage = Stage::start(input()).await;
    let user = stage.user().await;
    for shard in 0..2 {
        let subject = format!("wh.ingest.0.{shard}.0.t");
        user.jetstream().publish(&subject, None, Bytes::from_static(b"row")).await.expect("stored");
    }
    observe(&user, &stage.spec).await.expect("a look");
    for durable in ["wh-ingest-0", "wh-ingest-1"] {
        let info = stage.operator.consumer_info("WH_INGEST_0", durable).await.expect("a durable");
        assert_eq!(
            (info.num_pending, info.num_ack_pending, info.delivered.stream_seq),
            (1, 0, 0),
            "{durable}"
        );
        assert!(info.priority_groups.iter().all(|group| group.pinned_client_id.is_empty()), "{info:?}");
    }
}

#[tokio::test]
async fn case_40_permissions_that_were_mended_count() {
    let few = permissions(&spec(TopologyInput { shards: 1, ..input() }));
    let mut stage = Stage::bare_with(&spec(input()), &few).await;
    stage.provision().await;
    let user = stage.user().await;
    let refused = observe(&user, &stage.spec).await.expect("a look").refusals;
    assert_eq!(refused.len(), 1, "{refused:?}");
    stage.server.reload(&config(&permissions(&stage.spec), None)).await;
    user.connected().await;
    let observed = observe(&user, &stage.spec).await.expect("a look");
    assert_eq!(observed.refusals, []);
}

#[tokio::test]
async fn what_may_not_be_looked_at_is_named_with_the_command_that_mends_it() {
    let spec = spec(input());
    let stage = Stage::bare_with(&spec, &without(&spec, |subject| subject.ends_with("STREAM.INFO.*"))).await;
    stage.provision().await;
    let error = refused(options(&stage)).await;
    let OpenError::Unchecked { reason } = &error else { panic!("{error}") };
    for told in ["$JS.API.STREAM.INFO.WH_INGEST_0", "wavehouse mq permissions --shards 2"] {
        assert!(reason.contains(told), "{told} is not in {reason}");
    }
}

#[tokio::test]
async fn letters_and_signs_of_life_that_are_not_permitted_are_advice() {
    let spec = spec(input());
    let out = |subject: &str| subject.contains("STREAM.MSG.") || subject.contains(".live.");
    let stage = Stage::bare_with(&spec, &without(&spec, out)).await;
    stage.provision().await;
    let found = findings(&stage).await;
    let rules: Vec<_> =
        found.iter().map(|finding| finding.rule).filter(|rule| rule.starts_with("perm")).collect();
    assert_eq!(rules, ["permission-dlq", "permission-live"], "{found:#?}");
    NatsBroker::open(options(&stage)).await.expect("the queue opens").close().await.expect("closed");
}

async fn wait_ok(broker: &NatsBroker, wanted: bool) {
    let ok = broker.topology_ok();
    wait_for(&format!("topology_ok to be {wanted}"), LONG, async || *ok.borrow() == wanted).await;
    let good = || matches!(*broker.health().borrow(), BrokerHealth::Good);
    wait_for("health to follow", LONG, async || good() == wanted).await;
}

#[tokio::test]
async fn case_56_what_goes_and_comes_back_is_seen() {
    let stage = Stage::start(input()).await;
    let broker = NatsBroker::open(options(&stage)).await.expect("the queue opens");
    wait_ok(&broker, true).await;
    remove(&stage, "STREAM.DELETE.WH_DLQ").await;
    wait_ok(&broker, false).await;
    stage.make_stream(&Desired::new(&stage.spec).expect("it fits").dead_letters).await;
    wait_ok(&broker, true).await;
    broker.close().await.expect("closed");
}

#[tokio::test]
async fn case_41_a_refused_request_of_a_consumer_is_seen_at_once_and_another_is_none() {
    let mut stage = Stage::start(input()).await;
    let mut options = options(&stage);
    options.topology_recheck = Duration::from_secs(3_600);
    let broker = NatsBroker::open(options).await.expect("the queue opens");
    let restrict = async |server: &mut NatsServer, out: &str| {
        server.reload(&config(&without(&stage.spec, |subject| subject.contains(out)), None)).await;
    };
    restrict(&mut stage.server, "STREAM.INFO").await;
    let counts = broker.letter_counts(&TenantId::default()).await;
    assert!(counts.is_err(), "{counts:?}");
    assert!(*broker.topology_ok().borrow(), "that does not touch the rows");

    restrict(&mut stage.server, "CONSUMER.CREATE").await;
    let open = broker.open_history(HistoryStart::Live, HistoryFilter::All);
    drop(tokio::time::timeout(LONG, open).await);
    wait_ok(&broker, false).await;
    broker.close().await.expect("closed");
}

#[tokio::test]
async fn the_versions_of_all_servers_are_known() {
    let stage = Stage::start(input()).await;
    let mut options = options(&stage).connect;
    let silent = format!("nats://127.0.0.1:{}", free_port());
    options.urls.push(silent.clone());
    options.inbox_prefix = "_INBOX_wh".to_owned();
    options.record_refusals_of = vec!["wh.live.".to_owned()];
    let user = wavehouse_nats::Connection::open(&options).await.expect("good options");
    assert!(user.connected().await);
    let observed = observe(&user, &stage.spec).await.expect("a look");
    let known: Vec<_> =
        observed.servers.iter().map(|one| (one.name.as_str(), one.version.is_some())).collect();
    let silent = silent.trim_start_matches("nats://");
    assert_eq!(known, [("", true), (silent, false)]);
    let found = verify(&stage.spec, &observed);
    assert!(found.iter().any(|finding| finding.rule == "server-unreached"), "{found:#?}");
}

/// A server with JetStream in a domain, and one without that leads there; clients connect to the latter as the user.
async fn leafnode(spec: &std::sync::Arc<TopologySpec>, allowed: &Permissions) -> (Stage, NatsServer) {
    leafnode_with(spec, allowed, "").await
}

/// The same, with more in both servers' configuration.
async fn leafnode_with(
    spec: &std::sync::Arc<TopologySpec>,
    allowed: &Permissions,
    more: &str,
) -> (Stage, NatsServer) {
    let port = free_port();
    let (hub, leaf) = (config(&permissions(spec), Some("hub")), config(allowed, None));
    let hub = format!("{hub}\n{more}\nleafnodes {{ listen: \"127.0.0.1:{port}\" }}\n");
    let stage = Stage::bare_as(spec, &hub).await;
    stage.provision().await;
    let (_, leaf) = leaf.split_once('\n').expect("JetStream's line, then accounts");
    let remote = format!("{{ url: \"nats-leaf://operator:operator@127.0.0.1:{port}\", account: A }}");
    let leaf = leaf.replace("jetstream: enabled, ", "");
    let leaf = NatsServer::start(&format!("{leaf}\n{more}\nleafnodes {{ remotes: [ {remote} ] }}\n")).await;
    wait_for("the leaf to be linked", LONG, async || leaf.log().contains("Leafnode connection created"))
        .await;
    (stage, leaf)
}

#[tokio::test]
async fn case_42_without_the_subjects_of_the_domain_a_leaf_refuses_what_it_names() {
    let spec = spec(TopologyInput { js_domain: Some("hub".to_owned()), ..input() });
    let plain = permissions(&crate::stage::spec(input()));
    let (_stage, leaf) = leafnode(&spec, &plain).await;
    let error = refused(options_at(&spec, leaf.url(), leaf.dir())).await;
    let told = error.to_string();
    for part in ["$JS.hub.API.", "wavehouse mq permissions", "--js-domain hub"] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
}

/// Opens, stores, reads, records, acks, holds a lease, and keeps the pin of a unit for longer than a pin lasts unrenewed.
async fn everything_works(spec: &TopologySpec, stage: &Stage, url: String, dir: &std::path::Path) {
    let broker = NatsBroker::open(options_at(spec, url, dir)).await.expect("the queue opens");
    wait_ok(&broker, true).await;
    let t = table("t");
    let unit = spec.placement().unit_for(&t);
    let (stream, durable) = (spec.partition_stream(unit.partition), spec.durable(unit.shard));
    send(&broker, &t, 0..3).await;
    let mut opened = broker.open_unit(unit, AMPLE).await.expect("the unit opens");
    for number in 0..3 {
        let delivery = next(&mut opened).await;
        assert_eq!(delivery.stored().block.rows(), 1, "block {number}");
        opened.control.record_cut(cut_of(&delivery)).await.expect("recorded");
        delivery.ack();
    }
    wait_for("acks to free the partition", LONG, async || {
        stage.operator.stream_info(&stream).await.expect("it is there").state.messages == 0
    })
    .await;
    let pinned = pin(&stage.operator.consumer_info(&stream, &durable).await.expect("it is there"));
    assert!(!pinned.is_empty());
    let leases = broker.sharing().expect("units are shared").leases();
    let mut term = leases.create("lease.here", Bytes::from_static(b"0")).await.expect("a lease");
    for second in 0..12 {
        sleep(Duration::from_secs(1)).await;
        term = leases.update("lease.here", Bytes::from(second.to_string()), term).await.expect("renewed");
    }
    leases.delete("lease.here", term).await.expect("given back");
    let info = stage.operator.consumer_info(&stream, &durable).await.expect("it is there");
    assert_eq!(pin(&info), pinned, "the pin is kept");
    opened.control.release().await;
    broker.close().await.expect("closed");
}

#[tokio::test]
async fn case_43_everything_works_through_a_leaf_and_within_the_domain() {
    let spec = spec(TopologyInput { js_domain: Some("hub".to_owned()), ..input() });
    let layouts = ["", "feature_flags { js_ack_fc_v2: true }"].map(|more| {
        let spec = &spec;
        async move {
            let (stage, leaf) = leafnode_with(spec, &permissions(spec), more).await;
            everything_works(spec, &stage, leaf.url(), leaf.dir()).await;
            everything_works(spec, &stage, stage.server.url(), stage.server.dir()).await;
        }
    });
    let [v1, v2] = layouts;
    tokio::join!(v1, v2);
}
