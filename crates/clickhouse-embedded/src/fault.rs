//! ClickHouse exceptions: their text, their code, and the HTTP status a real server gives each. All pure.

use http::StatusCode;

/// An exception as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// ClickHouse's number for it.
    pub(crate) code: u32,
    /// The text, `Code: N. DB::Exception: …`, without the version.
    pub(crate) text: String,
}

impl Fault {
    /// An exception of our own, worded as ClickHouse words them; `what` ends with its name in brackets.
    pub(crate) fn new(code: u32, what: impl AsRef<str>) -> Self {
        Self { code, text: format!("Code: {code}. DB::Exception: {}", what.as_ref()) }
    }

    /// Something a real server can do and this one cannot.
    pub(crate) fn unsupported(what: &str) -> Self {
        Self::new(48, format!("The embedded ClickHouse does not support {what}. (NOT_IMPLEMENTED)"))
    }

    /// The engine's own text; its code is in it.
    pub(crate) fn from_engine(text: String) -> Self {
        let code = text
            .strip_prefix("Code: ")
            .and_then(|rest| rest.split_once('.'))
            .and_then(|(digits, _)| digits.parse().ok());
        match code {
            Some(code) => Self { code, text },
            // Refusals of the library's own wrapper carry no code.
            None => Self::new(1002, format!("{text} (UNKNOWN_EXCEPTION)")),
        }
    }

    /// The text with the server's version, as servers send it.
    pub(crate) fn full_text(&self, version: &str) -> String {
        let text = self.text.trim_end();
        if text.ends_with(')') && text.contains("(version ") {
            return text.to_owned();
        }
        format!("{text} (version {version})")
    }

    /// The status a real server answers with.
    pub(crate) fn status(&self) -> StatusCode {
        status(self.code)
    }
}

/// A real server's table (`exceptionCodeToHTTPStatus`), by ClickHouse's names:
fn status(code: u32) -> StatusCode {
    match code {
        // REQUIRED_PASSWORD
        194 => StatusCode::UNAUTHORIZED,
        // UNKNOWN_USER, WRONG_PASSWORD, AUTHENTICATION_FAILED, SET_NON_GRANTED_ROLE
        192 | 193 | 516 | 512 => StatusCode::FORBIDDEN,
        // BAD_ARGUMENTS, CANNOT_COMPILE_REGEXP
        36 | 427 => StatusCode::BAD_REQUEST,
        // CANNOT_PARSE_TEXT, …_ESCAPE_SEQUENCE, …_QUOTED_STRING, …_INPUT_ASSERTION_FAILED, …_DATE, …_DATETIME,
        // …_NUMBER, …_UUID, …_DOMAIN_VALUE_FROM_STRING, …_IPV4, …_IPV6
        6 | 25 | 26 | 27 | 38 | 41 | 72 | 376 | 441 | 675 | 676 => StatusCode::BAD_REQUEST,
        // UNKNOWN_ELEMENT_IN_AST, UNKNOWN_TYPE_OF_AST_NODE, TOO_DEEP_AST, TOO_BIG_AST, UNEXPECTED_AST_STRUCTURE,
        // SYNTAX_ERROR, INCORRECT_DATA, TYPE_MISMATCH, VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
        54 | 5 | 167 | 168 | 8 | 62 | 117 | 53 | 321 => StatusCode::BAD_REQUEST,
        // UNKNOWN_TABLE, UNKNOWN_FUNCTION, UNKNOWN_IDENTIFIER, UNKNOWN_TYPE, UNKNOWN_STORAGE, UNKNOWN_DATABASE,
        // UNKNOWN_SETTING, UNKNOWN_DIRECTION_OF_SORTING, UNKNOWN_AGGREGATE_FUNCTION, UNKNOWN_FORMAT,
        // UNKNOWN_DATABASE_ENGINE, UNKNOWN_TYPE_OF_QUERY, NO_ELEMENTS_IN_CONFIG
        60 | 46 | 47 | 50 | 56 | 81 | 115 | 99 | 63 | 73 | 336 | 78 | 139 => StatusCode::NOT_FOUND,
        // QUERY_IS_TOO_LARGE
        223 => StatusCode::PAYLOAD_TOO_LARGE,
        // NOT_IMPLEMENTED
        48 => StatusCode::NOT_IMPLEMENTED,
        // TIMEOUT_EXCEEDED
        159 => StatusCode::REQUEST_TIMEOUT,
        // SOCKET_TIMEOUT, CANNOT_OPEN_FILE, CANNOT_SCHEDULE_TASK, TOO_MANY_SIMULTANEOUS_QUERIES
        209 | 76 | 439 | 202 => StatusCode::SERVICE_UNAVAILABLE,
        // HTTP_LENGTH_REQUIRED
        381 => StatusCode::LENGTH_REQUIRED,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The block a server writes into a result that has already begun, between marks with the tag of its
/// `X-ClickHouse-Exception-Tag` header, before it breaks off.
pub(crate) fn mid_stream_block(text: &str, tag: &str) -> String {
    format!("\r\n__exception__\r\n{tag}\r\n{text}\n{} {tag}\r\n__exception__\r\n", text.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_code_out_of_the_text() {
        let fault = Fault::from_engine("Code: 60. DB::Exception: Unknown table. (UNKNOWN_TABLE)".into());
        assert_eq!((fault.code, fault.status().as_u16()), (60, 404));
        assert_eq!(
            fault.full_text("26.7.2.1"),
            "Code: 60. DB::Exception: Unknown table. (UNKNOWN_TABLE) (version 26.7.2.1)"
        );
        let versioned = Fault::from_engine("Code: 27. DB::Exception: x (A) (version 26.7.2.1)".into());
        assert_eq!(versioned.full_text("26.7.2.1"), versioned.text);
        assert_eq!(Fault::from_engine("send_insert refuses".into()).code, 1002);
    }

    #[test]
    fn gives_each_code_a_real_servers_status() {
        let table = [
            (62, 400),
            (60, 404),
            (115, 404),
            (516, 403),
            (194, 401),
            (159, 408),
            (241, 500),
            (48, 501),
            (202, 503),
            (223, 413),
            (164, 500),
            (497, 500),
            (394, 500),
            (27, 400),
            (53, 400),
            (469, 500),
        ];
        for (code, want) in table {
            assert_eq!(status(code).as_u16(), want, "{code}");
        }
    }

    #[test]
    fn frames_a_mid_stream_exception() {
        assert_eq!(
            mid_stream_block("boom", "FOOBAR"),
            "\r\n__exception__\r\nFOOBAR\r\nboom\n5 FOOBAR\r\n__exception__\r\n"
        );
    }
}
