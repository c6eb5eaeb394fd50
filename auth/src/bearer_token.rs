//! Making a token, and finding the one a request carries.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderName, HeaderValue};
use rand::TryRngCore as _;
use rand::rngs::OsRng;

/// The subprotocol that carries a token: a browser can set no other header on a WebSocket.
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// A new token: 32 bytes of the system's randomness in base64url.
pub fn generate_token() -> String {
    let mut bytes = [0; 32];
    OsRng
        .try_fill_bytes(&mut bytes)
        .expect("the system has a source of randomness");
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Takes the caller's credential out of a request's headers: `Authorization`, and the token's entry in
/// `Sec-WebSocket-Protocol`. To be called before a request is forwarded: a cluster must not see the token, and a server
/// that chose that subprotocol would echo it.
pub fn strip_credentials(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    // A line that is not ASCII cannot be told to be free of the token; no subprotocol is written that way.
    let unreadable = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .any(|value| value.to_str().is_err());
    if !unreadable && !subprotocols(headers).any(|protocol| protocol.starts_with(WEBSOCKET_PREFIX))
    {
        return;
    }
    let rest: Vec<&str> = subprotocols(headers)
        .filter(|protocol| !protocol.starts_with(WEBSOCKET_PREFIX))
        .collect();
    let rest = HeaderValue::from_str(&rest.join(", ")).ok();
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, rest);
    }
}

/// The token of the first `Authorization` header, by the apiserver's rules: the scheme in any case, one space, and the
/// token up to the next space.
pub(crate) fn from_authorization(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let mut parts = value.splitn(3, |byte| *byte == b' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

/// The token among a WebSocket's subprotocols: exactly one, and never alone, since the answer has to choose another one.
pub(crate) fn from_websocket(headers: &HeaderMap) -> Option<Vec<u8>> {
    let upgrades = has_token(headers, &CONNECTION, "upgrade");
    if !upgrades || !has_token(headers, &UPGRADE, "websocket") {
        return None;
    }
    let (tokens, others): (Vec<_>, Vec<_>) =
        subprotocols(headers).partition(|protocol| protocol.starts_with(WEBSOCKET_PREFIX));
    let [token] = tokens[..] else { return None };
    if others.is_empty() {
        return None;
    }
    let token = URL_SAFE_NO_PAD
        .decode(&token[WEBSOCKET_PREFIX.len()..])
        .ok()?;
    (!token.is_empty()).then_some(token)
}

fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    entries(headers, &SEC_WEBSOCKET_PROTOCOL)
}

fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    entries(headers, name).any(|entry| entry.eq_ignore_ascii_case(token))
}

/// The comma-separated entries of all lines of a header. A line that is not ASCII has none.
fn entries<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_and_differ() {
        let (one, other) = (generate_token(), generate_token());
        assert_eq!(one.len(), 43);
        assert_ne!(one, other);
    }

    #[test]
    fn credentials_are_stripped_and_nothing_else() {
        let check = |lines: &[&'static str], expect: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
            headers.insert("x-other", HeaderValue::from_static("kept"));
            for line in lines {
                let line = HeaderValue::from_bytes(line.as_bytes()).unwrap();
                headers.append(SEC_WEBSOCKET_PROTOCOL, line);
            }
            strip_credentials(&mut headers);
            assert!(!headers.contains_key(AUTHORIZATION));
            assert!(headers.contains_key("x-other"));
            let got: Vec<_> = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().collect();
            assert_eq!(got, expect.into_iter().collect::<Vec<_>>(), "{lines:?}");
        };
        check(&[], None);
        check(
            &["v5.channel.k8s.io,v4.channel.k8s.io"],
            Some("v5.channel.k8s.io,v4.channel.k8s.io"),
        );
        check(&["base64url.bearer.authorization.k8s.io.eA"], None);
        check(
            &[
                "base64url.bearer.authorization.k8s.io.eA, ü",
                "v4.channel.k8s.io",
            ],
            Some("v4.channel.k8s.io"),
        );
        check(
            &[
                "base64url.bearer.authorization.k8s.io.eA, v5.channel.k8s.io",
                "v4.channel.k8s.io",
            ],
            Some("v5.channel.k8s.io, v4.channel.k8s.io"),
        );
    }
}
