//! The one user and password, and the three places a client may put them. All pure.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::fault::Fault;
use crate::params::UrlLogin;

/// The configured user.
#[derive(Clone)]
pub(crate) struct Account {
    /// The name.
    pub(crate) user: String,
    /// The password; empty lets everybody in who names the user or nobody.
    pub(crate) password: String,
}

impl Account {
    /// Whether the request may run queries: by `X-ClickHouse-User`/`-Key`, Basic, or `user`/`password` in the URL.
    pub(crate) fn admit(&self, headers: &HeaderMap, url: &UrlLogin) -> Result<(), Fault> {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let (user, password) = if let Some(user) = header("x-clickhouse-user") {
            (Some(user.to_owned()), header("x-clickhouse-key").map(str::to_owned))
        } else if let Some(text) = headers.get(AUTHORIZATION) {
            let Some((user, password)) = text.to_str().ok().and_then(basic) else {
                return Err(Fault::new(
                    516,
                    "Invalid authentication: only Basic is supported. (AUTHENTICATION_FAILED)",
                ));
            };
            (Some(user), Some(password))
        } else {
            (url.user.clone(), url.password.clone())
        };
        if password.is_none() && !self.password.is_empty() && user.is_none() {
            return Err(Fault::new(
                194,
                "Authentication is required: user and password. (REQUIRED_PASSWORD)",
            ));
        }
        let user = user.filter(|user| !user.is_empty()).unwrap_or_else(|| "default".to_owned());
        let same_user = same(user.as_bytes(), self.user.as_bytes());
        let same_password = same(password.unwrap_or_default().as_bytes(), self.password.as_bytes());
        if same_user & same_password {
            return Ok(());
        }
        Err(Fault::new(
            516,
            format!(
                "{user}: Authentication failed: password is incorrect, or there is no user with such name. \
                 (AUTHENTICATION_FAILED)"
            ),
        ))
    }
}

/// Compares in a time that depends on the lengths alone.
fn same(left: &[u8], right: &[u8]) -> bool {
    let differing = left.iter().zip(right).fold(0_u8, |seen, (a, b)| seen | (a ^ b));
    differing == 0 && left.len() == right.len()
}

fn basic(header: &str) -> Option<(String, String)> {
    let (scheme, text) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(base64(text.trim())?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Decodes standard base64, padding optional.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0_u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(account: &Account, headers: &[(&'static str, &str)], url: (Option<&str>, Option<&str>)) -> u32 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        let url = UrlLogin { user: url.0.map(str::to_owned), password: url.1.map(str::to_owned) };
        account.admit(&map, &url).map_or_else(|fault| fault.code, |()| 0)
    }

    #[test]
    fn takes_the_password_from_three_places() {
        let account = Account { user: "default".into(), password: "sécret:x".into() };
        let none = (None, None);
        assert_eq!(code(&account, &[], (None, Some("sécret:x"))), 0);
        assert_eq!(code(&account, &[], (Some("default"), Some("sécret:x"))), 0);
        assert_eq!(code(&account, &[("authorization", "Basic ZGVmYXVsdDpzw6ljcmV0Ong=")], none), 0);
        assert_eq!(code(&account, &[], none), 194);
        assert_eq!(code(&account, &[], (Some("default"), None)), 516);
        assert_eq!(code(&account, &[], (Some("other"), Some("sécret:x"))), 516);
        assert_eq!(code(&account, &[("authorization", "Bearer x")], none), 516);
        assert_eq!(code(&account, &[("authorization", "Basic !")], none), 516);
        let plain = Account { user: "bob".into(), password: "p".into() };
        assert_eq!(code(&plain, &[("x-clickhouse-user", "bob"), ("x-clickhouse-key", "p")], none), 0);
        assert_eq!(code(&plain, &[("x-clickhouse-user", "bob"), ("x-clickhouse-key", "pp")], none), 516);
        let open = Account { user: "default".into(), password: String::new() };
        assert_eq!(code(&open, &[], none), 0);
        assert_eq!(code(&open, &[], (None, Some("wrong"))), 516);
    }
}
