//! Who is asking, and may they.

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInfo {
    /// The user's name.
    pub name: String,
    /// Groups the user belongs to.
    pub groups: Vec<String>,
}

/// Says who is asking.
#[derive(Debug)]
pub struct Authenticator {}

impl Authenticator {
    /// The user of a request, from its headers.
    ///
    /// # Errors
    /// None of the credentials given is known.
    pub fn authenticate(&self, _headers: &http::HeaderMap) -> Result<UserInfo, Unauthenticated> {
        Err(Unauthenticated)
    }
}

/// No credential that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unauthenticated;
