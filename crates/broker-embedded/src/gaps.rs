//! Blocks that no file holds any more, as they are found when a queue is opened.
//!
//! Settled ones have been given back; readers of history are told, as far as the time of what is gone can be known.
//! Unsettled ones should be there and are lost; they must not hold up the others.

use crate::footer::read_entries;
use crate::record::Range;
use crate::state::{Spot, State};

impl State {
    /// Takes note of what is missing of a table.
    pub(crate) fn note_gaps(&mut self, id: u32) {
        let gaps = self.gaps(id);
        let Some((_, last)) = gaps.last().copied() else { return };
        let gone_ns = self.gone_before(id, last + 1);
        let Some(table) = self.tables.get_mut(id as usize) else { return };
        table.gone_ns = table.gone_ns.max(gone_ns);
        let open = gaps.iter().flat_map(|(first, last)| table.settled.open_ranges(*first, *last));
        for (first, last) in open.collect::<Vec<_>>() {
            // What is missing of a batch counts as acked, and so its other blocks as stored; here they are not.
            table.cut.take_if(|cut| first <= cut.last.0 && cut.first.0 <= last);
            tracing::error!(table = %table.name, first, last, "unwritten blocks are in no log file; they are given up");
            self.damage.inc_by(last - first + 1);
            table.settled.insert(first, last);
            table.unsaved.push((first, last));
            self.unsaved.insert(id);
        }
        table.check_cut();
    }

    /// Sequences that have been handed out and of which no block is kept.
    fn gaps(&self, id: u32) -> Vec<Range> {
        let mut gaps = Vec::new();
        let Some(table) = self.table(id) else { return gaps };
        let mut at = 1;
        while at < table.end {
            match self.next_kept(id, at).filter(|kept| *kept < table.end) {
                Some(kept) if kept == at => {
                    at = table.parts.find(at).map_or(at + 1, |part| part.first + u64::from(part.count));
                }
                kept => {
                    let end = kept.unwrap_or(table.end);
                    gaps.push((at, end - 1));
                    at = end;
                }
            }
        }
        gaps
    }

    /// A receipt time that what stood before `next` was not later than: that of `next`, or if it is not there either, the
    /// latest that is known at all. Rather too late than too early: a hole too many is told, never one too few.
    fn gone_before(&self, id: u32, next: u64) -> u64 {
        let known = self.locate(id, next).and_then(|(number, spot)| match spot {
            Spot::Known(entry) => Some(entry.last_ns),
            Spot::InFile(at) => {
                read_entries(&*self.files.get(&number)?.file, at, 1).ok()?.first().map(|entry| entry.last_ns)
            }
        });
        known.unwrap_or_else(|| self.files.values().map(|file| file.last_ns).max().unwrap_or(0)).max(1)
    }
}
