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

/// The tokens that a request carries, in the order in which they are tried. One that is no text is none, and where there are
/// several `Authorization` headers there is none at all.
pub fn bearer_tokens(headers: &HeaderMap) -> Vec<String> {
    if headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
        return Vec::new();
    }
    let header = from_authorization(headers).and_then(|token| std::str::from_utf8(token).ok());
    let websocket = from_websocket(headers).ok().flatten();
    header
        .map(str::to_owned)
        .into_iter()
        .chain(websocket)
        .collect()
}

/// The token of the `Authorization` header, by the apiserver's rules: the scheme in any case, one space, and the token up
/// to the next space. Another scheme, or none of a token, is no credential at all.
pub(crate) fn from_authorization(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    // Text is trimmed of what Unicode calls white space, as Go does.
    let value = std::str::from_utf8(value)
        .map_or_else(|_| value.trim_ascii(), |text| text.trim().as_bytes());
    let mut parts = value.splitn(3, |byte| *byte == b' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

/// A token among a WebSocket's subprotocols that counts as refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidSubprotocol;

/// The token among a WebSocket's subprotocols: exactly one, and never alone, since the answer has to choose another one.
pub(crate) fn from_websocket(headers: &HeaderMap) -> Result<Option<String>, InvalidSubprotocol> {
    let upgrades = has_token(headers, &CONNECTION, "upgrade");
    if !upgrades || !has_token(headers, &UPGRADE, "websocket") {
        return Ok(None);
    }
    let (tokens, others): (Vec<_>, Vec<_>) =
        subprotocols(headers).partition(|protocol| protocol.starts_with(WEBSOCKET_PREFIX));
    let token = match tokens[..] {
        [] => return Ok(None),
        [token] => URL_SAFE_NO_PAD.decode(&token[WEBSOCKET_PREFIX.len()..]),
        _ => return Err(InvalidSubprotocol),
    };
    let token = token.map_err(|_| InvalidSubprotocol)?;
    let token = String::from_utf8(token).map_err(|_| InvalidSubprotocol)?;
    match (token.is_empty(), others.is_empty()) {
        (true, _) => Ok(None),
        (false, true) => Err(InvalidSubprotocol),
        (false, false) => Ok(Some(token)),
    }
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
    use std::slice;

    use http::HeaderValue;

    use super::*;

    #[test]
    fn all_tokens_of_a_request_are_found() {
        let tokens = |lines: &[(HeaderName, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(name, HeaderValue::from_str(value).unwrap());
            }
            bearer_tokens(&headers)
        };
        let websocket = [
            (CONNECTION, "Upgrade"),
            (UPGRADE, "websocket"),
            (
                SEC_WEBSOCKET_PROTOCOL,
                "a, base64url.bearer.authorization.k8s.io.dg",
            ),
        ];
        let bearer = (AUTHORIZATION, "Bearer t");
        assert_eq!(tokens(&[]), [""; 0]);
        assert_eq!(tokens(&websocket), ["v"]);
        assert_eq!(tokens(slice::from_ref(&bearer)), ["t"]);
        assert_eq!(
            tokens(&[&websocket[..], slice::from_ref(&bearer)].concat()),
            ["t", "v"]
        );
        assert_eq!(tokens(&[bearer.clone(), bearer.clone()]), [""; 0]);
        let basic = (AUTHORIZATION, "Basic eA==");
        assert_eq!(tokens(&[basic]), [""; 0]);
    }

    #[test]
    fn tokens_are_long_and_differ() {
        let (one, other) = (generate_token(), generate_token());
        assert_eq!(one.len(), 43);
        assert_ne!(one, other);
    }

    #[test]
    fn a_token_follows_the_scheme_and_one_space() {
        // The same lines are tried on a real server in the end-to-end tests.
        for (value, token) in [
            (&b"Bearer t"[..], Some(&b"t"[..])),
            (b"bearer t", Some(b"t")),
            (b"BEARER t ", Some(b"t")),
            (b" Bearer t", Some(b"t")),
            (b"Bearer t x", Some(b"t")),
            (b"Bearer t\tx", Some(b"t\tx")),
            (b"Bearer t,x", Some(b"t,x")),
            (b"Bearer \xff", Some(b"\xff")),
            (b"Bearer t\xc2\xa0", Some(b"t")),
            (b"Bearer t\xff\xc2\xa0", Some(b"t\xff\xc2\xa0")),
            (b"", None),
            (b"Bearer", None),
            (b"Bearer ", None),
            (b"Bearer   ", None),
            (b"Bearer  t", None),
            (b"Bearer\tt", None),
            (b"Bearer\xc2\xa0t", None),
            (b"Bearer: t", None),
            (b"Basic t", None),
            (b"t", None),
        ] {
            let value = HeaderValue::from_bytes(value).unwrap();
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.clone())]);
            assert_eq!(from_authorization(&headers), token, "{value:?}");
        }
        assert_eq!(from_authorization(&HeaderMap::new()), None);
    }

    #[test]
    fn a_websocket_may_carry_one_as_a_subprotocol() {
        // "s3cret" in base64url.
        const TOKEN: &str = "base64url.bearer.authorization.k8s.io.czNjcmV0";
        const OTHER: &str = "v5.channel.k8s.io";
        let check = |upgrade: &'static str, lines: &[&str], expected| {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, HeaderValue::from_static("keep-alive, Upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
            for line in lines {
                headers.append(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(line).unwrap());
            }
            let found = from_websocket(&headers);
            assert_eq!(found.as_ref().map(Option::as_deref), expected, "{lines:?}");
        };
        let both = format!("{TOKEN}, {OTHER}");
        check("WebSocket", &[&both], Ok(Some("s3cret")));
        check(
            "WebSocket",
            &[&format!("{OTHER},{TOKEN}")],
            Ok(Some("s3cret")),
        );
        check("WebSocket", &[TOKEN, OTHER], Ok(Some("s3cret")));
        check("SPDY/3.1", &[&both], Ok(None));
        check("WebSocket", &[OTHER], Ok(None));
        check("WebSocket", &[], Ok(None));
        // Alone: the answer could not choose a subprotocol without echoing the token.
        check("WebSocket", &[TOKEN], Err(&InvalidSubprotocol));
        check(
            "WebSocket",
            &[&format!("{TOKEN}, {both}")],
            Err(&InvalidSubprotocol),
        );
        let with = |token: &str| format!("{WEBSOCKET_PREFIX}{token}, {OTHER}");
        check("WebSocket", &[&with("!!")], Err(&InvalidSubprotocol));
        // 0xff is no text.
        check("WebSocket", &[&with("_w")], Err(&InvalidSubprotocol));
        check("WebSocket", &[&with("")], Ok(None));
    }
}
