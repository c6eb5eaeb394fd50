//! `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` as Go programs read them.

use std::net::IpAddr;

use http::Uri;

/// The proxy variables of the environment.
#[derive(Clone, Debug, Default)]
pub(super) struct ProxyEnv {
    https: Option<(&'static str, String)>,
    http: Option<(&'static str, String)>,
    no_proxy: String,
}

impl ProxyEnv {
    pub(super) fn from_env() -> Self {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    pub(super) fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: [&'static str; 2]| {
            names.into_iter().find_map(|name| {
                let value = lookup(name)?;
                (!value.is_empty()).then_some((name, value))
            })
        };
        Self {
            https: first(["HTTPS_PROXY", "https_proxy"]),
            http: first(["HTTP_PROXY", "http_proxy"]),
            no_proxy: first(["NO_PROXY", "no_proxy"]).map_or_else(String::new, |(_, v)| v),
        }
    }

    /// The variable and the URL to dial `server` through, if any.
    pub(super) fn proxy_for(&self, server: &Uri) -> Option<(String, String)> {
        let is_https = server.scheme() == Some(&http::uri::Scheme::HTTPS);
        let (name, url) = if is_https { &self.https } else { &self.http }.as_ref()?;
        let host = server.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
        let port = server.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        if self.is_excluded(&host, port) {
            return None;
        }
        // Go takes `proxy:3128` for an http proxy.
        let url = if url.contains("://") {
            url.clone()
        } else {
            format!("http://{url}")
        };
        Some(((*name).to_owned(), url))
    }

    fn is_excluded(&self, host: &str, port: u16) -> bool {
        let ip: Option<IpAddr> = host.parse().ok();
        if host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
            return true;
        }
        self.no_proxy
            .split(',')
            .map(|entry| entry.trim().to_ascii_lowercase())
            .any(|entry| matches(&entry, host, ip, port))
    }
}

/// One entry of `NO_PROXY`: `*`, an IP address, a CIDR, `example.com` (and below), `.example.com` (only below), each with
/// a port or without.
fn matches(entry: &str, host: &str, ip: Option<IpAddr>, port: u16) -> bool {
    if entry.is_empty() {
        return false;
    }
    if entry == "*" {
        return true;
    }
    if let Some((network, bits)) = entry.split_once('/') {
        let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
            return false;
        };
        return ip.is_some_and(|ip| is_in(ip, network, bits));
    }
    let (name, wanted_port) = split_port(entry);
    if wanted_port.is_some_and(|wanted| wanted != port) {
        return false;
    }
    if let Ok(wanted) = name.parse::<IpAddr>() {
        return ip == Some(wanted);
    }
    let name = name
        .strip_prefix('*')
        .filter(|rest| rest.starts_with('.'))
        .unwrap_or(name);
    match name.strip_prefix('.') {
        Some(parent) => host
            .strip_suffix(parent)
            .is_some_and(|sub| sub.ends_with('.')),
        None => {
            host == name
                || host
                    .strip_suffix(name)
                    .is_some_and(|sub| sub.ends_with('.'))
        }
    }
}

fn split_port(entry: &str) -> (&str, Option<u16>) {
    if let Some(rest) = entry.strip_prefix('[') {
        let (ip, port) = rest.split_once(']').unwrap_or((rest, ""));
        return (
            ip,
            port.strip_prefix(':').and_then(|port| port.parse().ok()),
        );
    }
    match entry.split_once(':') {
        // More than one colon: an IPv6 address.
        Some((_, port)) if port.contains(':') => (entry, None),
        Some((name, port)) => (name, port.parse().ok()),
        None => (entry, None),
    }
}

fn is_in(ip: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            ip.to_bits() & mask == network.to_bits() & mask
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) if bits <= 128 => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            ip.to_bits() & mask == network.to_bits() & mask
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(no_proxy: &str) -> ProxyEnv {
        let no_proxy = no_proxy.to_owned();
        ProxyEnv::from_lookup(move |name| match name {
            "HTTPS_PROXY" => Some("proxy:3128".to_owned()),
            "http_proxy" => Some("socks5://socks:1080".to_owned()),
            "NO_PROXY" => Some(no_proxy.clone()),
            _ => None,
        })
    }

    fn proxied(no_proxy: &str, server: &str) -> bool {
        env(no_proxy).proxy_for(&server.parse().unwrap()).is_some()
    }

    #[test]
    fn the_scheme_chooses_the_variable() {
        let https = env("").proxy_for(&"https://a:6443".parse().unwrap());
        assert_eq!(
            https,
            Some(("HTTPS_PROXY".to_owned(), "http://proxy:3128".to_owned()))
        );
        let http = env("").proxy_for(&"http://a".parse().unwrap());
        assert_eq!(
            http,
            Some(("http_proxy".to_owned(), "socks5://socks:1080".to_owned()))
        );
        let none = ProxyEnv::default().proxy_for(&"https://a".parse().unwrap());
        assert_eq!(none, None);
    }

    #[test]
    fn no_proxy_and_loopback_are_dialled_directly() {
        for (no_proxy, server, is_proxied) in [
            ("", "https://localhost:6443", false),
            ("", "https://127.8.8.8", false),
            ("", "https://[::1]:6443", false),
            ("", "https://10.0.0.1", true),
            ("*", "https://10.0.0.1", false),
            ("10.0.0.0/8", "https://10.1.2.3", false),
            ("10.0.0.0/8", "https://11.1.2.3", true),
            ("0.0.0.0/0", "https://11.1.2.3", false),
            ("fd00::/8", "https://[fd12::1]", false),
            ("10.0.0.1", "https://10.0.0.1:6443", false),
            ("10.0.0.1:6443", "https://10.0.0.1:6443", false),
            ("10.0.0.1:6443", "https://10.0.0.1", true),
            ("a.com, b.com", "https://b.com", false),
            ("b.com", "https://x.b.com", false),
            ("b.com", "https://xb.com", true),
            (".b.com", "https://b.com", true),
            (".b.com", "https://x.b.com", false),
            ("*.b.com", "https://x.b.com", false),
            ("B.com", "https://b.COM", false),
            ("[fd12::1]:443", "https://[fd12::1]", false),
            ("fd12::1", "https://[fd12::1]", false),
            ("b.com:443", "https://b.com", false),
            ("b.com:80", "https://b.com", true),
        ] {
            assert_eq!(proxied(no_proxy, server), is_proxied, "{no_proxy} {server}");
        }
    }
}
