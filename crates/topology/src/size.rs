//! Sizes in bytes, and how a server's file store is shared out among the streams.

/// Largest size that is read, in bytes.
pub const SIZE_BYTES_MAX: u64 = 1 << 62;
/// The file store that streams are sized for unless told otherwise, in bytes: 100Gi.
pub const FILE_STORE_BYTES: u64 = 100 << 30;

/// Why a text is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// It is not a whole number with one of the suffixes.
    #[error("{0:?} is not a whole number of bytes with an optional k, M, G, T, Ki, Mi, Gi or Ti")]
    Malformed(String),
    /// It is over 2^62 bytes.
    #[error("{0:?} is over 2^62 bytes")]
    TooLarge(String),
}

const SUFFIXES: [(&str, u64); 9] = [
    ("", 1),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];

/// Reads a size: `100Gi`, `16M`, `1000`.
///
/// # Errors
/// [`SizeError`] when it is no such number or over 2^62 bytes.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let (digits, suffix) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let scale = SUFFIXES.iter().find(|(known, _)| *known == suffix).map(|(_, scale)| *scale);
    let (false, Some(scale)) = (digits.is_empty(), scale) else {
        return Err(SizeError::Malformed(text.to_owned()));
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    bytes.filter(|bytes| *bytes <= SIZE_BYTES_MAX).ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

/// Writes a size with the largest power of 1024 that divides it: `1536Mi`, `1000`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let binary = SUFFIXES
        .iter()
        .rev()
        .find(|(suffix, scale)| suffix.ends_with('i') && bytes > 0 && bytes.is_multiple_of(*scale));
    binary.map_or_else(|| bytes.to_string(), |(suffix, scale)| format!("{}{suffix}", bytes / scale))
}

/// Why the streams do not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizingError {
    /// The streams together are larger than a server's file store.
    #[error(
        "{partitions} partitions of {} ({}), history {} and dead letters {} reserve {}, but the file store has {}; \
         give a larger --file-store or a smaller --partition-max-bytes",
        format_size(*partition_bytes), format_size(partition_bytes.saturating_mul(*partitions)),
        format_size(*history_bytes), format_size(*dead_letter_bytes), format_size(*reserved_bytes),
        format_size(*file_store_bytes)
    )]
    OverStore {
        /// How many partitions.
        partitions: u64,
        /// Of each, in bytes.
        partition_bytes: u64,
        /// In bytes.
        history_bytes: u64,
        /// In bytes.
        dead_letter_bytes: u64,
        /// All of them together, in bytes.
        reserved_bytes: u64,
        /// What each server has, in bytes.
        file_store_bytes: u64,
    },
    /// The file store is so small that a stream would have no bytes.
    #[error("a file store of {} leaves a stream without bytes; give a larger --file-store", format_size(*.0))]
    NoBytes(u64),
}

/// What each stream may hold on a server's disk, in bytes. The lease bucket is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizing {
    /// Each server's file store.
    pub file_store_bytes: u64,
    /// Each partition: 15 % of the store unless told otherwise. It does not depend on the number of partitions, so that
    /// removing some never needs more store while they drain.
    pub partition_bytes: u64,
    /// The history: 10 %.
    pub history_bytes: u64,
    /// The dead letters: 5 %.
    pub dead_letter_bytes: u64,
    /// All streams together.
    pub reserved_bytes: u64,
}

impl Sizing {
    /// Shares out a file store.
    ///
    /// # Errors
    /// [`SizingError`] when the streams are larger than the store or one of them has no bytes.
    pub fn new(
        file_store_bytes: u64,
        partition_bytes: Option<u64>,
        partitions: u16,
    ) -> Result<Self, SizingError> {
        let partition_bytes = partition_bytes.unwrap_or(file_store_bytes / 100 * 15);
        let (history_bytes, dead_letter_bytes) = (file_store_bytes / 10, file_store_bytes / 20);
        if partition_bytes == 0 || dead_letter_bytes == 0 {
            return Err(SizingError::NoBytes(file_store_bytes));
        }
        let partitions = u64::from(partitions);
        let reserved_bytes = partition_bytes
            .saturating_mul(partitions)
            .saturating_add(history_bytes)
            .saturating_add(dead_letter_bytes);
        if reserved_bytes > file_store_bytes {
            return Err(SizingError::OverStore {
                partitions,
                partition_bytes,
                history_bytes,
                dead_letter_bytes,
                reserved_bytes,
                file_store_bytes,
            });
        }
        Ok(Self { file_store_bytes, partition_bytes, history_bytes, dead_letter_bytes, reserved_bytes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GI: u64 = 1 << 30;

    #[test]
    fn case_33_sizes_are_read_and_written() {
        for (text, bytes) in [
            ("0", 0),
            ("1000", 1_000),
            ("2k", 2_000),
            ("3M", 3_000_000),
            ("4G", 4_000_000_000),
            ("5T", 5_000_000_000_000),
            ("1Ki", 1 << 10),
            ("1Mi", 1 << 20),
            ("100Gi", 100 << 30),
            ("4194304Ti", 1 << 62),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "Gi", "1.5Gi", "-1", "+1", "10GB", "10 G", "1K", "1ki", "1e3", "٣"] {
            assert_eq!(parse_size(bad), Err(SizeError::Malformed(bad.to_owned())), "{bad}");
        }
        for large in ["4194305Ti", "99999999999999999999", "4611686018427387905"] {
            assert_eq!(parse_size(large), Err(SizeError::TooLarge(large.to_owned())), "{large}");
        }
        for (bytes, text) in [
            (0, "0"),
            (1_000, "1000"),
            (1 << 10, "1Ki"),
            (1536 << 20, "1536Mi"),
            (GI, "1Gi"),
            (1 << 41, "2Ti"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }

    #[test]
    fn case_31_what_does_not_fit_is_refused_part_by_part() {
        let fits = |partition: Option<u64>, partitions| Sizing::new(100 * GI, partition, partitions);
        assert_eq!(fits(None, 5).map(|sizing| sizing.reserved_bytes), Ok(90 * GI));
        assert_eq!(fits(Some(10 * GI), 6).map(|sizing| sizing.reserved_bytes), Ok(75 * GI));
        assert!(fits(Some(86 * GI), 1).is_err());
        assert_eq!(
            fits(None, 6).map_err(|error| error.to_string()),
            Err("6 partitions of 15Gi (90Gi), history 10Gi and dead letters 5Gi reserve 105Gi, but the file store has \
                 100Gi; give a larger --file-store or a smaller --partition-max-bytes"
                .to_owned())
        );
        assert_eq!(Sizing::new(10, None, 1), Err(SizingError::NoBytes(10)));
        assert_eq!(Sizing::new(100 * GI, Some(0), 1), Err(SizingError::NoBytes(100 * GI)));
        assert!(fits(Some(SIZE_BYTES_MAX), 1024).is_err(), "the sum saturates");
    }

    #[test]
    fn case_32_a_partition_does_not_depend_on_their_number() {
        let sizes: Vec<_> =
            (1..=5).map(|n| Sizing::new(100 * GI, None, n).unwrap().partition_bytes).collect();
        assert_eq!(sizes, [15 * GI; 5]);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes in 0..=SIZE_BYTES_MAX) {
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }

        #[test]
        fn reading_never_panics(text in any::<String>()) {
            let _read = parse_size(&text);
        }
    }
}
