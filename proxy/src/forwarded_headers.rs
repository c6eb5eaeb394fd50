//! Which headers pass between a client and its cluster.
//!
//! Everything passes, unknown and repeated ones included, in order, but what belongs to one connection only, what says
//! who is asking (the proxy says that itself), and what a client may not claim (where the request came from).

use http::header::{
    self, ACCEPT_ENCODING, CONNECTION, COOKIE, Entry, HeaderMap, HeaderName, HeaderValue,
    SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};

use crate::status::AUDIT_ID;

/// The WebSocket subprotocol by which a browser carries a bearer token; what follows is the token.
const BEARER_SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// What a request's headers depend on besides themselves.
#[derive(Clone, Copy, Debug)]
pub struct Forwarding {
    /// The answer is read on its way (a resourceVersion, a uid), which wants plain bytes.
    pub plain_answer: bool,
    /// The request asks for an upgrade that is passed on.
    pub upgrade: bool,
}

/// The headers of a request on its way to a cluster. `Host` and `Authorization` are left to the connection.
pub fn request(client: &HeaderMap, forwarding: Forwarding) -> HeaderMap {
    let mut named = named_in_connection(client);
    // By it the cluster's audit log and the proxy's name the same request, whatever the client says.
    named.retain(|name| name != AUDIT_ID);
    let mut headers = HeaderMap::with_capacity(client.len());
    for (name, value) in client {
        if is_hop_by_hop(name) || named.contains(name) || is_trailer(name) || is_claim(name) {
            continue;
        }
        if name == SEC_WEBSOCKET_PROTOCOL {
            if let Some(value) = without_bearer(value) {
                headers.append(name, value);
            }
        } else {
            headers.append(name, value.clone());
        }
    }
    join_cookies(&mut headers);
    if forwarding.upgrade {
        keep_upgrade(client, &mut headers);
    } else if forwarding.plain_answer {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    headers
}

/// The headers of an answer on its way to the client; those of a 101 keep their upgrade.
pub fn response(cluster: &HeaderMap, upgrade: bool) -> HeaderMap {
    let named = named_in_connection(cluster);
    let mut headers = HeaderMap::with_capacity(cluster.len());
    for (name, value) in cluster {
        // A length beside chunks is wrong (RFC 9112, 6.3): passed on, it would cut the body short, and it would look whole.
        let overridden =
            *name == header::CONTENT_LENGTH && cluster.contains_key(header::TRANSFER_ENCODING);
        // `Trailer` stays: without it hyper drops the trailers of a chunked body.
        if !overridden && !is_hop_by_hop(name) && !named.contains(name) {
            headers.append(name, value.clone());
        }
    }
    if upgrade {
        keep_upgrade(cluster, &mut headers);
    }
    headers
}

/// Headers that end at each connection. A cluster gets them only as the proxy's own connection to it needs them.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == UPGRADE
        || *name == header::TRANSFER_ENCODING
        || *name == header::TE
        || *name == header::PROXY_AUTHENTICATE
        || *name == header::PROXY_AUTHORIZATION
        || matches!(
            name.as_str(),
            "keep-alive" | "proxy-connection" | "http2-settings"
        )
}

/// Announced trailers of a request: no Kubernetes client sends any.
fn is_trailer(name: &HeaderName) -> bool {
    *name == header::TRAILER
}

