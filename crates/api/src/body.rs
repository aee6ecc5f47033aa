//! Bodies, both ways: what answers are made of, and reading a request's body within its cap and within what the whole
//! process may hold.

use std::io::Read;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;

/// The body of an answer: bytes at hand, or a stream.
pub type Body = Either<Full<Bytes>, UnsyncBoxBody<Bytes, std::io::Error>>;

/// Largest request body of ingest and raw SQL, in bytes, after decompression.
pub const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Unit of the byte budget: a semaphore counts in `u32`, so it counts kibibytes.
const BUDGET_UNIT_BYTES: usize = 1024;
/// Largest window that a zstd body may ask for: 2^24 bytes, the body cap.
const ZSTD_WINDOW_LOG_MAX: u32 = 24;
/// How much is decompressed between looks at the cap.
const INFLATE_STEP_BYTES: usize = 64 * 1024;

/// A body of bytes at hand.
pub(crate) fn full(bytes: Bytes) -> Body {
    Either::Left(Full::new(bytes))
}

/// How many bytes of request bodies this process holds at once, over all connections.
#[derive(Clone)]
pub(crate) struct BodyBudget {
    units: Arc<Semaphore>,
}

/// A part of the budget; given back when dropped.
pub(crate) struct Held {
    budget: BodyBudget,
    permit: Option<OwnedSemaphorePermit>,
    units: usize,
}

impl BodyBudget {
    pub(crate) fn new(bytes_max: usize) -> Self {
        // A single body of the largest size must always fit.
        let bytes = bytes_max.max(2 * BODY_BYTES_MAX);
        Self { units: Arc::new(Semaphore::new((bytes / BUDGET_UNIT_BYTES).min(Semaphore::MAX_PERMITS))) }
    }

    fn hold(&self) -> Held {
        Held { budget: self.clone(), permit: None, units: 0 }
    }
}

impl Held {
    /// Makes sure that `bytes` in all are held.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), ApiError> {
        let wanted = bytes.div_ceil(BUDGET_UNIT_BYTES);
        let more = wanted.saturating_sub(self.units);
        if more == 0 {
            return Ok(());
        }
        let count = u32::try_from(more).map_err(|_| ApiError::Busy)?;
        let taken =
            Arc::clone(&self.budget.units).try_acquire_many_owned(count).map_err(|_| ApiError::Busy)?;
        match &mut self.permit {
            Some(permit) => permit.merge(taken),
            None => self.permit = Some(taken),
        }
        self.units = wanted;
        Ok(())
    }
}

/// How a request's body is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Identity,
    Gzip,
    Zstd,
}

fn coding(headers: &HeaderMap) -> Result<Coding, ApiError> {
    let mut values = headers.get_all(CONTENT_ENCODING).iter();
    let Some(value) = values.next() else { return Ok(Coding::Identity) };
    let text = value.to_str().unwrap_or("?").trim();
    let known = match text.to_ascii_lowercase().as_str() {
        "" | "identity" => Some(Coding::Identity),
        "gzip" | "x-gzip" => Some(Coding::Gzip),
        "zstd" => Some(Coding::Zstd),
        _ => None,
    };
    match (known, values.next()) {
        (Some(coding), None) => Ok(coding),
        _ => Err(ApiError::ContentEncoding(text.to_owned())),
    }
}

/// A body read whole, with its part of the budget.
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    pub(crate) held: Held,
}

/// Reads and unpacks a body of at most `bytes_max` bytes.
///
/// # Errors
/// Over the cap, before or after unpacking; a broken transfer; a packing that is unknown or does not unpack; or no room
/// in the process's budget.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    body: Incoming,
    budget: &BodyBudget,
    bytes_max: usize,
) -> Result<ReadBody, ApiError> {
    let coding = coding(headers)?;
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.parse::<usize>().ok());
    if declared.is_some_and(|length| length > bytes_max) {
        return Err(ApiError::TooLarge(bytes_max));
    }
    let mut held = budget.hold();
    held.grow_to(declared.unwrap_or(0))?;
    let packed = read_frames(body, declared, &mut held, bytes_max).await?;
    let bytes = match coding {
        Coding::Identity => packed,
        Coding::Gzip | Coding::Zstd => {
            let (unpacked, back) =
                tokio::task::spawn_blocking(move || (unpack(coding, &packed, &mut held, bytes_max), held))
                    .await
                    .map_err(|_| ApiError::Internal)?;
            held = back;
            unpacked?
        }
    };
    Ok(ReadBody { bytes, held })
}

