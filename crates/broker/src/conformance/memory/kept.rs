//! What the memory store keeps: blocks, which of them are acked, cuts and letters.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use wavehouse_core::{LogId, Position, RowBlock, Sequence, TableRef, TenantId, Timestamp};

use super::MemoryOptions;
use crate::contract::{Receipt, SweepReport, TableDepth, TenantLimits};
use crate::cut::Cut;
use crate::errors::PublishError;
use crate::letter::{DeadLetter, LetterCounts, LetterCursor, LetterFilter, LetterPage, REASON_BYTES_MAX};
use crate::unit::StoredBlock;

/// A block and what has become of it.
pub(super) struct KeptBlock {
    pub(super) block: RowBlock,
    pub(super) acked: bool,
    /// Whether it cannot be read.
    pub(super) damaged: bool,
    /// Order of arrival among all tables.
    pub(super) serial: u64,
}

/// The blocks of one table.
pub(super) struct KeptTable {
    /// Index in [`Kept::names`].
    pub(super) number: u32,
    pub(super) blocks: BTreeMap<Sequence, KeptBlock>,
    /// The sequence that the next block gets.
    pub(super) next: Sequence,
    /// Every block before this one is acked.
    pub(super) floor: Sequence,
    pub(super) cut: Option<Cut>,
    /// Latest receipt time of what a sweep took.
    pub(super) swept_to: Option<Timestamp>,
}

/// Everything that a crash leaves, and the acks that it does not.
pub(super) struct Kept {
    pub(super) log: LogId,
    pub(super) tables: BTreeMap<TableRef, KeptTable>,
    names: Vec<TableRef>,
    serial: u64,
    unwritten: HashMap<TenantId, u64>,
    /// Acks that are not durable yet.
    fresh_acks: Vec<(TableRef, Sequence)>,
    letters: BTreeMap<(TableRef, Position), DeadLetter>,
}

impl Kept {
    pub(super) fn new(log: LogId) -> Self {
        Self {
            log,
            tables: BTreeMap::new(),
            names: Vec::new(),
            serial: 0,
            unwritten: HashMap::new(),
            fresh_acks: Vec::new(),
            letters: BTreeMap::new(),
        }
    }

    /// Stores blocks, merging neighbours of one table. One result a block.
    pub(super) fn publish(
        &mut self,
        blocks: Vec<RowBlock>,
        options: &MemoryOptions,
        limits: impl Fn(&TenantId) -> TenantLimits,
    ) -> Vec<Result<Receipt, PublishError>> {
        let mut last: Option<(TableRef, Sequence)> = None;
        let mut results = Vec::with_capacity(blocks.len());
        for block in blocks {
            let (bytes, tenant) = (block.encoded_len() as u64, block.table.tenant.clone());
            let used = self.unwritten.entry(tenant.clone()).or_default();
            let budget_bytes = limits(&tenant).unwritten_bytes_max;
            if bytes > options.block_bytes_max as u64 {
                let bytes_max = options.block_bytes_max as u64;
                results.push(Err(PublishError::TooLarge { bytes, bytes_max }));
            } else if *used + bytes > budget_bytes {
                results.push(Err(PublishError::TenantFull { tenant, budget_bytes }));
            } else {
                *used += bytes;
                let table = block.table.clone();
                let into = last.take().filter(|(earlier, _)| *earlier == table).map(|(_, sequence)| sequence);
                let first = self.append(block, into, options.merge_bytes);
                last = Some((table, first.sequence));
                results.push(Ok(Receipt { first }));
            }
        }
        results
    }

