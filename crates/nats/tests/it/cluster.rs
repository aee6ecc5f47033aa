//! A cluster of three real servers: a stream survives the loss of one, and a server that is cut off answers nothing that
//! needs the others.

use std::time::Duration;

use bytes::Bytes;
use wavehouse_nats::{ConnectOptions, Connection};
use wavehouse_testkit::{NatsCluster, wait_for};

async fn connect(url: &str) -> Connection {
    let options = ConnectOptions { urls: vec![url.to_owned()], ..ConnectOptions::default() };
    let connection = Connection::open(&options).await;
    let connection = connection.unwrap_or_else(|error| panic!("{error}"));
    assert!(connection.connected().await);
    connection
}

async fn stored(connection: &Connection) -> bool {
    let published = connection.jetstream().with_timeout(Duration::from_secs(2));
    published.publish("t.x", None, Bytes::from_static(b"row")).await.is_ok()
}

#[tokio::test]
async fn a_stream_of_three_outlives_one_server_and_a_cut() {
    const LIMIT: Duration = Duration::from_secs(60);
    let mut cluster = NatsCluster::start("").await;
    let urls = cluster.urls();
    let first = connect(&urls[0]).await;
    let config = br#"{"name":"T","subjects":["t.>"],"num_replicas":3,"storage":"file"}"#;
    wait_for("the stream to be made", LIMIT, async || {
        let jetstream = first.jetstream();
        jetstream.call::<serde_json::Value>("STREAM.CREATE.T", Bytes::from_static(config)).await.is_ok()
    })
    .await;
    wait_for("a row to be stored", LIMIT, async || stored(&first).await).await;

    cluster.node_mut(2).kill9();
    wait_for("a row to be stored by two", LIMIT, async || stored(&first).await).await;
    cluster.node_mut(2).restart().await;
    let third = connect(&urls[2]).await;
    wait_for("a row to be stored through the one that came back", LIMIT, async || stored(&third).await).await;

    cluster.cut(2);
    wait_for("the one that is cut off to refuse", LIMIT, async || !stored(&third).await).await;
    wait_for("a row to be stored by the others", LIMIT, async || stored(&first).await).await;
    cluster.heal(2);
    wait_for("the one that was cut off to be back", LIMIT, async || stored(&third).await).await;
    // The healed one may have made the others elect again.
    wait_for("every row to be there", LIMIT, async || {
        first.jetstream().stream_info("T").await.is_ok_and(|info| info.state.messages >= 5)
    })
    .await;
}
