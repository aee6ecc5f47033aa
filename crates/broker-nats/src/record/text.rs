//! The record as text.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wavehouse_broker::{Cut, InsertToken};
use wavehouse_core::{LogId, Sequence, TableName, TableRef, TenantId};

/// The form that this build writes, and the only one that it reads.
const VERSION: u32 = 1;

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    /// Who wrote it: a session and the number of its opening.
    pub(super) owner: String,
    /// The log that the sequences belong to.
    pub(super) log: LogId,
    pub(super) cuts: Vec<Cut>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    version: u32,
    owner: String,
    log: String,
    cuts: Vec<CutText>,
}

#[derive(Serialize, Deserialize)]
struct CutText {
    tenant: TenantId,
    table: TableName,
    first: u64,
    last: u64,
    blocks: u32,
    /// Each counted from the one before, which is shorter.
    splits: Vec<u32>,
    done_rows: u32,
    token: String,
}

pub(super) fn write<'a>(owner: &str, log: LogId, cuts: impl Iterator<Item = &'a Cut>) -> Bytes {
    let cuts = cuts.map(|cut| CutText {
        tenant: cut.table.tenant.clone(),
        table: cut.table.table.clone(),
        first: cut.first.0,
        last: cut.last.0,
        blocks: cut.blocks,
        splits: steps(&cut.splits),
        done_rows: cut.done_rows,
        token: cut.token.to_string(),
    });
    let text = Text { version: VERSION, owner: owner.to_owned(), log: log.to_string(), cuts: cuts.collect() };
    // A struct of numbers and strings always has a JSON form.
    serde_json::to_vec(&text).unwrap_or_default().into()
}

pub(super) fn read(value: &[u8]) -> Result<Read, String> {
    let text: Text = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    if text.version != VERSION {
        return Err(format!("it has version {}, this program reads version {VERSION}", text.version));
    }
    let number = |error: std::num::ParseIntError| error.to_string();
    let log = LogId(u64::from_str_radix(&text.log, 16).map_err(number)?);
    let cuts = text.cuts.into_iter().map(|cut| {
        Ok(Cut {
            table: TableRef::new(cut.tenant, cut.table),
            first: Sequence(cut.first),
            last: Sequence(cut.last),
            blocks: cut.blocks,
            splits: sums(&cut.splits),
            done_rows: cut.done_rows,
            token: InsertToken(u128::from_str_radix(&cut.token, 16).map_err(number)?),
        })
    });
    Ok(Read { owner: text.owner, log, cuts: cuts.collect::<Result<_, String>>()? })
}

fn steps(splits: &[u32]) -> Vec<u32> {
    let before = std::iter::once(0).chain(splits.iter().copied());
    splits.iter().zip(before).map(|(split, before)| split.wrapping_sub(before)).collect()
}

fn sums(steps: &[u32]) -> Vec<u32> {
    let mut sum = 0_u32;
    let add = |step: &u32| {
        sum = sum.wrapping_add(*step);
        sum
    };
    steps.iter().map(add).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let cut = Cut {
            table: TableRef::new(TenantId::default(), TableName::parse("page \"views\"").unwrap()),
            first: Sequence(5),
            last: Sequence(u64::MAX),
            blocks: 3,
            splits: vec![1, 7, 4_000_000],
            done_rows: 7,
            token: InsertToken(u128::MAX - 1),
        };
        let cuts = [cut];
        let read = read(&write("s.1", LogId(u64::MAX), cuts.iter())).unwrap();
        assert_eq!(read, Read { owner: "s.1".to_owned(), log: LogId(u64::MAX), cuts: cuts.to_vec() });
    }

    #[test]
    fn most_splits_fit_many_times() {
        let splits: Vec<u32> = (1..=4096).map(|row| row * 1000).collect();
        let text = serde_json::to_vec(&steps(&splits)).unwrap();
        assert!(text.len() < 24 << 10, "{} bytes", text.len());
    }

    #[test]
    fn what_is_not_understood_is_not_guessed_at() {
        for bad in ["", "{}", r#"{"version":2,"owner":"a","log":"0","cuts":[]}"#] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
