//! `wavehouse health`: asks the gateway on this machine whether it lives. For container health checks, so it needs no
//! configuration file, only the port.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// The whole check must end within this.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Most of an answer that is read.
const ANSWER_BYTES_MAX: u64 = 4096;
const DEFAULT_PORT: u16 = 8080;

/// Where the gateway listens, from its variables.
///
/// # Errors
/// When `WH_SERVER_PORT` is no port.
pub(crate) fn address(env: &BTreeMap<String, String>) -> anyhow::Result<SocketAddr> {
    let port = match env.get("WH_SERVER_PORT") {
        Some(text) => {
            text.trim().parse().with_context(|| format!("WH_SERVER_PORT is {text:?}, not a port"))?
        }
        None => DEFAULT_PORT,
    };
    let listen = env.get("WH_SERVER_LISTEN").and_then(|text| text.trim().parse::<IpAddr>().ok());
    let ip = listen.filter(|ip| !ip.is_unspecified()).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    Ok(SocketAddr::new(ip, port))
}

/// Succeeds when `/livez` answers 200 in time.
///
/// # Errors
/// Says what was answered, or why nothing was.
pub(crate) fn check(address: SocketAddr) -> anyhow::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    let answer = ask(address, deadline).with_context(|| format!("no answer from http://{address}/livez"))?;
    let (status, body) = read_answer(&answer);
    if status == Some("200") {
        return Ok(());
    }
    bail!("http://{address}/livez answered {}: {body}", status.unwrap_or("something else than HTTP"))
}

fn ask(address: SocketAddr, deadline: Instant) -> io::Result<String> {
    let left = || deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    let timed_out = || io::Error::from(io::ErrorKind::TimedOut);
    let mut stream = TcpStream::connect_timeout(&address, left().ok_or_else(timed_out)?)?;
    stream.set_write_timeout(left())?;
    stream.write_all(
        format!("GET /livez HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = Vec::new();
    let mut part = [0; 1024];
    while (answer.len() as u64) < ANSWER_BYTES_MAX {
        stream.set_read_timeout(Some(left().ok_or_else(timed_out)?))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            break;
        }
        answer.extend_from_slice(part.get(..count).unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn read_answer(answer: &str) -> (Option<&str>, &str) {
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        assert_eq!(read_answer("HTTP/1.1 200 OK\r\nA: b\r\n\r\nok\n"), (Some("200"), "ok"));
        assert_eq!(read_answer("SSH-2.0"), (None, ""));
    }

    #[test]
    fn addresses() {
        let env =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(address(&env(&[])).unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(
            address(&env(&[("WH_SERVER_PORT", "81"), ("WH_SERVER_LISTEN", "0.0.0.0")])).unwrap().to_string(),
            "127.0.0.1:81"
        );
        assert_eq!(address(&env(&[("WH_SERVER_LISTEN", "10.1.2.3")])).unwrap().to_string(), "10.1.2.3:8080");
        assert!(address(&env(&[("WH_SERVER_PORT", "http")])).is_err());
    }
}
