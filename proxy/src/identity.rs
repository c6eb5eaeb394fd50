//! As whom a live request reaches its cluster.

use std::sync::Arc;

use fleetcache_auth::{Authenticated, Method, UserInfo, bearer_tokens};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::Error;

/// As whom requests reach a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// As the proxy's credential, on behalf of the user, whom it names.
    #[default]
    Impersonate,
    /// As whoever the caller's own token says.
    Token,
    /// As the proxy's credential: whoever may use the cluster acts as it.
    Proxy,
}

impl Identity {
    /// What holds for a user who was known by that method: the rights of the proxy's credential are for its own token alone,
    /// also while the configuration passes from one to another.
    pub(crate) fn for_whom(self, method: Method) -> Self {
        match (self, method) {
            (Self::Proxy, Method::Generated | Method::Disabled) => Self::Proxy,
            (Self::Proxy, _) => Self::Impersonate,
            (other @ (Self::Impersonate | Self::Token), _) => other,
        }
    }

    /// Whose request it is to its cluster. `own` is the caller's [`own_authorization`]; `None` where there is none, and must be.
    pub(crate) fn of(self, user: &Arc<UserInfo>, own: Option<HeaderValue>) -> Option<AsWhom> {
        match self {
            Self::Impersonate => Some(AsWhom::User(Arc::clone(user))),
            Self::Token => own.map(AsWhom::Caller),
            Self::Proxy => Some(AsWhom::Proxy),
        }
    }
}

/// Whose request it is to its cluster.
#[derive(Clone, Debug)]
pub enum AsWhom {
    /// That of the proxy's credential.
    Proxy,
    /// That of the user, whom the proxy's credential impersonates.
    User(Arc<UserInfo>),
    /// That of whoever this `Authorization` stands for; the proxy's credential has no part in it.
    Caller(HeaderValue),
}

impl AsWhom {
    /// The cluster judges the credential itself: what it says of it is for the client.
    pub(crate) fn is_caller(&self) -> bool {
        matches!(self, Self::Caller(_))
    }

    /// Says so in the headers of a request, which have none of the client's own that could say it.
    ///
    /// # Errors
    /// Something of the user cannot be in a header. The authenticator lets no such user pass.
    pub(crate) fn say(&self, headers: &mut HeaderMap) -> Result<(), Error> {
        match self {
            Self::Proxy | Self::Caller(_) => Ok(()),
            Self::User(user) => impersonate(user, headers).map_err(|_| Error::Internal),
        }
    }
}

/// The `Authorization` with which a cluster can be asked as the caller itself, where it is to be: the bearer token by which
/// the caller was known. `None` where that was something else, or a token that is the proxy's own and no cluster's business.
pub(crate) fn own_authorization(
    identity: Identity,
    authenticated: &Authenticated,
    headers: &HeaderMap,
) -> Option<HeaderValue> {
    let is_its_own = match authenticated.method {
        Method::Anonymous | Method::Certificate | Method::Disabled | Method::Generated => false,
        Method::Jwt | Method::TokenFile | Method::TokenReview => true,
    };
    if identity != Identity::Token || !is_its_own {
        return None;
    }
    // Of two, one may be somebody else's whom the authenticator does not know and the cluster does.
    let tokens = bearer_tokens(headers);
    let [token] = &tokens[..] else { return None };
    let mut authorization = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    authorization.set_sensitive(true);
    Some(authorization)
}

