//! Finds in a request's text what the engine cannot tell us: where an INSERT's rows begin and in which format
//! they are, and where a query's `FORMAT` clause stands. All pure.

use crate::lexer::{Kind, Lexer, Token};

/// What the beginning of a request says about inserting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    /// Not decided yet: more of the body is needed.
    Unclear,
    /// No INSERT.
    Query,
    /// `INSERT … SELECT`: the engine runs the whole text.
    InsertSelect,
    /// `INSERT … FROM INFILE`: a server refuses that.
    InsertInfile,
    /// An INSERT whose rows follow in the same text or the body.
    InsertRows(Rows),
}

/// Where an INSERT's rows begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rows {
    /// End of the statement proper, before `FORMAT` or `VALUES`.
    pub(crate) statement_end: usize,
    /// The format named; `None` for `VALUES` or nothing.
    pub(crate) format: Option<String>,
    /// Where the rows begin.
    pub(crate) rows_start: usize,
}

/// Decides what `text` begins with; `whole` says that nothing follows.
pub(crate) fn start(text: &[u8], whole: bool) -> Start {
    let mut tokens = Tokens { lexer: Lexer::new(text), bytes: text.len(), whole, cut: false };
    let found = read_start(text, &mut tokens);
    // A token that touches the end of an unfinished text may be half a word.
    match found {
        Some(found) if !tokens.cut => found,
        _ if !whole => Start::Unclear,
        Some(found) => found,
        None => Start::InsertRows(Rows { statement_end: text.len(), format: None, rows_start: text.len() }),
    }
}

struct Tokens<'a> {
    lexer: Lexer<'a>,
    bytes: usize,
    whole: bool,
    cut: bool,
}

impl Tokens<'_> {
    fn next(&mut self) -> Option<Token> {
        let token = self.lexer.next();
        self.cut |= !self.whole && token.is_none_or(|token| token.end == self.bytes);
        token
    }
}

/// `None`: an INSERT that ended before it said where its rows are.
fn read_start(text: &[u8], tokens: &mut Tokens<'_>) -> Option<Start> {
    let Some(first) = tokens.next() else { return Some(Start::Query) };
    if !first.is(text, "INSERT") {
        return Some(Start::Query);
    }
    let mut token = tokens.next()?;
    if token.is(text, "INTO") {
        token = tokens.next()?;
    }
    if token.is(text, "TABLE") {
        token = tokens.next()?;
    }
    if token.is(text, "FUNCTION") {
        tokens.next()?;
    }
    // The table's name may be any word, so it is passed over before clauses are looked for.
    let mut token = tokens.next()?;
    while token.kind == Kind::Sign(b'.') {
        tokens.next()?;
        token = tokens.next()?;
    }
    let mut depth = 0_usize;
    let mut opened = false;
    loop {
        let selects = token.is(text, "SELECT") || token.is(text, "WITH") || token.is(text, "WATCH");
        match token.kind {
            Kind::Sign(b'(') => depth += 1,
            Kind::Sign(b')') => depth = depth.saturating_sub(1),
            Kind::Sign(b';') if depth == 0 => {
                let end = token.start;
                return Some(Start::InsertRows(Rows { statement_end: end, format: None, rows_start: end }));
            }
            Kind::Word if selects && (depth == 0 || opened) => return Some(Start::InsertSelect),
            Kind::Word if depth == 0 && token.is(text, "VALUES") => {
                return Some(Start::InsertRows(Rows {
                    statement_end: token.start,
                    format: None,
                    rows_start: token.end,
                }));
            }
            Kind::Word if depth == 0 && token.is(text, "FORMAT") => {
                let name = tokens.next()?;
                let format = Some(String::from_utf8_lossy(&text[name.start..name.end]).into_owned());
                let rows_start = name.end + line_end(&text[name.end..]);
                // What ends in blanks may go on with the line break that belongs to them.
                let line_is_over = text[..rows_start].ends_with(b"\n");
                let rest_is_open = matches!(text[rows_start..], [] | [b'\r']);
                tokens.cut |= !tokens.whole && rest_is_open && !line_is_over;
                return Some(Start::InsertRows(Rows { statement_end: token.start, format, rows_start }));
            }
            Kind::Word if depth == 0 && token.is(text, "FROM") => {
                token = tokens.next()?;
                if token.is(text, "INFILE") {
                    return Some(Start::InsertInfile);
                }
                continue;
            }
            _ => {}
        }
        opened = token.kind == Kind::Sign(b'(');
        token = tokens.next()?;
    }
}

/// Blanks and one line break after the format's name are not part of the rows.
fn line_end(text: &[u8]) -> usize {
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | 0x0c)).count();
    match &text[blanks..] {
        [b'\r', b'\n', ..] => blanks + 2,
        [b'\n', ..] => blanks + 1,
        _ => blanks,
    }
}

/// Whether an `INSERT … SELECT` takes rows from the request through `input(…)`.
pub(crate) fn takes_input(text: &[u8]) -> bool {
    let mut tokens = Lexer::new(text).peekable();
    while let Some(token) = tokens.next() {
        if token.is(text, "input") && tokens.peek().is_some_and(|next| next.kind == Kind::Sign(b'(')) {
            return true;
        }
    }
    false
}

/// The outline of a statement that is no INSERT.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Shape {
    /// Nothing but blanks, comments and semicolons.
    pub(crate) empty: bool,
    /// End of the last token before a closing `;`.
    pub(crate) end: usize,
    /// The `FORMAT` clause: where it begins and the name.
    pub(crate) format: Option<(usize, String)>,
    /// Has `INTO OUTFILE`.
    pub(crate) outfile: bool,
    /// Where a second statement begins.
    pub(crate) second: Option<usize>,
}

