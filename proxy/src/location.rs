//! Where an answer's `Location` points, seen from the client.
//!
//! A cluster knows nothing of `/clusters/<name>`: it redirects to paths of its own root (OpenAPI with an old hash, a
//! service proxy without its last slash) or to its own address.

use http::Uri;

/// The cluster's place behind its address.
#[derive(Clone, Copy, Debug)]
pub struct Upstream<'a> {
    /// `https` or `http`.
    pub scheme: &'a str,
    /// `host:port` or `host`.
    pub authority: &'a str,
    /// The path before every path of the cluster: empty, or `/like/this`.
    pub base_path: &'a str,
}

impl<'a> Upstream<'a> {
    /// Read from a request that is about to be sent: what its URI has besides the path that the client asked for.
    pub fn of(uri: &'a Uri, path_and_query: &str) -> Option<Self> {
        let whole = uri.path_and_query()?.as_str();
        Some(Self {
            scheme: uri.scheme_str()?,
            authority: uri.authority()?.as_str(),
            base_path: whole.strip_suffix(path_and_query)?,
        })
    }
}

/// The location as a client of the proxy must be told it; `None` where it stays as it is.
pub fn rewrite(location: &str, cluster: &str, upstream: Upstream<'_>) -> Option<String> {
    let path = path_on(location, upstream)?;
    // A client resolves dot segments before it asks: `/../b/api` would end at another cluster. Browsers drop tabs first.
    if has_dot_segment(path) || path.bytes().any(|byte| byte <= b' ') {
        return None;
    }
    Some(format!("/clusters/{cluster}{path}"))
}

/// The path, query and fragment of a location within the cluster; `None` if it points elsewhere or is relative.
fn path_on<'a>(location: &'a str, upstream: Upstream<'_>) -> Option<&'a str> {
    if location.starts_with('/') && !location.starts_with("//") {
        // With the base path or without it: who strips it on the way in may not add it on the way out.
        return Some(below_base(location, upstream.base_path).unwrap_or(location));
    }
    let (scheme, rest) = match location.split_once("//") {
        Some(("", rest)) => (upstream.scheme, rest),
        Some((scheme, rest)) => (scheme.strip_suffix(':')?, rest),
        None => return None,
    };
    if !scheme.eq_ignore_ascii_case(upstream.scheme) {
        return None;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if !same_authority(authority, upstream) {
        return None;
    }
    match path {
        "" if upstream.base_path.is_empty() => Some("/"),
        _ if path.starts_with('/') => below_base(path, upstream.base_path),
        _ => None,
    }
}

/// What follows the base path, where the path is below it.
fn below_base<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(base.trim_end_matches('/'))?;
    match rest.bytes().next() {
        None => Some("/"),
        Some(b'/') => Some(rest),
        Some(_) => None,
    }
}

fn same_authority(authority: &str, upstream: Upstream<'_>) -> bool {
    let default_port = if upstream.scheme.eq_ignore_ascii_case("https") {
        ":443"
    } else {
        ":80"
    };
    let bare = |authority: &str| {
        authority
            .strip_suffix(default_port)
            .unwrap_or(authority)
            .to_ascii_lowercase()
    };
    bare(authority) == bare(upstream.authority)
}

fn has_dot_segment(location: &str) -> bool {
    let path = location.split(['?', '#']).next().unwrap_or(location);
    // Browsers read `\` as `/`.
    path.split(['/', '\\']).any(|segment| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(base_path: &str, table: &[(&str, Option<&str>)]) {
        for (location, expected) in table {
            let upstream = Upstream {
                scheme: "https",
                authority: "10.0.0.1:6443",
                base_path,
            };
            let rewritten = rewrite(location, "a", upstream);
            assert_eq!(rewritten.as_deref(), *expected, "{location}");
        }
    }

    #[test]
    fn paths_of_the_cluster_get_its_prefix() {
        check(
            "",
            &[
                (
                    "/openapi/v3/api/v1?hash=A%2B",
                    Some("/clusters/a/openapi/v3/api/v1?hash=A%2B"),
                ),
                ("/", Some("/clusters/a/")),
                ("/x#y", Some("/clusters/a/x#y")),
                ("/clusters/b/api", Some("/clusters/a/clusters/b/api")),
                ("https://10.0.0.1:6443/x?y#z", Some("/clusters/a/x?y#z")),
                ("HTTPS://10.0.0.1:6443", Some("/clusters/a/")),
                ("//10.0.0.1:6443/x", Some("/clusters/a/x")),
                (
                    "/login?next=https://elsewhere//x/../y",
                    Some("/clusters/a/login?next=https://elsewhere//x/../y"),
                ),
                ("/a//b", Some("/clusters/a/a//b")),
                ("/...", Some("/clusters/a/...")),
            ],
        );
    }

    #[test]
    fn other_places_stay() {
        check(
            "",
            &[
                ("", None),
                ("x", None),
                ("../x", None),
                ("?x=//y", None),
                ("#x", None),
                ("https://10.0.0.1/x", None),
                ("https://10.0.0.1:64430/x", None),
                ("http://10.0.0.1:6443/x", None),
                ("https://user@10.0.0.1:6443/x", None),
                ("https://10.0.0.1:6443?x", None),
                ("https://elsewhere/x", None),
                ("//elsewhere/x", None),
                ("mailto:a@b", None),
                ("/../b/api", None),
                ("/x/%2E%2e/%2e./b", None),
                ("/x\\..\\b", None),
                ("/./x", None),
                ("/.\t./b", None),
                ("https://10.0.0.1:6443/..", None),
            ],
        );
    }

    #[test]
    fn the_base_path_is_taken_away() {
        check(
            "/k8s/c-1",
            &[
                ("/k8s/c-1/api", Some("/clusters/a/api")),
                ("/k8s/c-1", Some("/clusters/a/")),
                ("/k8s/c-12/api", Some("/clusters/a/k8s/c-12/api")),
                ("/api", Some("/clusters/a/api")),
                ("https://10.0.0.1:6443/k8s/c-1/api", Some("/clusters/a/api")),
                ("https://10.0.0.1:6443/k8s/c-2/api", None),
                ("https://10.0.0.1:6443", None),
            ],
        );
    }

    #[test]
    fn default_ports_and_case_do_not_matter() {
        let upstream = Upstream {
            scheme: "https",
            authority: "Api.Example",
            base_path: "",
        };
        for location in ["https://api.example:443/x", "https://API.example/x"] {
            assert_eq!(
                rewrite(location, "a", upstream).as_deref(),
                Some("/clusters/a/x")
            );
        }
    }

    #[test]
    fn the_place_is_read_from_a_request() {
        let uri = Uri::from_static("https://h:1/base/api//x/../%2F?y");
        let upstream = Upstream::of(&uri, "/api//x/../%2F?y").unwrap();
        assert_eq!(
            (upstream.scheme, upstream.authority, upstream.base_path),
            ("https", "h:1", "/base")
        );
    }
}
