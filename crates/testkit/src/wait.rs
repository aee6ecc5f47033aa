//! Waiting for facts instead of for time to pass.

use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Between two looks.
const LOOK_MS: u64 = 20;

/// What a look may find: `true`, or `Some` value.
pub trait Fact {
    /// What `wait_for` gives back.
    type Found;
    /// The value, once the fact holds.
    fn found(self) -> Option<Self::Found>;
}

impl Fact for bool {
    type Found = ();
    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Fact for Option<T> {
    type Found = T;
    fn found(self) -> Self {
        self
    }
}

/// Looks until `check` finds its fact (`true` or `Some`); panics with `what` after `limit`.
pub async fn wait_for<F: Fact>(what: &str, limit: Duration, mut check: impl AsyncFnMut() -> F) -> F::Found {
    let started = Instant::now();
    loop {
        if let Some(found) = check().await.found() {
            return found;
        }
        assert!(started.elapsed() < limit, "waited {limit:?} in vain for {what}");
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
    }
}

/// A TCP port of the loopback that was free a moment ago. Prefer port 0 where the program can say what it got.
#[must_use]
pub fn free_port() -> u16 {
    match TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()) {
        Ok(address) => address.port(),
        Err(error) => panic!("no free port: {error}"),
    }
}