/// Outlines `text`. `is_format` says whether a word names a format, since `ORDER BY format DESC` has a word
/// there that is none.
pub(crate) fn shape(text: &[u8], is_format: impl Fn(&str) -> bool) -> Shape {
    let mut shape = Shape { empty: true, ..Shape::default() };
    let mut depth = 0_usize;
    let mut closed = false;
    let mut before: Option<Token> = None;
    let mut candidate: Option<(usize, String)> = None;
    for token in Lexer::new(text) {
        if token.kind == Kind::Sign(b';') && depth == 0 {
            closed |= !shape.empty;
            continue;
        }
        if closed {
            shape.second = Some(token.start);
            break;
        }
        match token.kind {
            Kind::Sign(b'(' | b'[' | b'{') => depth += 1,
            Kind::Sign(b')' | b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if let Some(found) = candidate.take()
            && token.is(text, "SETTINGS")
        {
            shape.format = Some(found);
        }
        if depth == 0
            && token.kind == Kind::Word
            && let Some(before) = before
        {
            shape.outfile |= before.is(text, "INTO") && token.is(text, "OUTFILE");
            let word = String::from_utf8_lossy(&text[token.start..token.end]);
            if before.is(text, "FORMAT") && is_format(&word) {
                candidate = Some((before.start, word.into_owned()));
            }
        }
        shape.empty = false;
        shape.end = token.end;
        before = Some(token);
    }
    if candidate.is_some() {
        shape.format = candidate;
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> (String, Option<String>, String) {
        match start(text.as_bytes(), true) {
            Start::InsertRows(rows) => {
                (text[..rows.statement_end].to_owned(), rows.format, text[rows.rows_start..].to_owned())
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn finds_where_rows_begin() {
        let cases = [
            ("insert into t format CSV\n1,2\n", "insert into t ", Some("CSV"), "1,2\n"),
            ("insert into t values (1)", "insert into t ", None, " (1)"),
            (
                "INSERT INTO TABLE a.`b c` (x, y) FORMAT JSONEachRow {}",
                "INSERT INTO TABLE a.`b c` (x, y) ",
                Some("JSONEachRow"),
                "{}",
            ),
            ("insert into format format CSV\r\n\n1", "insert into format ", Some("CSV"), "\n1"),
            ("insert into values values(1)", "insert into values ", None, "(1)"),
            (
                "insert into t settings async_insert=1 values (1)",
                "insert into t settings async_insert=1 ",
                None,
                " (1)",
            ),
            (
                "insert into function file('x', 'CSV', 'a Int8') values (1)",
                "insert into function file('x', 'CSV', 'a Int8') ",
                None,
                " (1)",
            ),
            ("/* FORMAT X */ insert t format TSV", "/* FORMAT X */ insert t ", Some("TSV"), ""),
            ("insert into t (a)", "insert into t (a)", None, ""),
            ("insert into t (* except(b)) values (1)", "insert into t (* except(b)) ", None, " (1)"),
        ];
        for (text, statement, format, data) in cases {
            let want = (statement.to_owned(), format.map(str::to_owned), data.to_owned());
            assert_eq!(rows(text), want, "{text}");
        }
    }

    #[test]
    fn tells_inserts_without_rows_apart() {
        let cases = [
            ("select 1", Start::Query),
            ("", Start::Query),
            ("insert into t select 1", Start::InsertSelect),
            ("insert into t (a) with 1 as x select x", Start::InsertSelect),
            ("insert into t (select 1)", Start::InsertSelect),
            ("insert into t from infile 'x' format CSV", Start::InsertInfile),
        ];
        for (text, want) in cases {
            assert_eq!(start(text.as_bytes(), true), want, "{text}");
        }
        assert!(takes_input(b"insert into t select a from Input ('a Int8') format CSV 1"));
        assert!(!takes_input(b"insert into t select input from 'input(' -- input("));
    }

    #[test]
    fn waits_for_the_rest_of_a_cut_statement() {
        let text = b"insert into t (a) format JSONEachRow {}";
        for cut in 0..text.len() - 3 {
            let found = start(&text[..cut], false);
            assert!(matches!(found, Start::Unclear), "{cut}: {found:?}");
        }
        assert_eq!(start(text, false), start(text, true));
        for cut in ["insert into t format CSV ", "insert into t format CSV\r", "insert into t format CSV \r"]
        {
            assert_eq!(start(cut.as_bytes(), false), Start::Unclear, "{cut:?}");
        }
        let line = b"insert into t format CSV\n";
        assert_eq!(start(line, false), start(line, true));
        assert_eq!(start(b"select 1 ", false), Start::Query);
    }

    #[test]
    fn outlines_queries() {
        let known = |word: &str| ["json", "csv", "null"].contains(&word.to_lowercase().as_str());
        let of = |text: &str| shape(text.as_bytes(), known);
        let format = |text: &str| of(text).format.map(|(at, name)| (text[at..].to_owned(), name));
        assert_eq!(format("select 1 format JSON"), Some(("format JSON".into(), "JSON".into())));
        assert_eq!(
            format("select 1 FORMAT csv settings a=1;"),
            Some(("FORMAT csv settings a=1;".into(), "csv".into()))
        );
        for none in [
            "select 1",
            "select a order by format desc",
            "select (1 format JSON) x",
            "select 'format JSON'",
            "select format csv from t",
            "-- format JSON",
        ] {
            assert_eq!(format(none), None, "{none}");
        }
        assert_eq!(of("select 1 -- x ;\n ; ; ").end, 8);
        assert_eq!(of("select 1; select 2").second, Some(10));
        assert!(of(" ;; -- x").empty && !of("x").empty);
        assert!(of("select 1 into outfile 'x'").outfile && !of("select 'into outfile'").outfile);
    }
}
