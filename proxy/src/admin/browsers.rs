//! What comes from a page in somebody's browser is refused.
//!
//! Nobody has to show a credential at this port, and an operator's browser reaches it: by `kubectl port-forward`, or on the
//! operator's own machine. A page of any site can have the browser ask; whether it may read the answer is for the browser
//! to judge, by names. Two things are against that:
//!
//! - Browsers send headers of their own where a page asks, which no page can leave out: `Origin` with what is no plain GET,
//!   `Sec-Fetch-Site` to localhost, `Referer` where the page does not forbid it. What somebody typed into the address bar has
//!   `Sec-Fetch-Site: none`.
//! - A site whose name leads to this port after it has led to its own server ("DNS rebinding") may ask as if it were this
//!   port's own page, and leave no trace but that name in `Host`. So on the loopback address a name must be one that no
//!   site can have. On other addresses any name may be the right one: Prometheus asks by the name that it was given.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, ORIGIN, REFERER};
use http::uri::Authority;
use http::{HeaderMap, HeaderName};

/// Says where the page is that asks; `none` where there is no page.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What they are told.
pub(super) const REFUSAL: &str = "this port is not for pages in a browser: it takes no request with Origin, Referer or Sec-Fetch-Site, \
     and on the loopback address none for a Host that is a site's name; type its address as 127.0.0.1 or localhost\n";

/// The ends of names that are no site's.
const LOCAL: [&str; 5] = [".localhost", ".local", ".internal", ".svc", ".home.arpa"];

/// Whether there is a browser's page behind a request, or may be. `reached` is the address that it came to, and `own` the
/// host that the port was configured with.
pub(super) fn is_from_page(headers: &HeaderMap, reached: Option<SocketAddr>, own: &str) -> bool {
    let site = headers.get(SEC_FETCH_SITE);
    let is_asked_by_page = headers.contains_key(ORIGIN)
        || headers.contains_key(REFERER)
        || site.is_some_and(|site| site != "none");
    let is_loopback = reached.is_none_or(|it| it.ip().to_canonical().is_loopback());
    is_asked_by_page || is_loopback && !names_no_site(headers, own)
}

/// Whether a request may only be meant for this machine. Every browser sends `Host`.
fn names_no_site(headers: &HeaderMap, own: &str) -> bool {
    headers.get_all(HOST).iter().all(|host| {
        let authority = Authority::try_from(host.as_bytes()).ok();
        authority.is_some_and(|it| is_no_site(it.host(), own))
    })
}

fn is_no_site(host: &str, own: &str) -> bool {
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    is_address
        || host == own.to_ascii_lowercase()
        || !host.contains('.')
        || LOCAL.iter().any(|end| host.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_told_from_programs() {
        let (local, pod) = ("127.0.0.1:8081", "10.0.0.7:8081");
        let page = [
            (local, &[("host", "127.0.0.1:8081"), ("origin", "null")][..]),
            (
                local,
                &[("host", "localhost:8081"), ("referer", "http://x/")],
            ),
            (
                pod,
                &[("host", "10.0.0.7"), ("sec-fetch-site", "cross-site")],
            ),
            (
                local,
                &[("host", "localhost"), ("sec-fetch-site", "same-origin")],
            ),
            (local, &[("host", "rebound.example.com:8081")]),
            ("[::1]:8081", &[("host", "rebound.example.com")]),
            (
                "[::ffff:127.0.0.1]:8081",
                &[("host", "rebound.example.com")],
            ),
            (local, &[("host", "127.0.0.1.example.com")]),
            (local, &[("host", "localhost"), ("host", "example.com")]),
            (local, &[("host", "a b")]),
        ];
        let program = [
            (local, &[("host", "127.0.0.1:8081")][..]),
            (local, &[("host", "[::1]:8081")]),
            (
                local,
                &[("host", "localhost:41234"), ("sec-fetch-site", "none")],
            ),
            (local, &[("host", "fleetcache:8081")]),
            (local, &[("host", "Proxy.Example.com:8081")]),
            (local, &[("host", "fleetcache.monitoring.svc:8081")]),
            (
                local,
                &[("host", "fleetcache.monitoring.svc.cluster.local.")],
            ),
            (local, &[]),
            (pod, &[("host", "fleetcache.corp.example.com:8081")]),
            (
                pod,
                &[("host", "10.0.0.7:8081"), ("user-agent", "kube-probe/1.36")],
            ),
        ];
        let check = |(reached, headers): (&str, &[(&'static str, &str)]), expected: bool| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().unwrap());
            }
            let from_page = is_from_page(&map, reached.parse().ok(), "proxy.example.com");
            assert_eq!(from_page, expected, "{reached} {headers:?}");
        };
        page.into_iter().for_each(|it| check(it, true));
        program.into_iter().for_each(|it| check(it, false));
    }
}
