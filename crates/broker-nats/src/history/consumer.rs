//! One short-lived consumer of the history: made, pulled from, and let go.

use std::time::Duration;

use wavehouse_nats::{
    CallError, ConsumerInfo, Delivered, HistoryConsumer, JetStream, PullRequest, PullStatus, Pulled, Puller,
    StartAt,
};

/// Messages that one pull asks for at the most.
const FETCH_MESSAGES: u32 = 256;
/// Bytes that one pull asks for at the least; more where the servers take larger messages.
const FETCH_BYTES_MIN: u64 = 2 << 20;
/// What a message's headers may add to its largest payload.
const HEADERS_BYTES: u64 = 64 << 10;
/// How long a pull waits while there is something to catch up with.
const CATCHING_UP: Duration = Duration::from_secs(1);
/// How long a pull waits for what is new.
const IDLE: Duration = Duration::from_secs(30);
/// Between two signs of life of a waiting pull.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// No sign for so long means that the consumer is lost.
const SILENCE: Duration = Duration::from_secs(12);
/// The servers let the consumer go when nobody has pulled for so long: longer than a slow caller takes for one fetch.
const INACTIVE: Duration = Duration::from_secs(60);
/// How long letting it go waits.
const DELETE_MS: u64 = 1_000;

/// What came of waiting.
#[derive(Debug)]
pub(super) enum Came {
    /// A copy.
    Copy(Box<Delivered>),
    /// Nothing for now, as far as the consumer's server knows.
    Nothing,
    /// The consumer is lost, or may be.
    Lost(String),
}

/// A consumer and the pull that is under way.
pub(super) struct Consumer {
    jetstream: JetStream,
    stream: String,
    name: String,
    puller: Puller,
    /// The time of being connected that it was made in.
    link: u64,
    /// Messages that the present pull may still bring; zero when none is under way.
    left: u32,
    /// The number of the present pull.
    pull: u64,
    /// The number of the last message that the consumer sent.
    received: u64,
    fetch_bytes: u64,
}

impl Consumer {
    /// Makes a consumer. Gives back, too, how many copies there are for it.
    pub(super) async fn make(
        jetstream: &JetStream,
        stream: &str,
        filters: &[String],
        start: StartAt,
    ) -> Result<(Self, u64), CallError> {
        let connection = jetstream.connection();
        let link = connection.link().borrow().times;
        // The client's inboxes are never used twice, so their last token serves as a name.
        let inbox = connection.new_inbox();
        let name = format!("h{}", inbox.rsplit('.').next().unwrap_or(&inbox));
        let wanted =
            HistoryConsumer { name: name.clone(), filters: filters.to_vec(), start, inactive: INACTIVE };
        let puller = jetstream.puller(stream, &name).await?;
        let info = jetstream.create_history_consumer(stream, &wanted).await?;
        let payload = connection.server().map_or(0, |server| server.max_payload_bytes);
        let consumer = Self {
            jetstream: jetstream.clone(),
            stream: stream.to_owned(),
            name,
            puller,
            link,
            left: 0,
            pull: 0,
            received: 0,
            fetch_bytes: payload.saturating_add(HEADERS_BYTES).max(FETCH_BYTES_MIN),
        };
        Ok((consumer, info.num_pending))
    }

    /// What the servers say of it.
    pub(super) async fn info(&self) -> Result<ConsumerInfo, CallError> {
        self.jetstream.consumer_info(&self.stream, &self.name).await
    }

    /// The number of the last message that it sent and that came.
    pub(super) fn received(&self) -> u64 {
        self.received
    }

    /// Waits for what comes. `catching_up` asks for an answer soon even when there is nothing.
    pub(super) async fn next(&mut self, catching_up: bool) -> Came {
        let mut link = self.jetstream.connection().link();
        loop {
            if link.borrow_and_update().times != self.link {
                return Came::Lost("the connection is another".to_owned());
            }
            if self.left == 0
                && let Err(error) = self.ask(catching_up).await
            {
                return Came::Lost(error.to_string());
            }
            let came = tokio::select! {
                biased;
                came = tokio::time::timeout(SILENCE, self.puller.next()) => came,
                _ = link.changed() => continue,
            };
            match came {
                Err(_) => return Came::Lost("its server is silent".to_owned()),
                Ok(None) => return Came::Lost("the connection is closed".to_owned()),
                Ok(Some(Pulled::Message(message))) => return self.take(message),
                Ok(Some(Pulled::Status { pull, status })) => {
                    if let Some(came) = self.on_status(pull, status) {
                        return came;
                    }
                }
            }
        }
    }

    async fn ask(&mut self, catching_up: bool) -> Result<(), CallError> {
        let expires = if catching_up { CATCHING_UP } else { IDLE };
        let request = PullRequest {
            batch: FETCH_MESSAGES,
            expires,
            max_bytes: Some(self.fetch_bytes),
            heartbeat: (!catching_up).then_some(HEARTBEAT),
            ..PullRequest::default()
        };
        self.pull = self.puller.pull(&request).await?;
        self.left = FETCH_MESSAGES;
        Ok(())
    }

    fn take(&mut self, message: Box<Delivered>) -> Came {
        self.left = self.left.saturating_sub(1);
        let number = message.address.consumer_sequence;
        if number != self.received + 1 {
            return Came::Lost(format!("message {number} came after {}", self.received));
        }
        self.received = number;
        Came::Copy(message)
    }

    fn on_status(&mut self, pull: u64, status: PullStatus) -> Option<Came> {
        if pull != self.pull || status.goes_on() {
            return None;
        }
        self.left = 0;
        match status {
            PullStatus::Expired | PullStatus::NothingNow => Some(Came::Nothing),
            PullStatus::OverMaxBytes | PullStatus::BatchComplete | PullStatus::LeadershipChange => None,
            other => Some(Came::Lost(format!("{other:?}"))),
        }
    }

    /// Lets it go, as well as can be: the servers do so themselves after a while.
    pub(super) async fn delete(self) {
        let quick = self.jetstream.with_timeout(Duration::from_millis(DELETE_MS));
        if let Err(error) = quick.delete_consumer(&self.stream, &self.name).await {
            tracing::debug!(%error, "a reader of the history is left to end by itself");
        }
    }
}
