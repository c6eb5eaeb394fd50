//! As whom a live request reaches its cluster.

use fleetcache_auth::UserInfo;
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

/// Whose request it is to its cluster.
#[derive(Clone, Copy, Debug)]
pub enum AsWhom<'a> {
    /// That of the proxy's credential.
    Proxy,
    /// That of the user, whom the proxy's credential impersonates.
    User(&'a UserInfo),
}

impl<'a> AsWhom<'a> {
    /// The user's, where there is one.
    pub fn of(user: Option<&'a UserInfo>) -> Self {
        user.map_or(Self::Proxy, Self::User)
    }

    /// Says so in the headers of a request, which have none of the client's own that could say it.
    ///
    /// # Errors
    /// Something of the user cannot be in a header. The authenticator lets no such user pass.
    pub(crate) fn say(self, headers: &mut HeaderMap) -> Result<(), Error> {
        match self {
            Self::Proxy => Ok(()),
            Self::User(user) => impersonate(user, headers).map_err(|_| Error::Internal),
        }
    }
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
