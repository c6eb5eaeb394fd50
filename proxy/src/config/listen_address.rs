//! An address to listen on, as written: a host and a port.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use rustls::pki_types::ServerName;

use super::section::Form;

/// What [`ListenAddress`] is read from, as far as a pattern tells.
pub(super) const FORM: Form = &[r"^(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):[0-9]+$"];

/// A host (an IP address or a name) and a port to listen on; port 0 means any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// An IP address without brackets, or a DNS name.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl ListenAddress {
    /// Where HTTPS is served by default.
    pub(super) fn listen() -> Self {
        Self::loopback(8443)
    }

    /// Where the admin port is by default.
    pub fn admin_listen() -> Self {
        Self::loopback(8081)
    }

    /// A port of 127.0.0.1.
    fn loopback(port: u16) -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port,
        }
    }

    /// Whether two listeners cannot have both addresses, as far as the text tells.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let is_all = |it: &Self| it.ip().is_some_and(|ip| ip.is_unspecified());
        self.port != 0
            && self.port == other.port
            && (self.host.eq_ignore_ascii_case(&other.host) || is_all(self) || is_all(other))
    }

    /// The host as an IP address, where it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Whether nobody on another machine can reach it.
    pub(super) fn is_loopback(&self) -> bool {
        match self.ip() {
            Some(ip) => ip.is_loopback(),
            None => self.host.eq_ignore_ascii_case("localhost"),
        }
    }

    /// `https://host:port` by which a client on this machine reaches a listener of this address that got `bound`.
    pub fn url(&self, bound: SocketAddr) -> String {
        let port = bound.port();
        match self.ip() {
            // "All addresses" is not one that a client can dial.
            Some(IpAddr::V4(ip)) if ip.is_unspecified() => format!("https://127.0.0.1:{port}"),
            Some(IpAddr::V6(ip)) if ip.is_unspecified() => format!("https://[::1]:{port}"),
            Some(IpAddr::V6(ip)) => format!("https://[{ip}]:{port}"),
            Some(IpAddr::V4(_)) | None => format!("https://{}:{port}", self.host),
        }
    }

    /// Whether a client that dials `host` and `port` gets here, as far as the address alone tells: the same host, or a
    /// loopback name of a listener that accepts there.
    pub fn is_reached_by(&self, host: &str, port: u16) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_loopback = |host: &str| {
            host.eq_ignore_ascii_case("localhost")
                || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        };
        let accepts_loopback =
            is_loopback(&self.host) || self.ip().is_some_and(|ip| ip.is_unspecified());
        self.port == port
            && (self.host.eq_ignore_ascii_case(host) || (accepts_loopback && is_loopback(host)))
    }
}

/// Why the admin port cannot listen where it is told.
pub(super) fn overlap(admin: &ListenAddress, listen: &ListenAddress) -> String {
    format!(
        "the admin port ({admin}) and the HTTPS port ({listen}) exclude each other; choose another for one"
    )
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not an address such as \"127.0.0.1:8443\" or \"[::]:8443\"");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let digits = port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|_| digits).ok_or_else(wrong)?;
        let host = match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(ip) if ip.parse::<std::net::Ipv6Addr>().is_ok() => ip,
            // A certificate must be able to carry the name.
            None if !host.contains(':') && ServerName::try_from(host).is_ok() => host,
            _ => return Err(wrong()),
        };
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip() {
            Some(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            Some(IpAddr::V4(_)) | None => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let check = |text: &str, url: Option<&str>| {
            let bound = SocketAddr::from(([127, 0, 0, 1], 7));
            let got = text.parse::<ListenAddress>().ok();
            assert_eq!(
                got.as_ref().map(|it| it.url(bound)).as_deref(),
                url,
                "{text}"
            );
            assert_eq!(got.map(|it| it.to_string()).as_deref(), url.map(|_| text));
        };
        check("127.0.0.1:8443", Some("https://127.0.0.1:7"));
        check("0.0.0.0:0", Some("https://127.0.0.1:7"));
        check("[::]:8443", Some("https://[::1]:7"));
        check("[2001:db8::1]:8443", Some("https://[2001:db8::1]:7"));
        check(
            "proxy.example.com:8443",
            Some("https://proxy.example.com:7"),
        );
        for wrong in [
            "",
            "8443",
            ":8443",
            "::1:8443",
            "a:b",
            "a:70000",
            "a:+80",
            "[a]:1",
            "a b:1",
            "https://a:1",
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn addresses_that_exclude_each_other() {
        let check = |one: &str, other: &str, expect: bool| {
            let [one, other] = [one, other].map(|it| it.parse::<ListenAddress>().unwrap());
            assert_eq!(one.overlaps(&other), expect, "{one} {other}");
            assert_eq!(other.overlaps(&one), expect, "{other} {one}");
        };
        check("127.0.0.1:1", "127.0.0.1:1", true);
        check("127.0.0.1:1", "0.0.0.0:1", true);
        check("127.0.0.1:1", "127.0.0.1:2", false);
        check("127.0.0.1:1", "127.0.0.2:1", false);
        check("127.0.0.1:0", "127.0.0.1:0", false);
    }

    #[test]
    fn an_address_knows_who_reaches_it() {
        let check = |listen: &str, host: &str, port: u16, expect: bool| {
            let listen: ListenAddress = listen.parse().unwrap();
            assert_eq!(
                listen.is_reached_by(host, port),
                expect,
                "{listen} {host}:{port}"
            );
        };
        check("127.0.0.1:1", "127.0.0.1", 1, true);
        check("127.0.0.1:1", "localhost", 1, true);
        check("127.0.0.1:1", "127.0.0.1", 2, false);
        check("127.0.0.1:1", "10.0.0.1", 1, false);
        check("0.0.0.0:1", "127.0.0.1", 1, true);
        check("[::]:1", "[::1]", 1, true);
        check("10.0.0.1:1", "127.0.0.1", 1, false);
        check("10.0.0.1:1", "10.0.0.1", 1, true);
        check("Proxy.example:1", "proxy.example", 1, true);
    }
}
