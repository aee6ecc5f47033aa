//! The logs of this queue: each partition stream is one, from the moment it was created.

use wavehouse_core::LogId;

/// The id of a partition stream. A stream that was deleted and made again numbers its messages from 1 again, so the moment
/// of its creation is part of its name; every process computes the same.
pub(crate) fn log_id(stream: &str, created: &str) -> LogId {
    // FNV-1a, 64 bits.
    let bytes = stream.bytes().chain([0]).chain(created.bytes());
    LogId(
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_made_again_is_another_log() {
        let one = log_id("WH_INGEST_0", "2026-11-30T22:00:00.123456789Z");
        assert_eq!(one, log_id("WH_INGEST_0", "2026-11-30T22:00:00.123456789Z"));
        assert_ne!(one, log_id("WH_INGEST_0", "2026-11-30T22:00:00.123456788Z"));
        assert_ne!(one, log_id("WH_INGEST_1", "2026-11-30T22:00:00.123456789Z"));
    }
}