/// Headers by which a client would say who it is, whom it acts for or where it comes from.
fn is_claim(name: &HeaderName) -> bool {
    // Some servers read `_` as `-`; a header that could mean one of these does not pass in either spelling, nor one that
    // could say where the request ends.
    let dashed = name.as_str().replace('_', "-");
    let is_length = matches!(dashed.as_str(), "content-length" | "transfer-encoding");
    if is_length && dashed != name.as_str() {
        return true;
    }
    let name = dashed;
    matches!(
        name.as_str(),
        "host" | "authorization" | "forwarded" | "x-real-ip"
    ) || ["impersonate-", "x-remote-", "x-forwarded-"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// The headers that `Connection` names as its own.
fn named_in_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    tokens(headers, &CONNECTION)
        .filter_map(|token| HeaderName::try_from(token).ok())
        .collect()
}

/// The comma-separated entries of all headers of that name; values that are not text have none.
pub(crate) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

/// Writes `Connection: Upgrade` and the `Upgrade` as the other side sent it.
fn keep_upgrade(from: &HeaderMap, to: &mut HeaderMap) {
    to.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    // What is no text was not looked at by whoever let the others pass.
    let values = from.get_all(UPGRADE).into_iter();
    for value in values.filter(|value| value.to_str().is_ok()) {
        to.append(UPGRADE, value.clone());
    }
}

/// A subprotocol list without the client's token; `None` if nothing else was in it. A list without a token stays as it
/// is, byte for byte.
fn without_bearer(value: &HeaderValue) -> Option<HeaderValue> {
    let is_bearer = |entry: &[u8]| {
        entry
            .trim_ascii()
            .get(..BEARER_SUBPROTOCOL.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(BEARER_SUBPROTOCOL.as_bytes()))
    };
    let entries = || value.as_bytes().split(|byte| *byte == b',');
    if !entries().any(is_bearer) {
        return Some(value.clone());
    }
    let kept: Vec<&[u8]> = entries()
        .filter(|entry| !is_bearer(entry))
        .map(<[u8]>::trim_ascii)
        .filter(|entry| !entry.is_empty())
        .collect();
    if kept.is_empty() {
        return None;
    }
    HeaderValue::from_bytes(&kept.join(&b", "[..])).ok()
}

/// HTTP/2 splits `Cookie` for compression; HTTP/1.1 has only one (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let Entry::Occupied(mut cookies) = headers.entry(COOKIE) else {
        return;
    };
    if cookies.iter().count() < 2 {
        return;
    }
    let all: Vec<&[u8]> = cookies.iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        cookies.insert(joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Forwarding = Forwarding {
        plain_answer: false,
        upgrade: false,
    };
    const READ_ALONG: Forwarding = Forwarding {
        plain_answer: true,
        upgrade: false,
    };
    const UPGRADING: Forwarding = Forwarding {
        plain_answer: false,
        upgrade: true,
    };

    fn map(lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").unwrap();
            headers.append(
                HeaderName::try_from(name).unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect()
    }

    #[track_caller]
    fn check_request(forwarding: Forwarding, client: &[&str], expected: &[&str]) {
        assert_eq!(lines(&request(&map(client), forwarding)), expected);
    }

    #[track_caller]
    fn check_response(upgrade: bool, cluster: &[&str], expected: &[&str]) {
        assert_eq!(lines(&response(&map(cluster), upgrade)), expected);
    }

    #[test]
    fn everything_else_passes_in_order() {
        let all = [
            "user-agent: kubectl/v1.36.3",
            "accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            "kubectl-command: kubectl get",
            "x-unknown: 1",
            "x-unknown: 2",
            "x-unknown: ä",
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "audit-id: mine",
            "expect: 100-continue",
            "content-length: 3",
            "accept-encoding: gzip",
            "origin: https://dashboard",
            "cookie: a=1; b=2",
        ];
        check_request(READ, &all, &all);
        check_request(READ, &[], &[]);
    }

    #[test]
    fn hop_by_hop_headers_end_here() {
        check_request(
            READ,
            &[
                "connection: keep-alive, X-Mine",
                "connection: close",
                "connection: x-other",
                "keep-alive: timeout=5",
                "proxy-connection: keep-alive",
                "proxy-authorization: Basic eA==",
                "te: trailers",
                "trailer: X-Sum",
                "transfer-encoding: chunked",
                "upgrade: h2c",
                "http2-settings: AAMAAABk",
                "x-mine: 1",
                "x-other: 2",
                "x-kept: 3",
            ],
            &["x-kept: 3"],
        );
    }

    #[test]
    fn nobody_says_who_they_are() {
        check_request(
            READ,
            &[
                "host: proxy:8443",
                "authorization: Bearer t",
                "impersonate-user: root",
                "impersonate_user: root",
                "impersonate-group: system:masters",
                "impersonate-extra-a%2fb: c",
                "impersonate-uid: 1",
                "x-remote-user: root",
                "x_remote_group: system:masters",
                "x-remote-extra-scopes: a",
                "x-forwarded-for: 10.0.0.1",
                "x-forwarded-host: other",
                "x-forwarded-uri: /",
                "forwarded: for=10.0.0.1",
                "x-real-ip: 10.0.0.1",
                "transfer_encoding: chunked",
                "content_length: 5",
                "x-requested-with: XMLHttpRequest",
            ],
            &["x-requested-with: XMLHttpRequest"],
        );
    }

    #[test]
    fn answers_that_are_read_come_uncompressed() {
        check_request(
            READ_ALONG,
            &[
                "accept-encoding: gzip",
                "accept-encoding: br",
                "accept: a/b",
            ],
            &["accept-encoding: identity", "accept: a/b"],
        );
        check_request(READ_ALONG, &[], &["accept-encoding: identity"]);
    }

    #[test]
    fn the_id_of_a_request_is_not_taken_away() {
        check_request(
            READ,
            &["audit-id: mine", "x-own: 1", "connection: audit-id, x-own"],
            &["audit-id: mine"],
        );
    }

    #[test]
    fn an_upgrade_that_is_no_text_does_not_pass_beside_one_that_is() {
        check_request(
            UPGRADING,
            &[
                "connection: Upgrade",
                "upgrade: websocket",
                "upgrade: h2c, \u{e9}",
            ],
            &["connection: Upgrade", "upgrade: websocket"],
        );
    }

    #[test]
    fn an_upgrade_is_kept_with_what_it_needs() {
        check_request(
            UPGRADING,
            &[
                "connection: keep-alive, Upgrade",
                "upgrade: SPDY/3.1",
                "x-stream-protocol-version: v4.channel.k8s.io",
                "x-stream-protocol-version: v3.channel.k8s.io",
                "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
                "sec-websocket-version: 13",
            ],
            &[
                "x-stream-protocol-version: v4.channel.k8s.io",
                "x-stream-protocol-version: v3.channel.k8s.io",
                "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
                "sec-websocket-version: 13",
                "connection: Upgrade",
                "upgrade: SPDY/3.1",
            ],
        );
    }

    #[test]
    fn a_token_among_the_subprotocols_is_removed() {
        for (given, expected) in [
            (
                "v5.channel.k8s.io,v4.channel.k8s.io",
                Some("v5.channel.k8s.io,v4.channel.k8s.io"),
            ),
            (
                "base64url.bearer.authorization.k8s.io.dG9r, v4.channel.k8s.io",
                Some("v4.channel.k8s.io"),
            ),
            (
                "a , Base64URL.Bearer.authorization.k8s.io.dG9r,b",
                Some("a, b"),
            ),
            ("base64url.bearer.authorization.k8s.io.dG9r", None),
            (
                "base64url.bearer.authorization.k8s.io",
                Some("base64url.bearer.authorization.k8s.io"),
            ),
        ] {
            let given = format!("sec-websocket-protocol: {given}");
            let expected: Vec<String> = expected
                .iter()
                .map(|value| format!("sec-websocket-protocol: {value}"))
                .collect();
            assert_eq!(lines(&request(&map(&[&given]), READ)), expected, "{given}");
        }
    }

    #[test]
    fn split_cookies_are_joined() {
        check_request(READ, &["cookie: a=1", "cookie: b=2"], &["cookie: a=1; b=2"]);
    }

    #[test]
    fn answers_pass_without_hop_by_hop_headers() {
        check_response(
            false,
            &[
                "connection: close, x-hop",
                "keep-alive: timeout=5",
                "upgrade: h2c",
                "proxy-authenticate: Basic",
                "x-hop: 1",
                "warning: 299 - \"v1 Endpoints is deprecated\"",
                "warning: 299 - \"unknown field\"",
                "audit-id: 7",
                "content-length: 12",
                "trailer: X-Sum",
                "x-kubernetes-pf-flowschema-uid: u",
                "set-cookie: a=1",
                "set-cookie: b=2",
            ],
            &[
                "warning: 299 - \"v1 Endpoints is deprecated\"",
                "warning: 299 - \"unknown field\"",
                "audit-id: 7",
                "content-length: 12",
                "trailer: X-Sum",
                "x-kubernetes-pf-flowschema-uid: u",
                "set-cookie: a=1",
                "set-cookie: b=2",
            ],
        );
        check_response(
            false,
            &["content-length: 2", "transfer-encoding: chunked"],
            &[],
        );
        check_response(
            true,
            &[
                "upgrade: websocket",
                "connection: upgrade",
                "sec-websocket-accept: x",
            ],
            &[
                "sec-websocket-accept: x",
                "connection: Upgrade",
                "upgrade: websocket",
            ],
        );
    }
}