fn impersonate(user: &UserInfo, headers: &mut HeaderMap) -> Result<(), http::Error> {
    headers.insert("impersonate-user", value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert("impersonate-uid", value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append("impersonate-group", value(group)?);
    }
    for (key, values) in &user.extra {
        let name = HeaderName::try_from(format!("impersonate-extra-{}", escaped(key)))?;
        for one in values {
            headers.append(&name, value(one)?);
        }
    }
    Ok(())
}

fn value(text: &str) -> Result<HeaderValue, http::Error> {
    Ok(HeaderValue::from_bytes(text.as_bytes())?)
}

/// An extra's key as part of a header's name: what may not stand in one is escaped, and so is `%`. Upper case is, too: the
/// server reads the name in lower case, and another key would be given what is this one's.
fn escaped(key: &str) -> String {
    const PLAIN: &[u8] = b"!#$&'*+-.^_`|~";
    let mut name = String::with_capacity(key.len());
    for byte in key.bytes() {
        let plain = byte.is_ascii_lowercase() || byte.is_ascii_digit() || PLAIN.contains(&byte);
        match plain {
            true => name.push(char::from(byte)),
            false => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http::header::{AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};

    use super::*;

    #[test]
    fn a_user_is_named_part_by_part() {
        let user = UserInfo {
            name: "jörg".to_owned(),
            uid: "7".to_owned(),
            groups: vec!["a,b".to_owned(), "system:authenticated".to_owned()],
            extra: BTreeMap::from([
                (
                    "example.com/Key%".to_owned(),
                    vec!["v".to_owned(), "w, x".to_owned()],
                ),
                ("plain".to_owned(), vec![]),
            ]),
            named_by: None,
        };
        let mut headers = HeaderMap::new();
        AsWhom::User(Arc::new(user)).say(&mut headers).unwrap();
        let lines: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        assert_eq!(
            lines,
            [
                "impersonate-user: jörg",
                "impersonate-uid: 7",
                "impersonate-group: a,b",
                "impersonate-group: system:authenticated",
                "impersonate-extra-example.com%2f%4bey%25: v",
                "impersonate-extra-example.com%2f%4bey%25: w, x",
            ]
        );
    }

    #[test]
    fn who_cannot_be_named_is_not_sent_as_somebody_else() {
        let user = UserInfo {
            name: "a\nb".to_owned(),
            ..UserInfo::default()
        };
        let said = AsWhom::User(Arc::new(user)).say(&mut HeaderMap::new());
        assert!(matches!(said, Err(Error::Internal)));
    }

    #[test]
    fn only_the_token_that_a_caller_was_known_by_is_passed_on() {
        let bearer = HeaderValue::from_static("bearer t x");
        let headers = HeaderMap::from_iter([(AUTHORIZATION, bearer)]);
        let own = |identity, method| {
            let authenticated = Authenticated {
                user: Arc::new(UserInfo::default()),
                expires: None,
                known_until: None,
                method,
            };
            let own = own_authorization(identity, &authenticated, &headers)?;
            assert!(own.is_sensitive());
            Some(own.to_str().unwrap().to_owned())
        };
        for method in [Method::Jwt, Method::TokenFile, Method::TokenReview] {
            assert_eq!(own(Identity::Token, method).as_deref(), Some("Bearer t"));
            assert_eq!(own(Identity::Impersonate, method), None);
            assert_eq!(own(Identity::Proxy, method), None);
        }
        // What is beside a certificate nobody has looked at, and the generated token would be the cluster's to use.
        for method in [Method::Anonymous, Method::Certificate, Method::Generated] {
            assert_eq!(own(Identity::Token, method), None);
        }
        let user = Arc::new(UserInfo::default());
        assert!(Identity::Token.of(&user, None).is_none());
        // One of two may be somebody else's.
        let two = HeaderMap::from_iter([
            (AUTHORIZATION, HeaderValue::from_static("Bearer theirs")),
            (CONNECTION, HeaderValue::from_static("Upgrade")),
            (UPGRADE, HeaderValue::from_static("websocket")),
            (
                SEC_WEBSOCKET_PROTOCOL,
                HeaderValue::from_static("a, base64url.bearer.authorization.k8s.io.dA"),
            ),
        ]);
        let authenticated = Authenticated {
            user,
            expires: None,
            known_until: None,
            method: Method::TokenFile,
        };
        assert_eq!(bearer_tokens(&two).len(), 2);
        assert_eq!(
            own_authorization(Identity::Token, &authenticated, &two),
            None
        );
    }

    #[test]
    fn nobody_but_its_own_token_has_the_proxys_rights() {
        for method in [
            Method::Anonymous,
            Method::Certificate,
            Method::Jwt,
            Method::TokenFile,
            Method::TokenReview,
        ] {
            assert_eq!(Identity::Proxy.for_whom(method), Identity::Impersonate);
            assert_eq!(Identity::Token.for_whom(method), Identity::Token);
        }
        for method in [Method::Disabled, Method::Generated] {
            assert_eq!(Identity::Proxy.for_whom(method), Identity::Proxy);
        }
        let other = Identity::Impersonate.for_whom(Method::Generated);
        assert_eq!(other, Identity::Impersonate);
    }
}
