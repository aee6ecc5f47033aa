//! Variables that Kubernetes puts into every pod for each service beside it. A service called `wh` or `wh-something`
//! yields `WH_…` names that nobody wrote; they must not keep the program from starting.

/// Whether a name and its value have the shape of a service link. The value counts too, so that `WH_PORT=8080`, which
/// somebody meant as a setting, is still told.
pub(crate) fn is_service_link(name: &str, value: &str) -> bool {
    if name.ends_with("_SERVICE_HOST") {
        return true;
    }
    if let Some((_, rest)) = name.rsplit_once("_SERVICE_PORT") {
        return (rest.is_empty() || rest.starts_with('_')) && value.bytes().all(|byte| byte.is_ascii_digit());
    }
    let numbered = name
        .match_indices("_PORT_")
        .any(|(at, found)| name.get(at + found.len()..).is_some_and(is_port_suffix));
    numbered || (name.ends_with("_PORT") && is_link_value(value))
}

/// Whether a value is an address as a service link holds it.
pub(crate) fn is_link_value(value: &str) -> bool {
    ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme))
}

/// `<digits>_TCP`, then nothing or `_ADDR`, `_PORT`, `_PROTO`.
fn is_port_suffix(text: &str) -> bool {
    let Some((digits, rest)) = text.split_once('_') else { return false };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    ["TCP", "UDP", "SCTP"].iter().any(|protocol| {
        rest.strip_prefix(protocol).is_some_and(|end| matches!(end, "" | "_ADDR" | "_PORT" | "_PROTO"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_links() {
        for (name, value, link) in [
            ("WH_SERVICE_HOST", "10.0.0.1", true),
            ("WH_SERVICE_PORT", "80", true),
            ("WH_PORT", "tcp://10.0.0.1:80", true),
            ("WH_PORT", "8080", false),
            ("WH_FOO_SERVICE_HOST", "10.0.0.1", true),
            ("WH_FOO_SERVICE_PORT_HTTP", "80", true),
            ("WH_FOO_PORT_80_TCP", "tcp://10.0.0.1:80", true),
            ("WH_FOO_PORT_80_TCP_ADDR", "10.0.0.1", true),
            ("WH_FOO_PORT_53_UDP_PROTO", "udp", true),
            ("WH_FOO_PORT_80_TCP_PORT", "80", true),
            ("WH_FOO_PORT_80_TCP_OTHER", "80", false),
            ("WH_FOO_PORT_X_TCP", "80", false),
            ("WH_SERVR_PORT", "8080", false),
            ("WH_SERVER_PROT", "8080", false),
        ] {
            assert_eq!(is_service_link(name, value), link, "{name}={value}");
        }
    }
}
