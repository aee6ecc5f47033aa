//! Signs of life among processes, over the subjects below `<prefix>.live.`.
//!
//! Answers come back below it too: a process may publish to no inbox of another's.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use wavehouse_broker::{Answer, SharingError};
use wavehouse_core::SubjectPrefix;
use wavehouse_nats::{CallError, Connection, PullStatus, Subscriber};

use crate::shared::lock;

/// How long a question waits for its answer.
const ASK_WAIT: Duration = Duration::from_secs(1);
/// How long a refusal of a subscription is waited for after nobody answered on it.
const REFUSAL_WAIT: Duration = Duration::from_millis(500);
/// The token that all processes listen to; no session is called so.
const EVERYBODY: &str = "everybody";
/// The token below which answers come back; no session is called so.
const REPLIES: &str = "re";

/// How this process shows itself and sees others.
pub(super) struct Signs {
    connection: Connection,
    prefix: SubjectPrefix,
    /// Tells one's own nudges from those of others.
    own: Bytes,
    nudges: watch::Sender<u64>,
    /// What answers and listens; replaced with the session.
    tasks: Mutex<JoinSet<()>>,
    permitted: watch::Sender<bool>,
}

impl Signs {
    pub(super) fn new(connection: Connection, prefix: SubjectPrefix, own: &str) -> Self {
        Self {
            connection,
            prefix,
            own: Bytes::copy_from_slice(own.as_bytes()),
            nudges: watch::Sender::new(0),
            tasks: Mutex::default(),
            permitted: watch::Sender::new(false),
        }
    }

    pub(super) fn close(&self) {
        lock(&self.tasks).abort_all();
    }

    pub(super) fn nudges(&self) -> watch::Receiver<u64> {
        self.nudges.subscribe()
    }

    pub(super) async fn answer_as(&self, session: &str) -> Result<bool, SharingError> {
        let unavailable = |error: CallError| SharingError::Unavailable { reason: error.to_string() };
        if !is_session(session) {
            return Err(SharingError::Unavailable { reason: format!("{session:?} is no session") });
        }
        self.connection.connected().await;
        let number = *self.connection.refusals().borrow();
        let (own, all) = (self.prefix.live(session), self.prefix.live(EVERYBODY));
        let asked = self.connection.subscribe(&own).await.map_err(unavailable)?;
        let nudged = self.connection.subscribe(&all).await.map_err(unavailable)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(answer(self.connection.clone(), asked));
        tasks.spawn(listen(nudged, self.nudges.clone(), self.own.clone()));
        // The answer to a question of one's own proves that both ways are open.
        let answer = self.question(&own).await.map_err(unavailable)?;
        let permitted = answer == Answer::Alive;
        if !permitted && !self.is_refused(number).await {
            let reason = format!("own question on {own} brought {answer:?}");
            return Err(SharingError::Unavailable { reason });
        }
        self.permitted.send_replace(permitted);
        if permitted {
            *lock(&self.tasks) = tasks;
        }
        Ok(permitted)
    }

    /// Whether the servers have said, or say within a moment, that something of this is not permitted.
    async fn is_refused(&self, number: u64) -> bool {
        let mut refusals = self.connection.refusals();
        let root = self.prefix.live("");
        let told = async {
            loop {
                refusals.borrow_and_update();
                let refused = self.connection.refused_since(number);
                if refused.iter().any(|refused| refused.subject.starts_with(&root)) {
                    return true;
                }
                if refusals.changed().await.is_err() {
                    return false;
                }
            }
        };
        tokio::time::timeout(REFUSAL_WAIT, told).await.unwrap_or(false)
    }

    pub(super) async fn ask(&self, session: &str) -> Answer {
        if !is_session(session) {
            return Answer::Silence;
        }
        let asked = self.question(&self.prefix.live(session)).await;
        asked.unwrap_or(Answer::Silence)
    }

    async fn question(&self, subject: &str) -> Result<Answer, CallError> {
        let inbox = self.connection.new_inbox();
        let reply = self.prefix.live(&format!("{REPLIES}.{}", inbox.rsplit('.').next().unwrap_or(&inbox)));
        let mut answers = self.connection.subscribe(&reply).await?;
        self.connection.publish_with_reply(subject, &reply, Bytes::new()).await?;
        match tokio::time::timeout(ASK_WAIT, answers.next()).await {
            Ok(Some(answer)) if PullStatus::of(&answer) == Some(PullStatus::NoResponders) => {
                Ok(Answer::Nobody)
            }
            Ok(Some(_)) => Ok(Answer::Alive),
            Ok(None) | Err(_) => Ok(Answer::Silence),
        }
    }

    pub(super) async fn nudge(&self) {
        if !*self.permitted.borrow() {
            return;
        }
        let sent = self.connection.publish(&self.prefix.live(EVERYBODY), None, self.own.clone()).await;
        if let Err(error) = sent {
            // They look by themselves in a moment.
            tracing::debug!(%error, "other processes are not told of a change of members");
        }
    }
}

/// One token of a subject that is not ours already.
fn is_session(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !text.is_empty() && text != EVERYBODY && text != REPLIES && text.bytes().all(legal)
}

async fn answer(connection: Connection, mut asked: Subscriber) {
    while let Some(question) = asked.next().await {
        let Some(reply) = question.reply else { continue };
        if let Err(error) = connection.publish(&reply, None, Bytes::new()).await {
            tracing::debug!(%error, "a question of another process is not answered");
        }
    }
}

async fn listen(mut nudged: Subscriber, nudges: watch::Sender<u64>, own: Bytes) {
    while let Some(message) = nudged.next().await {
        if message.payload != own {
            nudges.send_modify(|count| *count += 1);
        }
    }
}
