//! Requests: nothing that a client sends becomes SQL of ours, and a statement that comes in pieces is read as a whole
//! one is.

use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};

use crate::auth::Account;
use crate::lexer::{Kind, Lexer, Token};
use crate::params::{self, Ask};
use crate::statement::{self, Start};

/// The first line is the URL's query, the second a header, the rest a body.
pub fn request(data: &[u8]) {
    let mut parts = data.splitn(3, |&byte| byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (url, header, body) = (String::from_utf8_lossy(part()), part(), part());
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(header) {
        for name in ["x-clickhouse-database", "x-clickhouse-format", AUTHORIZATION.as_str()] {
            headers.insert(name.parse::<http::HeaderName>().expect("a name"), value.clone());
        }
    }
    for reads_only in [false, true] {
        if let Ok((ask, login)) = params::ask(&url, &headers, reads_only) {
            is_sound(&ask, reads_only);
            let account = Account { user: "default".to_owned(), password: "secret".to_owned() };
            let _admitted = account.admit(&headers, &login);
            headers.remove(AUTHORIZATION);
            let _admitted = account.admit(&headers, &login);
            read(ask.query.as_bytes());
        }
    }
    read(body);
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
}

fn is_sound(ask: &Ask, reads_only: bool) {
    assert!(is_name(&ask.format) && ask.settings.iter().all(|(name, _)| is_name(name)));
    let position = ask.settings.iter().position(|(name, _)| name == "readonly");
    assert!(position.is_none_or(|at| ask.settings[at..].iter().all(|(name, _)| name == "readonly")));
    assert!(!reads_only || ask.setting("readonly").is_some_and(|value| value != "0"));
    let statements = params::preamble(ask, "mark");
    let (set, before) = statements.split_last().expect("a SET at least");
    for sql in before {
        let kinds: Vec<Kind> = Lexer::new(sql.as_bytes()).map(|token| token.kind).collect();
        assert_eq!(kinds, [Kind::Word, Kind::Name], "{sql}");
        assert!(is_closed(sql), "{sql}");
    }
    let mut tokens = Lexer::new(set.as_bytes());
    assert_eq!(tokens.next().map(|token| token.kind), Some(Kind::Word));
    let mut after_comma = true;
    while after_comma {
        let name: Vec<Token> = tokens.by_ref().take_while(|token| token.kind != Kind::Sign(b'=')).collect();
        let is_part = |token: &Token| matches!(token.kind, Kind::Word | Kind::Sign(b'.'));
        assert!(!name.is_empty() && name.iter().all(is_part), "{set}");
        assert!(tokens.next().is_some_and(|value| matches!(value.kind, Kind::Word | Kind::Text)), "{set}");
        let next = tokens.next();
        after_comma = next.is_some();
        assert!(next.is_none_or(|next| next.kind == Kind::Sign(b',')), "{set}");
    }
    assert!(is_closed(set), "{set}");
}

/// Whether the last token has its closing quote: with one more character, there is one more token.
fn is_closed(sql: &str) -> bool {
    Lexer::new(format!("{sql};").as_bytes()).last().is_some_and(|token| token.kind == Kind::Sign(b';'))
}

/// So many cuts of a text are tried.
const CUTS_MAX: usize = 64;

fn read(text: &[u8]) {
    let mut before = 0;
    for token in Lexer::new(text) {
        assert!(
            before <= token.start && token.start < token.end && token.end <= text.len(),
            "tokens go forward"
        );
        before = token.end;
    }
    let whole = statement::start(text, true);
    assert_ne!(whole, Start::Unclear);
    if let Start::InsertRows(rows) = &whole {
        assert!(rows.statement_end <= rows.rows_start && rows.rows_start <= text.len());
    }
    let step = text.len().div_ceil(CUTS_MAX).max(1);
    for cut in (0..text.len()).step_by(step) {
        let found = statement::start(&text[..cut], false);
        assert!(found == Start::Unclear || found == whole, "{cut}: {found:?} of {whole:?}");
    }
    let _takes = statement::takes_input(text);
    let shape = statement::shape(text, |word| word.eq_ignore_ascii_case("JSON"));
    assert!(shape.end <= text.len());
    assert!(
        shape.format.is_none_or(|(at, _)| at < shape.end) && shape.second.is_none_or(|at| at >= shape.end)
    );
    assert_eq!(shape.empty, shape.end == 0);
}
