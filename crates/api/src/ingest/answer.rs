//! What a sender of rows gets back: one word for a single row, a line an accepted or refused record for a batch.

use std::fmt::Write;

use wavehouse_rows::RowError;

/// Most entries of `results`; the counts stay exact beyond it.
pub(crate) const RESULTS_MAX: u64 = 10_000;

/// The answer to a single accepted row.
pub(crate) const SINGLE: &str = "{\"ok\":true}\n";

/// The answer to a batch of `total` records, of which `refused` (1-based index, ascending) were not accepted.
///
/// Written by hand and not through a tree: it has an entry a record, on the path that every batch takes.
pub(crate) fn batch(total: u64, refused: &[(u64, RowError)]) -> String {
    let failed = refused.len() as u64;
    let shown = total.min(RESULTS_MAX);
    let mut out = String::with_capacity(96 + usize::try_from(shown).unwrap_or(0) * 24 + refused.len() * 96);
    // Writing to a String cannot fail.
    let _written = write!(
        out,
        "{{\"total\":{total},\"succeeded\":{},\"failed\":{failed},\"duplicates\":0,\"results\":[",
        total - failed
    );
    let mut refused = refused.iter().peekable();
    for index in 1..=shown {
        if index > 1 {
            out.push(',');
        }
        push_entry(&mut out, index, refused.next_if(|(at, _)| *at == index).map(|(_, error)| error));
    }
    out.push_str("]}\n");
    out
}

fn push_entry(out: &mut String, index: u64, refused: Option<&RowError>) {
    let _written = write!(out, "{{\"index\":{index},");
    let Some(error) = refused else {
        out.push_str("\"ok\":true}");
        return;
    };
    let message = serde_json::Value::from(error.message.as_str());
    let _written = write!(out, "\"error\":{message}");
    if let Some(code) = error.exception_code {
        let _written = write!(out, ",\"exception_code\":{code}");
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(message: &str, exception_code: Option<u32>) -> RowError {
        RowError { message: message.to_owned(), exception_code }
    }

    #[test]
    fn the_documented_shape() {
        let refused = [(2, refusal("Unknown field \"x\"", Some(117)))];
        assert_eq!(
            batch(3, &refused),
            "{\"total\":3,\"succeeded\":2,\"failed\":1,\"duplicates\":0,\"results\":[{\"index\":1,\"ok\":true},\
             {\"index\":2,\"error\":\"Unknown field \\\"x\\\"\",\"exception_code\":117},{\"index\":3,\"ok\":true}]}\n"
        );
        assert_eq!(
            batch(0, &[]),
            "{\"total\":0,\"succeeded\":0,\"failed\":0,\"duplicates\":0,\"results\":[]}\n"
        );
    }

    #[test]
    fn results_end_and_counts_stay_exact() {
        let refused = [(10_001, refusal("late", None))];
        let answer: serde_json::Value = serde_json::from_str(&batch(20_000, &refused)).unwrap();
        assert_eq!(answer["total"], 20_000);
        assert_eq!(answer["failed"], 1);
        assert_eq!(answer["results"].as_array().map(Vec::len), Some(10_000));
    }
}
