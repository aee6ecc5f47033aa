//! What the records of a log file mean: applied one after the other.

use std::collections::BTreeMap;

use bytes::Bytes;
use wavehouse_core::decode_block;

use crate::codec::{Fields, len_u32};
use crate::footer::Entry;
use crate::record::{Kind, Record, take_cut, take_ranges, take_table};
use crate::scan::Scan;
use crate::state::State;
use crate::tenant::Tenants;

/// The records of one file on their way into the state.
pub(crate) struct Replay<'a> {
    state: &'a mut State,
    tenants: &'a Tenants,
    number: u32,
    /// The blocks in the file, by table and sequence.
    pub(crate) entries: BTreeMap<(u32, u64), Entry>,
    /// Whether anything was not as it should be.
    pub(crate) damaged: bool,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(state: &'a mut State, tenants: &'a Tenants, number: u32) -> Self {
        Self { state, tenants, number, entries: BTreeMap::new(), damaged: false }
    }

    /// Takes up everything.
    pub(crate) fn all(&mut self, scan: &Scan<'_>) {
        self.tell_damage(scan);
        for (at, record) in &scan.records {
            if self.apply(*at, record, scan).is_none() {
                self.damage(*at, "a record does not say what it should");
            }
        }
    }

    /// Only notes where blocks stand: the rest is in a later checkpoint.
    pub(crate) fn index_only(&mut self, scan: &Scan<'_>) {
        self.tell_damage(scan);
        for (at, record) in &scan.records {
            let block = matches!(record.head.kind, Kind::Block | Kind::Moved);
            if block && self.note(*at, record).is_none() {
                self.damage(*at, "a record does not hold a block");
            }
        }
    }

    fn tell_damage(&mut self, scan: &Scan<'_>) {
        for (from, _) in &scan.damage {
            self.damage(*from, "a record has changed since it was written");
        }
    }

    fn damage(&mut self, at: usize, why: &str) {
        tracing::error!(file = self.number, offset = at, why, "a log file is damaged; it is kept");
        self.state.damage.inc();
        self.damaged = true;
    }

    fn apply(&mut self, at: usize, record: &Record<'_>, scan: &Scan<'_>) -> Option<()> {
        let mut fields = Fields::new(record.content);
        let id = record.head.table;
        match record.head.kind {
            Kind::Checkpoint | Kind::Open => {}
            Kind::Table => {
                let name = take_table(&mut fields)?;
                if id == len_u32(self.state.tables.len()) {
                    self.state.add_table(&name, self.tenants.enter(&name.tenant)?);
                }
            }
            Kind::Block => {
                self.note(at, record)?;
                let sequence = record.head.sequence;
                let table = self.state.table_mut(id)?;
                let expected = table.end;
                table.end = expected.max(sequence + 1);
                for missing in expected..sequence {
                    self.miss(id, missing, at, scan);
                }
            }
            Kind::Moved => self.note(at, record)?,
            Kind::Settle => {
                let ranges = take_ranges(&mut fields)?;
                let table = self.state.table_mut(id)?;
                for (first, last) in ranges {
                    table.settled.insert(first, last);
                }
                table.check_cut();
            }
            Kind::Cut => {
                let table = self.state.table_mut(id)?;
                table.cut = Some(take_cut(&mut fields, table.name.clone())?);
            }
        }
        Some(())
    }

    /// A block that must have stood in a damaged stretch: it stays unsettled, so that its file is kept.
    fn miss(&mut self, id: u32, sequence: u64, before: usize, scan: &Scan<'_>) {
        let damage = scan.damage.iter().rev().find(|(from, _)| *from < before);
        let Some((from, _)) = damage else { return };
        let offset = len_u32(*from);
        let entry = Entry { sequence, offset, bytes: 0, rows: 0, first_ns: 0, last_ns: 0 };
        self.entries.insert((id, sequence), entry);
        if let Some(table) = self.state.table_mut(id) {
            table.damaged.insert(sequence);
        }
    }

    fn note(&mut self, at: usize, record: &Record<'_>) -> Option<()> {
        let (id, sequence) = (record.head.table, record.head.sequence);
        let name = self.state.table(id)?.name.clone();
        let block = decode_block(name, &Bytes::copy_from_slice(record.content)).ok()?;
        let entry = Entry {
            sequence,
            offset: len_u32(at),
            bytes: record.head.bytes,
            rows: block.rows(),
            first_ns: block.segments.first().map_or(0, |segment| segment.received_at.0),
            last_ns: block.received_at().0,
        };
        self.entries.insert((id, sequence), entry);
        Some(())
    }
}