    fn append(&mut self, block: RowBlock, into: Option<Sequence>, merge_bytes: usize) -> Position {
        let (log, number) = (self.log, u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        let table = self.tables.entry(block.table.clone()).or_insert_with_key(|name| {
            self.names.push(name.clone());
            KeptTable {
                number,
                blocks: BTreeMap::new(),
                next: Sequence::FIRST,
                floor: Sequence::FIRST,
                cut: None,
                swept_to: None,
            }
        });
        if let Some((sequence, earlier)) = into.and_then(|at| Some((at, table.blocks.get_mut(&at)?)))
            && earlier.block.lines.len() + block.lines.len() <= merge_bytes
        {
            let row = earlier.block.rows();
            earlier.block.segments.extend(block.segments);
            earlier.block.lines = joined(&earlier.block.lines, &block.lines);
            return Position::new(log, sequence, row);
        }
        let sequence = table.next;
        table.next = sequence.next();
        self.serial += 1;
        table.blocks.insert(sequence, KeptBlock { block, acked: false, damaged: false, serial: self.serial });
        Position::new(log, sequence, 0)
    }

    pub(super) fn stored(&self, table: &TableRef, sequence: Sequence) -> Option<StoredBlock> {
        let kept = self.tables.get(table)?.blocks.get(&sequence)?;
        Some(StoredBlock { log: self.log, sequence, stored_ms: 0, block: kept.block.clone() })
    }

    pub(super) fn ack(&mut self, table_number: u32, sequence: Sequence) {
        let Some(name) = self.names.get(table_number as usize) else { return };
        let Some(table) = self.tables.get_mut(name) else { return };
        let Some(kept) = table.blocks.get_mut(&sequence).filter(|kept| !kept.acked) else { return };
        kept.acked = true;
        let bytes = kept_bytes(&kept.block);
        table.floor = table.first_open().unwrap_or(table.next);
        if let Some(used) = self.unwritten.get_mut(&name.tenant) {
            *used = used.saturating_sub(bytes);
        }
        self.fresh_acks.push((name.clone(), sequence));
    }

    /// Makes every ack durable.
    pub(super) fn keep_acks(&mut self) {
        self.fresh_acks.clear();
    }

    /// What a crash does to acks that are not durable.
    pub(super) fn forget_acks(&mut self) {
        for (name, sequence) in std::mem::take(&mut self.fresh_acks) {
            let Some(table) = self.tables.get_mut(&name) else { continue };
            let Some(kept) = table.blocks.get_mut(&sequence) else { continue };
            kept.acked = false;
            *self.unwritten.entry(name.tenant.clone()).or_default() += kept_bytes(&kept.block);
            table.floor = table.floor.min(sequence);
        }
    }

    /// The cuts whose blocks are not all acked; the others are forgotten.
    pub(super) fn open_cuts(&mut self) -> Vec<Cut> {
        for table in self.tables.values_mut() {
            let blocks = &table.blocks;
            table.cut =
                table.cut.take().filter(|cut| blocks.range(cut.first..=cut.last).any(|(_, b)| !b.acked));
        }
        self.tables.values().filter_map(|table| table.cut.clone()).collect()
    }

    pub(super) fn sweep(&mut self, now: Timestamp, window: impl Fn(&TenantId) -> Duration) -> SweepReport {
        self.keep_acks();
        let mut report = SweepReport::default();
        for (name, table) in &mut self.tables {
            let window = window(&name.tenant);
            table.blocks.retain(|_, kept| {
                let received_at = kept.block.received_at();
                let goes = kept.acked && now.since(received_at) > window;
                if goes {
                    report.freed_bytes += kept_bytes(&kept.block);
                    table.swept_to = table.swept_to.max(Some(received_at));
                }
                !goes
            });
        }
        report
    }

    pub(super) fn depths(&self) -> Vec<TableDepth> {
        let depth = |(name, table): (&TableRef, &KeptTable)| {
            let open = || table.blocks.values().filter(|kept| !kept.acked);
            open().next()?;
            Some(TableDepth {
                table: name.clone(),
                unwritten_rows: open().map(|kept| u64::from(kept.block.rows())).sum(),
                unwritten_bytes: open().map(|kept| kept_bytes(&kept.block)).sum(),
                oldest_unwritten: open().flat_map(|kept| &kept.block.segments).map(|s| s.received_at).min(),
            })
        };
        self.tables.iter().filter_map(depth).collect()
    }

    pub(super) fn bury(&mut self, letters: Vec<DeadLetter>) {
        for mut letter in letters {
            letter.reason.truncate(letter.reason.floor_char_boundary(REASON_BYTES_MAX));
            self.letters.entry((letter.table.clone(), letter.position)).or_insert(letter);
        }
    }

    pub(super) fn letter_counts(&self, tenant: &TenantId) -> LetterCounts {
        let mut counts = LetterCounts::default();
        for (table, _) in self.letters.keys().filter(|(table, _)| table.tenant == *tenant) {
            *counts.tables.entry(table.table.clone()).or_default() += 1;
        }
        counts
    }

    pub(super) fn letters(
        &self,
        filter: &LetterFilter,
        after: Option<&LetterCursor>,
        limit: usize,
    ) -> LetterPage {
        let wanted = |letter: &&DeadLetter| {
            letter.table.tenant == filter.tenant
                && filter.table.as_ref().is_none_or(|table| letter.table.table == *table)
                && filter.code.is_none_or(|code| letter.code == Some(code))
                && filter.from.is_none_or(|from| letter.buried_at >= from)
                && filter.until.is_none_or(|until| letter.buried_at < until)
                && after.is_none_or(|after| {
                    (&letter.table.table, letter.position) > (&after.table, after.position)
                })
        };
        let mut matching = self.letters.values().filter(wanted);
        let letters = matching.by_ref().take(limit).cloned().collect();
        LetterPage { letters, more: matching.next().is_some() }
    }

    pub(super) fn drop_letters(&mut self, table: &TableRef, positions: &[Position]) -> u64 {
        let gone = |position: &&Position| self.letters.remove(&(table.clone(), **position)).is_some();
        positions.iter().filter(gone).count() as u64
    }
}

impl KeptTable {
    /// The first block that is not acked.
    fn first_open(&self) -> Option<Sequence> {
        self.blocks.range(self.floor..).find(|(_, kept)| !kept.acked).map(|(sequence, _)| *sequence)
    }
}

fn kept_bytes(block: &RowBlock) -> u64 {
    block.encoded_len() as u64
}

fn joined(first: &Bytes, second: &Bytes) -> Bytes {
    let mut bytes = BytesMut::with_capacity(first.len() + second.len());
    bytes.extend_from_slice(first);
    bytes.extend_from_slice(second);
    bytes.freeze()
}
