//! What is logged when the connection ends: nothing when it is meant to, a warning when it is not.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use wavehouse_broker::Broker;
use wavehouse_testkit::wait_for;

use crate::fixture::{LONG, Servers};
use crate::publish::{publish, rows, table};

/// Keeps the warnings and errors of our own code on one thread. It listens for all threads: of a listener for one alone, an
/// event that another thread is the first to tell of is never heard.
#[derive(Clone)]
struct Warnings {
    thread: ThreadId,
    told: Arc<Mutex<Vec<String>>>,
}

impl Warnings {
    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("wavehouse")
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if thread::current().id() != self.thread {
            return;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(text.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

// One thread, so that all of its tasks log here.
#[tokio::test(flavor = "current_thread")]
async fn case_55_closing_warns_of_nothing_and_a_lost_server_does() {
    let mut servers = Servers::start().await;
    let warnings = Warnings { thread: thread::current().id(), told: Arc::default() };
    let broker = servers.open().await;
    tracing::subscriber::set_global_default(warnings.clone()).expect("no other test listens");
    publish(&broker, rows(&table("t"), 0..1)).await.unwrap();
    broker.close().await.unwrap();
    assert_eq!(warnings.told(), [] as [String; 0]);

    let broker = servers.open().await;
    servers.server.kill9();
    let link = broker.link();
    wait_for("the loss to be seen", LONG, async || !link.borrow().connected).await;
    wait_for("a warning", LONG, async || {
        warnings.told().iter().any(|warning| warning.contains("message server lost"))
    })
    .await;
}
