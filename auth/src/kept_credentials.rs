//! Credentials that outlive their request: what lasts longer asks again whether they still count.

use std::fmt;
use std::sync::Arc;

use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::pki_types::CertificateDer;
use secrecy::{ExposeSecret as _, SecretSlice};

/// The headers that a token is found by.
const HEADERS: [HeaderName; 4] = [AUTHORIZATION, CONNECTION, UPGRADE, SEC_WEBSOCKET_PROTOCOL];

/// What a request showed of who sent it. Judged again it is judged as the request was.
pub struct KeptCredentials {
    headers: Vec<(HeaderName, SecretSlice<u8>)>,
    certificates: Option<Arc<[CertificateDer<'static>]>>,
}

impl KeptCredentials {
    /// Those of a request with these headers, over a connection with these certificates.
    pub fn of(headers: &HeaderMap, certificates: Option<&Arc<[CertificateDer<'static>]>>) -> Self {
        let lines = HEADERS.into_iter().flat_map(|name| {
            let lines = headers.get_all(&name).iter();
            lines.map(move |line| (name.clone(), line.as_bytes().to_vec().into()))
        });
        Self {
            headers: lines.collect(),
            certificates: certificates.cloned(),
        }
    }

    /// The headers that a token is found by. They are not printed.
    pub fn headers(&self) -> HeaderMap {
        let lines = self.headers.iter().filter_map(|(name, value)| {
            let mut value = HeaderValue::from_bytes(value.expose_secret()).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, value);
        }
        headers
    }

    /// The certificates of the connection.
    pub fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        self.certificates.as_deref()
    }
}

impl fmt::Debug for KeptCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptCredentials").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bearer_tokens;

    #[test]
    fn what_is_kept_is_judged_as_what_was_sent_and_not_printed() {
        let cases: [&[(HeaderName, &str)]; 4] = [
            &[],
            &[(AUTHORIZATION, "bearer s3cret x")],
            &[
                (AUTHORIZATION, "Bearer s3cret"),
                (AUTHORIZATION, "Bearer u"),
            ],
            &[
                (CONNECTION, "a, Upgrade"),
                (UPGRADE, "websocket"),
                (SEC_WEBSOCKET_PROTOCOL, "x"),
                (
                    SEC_WEBSOCKET_PROTOCOL,
                    "base64url.bearer.authorization.k8s.io.czNjcmV0",
                ),
            ],
        ];
        let found = cases.map(|lines| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(name, HeaderValue::from_str(value).unwrap());
            }
            headers.insert("accept", HeaderValue::from_static("application/json"));
            let kept = KeptCredentials::of(&headers, None);
            let again = kept.headers();
            assert_eq!(bearer_tokens(&again), bearer_tokens(&headers), "{lines:?}");
            assert_eq!(
                again.get_all(AUTHORIZATION).iter().count(),
                headers.get_all(AUTHORIZATION).iter().count()
            );
            for shown in [format!("{kept:?}"), format!("{again:?}")] {
                assert!(
                    !shown.contains("s3cret") && !shown.contains("czNjcmV0"),
                    "{shown}"
                );
            }
            bearer_tokens(&again)
        });
        let s3cret = || vec!["s3cret".to_owned()];
        assert_eq!(found, [vec![], s3cret(), vec![], s3cret()]);
    }
}
