//! Making a token, and finding the one a request carries.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderName;
use http::header::{AUTHORIZATION, CONNECTION, HeaderMap, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
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
}
