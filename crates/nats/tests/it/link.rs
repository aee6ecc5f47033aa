//! The connection: there at once, back for ever, closed for good; and a server that hangs.

use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wavehouse_nats::{CallError, Connection, Link};
use wavehouse_testkit::{NATS_VERSION, NatsServer, wait_for};

use crate::kit::{Kit, LONG, config, connect, options, wait_connected};

#[tokio::test]
async fn a_connection_is_there_before_its_server() {
    let mut server = NatsServer::start(&config("", None)).await;
    let options = options(&server, "wavehouse", "_INBOX_wh");
    server.kill9();
    let begun = Instant::now();
    let connection = Connection::open(&options).await.expect("good options");
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(!connection.is_connected());
    assert_eq!(connection.server(), None);
    let error = connection.jetstream().stream_names(None).await.expect_err("nobody is there");
    assert!(matches!(error, CallError::NotConnected { .. }), "{error}");
    assert_eq!(error.to_string(), "$JS.API.STREAM.NAMES: no server is connected");

    server.restart().await;
    assert!(connection.connected().await);
    let facts = wait_for("the server's facts", LONG, async || connection.server()).await;
    assert_eq!((facts.version.as_str(), facts.max_payload_bytes), (NATS_VERSION, 1_048_576));
    assert_eq!(connection.jetstream().stream_names(None).await.expect("an answer"), [] as [&str; 0]);
}

// Case 16.
#[tokio::test]
async fn it_comes_back_after_a_crash() {
    let mut kit = Kit::start("").await;
    let connection = kit.user.connection().clone();
    let before = *connection.link().borrow();
    let mut puller = kit.user.puller("WH_INGEST_0", "wh-ingest-0").await.expect("ready");
    kit.row(0, "t", "before").await;

    kit.server.kill9();
    wait_for("the loss to be seen", LONG, async || !connection.is_connected()).await;
    let error = kit.user.stream_info("WH_INGEST_0").await.expect_err("nobody is there");
    assert!(matches!(error, CallError::NotConnected { .. }), "{error}");
    assert!(puller.pull(&crate::consumers::group_pull(1)).await.is_err());

    kit.server.restart().await;
    wait_connected(&connection).await;
    let after = *connection.link().borrow();
    assert_eq!(after, Link { connected: true, times: before.times + 1, closed: false });
    assert_eq!(kit.user.stream_info("WH_INGEST_0").await.expect("an answer").state.messages, 1);
    // Subscriptions come back too.
    puller.pull(&crate::consumers::group_pull(1)).await.expect("sent");
    let delivered = crate::consumers::message(&mut puller).await;
    assert_eq!(&delivered.payload[..], b"before");
}

#[tokio::test]
async fn a_request_does_not_outlive_its_connection() {
    let mut kit = Kit::start("").await;
    let connection = kit.operator.connection().clone();
    // Somebody listens and never answers.
    let silent = connect(&kit.server, "operator", "_INBOX", None).await;
    let _silence = silent.subscribe("silence").await.expect("subscribed");
    silent.request("nobody.there", None, Bytes::new(), LONG).await.expect_err("the subscription has arrived");
    let begun = Instant::now();
    let asking = connection.request("silence", None, Bytes::new(), Duration::from_secs(60));
    let killing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        kit.server.kill9();
    };
    let (answer, ()) = tokio::join!(asking, killing);
    let error = answer.expect_err("the server is gone");
    assert!(matches!(error, CallError::Lost { .. }) && error.is_unknown(), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_hung_server_is_left() {
    let kit = Kit::start("").await;
    let connection = kit.user.connection().clone();
    let hasty = kit.user.with_timeout(Duration::from_millis(500));
    kit.server.freeze().await;
    for _ in 0..2 {
        let error = hasty.stream_info("WH_INGEST_0").await.expect_err("it hangs");
        assert!(matches!(error, CallError::NoAnswer { waited_ms: 500, .. }), "{error}");
    }
    wait_for("the connection to be given up", Duration::from_secs(5), async || !connection.is_connected())
        .await;
    kit.server.thaw();
    wait_connected(&connection).await;
    hasty.stream_info("WH_INGEST_0").await.expect("it answers again");
}

#[tokio::test]
async fn silence_of_others_is_no_fault_of_the_server() {
    let kit = Kit::start("").await;
    let connection = kit.user.connection().clone();
    let mut listening = connection.subscribe("wh.live.me").await.expect("subscribed");
    let error = connection.request("wh.live.gone", None, Bytes::new(), LONG).await.expect_err("nobody");
    assert!(matches!(error, CallError::NoResponders { .. }), "{error}");
    let short = Duration::from_millis(100);
    for _ in 0..4 {
        let error =
            connection.request("wh.live.me", None, Bytes::new(), short).await.expect_err("I am silent");
        assert!(matches!(error, CallError::NoAnswer { .. }), "{error}");
    }
    assert_eq!(connection.link().borrow().times, 1);
    listening.unsubscribe().await.expect("unsubscribed");
}

#[tokio::test]
async fn asked_for_it_connects_anew() {
    let kit = Kit::start("").await;
    let connection = kit.user.connection();
    connection.reconnect().await;
    wait_for("another time", LONG, async || connection.link().borrow().times == 2).await;
    wait_connected(connection).await;
    kit.user.stream_info("WH_INGEST_0").await.expect("an answer");
}

#[tokio::test]
async fn closed_is_for_good_and_sends_what_was_published() {
    let kit = Kit::start("").await;
    let connection = kit.user.connection().clone();
    for _ in 0..100 {
        connection.publish("wh.ingest.0.0.0.t", None, Bytes::from_static(b"row")).await.expect("sent");
    }
    connection.close().await;
    assert_eq!(*connection.link().borrow(), Link { connected: false, times: 1, closed: true });
    assert!(!connection.connected().await);
    let error = kit.user.stream_info("WH_INGEST_0").await.expect_err("it is closed");
    assert!(matches!(error, CallError::Closed { .. }), "{error}");
    let held =
        async || kit.operator.stream_info("WH_INGEST_0").await.expect("an answer").state.messages == 100;
    wait_for("all to be stored", LONG, held).await;
}

#[tokio::test]
async fn a_replaced_password_counts_from_the_next_attempt_on() {
    let server = NatsServer::start(&config("", None)).await;
    let options = options(&server, "wavehouse", "_INBOX_wh");
    let file = options.password_file.clone().expect("there is one");
    fs::write(&file, "wrong").expect("written");
    let connection = Connection::open(&options).await.expect("good options");
    wait_for("the refusal", LONG, async || server.log().contains("authentication error")).await;
    assert!(!connection.is_connected());
    fs::write(&file, "wavehouse\n").expect("written");
    wait_connected(&connection).await;
}

#[tokio::test]
async fn every_fetched_version_is_understood() {
    for version in ["2.10.26", "2.12.8", "2.14.6", "2.15.1"] {
        let server = NatsServer::start_version(version, &NatsServer::jetstream_config("")).await;
        let options = wavehouse_nats::ConnectOptions { urls: vec![server.url()], ..Default::default() };
        let connection = Connection::open(&options).await.expect("good options");
        assert!(connection.connected().await);
        let facts = wait_for("the server's facts", LONG, async || connection.server()).await;
        assert_eq!(facts.version, version);
        assert_eq!(connection.jetstream().stream_names(None).await.expect("an answer"), [] as [&str; 0]);
    }
}
