//! Single messages of a stream: read and removed.

use async_nats::{HeaderMap, Message};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{JetStream, json, status_error};
use crate::error::{CallError, codes};

const NOT_FOUND: u16 = 404;

/// A message as a stream keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// Its subject.
    pub subject: String,
    /// Its sequence.
    pub sequence: u64,
    /// When it was stored, as RFC 3339.
    pub time: String,
    /// Its headers, those of the server left out.
    pub headers: HeaderMap,
    /// Its content.
    pub payload: Bytes,
}

#[derive(Serialize)]
struct GetRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_by_subj: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_by_subj: Option<&'a str>,
}

#[derive(Serialize)]
struct DeleteRequest {
    seq: u64,
    no_erase: bool,
}

#[derive(Deserialize)]
struct GetAnswer {
    message: RawMessage,
}

#[derive(Deserialize)]
struct RawMessage {
    subject: String,
    seq: u64,
    #[serde(default)]
    hdrs: Option<String>,
    #[serde(default)]
    data: Option<String>,
    time: String,
}

#[derive(Deserialize)]
struct DeleteAnswer {
    #[serde(default)]
    success: bool,
}

impl JetStream {
    /// A subject's newest message, from any server of the stream's group; none when there is none. The stream must
    /// allow it.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::NoResponders`] when there is no such stream or it does not allow it.
    pub async fn direct_get_last(
        &self,
        stream: &str,
        subject: &str,
    ) -> Result<Option<StoredMessage>, CallError> {
        let request = self.subject(&format!("DIRECT.GET.{stream}.{subject}"));
        let message = self.ask(&request, None, Bytes::new()).await?;
        match status_error(&request, &message) {
            Some(CallError::JetStream { status: NOT_FOUND, .. }) => return Ok(None),
            Some(error) => return Err(error),
            None => {}
        }
        let found = direct(message);
        let why = || "it lacks the server's headers".to_owned();
        found.map(Some).ok_or_else(|| CallError::Malformed { subject: request, why: why() })
    }

    /// The message at a sequence; none when there is none.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn message(&self, stream: &str, sequence: u64) -> Result<Option<StoredMessage>, CallError> {
        self.get(stream, &GetRequest { seq: Some(sequence), next_by_subj: None, last_by_subj: None }).await
    }

    /// The first message at a sequence or after it whose subject matches `filter`; none when there is none.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn next_message(
        &self,
        stream: &str,
        sequence: u64,
        filter: &str,
    ) -> Result<Option<StoredMessage>, CallError> {
        let seq = Some(sequence.max(1));
        self.get(stream, &GetRequest { seq, next_by_subj: Some(filter), last_by_subj: None }).await
    }

    /// The last message whose subject matches `filter`, as the stream's leader has it; none when there is none.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn last_message(&self, stream: &str, filter: &str) -> Result<Option<StoredMessage>, CallError> {
        self.get(stream, &GetRequest { seq: None, next_by_subj: None, last_by_subj: Some(filter) }).await
    }

    /// Removes a message; its bytes stay on disk until the server tidies up. False when there was none.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn delete_message(&self, stream: &str, sequence: u64) -> Result<bool, CallError> {
        let body = json(&DeleteRequest { seq: sequence, no_erase: true });
        let answer: Result<DeleteAnswer, _> = self.call(&format!("STREAM.MSG.DELETE.{stream}"), body).await;
        match answer {
            Ok(answer) => Ok(answer.success),
            Err(error) if is_no_message(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn get(&self, stream: &str, request: &GetRequest<'_>) -> Result<Option<StoredMessage>, CallError> {
        let verb = format!("STREAM.MSG.GET.{stream}");
        let answer: GetAnswer = match self.call(&verb, json(request)).await {
            Ok(answer) => answer,
            Err(error) if is_no_message(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let raw = answer.message;
        let malformed =
            || CallError::Malformed { subject: self.subject(&verb), why: "bad base64".to_owned() };
        let decode =
            |text: Option<String>| STANDARD.decode(text.unwrap_or_default()).map_err(|_| malformed());
        Ok(Some(StoredMessage {
            subject: raw.subject,
            sequence: raw.seq,
            time: raw.time,
            headers: parse_headers(&decode(raw.hdrs)?),
            payload: decode(raw.data)?.into(),
        }))
    }
}

/// JetStream says so in two ways: with a code of its own on a read, in the words of its store on a removal.
fn is_no_message(error: &CallError) -> bool {
    let words = ["stream store EOF", "no message found", "deleted message"];
    match error {
        CallError::JetStream { code: codes::MESSAGE_NOT_FOUND, .. } => true,
        CallError::JetStream { code: codes::MESSAGE_DELETE_FAILED, text, .. } => {
            words.iter().any(|words| text.contains(words))
        }
        _ => false,
    }
}

/// A message that came directly: what the stream knows of it is in headers of the server's own.
fn direct(message: Message) -> Option<StoredMessage> {
    let mut own = message.headers?;
    let text = |name: &str| own.get(name).map(|value| value.as_str().to_owned());
    let (subject, sequence, time) = (text("Nats-Subject")?, text("Nats-Sequence")?, text("Nats-Time-Stamp")?);
    let sequence = sequence.parse().ok()?;
    let mut headers = HeaderMap::new();
    let servers = ["Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Stream", "Nats-Num-Pending"];
    for (name, values) in own.iter().filter(|(name, _)| !servers.contains(&name.to_string().as_str())) {
        for value in values {
            headers.append(name.clone(), value.clone());
        }
    }
    own = headers;
    Some(StoredMessage { subject, sequence, time, headers: own, payload: message.payload })
}

/// `NATS/1.0\r\nname: value\r\n…\r\n\r\n`.
fn parse_headers(bytes: &[u8]) -> HeaderMap {
    let text = String::from_utf8_lossy(bytes);
    let mut headers = HeaderMap::new();
    for line in text.split("\r\n").skip(1) {
        if let Some((name, value)) = line.split_once(':')
            && let Ok(name) = name.parse::<async_nats::HeaderName>()
        {
            headers.append(name, value.trim());
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_headers_are_read() {
        let headers = parse_headers(b"NATS/1.0\r\nA: 1\r\nA: 2\r\nX-Error: a: b\r\nEmpty:\r\n\r\n");
        let of = |name| headers.get_all(name).map(|value| value.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!(of("A"), ["1", "2"]);
        assert_eq!(of("X-Error"), ["a: b"]);
        assert_eq!(of("Empty"), [""]);
        assert!(parse_headers(b"").is_empty());
    }
}
