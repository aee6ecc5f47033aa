//! How much of each table waits.

use std::sync::Arc;

use wavehouse_broker::TableDepth;
use wavehouse_core::Timestamp;

use crate::files::LogFile;
use crate::footer::read_entries;
use crate::shared::Shared;
use crate::state::Spot;

/// Tables with unwritten rows. The oldest row's time is looked up in the file's index where it is not in memory, after the
/// lock is given back.
pub(crate) fn depths(shared: &Shared) -> Vec<TableDepth> {
    let waiting: Vec<Waiting> = {
        let state = shared.state();
        let tables = (0_u32..).zip(&state.tables);
        let waiting = tables.filter_map(|(id, table)| {
            let oldest = table.settled.first_open(1);
            if oldest >= table.end {
                return None;
            }
            let depth = TableDepth {
                table: table.name.clone(),
                unwritten_rows: table.unwritten_rows,
                unwritten_bytes: table.unwritten_bytes,
                oldest_unwritten: None,
            };
            let at = state
                .locate(id, oldest)
                .and_then(|(number, spot)| Some((Arc::clone(&state.files.get(&number)?.file), spot)));
            Some((depth, at))
        });
        waiting.collect()
    };
    waiting.into_iter().map(tell).collect()
}

/// A table, and where its oldest unwritten block is.
type Waiting = (TableDepth, Option<(Arc<dyn LogFile>, Spot)>);

fn tell((mut depth, at): Waiting) -> TableDepth {
    let first_ns = at.and_then(|(file, spot)| match spot {
        Spot::Known(entry) => Some(entry.first_ns),
        Spot::InFile(at) => read_entries(&*file, at, 1).ok()?.first().map(|entry| entry.first_ns),
    });
    depth.oldest_unwritten = first_ns.map(Timestamp);
    depth
}
