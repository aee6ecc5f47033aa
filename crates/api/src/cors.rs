//! Which browsers' pages may read our answers. Pure: an origin and a list in, headers out.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, VARY,
};
use http::{HeaderMap, HeaderValue};

/// Which origins may read answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cors {
    /// No header is ever sent: pages of other origins can read nothing.
    Off,
    /// These origins; `*` allows every one, an empty list none.
    Allow(Vec<String>),
}

/// Adds what an answer to a request from `origin` must carry. Requests without an origin get nothing.
pub(crate) fn decorate(cors: &Cors, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
    let (Cors::Allow(allowed), Some(origin)) = (cors, origin) else { return };
    if allowed.iter().any(|entry| entry == "*") {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    } else {
        headers.append(VARY, HeaderValue::from_static("Origin"));
        if !allowed.iter().any(|entry| entry.as_bytes() == origin.as_bytes()) {
            return;
        }
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, DELETE, OPTIONS"),
        (
            ACCESS_CONTROL_ALLOW_HEADERS,
            "Accept, Authorization, Content-Type, Last-Event-ID, X-Request-ID, X-Tenant-ID",
        ),
        (ACCESS_CONTROL_EXPOSE_HEADERS, "X-Cache, X-Request-ID"),
        (ACCESS_CONTROL_MAX_AGE, "3600"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(cors: &Cors, origin: Option<&str>) -> (Option<String>, bool) {
        let mut headers = HeaderMap::new();
        decorate(cors, origin.map(|text| text.parse().unwrap()).as_ref(), &mut headers);
        let allowed =
            headers.get(ACCESS_CONTROL_ALLOW_ORIGIN).map(|value| value.to_str().unwrap().to_owned());
        (allowed, headers.contains_key(VARY))
    }

    #[test]
    fn cases() {
        let list = Cors::Allow(vec!["https://a.example".into()]);
        assert_eq!(answer(&list, None), (None, false));
        assert_eq!(answer(&list, Some("https://a.example")), (Some("https://a.example".into()), true));
        assert_eq!(answer(&list, Some("https://b.example")), (None, true));
        assert_eq!(answer(&Cors::Allow(vec!["*".into()]), Some("https://b")), (Some("*".into()), false));
        assert_eq!(answer(&Cors::Allow(vec![]), Some("https://b")), (None, true));
        assert_eq!(answer(&Cors::Off, Some("https://b")), (None, false));
    }
}
