//! The state of every table, at the head of every log file, so that nothing before it must be read to know what is
//! settled.

use wavehouse_broker::Cut;
use wavehouse_core::{LogId, TableRef};

use crate::codec::{Fields, Put, len_u32};
use crate::record::{HEAD_BYTES, put_cut, put_ranges, put_table, take_cut, take_ranges, take_table};
use crate::settled::Settled;
use crate::state::Table;

/// One table as a checkpoint tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedTable {
    pub(crate) name: TableRef,
    pub(crate) end: u64,
    pub(crate) settled: Settled,
    pub(crate) gone_ns: u64,
    pub(crate) cut: Option<Cut>,
}

/// The content of a checkpoint. A table's id is its place.
pub(crate) fn put_checkpoint(out: &mut Vec<u8>, log: LogId, tables: &[Table]) {
    out.put_u64(log.0);
    out.put_u32(len_u32(tables.len()));
    for table in tables {
        put_table(out, &table.name);
        out.put_u64(table.end);
        out.put_u64(table.gone_ns);
        out.put_u64(table.settled.floor());
        put_ranges(out, table.settled.above());
        out.put_u8(u8::from(table.cut.is_some()));
        if let Some(cut) = &table.cut {
            put_cut(out, cut);
        }
    }
}

/// Bytes of a checkpoint record.
pub(crate) fn checkpoint_bytes(tables: &[Table]) -> usize {
    let of_table = |table: &Table| {
        let names = table.name.tenant.as_str().len() + table.name.table.as_str().len();
        let cut = table.cut.as_ref().map_or(0, crate::record::cut_bytes);
        names + 40 + 16 * table.settled.above().len() + cut
    };
    HEAD_BYTES + 16 + tables.iter().map(of_table).sum::<usize>()
}

/// Reads what [`put_checkpoint`] wrote.
pub(crate) fn take_checkpoint(content: &[u8]) -> Option<(LogId, Vec<SavedTable>)> {
    let mut fields = Fields::new(content);
    let log = LogId(fields.u64()?);
    let count = fields.u32()?;
    let tables = (0..count).map(|_| take_saved(&mut fields)).collect::<Option<_>>()?;
    fields.is_empty().then_some((log, tables))
}

fn take_saved(fields: &mut Fields<'_>) -> Option<SavedTable> {
    let name = take_table(fields)?;
    let (end, gone_ns, floor) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let mut settled = Settled::new(floor);
    for (first, last) in take_ranges(fields)? {
        settled.insert(first, last);
    }
    let cut = if fields.u8()? == 1 { Some(take_cut(fields, name.clone())?) } else { None };
    Some(SavedTable { name, end, settled, gone_ns, cut })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wavehouse_broker::{InsertToken, TenantLimits};
    use wavehouse_core::{Sequence, TableName, TenantId};

    use super::*;
    use crate::tenant::Tenants;

    #[test]
    fn tables_come_back() {
        let tenants =
            Tenants::new(TenantLimits { unwritten_bytes_max: 1, gap_window: Duration::from_secs(1) });
        let tenant = tenants.enter(&TenantId::default()).unwrap();
        let tables: Vec<_> = (1..4_u64)
            .map(|n| {
                let name = TableRef::new(TenantId::default(), TableName::parse(&format!("t{n}")).unwrap());
                let mut table = Table::new(name.clone(), std::sync::Arc::clone(&tenant));
                table.end = 10 * n;
                table.gone_ns = n;
                table.settled = Settled::new(n);
                table.settled.insert(n + 3, n + 4);
                let (first, last) = (Sequence(n), Sequence(n + 1));
                let token = InsertToken(7);
                table.cut = (n == 2).then_some(Cut {
                    table: name,
                    first,
                    last,
                    blocks: 2,
                    splits: vec![3],
                    done_rows: 1,
                    token,
                });
                table
            })
            .collect();
        let mut bytes = Vec::new();
        put_checkpoint(&mut bytes, LogId(9), &tables);
        assert!(bytes.len() + HEAD_BYTES <= checkpoint_bytes(&tables));
        let (log, saved) = take_checkpoint(&bytes).unwrap();
        assert_eq!(log, LogId(9));
        for (saved, table) in saved.iter().zip(&tables) {
            let same = SavedTable {
                name: table.name.clone(),
                end: table.end,
                settled: table.settled.clone(),
                gone_ns: table.gone_ns,
                cut: table.cut.clone(),
            };
            assert_eq!(*saved, same);
        }
        bytes.pop();
        assert_eq!(take_checkpoint(&bytes), None);
    }
}