async fn read_frames(
    mut body: Incoming,
    declared: Option<usize>,
    held: &mut Held,
    bytes_max: usize,
) -> Result<Bytes, ApiError> {
    let mut first: Option<Bytes> = None;
    let mut rest: Option<BytesMut> = None;
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| ApiError::BrokenBody)?.into_data() else { continue };
        length += data.len();
        if length > bytes_max {
            return Err(ApiError::TooLarge(bytes_max));
        }
        held.grow_to(length)?;
        match (&mut rest, first.take()) {
            (Some(buffer), _) => buffer.extend_from_slice(&data),
            // Most bodies come in one frame and are used where they lie.
            (None, None) => first = Some(data),
            (None, Some(head)) => {
                let mut buffer = BytesMut::with_capacity(declared.unwrap_or(0).max(length));
                buffer.extend_from_slice(&head);
                buffer.extend_from_slice(&data);
                rest = Some(buffer);
            }
        }
        if body.is_end_stream() {
            break;
        }
    }
    Ok(rest.map(BytesMut::freeze).or(first).unwrap_or_default())
}

fn unpack(coding: Coding, packed: &[u8], held: &mut Held, bytes_max: usize) -> Result<Bytes, ApiError> {
    if packed.is_empty() {
        return Ok(Bytes::new());
    }
    let broken = |error: std::io::Error| ApiError::InvalidBody(format!("it does not unpack ({error})"));
    let mut reader: Box<dyn Read> = match coding {
        Coding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(packed).map_err(broken)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(broken)?;
            Box::new(decoder)
        }
        _ => Box::new(flate2::read::MultiGzDecoder::new(packed)),
    };
    let packed_units = packed.len();
    let mut out = Vec::new();
    loop {
        let before = out.len();
        let read = reader.by_ref().take(INFLATE_STEP_BYTES as u64).read_to_end(&mut out).map_err(broken)?;
        if out.len() > bytes_max {
            return Err(ApiError::TooLarge(bytes_max));
        }
        held.grow_to(packed_units + out.len())?;
        if read == 0 || out.len() == before {
            return Ok(out.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn held() -> Held {
        BodyBudget::new(0).hold()
    }

    #[test]
    fn both_packings_unpack() {
        let data = b"{\"a\":1}\n".repeat(1000);
        let zstd = zstd::encode_all(data.as_slice(), 3).unwrap();
        assert_eq!(unpack(Coding::Gzip, &gzip(&data), &mut held(), BODY_BYTES_MAX).unwrap(), data);
        assert_eq!(unpack(Coding::Zstd, &zstd, &mut held(), BODY_BYTES_MAX).unwrap(), data);
        let two = [gzip(b"{}"), gzip(b"{}")].concat();
        assert_eq!(unpack(Coding::Gzip, &two, &mut held(), BODY_BYTES_MAX).unwrap(), "{}{}");
    }

    #[test]
    fn a_bomb_is_stopped_at_the_cap() {
        let bomb = gzip(&vec![b' '; 8 * 1024 * 1024]);
        assert!(bomb.len() < 20_000);
        assert_eq!(unpack(Coding::Gzip, &bomb, &mut held(), 100_000), Err(ApiError::TooLarge(100_000)));
        let bomb = zstd::encode_all(vec![b' '; 8 * 1024 * 1024].as_slice(), 3).unwrap();
        assert_eq!(unpack(Coding::Zstd, &bomb, &mut held(), 100_000), Err(ApiError::TooLarge(100_000)));
    }

    #[test]
    fn cut_or_foreign_bytes_are_refused() {
        let whole = gzip(b"{\"a\":1}");
        for bytes in [&whole[..whole.len() - 4], b"not packed".as_slice()] {
            for coding in [Coding::Gzip, Coding::Zstd] {
                assert!(matches!(unpack(coding, bytes, &mut held(), 100), Err(ApiError::InvalidBody(_))));
            }
        }
    }

    #[test]
    fn the_budget_is_shared_and_given_back() {
        let budget = BodyBudget::new(0);
        let mut one = budget.hold();
        one.grow_to(2 * BODY_BYTES_MAX).unwrap();
        assert_eq!(budget.hold().grow_to(1), Err(ApiError::Busy));
        drop(one);
        assert_eq!(budget.hold().grow_to(2 * BODY_BYTES_MAX), Ok(()));
    }

    #[test]
    fn unknown_codings_are_named() {
        let mut headers = HeaderMap::new();
        assert_eq!(coding(&headers), Ok(Coding::Identity));
        headers.insert(CONTENT_ENCODING, "GZIP".parse().unwrap());
        assert_eq!(coding(&headers), Ok(Coding::Gzip));
        headers.insert(CONTENT_ENCODING, "br".parse().unwrap());
        assert_eq!(coding(&headers), Err(ApiError::ContentEncoding("br".into())));
    }
}
