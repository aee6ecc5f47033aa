//! Who we are. Files are read at each connection attempt, so that one that was replaced counts from then on.

use std::path::PathBuf;

use async_nats::{Auth, AuthError};
use nkeys::KeyPair;

use super::{ConnectOptions, Finding, read_text};

/// One way to say who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Nobody in particular.
    None,
    /// A file with a JWT and a seed.
    Creds(PathBuf),
    /// A file with a seed.
    Nkey(PathBuf),
    /// A user, and a file with the password.
    Password { user: String, file: PathBuf },
}

/// What proves who we are, as read from files.
enum Secret {
    None,
    Creds { jwt: String, pair: KeyPair },
    Nkey(KeyPair),
    Password { user: String, password: String },
}

impl Credentials {
    /// Picks the one that is given and tries to read it.
    pub(super) fn choose(options: &ConnectOptions, found: &mut Vec<Finding>) -> Self {
        let given = [
            ("creds_file", options.creds_file.is_some()),
            ("nkey_seed_file", options.nkey_seed_file.is_some()),
            ("user", options.user.is_some() || options.password_file.is_some()),
        ];
        let given: Vec<_> = given.into_iter().filter_map(|(key, given)| given.then_some(key)).collect();
        if given.len() > 1 {
            found.push(Finding::SeveralCredentials(given));
            return Self::None;
        }
        let chosen =
            match (&options.creds_file, &options.nkey_seed_file, &options.user, &options.password_file) {
                (Some(file), ..) => Self::Creds(file.clone()),
                (_, Some(file), ..) => Self::Nkey(file.clone()),
                (_, _, Some(user), Some(file)) => Self::Password { user: user.clone(), file: file.clone() },
                (_, _, Some(_), None) => {
                    found.push(Finding::Needs { key: "user", needs: "password_file" });
                    Self::None
                }
                (_, _, None, Some(_)) => {
                    found.push(Finding::Needs { key: "password_file", needs: "user" });
                    Self::None
                }
                (None, None, None, None) => Self::None,
            };
        if let Err(finding) = chosen.read() {
            found.push(finding);
        }
        chosen
    }

    /// Answers a server's challenge.
    pub(crate) fn answer(&self, nonce: &[u8]) -> Result<Auth, AuthError> {
        let secret = self.read().map_err(AuthError::new)?;
        let mut auth = Auth::new();
        match secret {
            Secret::None => {}
            Secret::Creds { jwt, pair } => {
                auth.signature = Some(pair.sign(nonce).map_err(AuthError::new)?);
                auth.jwt = Some(jwt);
            }
            Secret::Nkey(pair) => {
                auth.signature = Some(pair.sign(nonce).map_err(AuthError::new)?);
                auth.nkey = Some(pair.public_key());
            }
            Secret::Password { user, password } => {
                auth.username = Some(user);
                auth.password = Some(password);
            }
        }
        Ok(auth)
    }

    fn read(&self) -> Result<Secret, Finding> {
        match self {
            Self::None => Ok(Secret::None),
            Self::Creds(file) => {
                let text = read_text("creds_file", file)?;
                let unusable = |what: &str| unusable("creds_file", file, what);
                let jwt = section(&text, "JWT").ok_or_else(|| unusable("has no JWT"))?;
                let seed = section(&text, "SEED").ok_or_else(|| unusable("has no seed"))?;
                let pair = KeyPair::from_seed(seed).map_err(|_| unusable("has a seed that is none"))?;
                Ok(Secret::Creds { jwt: jwt.to_owned(), pair })
            }
            Self::Nkey(file) => {
                let text = read_text("nkey_seed_file", file)?;
                // The tools put comments and banners around a seed.
                let seed = text.lines().map(str::trim).find(|line| line.starts_with('S'));
                let pair = seed.and_then(|seed| KeyPair::from_seed(seed).ok());
                pair.map(Secret::Nkey).ok_or_else(|| unusable("nkey_seed_file", file, "has no seed"))
            }
            Self::Password { user, file } => {
                let password = read_text("password_file", file)?;
                Ok(Secret::Password { user: user.clone(), password })
            }
        }
    }
}

fn unusable(key: &'static str, file: &std::path::Path, what: &str) -> Finding {
    Finding::Unusable { key, what: format!("{} {what}", file.display()) }
}

/// The line after `-----BEGIN … <kind>-----`.
fn section<'t>(text: &'t str, kind: &str) -> Option<&'t str> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.contains("BEGIN") && line.trim_end_matches('-').ends_with(kind))?;
    lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with('-'))
}
