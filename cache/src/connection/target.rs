//! Where a request goes: the server's address and base path, and the client's path behind it, byte for byte.

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};

use crate::upstream::BoxError;

/// A server as in a kubeconfig.
#[derive(Debug)]
pub(super) struct Target {
    scheme: Scheme,
    authority: Authority,
    host: HeaderValue,
    /// Without a slash at its end; empty for most servers.
    base_path: String,
}

/// A path that is not sent.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the path is not one of this cluster's")]
pub(super) struct InvalidPath;

impl Target {
    pub(super) fn new(server: &Uri) -> Result<Self, BoxError> {
        let authority = server.authority().ok_or("the server's URL has no host")?;
        Ok(Self {
            scheme: server.scheme().cloned().unwrap_or(Scheme::HTTPS),
            authority: authority.clone(),
            host: HeaderValue::from_str(authority.as_str())?,
            base_path: server.path().trim_end_matches('/').to_owned(),
        })
    }

    pub(super) fn host(&self) -> HeaderValue {
        self.host.clone()
    }

    /// The server without a path: what is dialled.
    pub(super) fn server(&self) -> Uri {
        self.with(PathAndQuery::from_static("/"))
    }

    pub(super) fn uri(&self, path_and_query: &str) -> Result<Uri, InvalidPath> {
        if !path_and_query.starts_with('/') || path_and_query.contains('#') {
            return Err(InvalidPath);
        }
        let path = if self.base_path.is_empty() {
            PathAndQuery::try_from(path_and_query)
        } else {
            if climbs(path_and_query) {
                return Err(InvalidPath);
            }
            PathAndQuery::try_from(format!("{}{path_and_query}", self.base_path))
        };
        path.map(|path| self.with(path)).map_err(|_| InvalidPath)
    }

    fn with(&self, path: PathAndQuery) -> Uri {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).expect("scheme, authority and path are all there")
    }
}

/// Whether a segment is `.` or `..`, percent-encoded or not, however often: whoever normalises it on the way would leave the
/// base path, behind which other clusters may be.
fn climbs(path_and_query: &str) -> bool {
    let path = path_and_query.split('?').next().unwrap_or_default();
    let mut path = path.to_ascii_lowercase();
    loop {
        let decoded = path.replace("%25", "%");
        if decoded.len() == path.len() {
            break;
        }
        path = decoded;
    }
    // `%2f` may become a slash, `%5c` or `\` one on some servers, and some leave out what follows a `;` in a segment.
    let path = path
        .replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%5c", "/")
        .replace("%3b", ";")
        .replace('\\', "/");
    path.split('/').any(|segment| {
        let segment = segment.split(';').next().unwrap_or_default();
        segment == "." || segment == ".."
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(server: &str, path: &str) -> Option<String> {
        let target = Target::new(&server.parse().unwrap()).unwrap();
        target.uri(path).ok().map(|uri| uri.to_string())
    }

    #[test]
    fn paths_go_behind_the_base_path_byte_for_byte() {
        for (server, path, sent) in [
            (
                "https://h:6443",
                "/api?x=%2F&y",
                "https://h:6443/api?x=%2F&y",
            ),
            ("https://h", "/", "https://h/"),
            ("https://h/", "//a/../b//", "https://h//a/../b//"),
            ("https://h/k8s/c1", "/api/v1", "https://h/k8s/c1/api/v1"),
            (
                "https://h/k8s/c1/",
                "/a%20b?w=1",
                "https://h/k8s/c1/a%20b?w=1",
            ),
            (
                "https://h/k8s/c1",
                "/a?x=/../c2",
                "https://h/k8s/c1/a?x=/../c2",
            ),
            ("http://[::1]:80/p", "/x", "http://[::1]:80/p/x"),
        ] {
            assert_eq!(uri(server, path).as_deref(), Some(sent), "{server} {path}");
        }
    }

    #[test]
    fn nothing_reaches_another_cluster_behind_the_server() {
        for path in [
            "0/api",
            "",
            "?x",
            "/../c2/api",
            "/a/%2E./%2e%2e/c2",
            "/x/..%2fc2",
            "/x/..;/c2",
            "/x/..%3Ba=b/c2",
            "/x/%252e%25252E/c2",
            "/x/..%5cc2",
            "/.",
            "/a#b",
        ] {
            assert_eq!(uri("https://h/k8s/c1", path), None, "{path}");
        }
        assert_eq!(uri("https://h", "evil.example/"), None);
    }
}
