//! Rules about the servers themselves.

use super::Check;
use crate::limits::{PAYLOAD_BYTES, PAYLOAD_BYTES_MIN};
use crate::rules::{
    SERVER_MAX_PAYLOAD_LOW, SERVER_MAX_PAYLOAD_SMALL, SERVER_UNREACHED, SERVER_VERSION_OLD,
    SERVER_VERSION_UNREADABLE, SERVER_VERSION_UNTESTED,
};

/// The oldest version that has everything.
const FLOOR: (u32, u32, u32) = (2, 14, 0);

impl Check<'_> {
    pub(super) fn servers(&mut self) {
        let observed = self.observed;
        for server in &observed.servers {
            let object =
                if server.name.is_empty() { "server".to_owned() } else { format!("server {}", server.name) };
            let Some(version) = &server.version else {
                self.want(false, SERVER_UNREACHED, &object, "known", "unknown, the server was not reached");
                continue;
            };
            let Some(numbers) = numbers(version) else {
                let found = format!("{version:?}");
                self.want(false, SERVER_VERSION_UNREADABLE, &object, "2.14.0 or later", found);
                continue;
            };
            let old = numbers < FLOOR;
            self.want(!old, SERVER_VERSION_OLD, &object, "2.14.0 or later", version);
            let tested = old || (numbers.0, numbers.1) == (FLOOR.0, FLOOR.1);
            self.want(tested, SERVER_VERSION_UNTESTED, &object, "2.14.x", version);
        }
        let bytes = observed.max_payload_bytes;
        let small = bytes < PAYLOAD_BYTES_MIN;
        self.want(
            !small,
            SERVER_MAX_PAYLOAD_SMALL,
            "server",
            format_args!("{PAYLOAD_BYTES_MIN} or more"),
            bytes,
        );
        let low = !small && bytes < PAYLOAD_BYTES;
        self.want(!low, SERVER_MAX_PAYLOAD_LOW, "server", format_args!("{PAYLOAD_BYTES} or more"), bytes);
    }
}

/// Three numbers with dots; a `v` in front and a suffix on the last are tolerated.
fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.strip_prefix('v').unwrap_or(version).splitn(3, '.');
    let number = |text: &str| text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let (major, minor, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let (patch, suffix) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
    let known = suffix.is_empty() || suffix.starts_with(['-', '+']);
    known.then(|| Some((number(major)?, number(minor)?, number(patch)?))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_26_versions_are_read() {
        for (text, read) in [
            ("2.14.6", Some((2, 14, 6))),
            ("v2.14.0-beta", Some((2, 14, 0))),
            ("2.15.0+build.1", Some((2, 15, 0))),
            ("2.14", None),
            ("2.14.", None),
            ("2.14.6.1", None),
            ("2.+1.0", None),
            ("", None),
            ("latest", None),
        ] {
            assert_eq!(numbers(text), read, "{text}");
        }
    }
}
