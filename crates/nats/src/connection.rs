//! A connection to the servers that is there at once and comes back for ever.
//!
//! Nothing is sent while no server is connected: what the client would keep for later comes too late, and a late pull
//! takes messages that nobody waits for. A request ends with its answer, its time-out, the loss of its connection, or
//! the server's refusal, whichever is first.

mod banners;
mod events;
mod refusals;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::{Client, HeaderMap, Message, Request, ServerAddr, Subscriber};
use bytes::Bytes;
use tokio::sync::watch;

use crate::error::CallError;
use crate::jetstream::JetStream;
use crate::options::{ConnectOptions, InvalidOptions};
pub use banners::Banner;
use events::Shared;
pub use events::{Link, RECONNECT_WAIT_MS};
pub use refusals::Refused;
pub use words::{ServerFacts, Settle};

/// Requests to JetStream in a row that end without an answer, while nothing at all is heard, until the connection is
/// made anew: a server that hangs keeps its connections open.
pub const UNANSWERED_MAX: u32 = 2;
/// Between two pings, in seconds; the third without an answer ends the connection.
const PING_S: u64 = 20;
/// Longest wait for what is still on its way when closing, in milliseconds.
const DRAIN_MS_MAX: u64 = 5_000;

/// A connection; clones are the same one.
#[derive(Clone)]
pub struct Connection {
    client: Client,
    shared: Arc<Shared>,
    unanswered: Arc<AtomicU32>,
    api_prefix: Arc<str>,
    domain: Option<Arc<str>>,
    /// The servers that were named, which banners are asked of.
    named: Arc<[ServerAddr]>,
    encrypts_first: bool,
}

/// Whether silence speaks against the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// The servers themselves answer.
    Server,
    /// Another process may answer.
    Anybody,
}

impl Connection {
    /// Checks the options and starts to connect; gives the connection back without waiting for a server. Needs a
    /// running tokio runtime, on which two tasks of the client keep the connection until it is closed: see
    /// [`Connection::close`].
    ///
    /// # Errors
    /// [`InvalidOptions`] with everything that is wrong; nothing was dialled then.
    pub async fn open(options: &ConnectOptions) -> Result<Self, InvalidOptions> {
        let checked = options.checked()?;
        let tls = checked.tls.is_some() || checked.servers.iter().any(ServerAddr::tls_required);
        let shared = Arc::new(Shared::new(options.record_refusals_of.clone(), checked.servers.len(), tls));
        let (on_event, on_delay) = (Arc::clone(&shared), Arc::clone(&shared));
        let (credentials, named) = (checked.credentials, checked.servers.clone().into());
        let mut client = async_nats::ConnectOptions::with_auth_callback(move |nonce| {
            let credentials = credentials.clone();
            async move { credentials.answer(&nonce) }
        })
        .name(&options.name)
        .custom_inbox_prefix(&options.inbox_prefix)
        .connection_timeout(options.connect_timeout)
        .ping_interval(Duration::from_secs(PING_S))
        .retry_on_initial_connect()
        .reconnect_delay_callback(move |attempt| on_delay.delay(attempt))
        .event_callback(move |event| {
            let shared = Arc::clone(&on_event);
            async move { shared.on(event) }
        });
        if let Some(config) = checked.tls {
            client = client.tls_client_config(config).require_tls(true);
        }
        if options.tls.handshake_first {
            client = client.tls_first();
        }
        // With retries from the start, only addresses that cannot be parsed fail here, and those were parsed already.
        let client = client.connect(checked.servers).await.map_err(|error| {
            let what = error.to_string();
            InvalidOptions(vec![crate::options::Finding::Unusable { key: "urls", what }])
        })?;
        Ok(Self {
            client,
            shared,
            unanswered: Arc::default(),
            api_prefix: options.api_prefix().into(),
            domain: options.js_domain.as_deref().map(Into::into),
            named,
            encrypts_first: options.tls.handshake_first,
        })
    }

    /// Whether a server is connected, as it changes.
    #[must_use]
    pub fn link(&self) -> watch::Receiver<Link> {
        self.shared.link.subscribe()
    }

