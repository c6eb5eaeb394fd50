//! The headers of a request → its user, or nobody.

use http::HeaderMap;
use sha2::{Digest, Sha256};

use crate::bearer_token;
use crate::user::UserInfo;

/// Says who is asking: whoever carries the generated token is [`UserInfo::admin`], nobody else is anybody.
///
/// The token comes as `Authorization: Bearer <token>` or, from a browser that cannot set headers, as the WebSocket
/// subprotocol `base64url.bearer.authorization.k8s.io.<token in base64url>` beside at least one other. Neither may
/// travel on: [`strip_credentials`](crate::strip_credentials) takes both out of a request before it is forwarded.
pub struct Authenticator {
    // Digests are compared instead of tokens: how long a comparison takes then says nothing about the token.
    digest: [u8; 32],
}

/// No credential that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unauthenticated;

impl Authenticator {
    /// Knows one token.
    pub fn new(token: &str) -> Self {
        Self {
            digest: Sha256::digest(token).into(),
        }
    }

    /// The user of a request, from its headers.
    ///
    /// # Errors
    /// None of the credentials given is known.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<UserInfo, Unauthenticated> {
        let known = |token: &[u8]| <[u8; 32]>::from(Sha256::digest(token)) == self.digest;
        let bearer = bearer_token::from_authorization(headers);
        let websocket = || bearer_token::from_websocket(headers);
        if bearer.is_some_and(known) || websocket().is_some_and(|token| known(&token)) {
            return Ok(UserInfo::admin());
        }
        Err(Unauthenticated)
    }
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn check(headers: &[(&'static str, &str)], allowed: bool) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let got = Authenticator::new("s3cret").authenticate(&map);
        assert_eq!(got.is_ok(), allowed, "{headers:?}");
    }

    #[test]
    fn only_the_token_is_somebody() {
        check(&[], false);
        check(&[("authorization", "Bearer s3cret")], true);
        check(&[("authorization", "bearer s3cret")], true);
        check(&[("authorization", "BEARER s3cret ")], true);
        check(&[("authorization", "Bearer s3cret2")], false);
        check(&[("authorization", "Bearer")], false);
        check(&[("authorization", "Bearer ")], false);
        check(&[("authorization", "Bearer  s3cret")], false);
        check(&[("authorization", "Basic s3cret")], false);
        check(&[("authorization", "s3cret")], false);
        // The first of several counts, as in the apiserver.
        check(
            &[
                ("authorization", "Bearer no"),
                ("authorization", "Bearer s3cret"),
            ],
            false,
        );
    }

    #[test]
    fn a_websocket_may_carry_it_as_a_subprotocol() {
        // "s3cret" in base64url.
        let token = "base64url.bearer.authorization.k8s.io.czNjcmV0";
        let upgrade = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
        ];
        let with = |protocols: &'static str| {
            let mut headers = upgrade.to_vec();
            headers.push(("sec-websocket-protocol", protocols));
            headers
        };
        check(
            &with("base64url.bearer.authorization.k8s.io.czNjcmV0, v5.channel.k8s.io"),
            true,
        );
        check(
            &with("v5.channel.k8s.io,base64url.bearer.authorization.k8s.io.czNjcmV0"),
            true,
        );
        // Alone: the answer could not choose a subprotocol without echoing the token.
        check(
            &with("base64url.bearer.authorization.k8s.io.czNjcmV0"),
            false,
        );
        check(
            &with("base64url.bearer.authorization.k8s.io.!!, v5.channel.k8s.io"),
            false,
        );
        check(
            &with("base64url.bearer.authorization.k8s.io., v5.channel.k8s.io"),
            false,
        );
        // Twice is ambiguous.
        check(
            &with(
                "base64url.bearer.authorization.k8s.io.czNjcmV0, \
                 base64url.bearer.authorization.k8s.io.czNjcmV0, v5.channel.k8s.io",
            ),
            false,
        );
        // Not a WebSocket at all.
        check(
            &[(
                "sec-websocket-protocol",
                &format!("{token}, v5.channel.k8s.io"),
            )],
            false,
        );
        // Over two header lines.
        let mut lines = upgrade.to_vec();
        lines.push(("sec-websocket-protocol", token));
        lines.push(("sec-websocket-protocol", "v5.channel.k8s.io"));
        check(&lines, true);
    }

    #[test]
    fn debug_shows_no_digest() {
        assert_eq!(
            format!("{:?}", Authenticator::new("x")),
            "Authenticator { .. }"
        );
    }
}
