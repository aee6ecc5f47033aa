//! Who a caller is. So far there is one credential, the operator key; until access policies come, every data route asks
//! for it too, unless the process is a development one, which is open and listens on loopback only.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::error::ApiError;
use crate::route::Gate;

/// What may be called without a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Access {
    /// Everything: development on loopback.
    Open,
    /// Only public routes; data and operator routes need this key. No key means that nobody gets in.
    Key(Option<String>),
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Key(Some(_)) => "Key(set)",
            Self::Key(None) => "Key(none)",
        })
    }
}

/// The outcome of looking at a request's credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Go on.
    Pass,
    /// Refuse; `wrong_key` says that a key was sent and did not match.
    Refuse { error: ApiError, wrong_key: bool },
}

/// Decides whether a request may pass a gate.
pub(crate) fn check(access: &Access, gate: Gate, headers: &HeaderMap) -> Verdict {
    let key = match (access, gate) {
        (Access::Open, _) | (_, Gate::Public) => return Verdict::Pass,
        (Access::Key(key), _) => key,
    };
    let Some(key) = key else {
        let text =
            "forbidden: this server has no operator key; set auth.operator_key or WH_AUTH_OPERATOR_KEY";
        return Verdict::Refuse { error: ApiError::Forbidden(text), wrong_key: false };
    };
    match sent_key(headers) {
        Some(sent) if same(sent, key.as_bytes()) => Verdict::Pass,
        Some(_) => Verdict::Refuse {
            error: ApiError::Forbidden("forbidden: the operator key does not match"),
            wrong_key: true,
        },
        None => Verdict::Refuse {
            error: ApiError::Forbidden(
                "forbidden: until access policies are set up this route needs the operator key; \
                 send it as X-Operator-Key",
            ),
            wrong_key: false,
        },
    }
}

/// The operator key of a request: `X-Operator-Key: <key>` or `Authorization: Operator <key>`.
fn sent_key(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get("x-operator-key") {
        return Some(value.as_bytes().trim_ascii());
    }
    let value = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let (scheme, key) = value.split_at_checked("operator ".len())?;
    scheme.eq_ignore_ascii_case(b"operator ").then_some(key.trim_ascii())
}

/// Compares in time that depends on the lengths only.
fn same(sent: &[u8], key: &[u8]) -> bool {
    let difference = sent.iter().zip(key).fold(0_u8, |sum, (a, b)| sum | (a ^ b));
    std::hint::black_box(difference) == 0 && sent.len() == key.len() && !key.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(access: &Access, gate: Gate, header: Option<(&'static str, &str)>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().unwrap());
        }
        check(access, gate, &headers) == Verdict::Pass
    }

    #[test]
    fn who_passes() {
        let keyed = Access::Key(Some("secret".into()));
        let shut = Access::Key(None);
        for (access, gate, header, wanted) in [
            (&keyed, Gate::Public, None, true),
            (&keyed, Gate::Data, None, false),
            (&keyed, Gate::Data, Some(("x-operator-key", "secret")), true),
            (&keyed, Gate::Operator, Some(("authorization", "Operator secret")), true),
            (&keyed, Gate::Operator, Some(("authorization", "operator  secret")), true),
            (&keyed, Gate::Operator, Some(("authorization", "Bearer secret")), false),
            (&keyed, Gate::Operator, Some(("x-operator-key", "secre")), false),
            (&keyed, Gate::Operator, Some(("x-operator-key", "secret2")), false),
            (&keyed, Gate::Operator, Some(("x-operator-key", "")), false),
            (&shut, Gate::Data, Some(("x-operator-key", "")), false),
            (&shut, Gate::Public, None, true),
            (&Access::Open, Gate::Operator, None, true),
        ] {
            assert_eq!(passes(access, gate, header), wanted, "{access:?} {gate:?} {header:?}");
        }
    }

    #[test]
    fn a_key_is_never_printed() {
        assert_eq!(format!("{:?}", Access::Key(Some("secret".into()))), "Key(set)");
    }
}
