//! Sorts a request's URL parameters: the query, ours, query parameters, and settings for the engine. All pure.

use http::HeaderMap;

use crate::fault::Fault;

/// Format of a result when neither the query nor the request names one; ClickHouse's own choice for HTTP.
const FORMAT_DEFAULT: &str = "TabSeparated";

/// Parameters that steer a real server's HTTP layer and mean nothing here. Sessions are among them: a request is
/// on its own, so temporary tables and `SET` do not outlive it.
const IGNORED: [&str; 9] = [
    "session_id",
    "session_timeout",
    "session_check",
    "close_session",
    "quota_key",
    "stacktrace",
    "buffer_size",
    "client_protocol_version",
    "role",
];

/// What a request asks for, apart from its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The query given in the URL.
    pub(crate) query: String,
    /// Database that unqualified names are of.
    pub(crate) database: Option<String>,
    /// Format of a result without a `FORMAT` clause.
    pub(crate) format: String,
    /// The client's own id for this query.
    pub(crate) query_id: Option<String>,
    /// Answer only when the whole result is there, as far as it fits.
    pub(crate) waits: bool,
    /// `param_*`, without the prefix.
    pub(crate) params: Vec<(String, String)>,
    /// Settings in the order given, `readonly` last because nothing can be set after it.
    pub(crate) settings: Vec<(String, String)>,
}

/// Credentials in the URL.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UrlLogin {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl Ask {
    /// The value of a setting of this request.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Reads the URL's query string and the `X-ClickHouse-*` headers; `reads_only` is a GET.
pub(crate) fn ask(url_query: &str, headers: &HeaderMap, reads_only: bool) -> Result<(Ask, UrlLogin), Fault> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut login = UrlLogin::default();
    let mut ask = Ask {
        query: String::new(),
        database: header("x-clickhouse-database"),
        format: header("x-clickhouse-format").unwrap_or_else(|| FORMAT_DEFAULT.to_owned()),
        query_id: None,
        waits: false,
        params: Vec::new(),
        settings: Vec::new(),
    };
    for pair in url_query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (decode(key)?, decode(value)?);
        match key.as_str() {
            "query" => ask.query = value,
            "database" => ask.database = Some(value).filter(|name| !name.is_empty()),
            "default_format" => ask.format = value,
            "query_id" => ask.query_id = Some(value).filter(|id| !id.is_empty()),
            "wait_end_of_query" => ask.waits = is_on(&value),
            "user" => login.user = Some(value),
            "password" => login.password = Some(value),
            "compress" | "decompress" if is_on(&value) => {
                return Err(Fault::unsupported(
                    "ClickHouse's own block compression (compress=1, decompress=1); use Accept-Encoding and Content-Encoding",
                ));
            }
            "compress" | "decompress" => {}
            name if IGNORED.contains(&name) => {}
            name => match name.strip_prefix("param_") {
                Some(name) => ask.params.push((name.to_owned(), value)),
                None if is_name(name) => ask.settings.push((key, value)),
                None => return Err(Fault::new(115, format!("Unknown setting '{name}'. (UNKNOWN_SETTING)"))),
            },
        }
    }
    if !is_name(&ask.format) {
        return Err(Fault::new(73, format!("Unknown format {}. (UNKNOWN_FORMAT)", ask.format)));
    }
    if reads_only && ask.setting("readonly").is_none_or(|value| value == "0") {
        ask.settings.retain(|(key, _)| key != "readonly");
        ask.settings.push(("readonly".to_owned(), "2".to_owned()));
    }
    ask.settings.sort_by_key(|(key, _)| key == "readonly");
    Ok((ask, login))
}

fn is_on(value: &str) -> bool {
    !matches!(value, "0" | "false" | "")
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
}

/// Undoes `application/x-www-form-urlencoded`.
fn decode(text: &str) -> Result<String, Fault> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter().copied();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = (rest.next().and_then(hex), rest.next().and_then(hex));
                let (Some(high), Some(low)) = digits else {
                    return Err(Fault::new(36, "Bad percent encoding in the URL. (BAD_ARGUMENTS)"));
                };
                high << 4 | low
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| Fault::new(36, "The URL is not valid UTF-8. (BAD_ARGUMENTS)"))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// The statements that give a fresh connection this request's database and settings. `mark` is the log comment by
/// which a running query is found again.
pub(crate) fn preamble(ask: &Ask, mark: &str) -> Vec<String> {
    let mut statements = Vec::new();
    if let Some(database) = &ask.database {
        statements.push(format!("USE `{}`", database.replace('\\', "\\\\").replace('`', "\\`")));
    }
    // The library parses like clickhouse-local by default, where a bare expression is a query.
    let mut list = format!("SET implicit_select = 0, log_comment = {}", quote(mark));
    for (key, value) in ask.settings.iter().filter(|(key, _)| key != "log_comment") {
        list.push_str(&format!(", {key} = {}", quote(value)));
    }
    statements.push(list);
    statements
}

fn quote(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url_query: &str, reads_only: bool) -> Ask {
        ask(url_query, &HeaderMap::new(), reads_only).unwrap().0
    }

    #[test]
    fn sorts_parameters() {
        let url = "query=select+%7Bx%3AInt8%7D&database=d&default_format=CSV&query_id=q&param_x=1%0A&max_threads=2&session_id=s&wait_end_of_query=1";
        let ask = of(url, false);
        assert_eq!(ask.query, "select {x:Int8}");
        assert_eq!((ask.database.as_deref(), ask.format.as_str()), (Some("d"), "CSV"));
        assert_eq!(ask.query_id.as_deref(), Some("q"));
        assert_eq!(ask.params, [("x".to_owned(), "1\n".to_owned())]);
        assert_eq!(ask.settings, [("max_threads".to_owned(), "2".to_owned())]);
        assert!(ask.waits);
    }

    #[test]
    fn a_get_reads_only_and_readonly_comes_last() {
        assert_eq!(of("a=1", true).setting("readonly"), Some("2"));
        assert_eq!(of("readonly=0&a=1", true).setting("readonly"), Some("2"));
        let ask = of("readonly=1&a=1", true);
        assert_eq!(ask.settings.last().unwrap(), &("readonly".to_owned(), "1".to_owned()));
        assert_eq!(of("a=1", false).setting("readonly"), None);
    }

    #[test]
    fn refuses_what_could_be_read_as_sql() {
        let code = |url: &str| ask(url, &HeaderMap::new(), false).unwrap_err().code;
        assert_eq!(code("max_threads%3D1%2Cb=2"), 115);
        assert_eq!(code("default_format=CSV%3B"), 73);
        assert_eq!(code("query=%zz"), 36);
        assert_eq!(code("compress=1"), 48);
    }

    #[test]
    fn quotes_values() {
        let ask = of("a=it%27s%5C&database=x%60y&log_comment=mine", false);
        let statements = preamble(&ask, "mark");
        assert_eq!(statements[0], r"USE `x\`y`");
        assert_eq!(statements[1], r"SET implicit_select = 0, log_comment = 'mark', a = 'it\'s\\'");
    }
}
