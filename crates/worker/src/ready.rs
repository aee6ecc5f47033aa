//! When the open batch of a table may go. Pure: what is in hand and when things happened, in; a moment, out.

use std::time::Duration;

use tokio::time::Instant;

use crate::options::Options;

/// What is in hand of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// When the oldest of it arrived.
    pub(crate) since: Instant,
    /// When the table's last insert began.
    pub(crate) last_insert: Option<Instant>,
}

/// The moment from which the batch may go, if no insert of its table is in flight.
///
/// A batch goes after its linger, or as soon as it is large enough; but not within the spacing after the table's last
/// insert, during which it grows, unless it has reached the size where growing ends.
pub(crate) fn ready_at(pending: &Pending, options: &Options) -> Instant {
    let full = pending.rows >= options.batch_rows || pending.bytes >= options.batch_bytes;
    let overfull = pending.rows >= options.batch_rows_max || pending.bytes >= options.batch_bytes_max;
    let linger = if full { Duration::ZERO } else { options.linger };
    let lingered = pending.since + linger;
    match pending.last_insert {
        Some(began) if !overfull => lingered.max(began + options.insert_spacing),
        _ => lingered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        let options = Options::default();
        let start = Instant::now();
        let ms = Duration::from_millis;
        for (rows, bytes, last_insert, wanted, why) in [
            (1, 1, None, ms(1000), "a lone row lingers"),
            (10_000, 1, None, ms(0), "enough rows go at once"),
            (1, 8 << 20, None, ms(0), "enough bytes go at once"),
            (10_000, 1, Some(ms(0)), ms(500), "enough rows wait for the spacing"),
            (1, 1, Some(ms(0)), ms(1000), "linger is longer than the spacing"),
            (1, 1, Some(ms(900)), ms(1400), "spacing may end after the linger"),
            (500_000, 1, Some(ms(0)), ms(0), "too many rows do not wait"),
            (1, 64 << 20, Some(ms(0)), ms(0), "too many bytes do not wait"),
        ] {
            let pending =
                Pending { rows, bytes, since: start, last_insert: last_insert.map(|after| start + after) };
            assert_eq!(ready_at(&pending, &options), start + wanted, "{why}");
        }
    }
}
