//! How commands ask the admin port of a running proxy.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::config::ListenAddress;
use crate::state_dir;

/// What servers written in Go, and this proxy, answer to plain HTTP where they speak HTTPS.
const NOT_PLAIN: &str = "Client sent an HTTP request to an HTTPS server";

/// Where a command asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPort {
    /// `host:port`.
    pub address: String,
    /// Who said so, for messages: a flag, a file or nobody.
    pub said_by: String,
}

impl AdminPort {
    /// By the address that was given, else what the proxy wrote into its state directory, else by the default. Only of a
    /// directory that was named a file is expected.
    ///
    /// # Errors
    /// There is no such file, or it holds no address.
    pub fn find(
        given: Option<&str>,
        state_dir: Option<&Path>,
        default_dir: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let found_by = |address: &str, said_by: String| Self {
            address: address.to_owned(),
            said_by,
        };
        if let Some(address) = given {
            return Ok(found_by(address, "--admin".to_owned()));
        }
        if let Some(dir) = state_dir.or(default_dir)
            && let Some(address) = state_dir::admin_address(dir)?
        {
            let file = dir.join(state_dir::ADMIN_ADDRESS);
            return Ok(found_by(&address.to_string(), file.display().to_string()));
        }
        if let Some(dir) = state_dir {
            bail!(
                "there is no {}; `fleetcache serve` writes it, with the same --state-dir, while it runs",
                dir.join(state_dir::ADMIN_ADDRESS).display()
            );
        }
        let default = ListenAddress::admin_listen();
        Ok(found_by(&default.to_string(), String::new()))
    }

    /// For an answer that did not come.
    fn unanswered(&self) -> String {
        match &*self.said_by {
            "" => format!(
                "no proxy answers at {}; name its --state-dir, or its admin port with --admin",
                self.address
            ),
            "--admin" => format!(
                "no proxy answers at {}; name its admin port with --admin",
                self.address
            ),
            file => format!(
                "no proxy answers at {}, which is in {file}; is `fleetcache serve` running?",
                self.address
            ),
        }
    }
}

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

/// Sends a request without a body to the admin port, and gives the code and the body of the answer. `headers` are whole
/// lines, each with its end.
pub(crate) fn ask(
    admin: &AdminPort,
    request: &str,
    headers: &str,
    timeout: Duration,
) -> anyhow::Result<(u16, String)> {
    let no_answer = || admin.unanswered();
    let admin = &admin.address;
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
pub(crate) fn unknown(admin: &AdminPort, path: &str) -> anyhow::Error {
    let admin = &admin.address;
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
    fn where_a_command_asks() {
        let (named, default) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let find = |given, named: &Path| {
            AdminPort::find(given, Some(named), Some(default.path())).map(|it| it.address)
        };
        let by_default = || AdminPort::find(None, None, Some(default.path())).map(|it| it.address);
        assert_eq!(by_default().unwrap(), "127.0.0.1:8081");
        let error = find(None, named.path()).unwrap_err().to_string();
        let expect = format!("there is no {}/admin-address; ", named.path().display());
        assert!(error.starts_with(&expect), "{error}");
        for (dir, port) in [(&named, 1), (&default, 2)] {
            let dir = state_dir::StateDir::open(dir.path()).unwrap();
            dir.write_admin_address(([127, 0, 0, 1], port).into())
                .unwrap();
        }
        assert_eq!(by_default().unwrap(), "127.0.0.1:2");
        assert_eq!(find(None, named.path()).unwrap(), "127.0.0.1:1");
        assert_eq!(find(Some("h:3"), named.path()).unwrap(), "h:3");
    }

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
