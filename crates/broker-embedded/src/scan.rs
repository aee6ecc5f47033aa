//! Walks through the records of a log file that has no index: pure.
//!
//! Where no record of the file and run stands, either the log ends or what stood there is damaged. It is damage when a
//! record further on belongs to a commit that began later: a commit begins only when all before is durable. Otherwise
//! what follows is what a crash tore, and nobody was told of it.

use memchr::memmem;

use crate::record::{Kind, MAGIC, Record};

/// What stands in a log file.
#[derive(Debug, Default)]
pub(crate) struct Scan<'a> {
    /// Its records and where they begin.
    pub(crate) records: Vec<(usize, Record<'a>)>,
    /// Damaged stretches: from and to.
    pub(crate) damage: Vec<(usize, usize)>,
    /// Where the log ends.
    pub(crate) end: usize,
}

/// Walks through the bytes of log file `number`.
pub(crate) fn scan(bytes: &[u8], number: u32) -> Scan<'_> {
    let (mut scan, mut run) = (Scan::default(), None);
    while let Some(rest) = bytes.get(scan.end..) {
        let here = Record::read(rest).filter(|record| belongs(record, number, scan.end, run));
        if let Some(record) = here {
            if matches!(record.head.kind, Kind::Checkpoint | Kind::Open) {
                run = Some(record.head.place.run);
            }
            scan.records.push((scan.end, record));
            scan.end += record.head.record_bytes();
            continue;
        }
        let Some(next) = resume(bytes, number, scan.end, run) else { break };
        scan.damage.push((scan.end, next));
        scan.end = next;
    }
    scan
}

fn belongs(record: &Record<'_>, number: u32, at: usize, run: Option<u32>) -> bool {
    let place = record.head.place;
    place.file == number
        && place.commit as usize <= at
        && match record.head.kind {
            Kind::Checkpoint => at == 0,
            Kind::Open => true,
            _ => run.is_none_or(|run| run == place.run),
        }
}

/// Where the log goes on after damage at `at`; none when it ends there.
fn resume(bytes: &[u8], number: u32, at: usize, run: Option<u32>) -> Option<usize> {
    let mut first = None;
    for found in memmem::find_iter(bytes.get(at + 1..)?, &MAGIC) {
        let place = at + 1 + found;
        let Some(record) = bytes.get(place..).and_then(Record::read) else { continue };
        if !belongs(&record, number, place, run) {
            continue;
        }
        let first = *first.get_or_insert(place);
        if record.head.place.commit as usize > at {
            return Some(first);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Place, write};

    struct Log(Vec<u8>);

    impl Log {
        fn new() -> Self {
            let mut log = Self(Vec::new());
            log.add(Kind::Checkpoint, 1, 0, 0);
            log
        }

        fn add(&mut self, kind: Kind, run: u32, commit: usize, sequence: u64) {
            let place = Place { file: 5, run, commit: u32::try_from(commit).unwrap() };
            write(&mut self.0, kind, place, (0, sequence), |out| out.extend_from_slice(b"WHLcontent"));
        }

        fn commit(&mut self, run: u32, sequences: &[u64]) -> Vec<usize> {
            let commit = self.0.len();
            let one = |sequence: &u64| {
                let at = self.0.len();
                self.add(Kind::Block, run, commit, *sequence);
                at
            };
            sequences.iter().map(one).collect()
        }
    }

    fn sequences(scan: &Scan<'_>) -> Vec<u64> {
        let blocks = scan.records.iter().filter(|(_, record)| record.head.kind == Kind::Block);
        blocks.map(|(_, record)| record.head.sequence).collect()
    }

    #[test]
    fn an_intact_log_ends_at_zeros_or_at_records_of_another_file() {
        let mut log = Log::new();
        log.commit(1, &[1, 2]);
        log.commit(1, &[3]);
        let end = log.0.len();
        for tail in [vec![0; 500], log.0.clone()] {
            let mut bytes = log.0.clone();
            bytes.extend(tail);
            // The same bytes as if they were left over from a file of another number.
            let other = Place { file: 4, run: 1, commit: 9000 };
            write(&mut bytes, Kind::Block, other, (0, 9), |_| {});
            let found = scan(&bytes, 5);
            assert_eq!((sequences(&found), found.end, found.damage.len()), (vec![1, 2, 3], end, 0));
        }
    }

    #[test]
    fn a_torn_commit_is_the_end() {
        let mut log = Log::new();
        log.commit(1, &[1]);
        let torn = log.commit(1, &[2, 3, 4]);
        log.0[torn[1] + 3] ^= 1;
        let found = scan(&log.0, 5);
        assert_eq!((sequences(&found), found.end, found.damage.len()), (vec![1, 2], torn[1], 0));
    }

    #[test]
    fn damage_before_a_later_commit_is_told_and_passed_over() {
        let mut log = Log::new();
        log.commit(1, &[1]);
        let hurt = log.commit(1, &[2, 3, 4]);
        log.commit(1, &[5]);
        log.0[hurt[1] + 40] ^= 1;
        let found = scan(&log.0, 5);
        assert_eq!(sequences(&found), [1, 2, 4, 5]);
        assert_eq!(found.damage, [(hurt[1], hurt[2])]);
        assert_eq!(found.end, log.0.len());
    }

    #[test]
    fn what_a_torn_commit_left_is_not_taken_for_the_next_run() {
        let mut log = Log::new();
        log.commit(1, &[1]);
        let torn = log.commit(1, &[2, 3, 4]);
        // The next run writes over it, as long as the first record that was torn.
        let mut next = Log(log.0[..torn[0]].to_vec());
        next.add(Kind::Open, 2, torn[0], 0);
        next.0.extend_from_slice(&log.0[next.0.len()..]);
        let found = scan(&next.0, 5);
        assert_eq!((sequences(&found), found.end), (vec![1], torn[1]));
    }
}
