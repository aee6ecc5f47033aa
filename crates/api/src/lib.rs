//! The HTTP face of the gateway: ingest, operator routes, health, metrics.
//!
//! [`serve`](Api::serve) accepts connections; `dispatch` takes each request from head to answer; `route` is the table
//! of what is served and who may call it; `error` is the table of what is refused, and how.

mod auth;
mod body;
mod clock;
mod cors;
mod dispatch;
mod dlq;
mod error;
mod health;
mod ingest;
mod live;
mod metrics;
mod ops;
mod respond;
mod route;
mod serve;
mod shared;
mod tenant;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use auth::Access;
pub use body::{BODY_BYTES_MAX, Body};
pub use cors::Cors;
pub use metrics::Metrics;
pub use serve::CONNECTIONS_MAX;
pub use shared::{ApiOptions, ApiParts, VersionInfo};

/// The HTTP face, before it serves.
pub struct Api {
    shared: Arc<shared::Shared>,
}

/// Steers a serving [`Api`].
#[derive(Clone)]
pub struct ApiHandle {
    shared: Arc<shared::Shared>,
}

impl Api {
    /// Puts the HTTP face together; nothing is bound and nothing runs yet.
    #[must_use]
    pub fn new(options: ApiOptions, parts: ApiParts) -> Self {
        Self { shared: Arc::new(shared::Shared::new(options, parts)) }
    }

    /// The handle that steers it.
    #[must_use]
    pub fn handle(&self) -> ApiHandle {
        ApiHandle { shared: Arc::clone(&self.shared) }
    }

    /// Serves until `stop`: then the listener closes, requests in flight are finished, idle connections end. Dropping
    /// the future cuts off what is left.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        serve::serve(self.shared, listener, stop).await;
    }
}

impl ApiHandle {
    /// `/readyz` answers 503 from now on; everything else goes on.
    pub fn set_unready(&self) {
        self.shared.set_unready();
    }

    /// Ingest and new streams answer 503 from now on; open streams end with a hint to come back.
    pub fn refuse_ingest(&self) {
        self.shared.set_stopping();
    }
}
