//! Signs of life among processes on real servers, as the restricted user.

use std::time::Duration;

use tokio::time::timeout;
use wavehouse_broker::{Answer, Broker};
use wavehouse_broker_nats::NatsBroker;
use wavehouse_testkit::wait_for;
use wavehouse_topology::permissions;

use crate::fixture::{LONG, Line, Servers};
use crate::stage::{Stage, input, spec};

#[tokio::test]
async fn whoever_answers_is_alive_and_whoever_left_or_died_is_nobody() {
    let servers = Servers::start().await;
    let mut line = Line::to(servers.server.port()).await;
    let one = NatsBroker::open(servers.options_at(line.url())).await.expect("the queue opens");
    let (two, three) = (servers.open().await, servers.open().await);
    let sharing = [&one, &two, &three].map(|broker| broker.sharing().expect("units are shared"));
    let [first, second, third] = &sharing;
    for (sharing, name) in sharing.iter().zip(["first", "second", "third"]) {
        assert_eq!(sharing.answer_as(name).await, Ok(true));
    }
    assert_eq!(third.ask("first").await, Answer::Alive);
    assert_eq!(first.ask("first").await, Answer::Alive, "oneself, too");
    assert_eq!(third.ask("somebody").await, Answer::Nobody);
    for no_session in ["", "everybody", "re", "a.b", "*"] {
        assert_eq!(third.ask(no_session).await, Answer::Silence, "{no_session:?} is no session");
        assert!(third.answer_as(no_session).await.is_err(), "{no_session:?}");
    }
    assert_eq!(third.ask("third").await, Answer::Alive, "a refused name takes the old one from nobody");

    // A new session of the same process replaces its old one.
    assert_eq!(second.answer_as("second-again").await, Ok(true));
    assert_eq!(third.ask("second-again").await, Answer::Alive);
    wait_for("the old one to be nobody", LONG, async || third.ask("second").await == Answer::Nobody).await;

    line.cut().await;
    wait_for("the dead one to be nobody", LONG, async || third.ask("first").await == Answer::Nobody).await;
    two.close().await.unwrap();
    assert_eq!(third.ask("second-again").await, Answer::Nobody);
}

#[tokio::test]
async fn a_nudge_reaches_all_others_and_not_its_sender() {
    let servers = Servers::start().await;
    let brokers = [servers.open().await, servers.open().await, servers.open().await];
    let sharing = brokers.each_ref().map(|broker| broker.sharing().expect("units are shared"));
    for (sharing, name) in sharing.iter().zip(["a", "b", "c"]) {
        assert_eq!(sharing.answer_as(name).await, Ok(true));
    }
    let mut nudges = sharing.each_ref().map(|sharing| sharing.nudges());
    sharing[0].nudge().await;
    for nudged in &mut nudges[1..] {
        timeout(LONG, nudged.changed()).await.expect("in time").unwrap();
        assert_eq!(*nudged.borrow_and_update(), 1);
    }
    // One that comes later proves that the sender's own would have come by now.
    sharing[1].nudge().await;
    timeout(LONG, nudges[0].changed()).await.expect("in time").unwrap();
    assert_eq!(*nudges[0].borrow(), 1, "its own does not count");
}

#[tokio::test]
async fn without_permission_nothing_is_said_and_nothing_concluded() {
    let spec = spec(input());
    for (may_publish, may_subscribe) in [(false, false), (true, false), (false, true)] {
        let mut allowed = permissions(&spec);
        allowed.publish_allow.retain(|subject| may_publish || !subject.contains(".live."));
        allowed.subscribe_allow.retain(|subject| may_subscribe || !subject.contains(".live."));
        let stage = Stage::bare_with(&spec, &allowed).await;
        stage.provision().await;
        let options = crate::fixture::options(&spec, &stage.server, vec![stage.server.url()]);
        let broker =
            NatsBroker::open(options).await.expect("the queue opens: the signs are only recommended");
        let sharing = broker.sharing().expect("units are shared");
        let answer = timeout(Duration::from_secs(5), sharing.answer_as("one")).await.expect("told soon");
        assert_eq!(answer, Ok(false), "publish {may_publish}, subscribe {may_subscribe}");
        assert_eq!(sharing.ask("one").await, Answer::Silence, "silence is no proof");
        let nudges = sharing.nudges();
        sharing.nudge().await;
        assert!(!nudges.has_changed().unwrap());
        assert!(*broker.topology_ok().borrow(), "what is only recommended drops nothing");
        broker.close().await.unwrap();
    }
}
