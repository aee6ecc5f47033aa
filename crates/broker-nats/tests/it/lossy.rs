//! A link that loses what is on its way and is back at once: the server goes on with the pull that was sent over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wavehouse_broker::{Broker, RowBudget};
use wavehouse_broker_nats::NatsBroker;
use wavehouse_topology::TopologyInput;

use crate::fixture::{LONG, Servers, input};
use crate::publish::{publish, rows, table};

/// What a lossy link does.
#[derive(Default)]
struct Faults {
    /// What the server sends is lost.
    loses: AtomicBool,
    /// Its connections end.
    breaks: Notify,
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: &Faults) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read) = from.read(&mut bytes).await {
        if read == 0 || (!faults.loses.load(Ordering::SeqCst) && to.write_all(&bytes[..read]).await.is_err())
        {
            return;
        }
    }
}

/// Listens for one client after the other, until the set is dropped, and gives back where.
async fn lossy_link(server_port: u16, faults: Arc<Faults>) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let mut link = JoinSet::new();
    link.spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else { continue };
            let ((mut asks, tells), (answers, mut hears)) = (client.into_split(), server.into_split());
            tokio::select! {
                _ended = copy(&mut asks, &mut hears) => {}
                () = pass(answers, tells, &faults) => {}
                () = faults.breaks.notified() => {}
            }
        }
    });
    (port, link)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_that_is_lost_with_a_link_comes_before_those_after_it() {
    let servers = Servers::start_with(TopologyInput { partitions: 1, shards: 1, ..input() }, "").await;
    let faults = Arc::new(Faults::default());
    let (port, _link) = lossy_link(servers.server.port(), Arc::clone(&faults)).await;
    let url = format!("nats://127.0.0.1:{port}");
    let (api, one) =
        (servers.open().await, NatsBroker::open(servers.options_at(url)).await.expect("it opens"));
    let (t, unit) = (table("t"), one.units()[0]);
    let mut opened = one.open_unit(unit, RowBudget { rows: 10_000, bytes: 8 << 20 }).await.unwrap();
    let mut came = Vec::new();
    const ROUNDS: u64 = 6;
    for round in 0..ROUNDS {
        let first = 3 * round;
        publish(&api, rows(&t, first..first + 1)).await.unwrap();
        let held = timeout(LONG, opened.deliveries.next()).await.expect("in time").unwrap().expect("a block");
        came.push(held.sequence().0);
        held.ack();
        // Pulls begin at any moment; the next one has just begun now and then.
        sleep(Duration::from_millis(50 + 150 * round)).await;
        faults.loses.store(true, Ordering::SeqCst);
        publish(&api, rows(&t, first + 1..first + 2)).await.unwrap();
        sleep(Duration::from_millis(30)).await;
        faults.loses.store(false, Ordering::SeqCst);
        faults.breaks.notify_one();
        sleep(Duration::from_millis(250)).await;
        publish(&api, rows(&t, first + 2..first + 3)).await.unwrap();
        for _ in 0..2 {
            let held = timeout(LONG, opened.deliveries.next()).await.expect("in time").unwrap();
            let held = held.expect("a block");
            came.push(held.sequence().0);
            held.ack();
        }
    }
    assert_eq!(came, (1..=3 * ROUNDS).collect::<Vec<_>>(), "in order");
    opened.control.release().await;
}
