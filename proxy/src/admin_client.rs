//! How commands ask the admin port of a running proxy.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::config::ListenAddress;

/// What servers written in Go, and this proxy, answer to plain HTTP where they speak HTTPS.
const NOT_PLAIN: &str = "Client sent an HTTP request to an HTTPS server";

/// The admin port's address as it is given: `host:port`, or the URL that it answers at.
///
/// # Errors
/// It is no address, or that of another port for sure.
pub fn admin_address(given: &str) -> Result<&str, String> {
    if given.starts_with("https://") {
        return Err(format!(
            "--admin: {given:?} speaks HTTPS, and the admin port (`adminListen`) does not"
        ));
    }
    let address = given.strip_prefix("http://").unwrap_or(given);
    let address = address.strip_suffix('/').unwrap_or(address);
    match address.parse::<ListenAddress>() {
        Ok(it) if it.port > 0 => Ok(address),
        _ => Err(format!(
            "--admin: {given:?} is not an address such as \"127.0.0.1:8081\""
        )),
    }
}

/// Sends a request without a body to the admin port at `admin`, as `host:port`, and gives the code and the body of the
/// answer. `headers` are whole lines, each with its end.
pub(crate) fn ask(
    admin: &str,
    request: &str,
    headers: &str,
    timeout: Duration,
) -> anyhow::Result<(u16, String)> {
    let no_answer = || format!("no proxy answers at {admin}; name its admin port with --admin");
    let mut stream = TcpStream::connect(admin).with_context(no_answer)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let request =
        format!("{request} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n{headers}\r\n");
    stream
        .write_all(request.as_bytes())
        .with_context(no_answer)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(no_answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(no_answer)?;
    if body.contains(NOT_PLAIN) {
        bail!(
            "{admin} is not the admin port: it speaks HTTPS; name the admin port (`adminListen`) with --admin"
        );
    }
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((code.with_context(no_answer)?, body.to_owned()))
}

/// What answers does not know what it was asked for.
pub(crate) fn unknown(admin: &str, path: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "what answers at {admin} does not know {path}; is it a fleetcache of another version?"
    )
}

/// A value as it is written in a query.
pub(crate) fn escaped(text: &[u8]) -> String {
    text.iter().fold(String::new(), |mut escaped, &byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            escaped.push(byte.into());
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_admin_port_as_it_is_given() {
        let no = |given: &str| {
            Err(format!(
                "--admin: {given:?} is not an address such as \"127.0.0.1:8081\""
            ))
        };
        for (given, expect) in [
            ("127.0.0.1:8081", Ok("127.0.0.1:8081")),
            ("http://127.0.0.1:8081", Ok("127.0.0.1:8081")),
            ("http://[::1]:8081/", Ok("[::1]:8081")),
            ("proxy:1", Ok("proxy:1")),
            ("", no("")),
            ("8081", no("8081")),
            ("127.0.0.1:0", no("127.0.0.1:0")),
            ("127.0.0.1:99999", no("127.0.0.1:99999")),
            ("http://127.0.0.1:8081/why", no("http://127.0.0.1:8081/why")),
            (
                "https://127.0.0.1:8443",
                Err(
                    "--admin: \"https://127.0.0.1:8443\" speaks HTTPS, and the admin port (`adminListen`) does not"
                        .to_owned(),
                ),
            ),
        ] {
            assert_eq!(admin_address(given), expect, "{given}");
        }
    }
}