    /// Whether a server is connected now.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.shared.link.borrow().connected
    }

    /// Waits until a server is connected; false when the connection was closed instead.
    pub async fn connected(&self) -> bool {
        let mut link = self.link();
        // The sender lives as long as this connection.
        let found = link.wait_for(|link| link.connected || link.closed).await;
        found.is_ok_and(|link| link.connected)
    }

    /// What the connected server says of itself; `None` while none is.
    #[must_use]
    pub fn server(&self) -> Option<ServerFacts> {
        let info = self.client.try_server_info().filter(|_| self.is_connected())?;
        // Those that the server told of are tried too, before a wait.
        self.shared.servers.fetch_max(info.connect_urls.len(), Ordering::Relaxed);
        Some(ServerFacts {
            name: info.server_name,
            version: info.version,
            max_payload_bytes: u64::try_from(info.max_payload).unwrap_or(u64::MAX),
            domain: info.domain.filter(|domain| !domain.is_empty()),
            cluster: info.cluster.filter(|cluster| !cluster.is_empty()),
            known_servers: info.connect_urls,
        })
    }

    /// Why no server took the connection when it was last tried; `None` while one has it.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.shared.trouble()
    }

    /// Requests to JetStream over this connection.
    #[must_use]
    pub fn jetstream(&self) -> JetStream {
        JetStream::new(self.clone(), Arc::clone(&self.api_prefix), self.domain.clone())
    }

    /// The running number of the newest recorded refusal, as it grows.
    #[must_use]
    pub fn refusals(&self) -> watch::Receiver<u64> {
        self.shared.refusals.watch()
    }

    /// Recorded refusals past a number, oldest first.
    #[must_use]
    pub fn refused_since(&self, number: u64) -> Vec<Refused> {
        self.shared.refusals.since(number)
    }

    /// The refusal past a number of a publish to this subject; under a domain a server may name either form of it.
    #[must_use]
    pub fn publish_refused_since(&self, number: u64, subject: &str) -> Option<Refused> {
        let plain = self.plain(subject);
        let subjects = [subject, plain.as_deref().unwrap_or(subject)];
        self.shared.refusals.publish_since(number, &subjects)
    }

    /// Publishes without waiting for anything: it may be lost with the connection.
    ///
    /// # Errors
    /// [`CallError::NotConnected`], [`CallError::TooLarge`], [`CallError::BadSubject`], [`CallError::Closed`].
    pub async fn publish(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<(), CallError> {
        self.ready(subject)?;
        let sent = match headers {
            Some(headers) => self.client.publish_with_headers(subject.to_owned(), headers, payload).await,
            None => self.client.publish(subject.to_owned(), payload).await,
        };
        sent.map_err(|error| unsent(subject, error.kind()))
    }

    /// The same, asking for answers at `reply`.
    ///
    /// # Errors
    /// As [`Connection::publish`].
    pub async fn publish_with_reply(
        &self,
        subject: &str,
        reply: &str,
        payload: Bytes,
    ) -> Result<(), CallError> {
        self.ready(subject)?;
        let sent = self.client.publish_with_reply(subject.to_owned(), reply.to_owned(), payload).await;
        sent.map_err(|error| unsent(subject, error.kind()))
    }

    /// Settles a delivered message, without waiting for the server to know.
    ///
    /// # Errors
    /// As [`Connection::publish`]; `reply` is the message's reply subject.
    pub async fn settle(&self, reply: &str, settle: Settle) -> Result<(), CallError> {
        self.publish(reply, None, settle.payload()).await
    }

    /// The same, and waits until the server knows.
    ///
    /// # Errors
    /// As [`Connection::request`].
    pub async fn settle_confirmed(
        &self,
        reply: &str,
        settle: Settle,
        timeout: Duration,
    ) -> Result<(), CallError> {
        self.request(reply, None, settle.payload(), timeout).await.map(drop)
    }

    /// Subscribes. A refusal comes on the side: see [`Connection::refused_since`].
    ///
    /// # Errors
    /// [`CallError::BadSubject`], [`CallError::Closed`].
    pub async fn subscribe(&self, subject: &str) -> Result<Subscriber, CallError> {
        self.client.subscribe(subject.to_owned()).await.map_err(|error| match error.kind() {
            async_nats::client::SubscribeErrorKind::Other => {
                CallError::Closed { subject: subject.to_owned() }
            }
            _ => CallError::BadSubject { subject: subject.to_owned() },
        })
    }

    /// A subject of ours, not used before, that answers may come to.
    #[must_use]
    pub fn new_inbox(&self) -> String {
        self.client.new_inbox()
    }

    /// Sends a request and gives back the answer, whatever its status, except that nobody listens there.
    ///
    /// # Errors
    /// [`CallError`]; never [`CallError::JetStream`], whose answers are not looked into.
    pub async fn request(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Message, CallError> {
        let mut request = Request::new().payload(payload).timeout(Some(timeout));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        self.ask(subject, request, timeout, Answers::Anybody).await
    }

    pub(crate) async fn ask(
        &self,
        subject: &str,
        request: Request,
        timeout: Duration,
        answers: Answers,
    ) -> Result<Message, CallError> {
        let mut link = self.link();
        let times = self.ready(subject)?;
        let mut refusals = self.refusals();
        let number = *refusals.borrow_and_update();
        let heard = self.heard();
        let refused = async {
            loop {
                if let Some(refused) = self.publish_refused_since(number, subject) {
                    return refused.subject;
                }
                if refusals.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let lost = link.wait_for(|link| link.times != times || !link.connected);
        let answer = tokio::select! {
            biased;
            answer = self.client.send_request(subject.to_owned(), request) => answer,
            refused = refused => return Err(CallError::Refused { subject: refused }),
            _ = lost => return Err(CallError::Lost { subject: subject.to_owned() }),
        };
        match answer {
            Ok(message) => {
                self.unanswered.store(0, Ordering::Relaxed);
                Ok(message)
            }
            Err(error) => {
                let unanswered = error.kind() == RequestErrorKind::TimedOut;
                if !unanswered {
                    self.unanswered.store(0, Ordering::Relaxed);
                } else if answers == Answers::Server && heard == self.heard() {
                    self.count_unanswered().await;
                }
                Err(self.unanswerable(subject, error.kind(), timeout))
            }
        }
    }

    /// Drops the connection to the server and makes it anew, with any of the servers.
    pub async fn reconnect(&self) {
        // It only fails once the connection is closed.
        let _closed = self.client.force_reconnect().await;
    }

    /// Ends the connection for good, after what is on its way has been sent and received, which takes 5 s at most.
    pub async fn close(&self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        let mut link = self.link();
        let connected = link.borrow().connected;
        if connected && self.client.drain().await.is_ok() {
            let drained = link.wait_for(|link| link.closed || !link.connected);
            let _late = tokio::time::timeout(Duration::from_millis(DRAIN_MS_MAX), drained).await;
        }
        self.shared.link.send_modify(|link| *link = Link { connected: false, closed: true, ..*link });
    }

    async fn count_unanswered(&self) {
        if self.unanswered.fetch_add(1, Ordering::Relaxed) + 1 >= UNANSWERED_MAX {
            self.unanswered.store(0, Ordering::Relaxed);
            tracing::warn!("message server does not answer; connecting anew");
            self.reconnect().await;
        }
    }

    /// Bytes that came in so far, those of pings included.
    fn heard(&self) -> u64 {
        self.client.statistics().in_bytes.load(Ordering::Relaxed)
    }

    /// Which time of being connected this is; an error while there is none.
    fn ready(&self, subject: &str) -> Result<u64, CallError> {
        let subject = || subject.to_owned();
        let link = *self.shared.link.borrow();
        // The client knows of a loss a moment before its events tell of it.
        let lost = self.client.connection_state() != State::Connected;
        match link {
            _ if link.closed || self.shared.is_closing() => Err(CallError::Closed { subject: subject() }),
            _ if lost || !link.connected => Err(CallError::NotConnected { subject: subject() }),
            _ => Ok(link.times),
        }
    }

    fn unanswerable(&self, subject: &str, kind: RequestErrorKind, timeout: Duration) -> CallError {
        let subject = subject.to_owned();
        match kind {
            RequestErrorKind::TimedOut => {
                let waited_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                CallError::NoAnswer { subject, waited_ms }
            }
            RequestErrorKind::NoResponders => CallError::NoResponders { subject },
            RequestErrorKind::InvalidSubject => CallError::BadSubject { subject },
            RequestErrorKind::MaxPayloadExceeded => CallError::TooLarge { subject },
            RequestErrorKind::Other if self.shared.is_closing() => CallError::Closed { subject },
            RequestErrorKind::Other => CallError::Lost { subject },
        }
    }

    /// `$JS.API.X` for `$JS.<domain>.API.X`.
    fn plain(&self, subject: &str) -> Option<String> {
        self.domain.as_ref()?;
        subject.strip_prefix(&*self.api_prefix).map(|rest| format!("$JS.API.{rest}"))
    }
}

fn unsent(subject: &str, kind: async_nats::client::PublishErrorKind) -> CallError {
    let subject = subject.to_owned();
    match kind {
        async_nats::client::PublishErrorKind::MaxPayloadExceeded => CallError::TooLarge { subject },
        async_nats::client::PublishErrorKind::Send => CallError::Closed { subject },
        _ => CallError::BadSubject { subject },
    }
}
