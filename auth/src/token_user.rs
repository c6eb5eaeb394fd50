//! What a token says, or why it says nothing.

use std::fmt;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::fault::Fault;
use crate::user::UserInfo;

/// The user of a token that is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUser {
    /// Who it is.
    pub user: UserInfo,
    /// When the token stops being good, where it says so.
    pub expires: Option<SystemTime>,
    /// Until then whoever asks is told this, whatever happens meanwhile; `None` where it is found out each time.
    pub known_until: Option<Instant>,
}

/// Why a token has no user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// It is not good, and why.
    Invalid(Fault),
    /// It cannot be told now whether it is good.
    Unavailable(Unavailable),
}

/// Why it cannot be told now whose a credential is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Who would have to say, as anybody may be told, of whom nothing is known: the cluster of the request's own path, an
    /// issuer that the token itself names, or another in words that do not name it.
    pub judge: String,
    /// Why that cannot be had; and who it is, where `judge` does not say. For logs.
    pub why: String,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.judge, self.why)
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(fault) => write!(f, "the token is not valid: {}", fault.why),
            Self::Unavailable(why) => write!(f, "the token cannot be judged now: {why}"),
        }
    }
}

impl std::error::Error for TokenError {}
