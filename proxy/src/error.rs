//! What the proxy itself answers instead of a cluster.

use fleetcache_auth::{AuthenticationError, Unavailable};
use fleetcache_cache::cluster_accessor::{NotConnected, NotConnectedReason};
use fleetcache_cache::upstream::UpstreamError;

use crate::fleet_api::Refusal;
use crate::shares::Full;

/// An error of the proxy's own, before it is a Status.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No cluster of that name.
    #[error("cluster {cluster:?} is not known")]
    ClusterNotFound {
        /// The name asked for.
        cluster: String,
    },
    /// The cluster is not connected.
    #[error("cluster {cluster:?} is not connected")]
    ClusterNotConnected {
        /// The cluster.
        cluster: String,
        /// Why, and until when.
        why: NotConnected,
    },
    /// The connection ended while the request waited for its answer.
    #[error("the connection to cluster {cluster:?} ended before the answer")]
    ConnectionEnded {
        /// The cluster.
        cluster: String,
        /// Whether the request may have changed something.
        outcome_unknown: bool,
    },
    /// The request got no answer.
    #[error("cluster {cluster:?} did not answer")]
    Upstream {
        /// The cluster.
        cluster: String,
        /// Whether the request may have changed something.
        outcome_unknown: bool,
        /// What went wrong.
        source: UpstreamError,
    },
    /// No response headers within `requestTimeout`.
    #[error("cluster {cluster:?} was too slow")]
    UpstreamTimeout {
        /// The cluster.
        cluster: String,
        /// Whether the request may have changed something.
        outcome_unknown: bool,
    },
    /// Too many requests in flight to the cluster.
    #[error("too many requests in flight to cluster {cluster:?}")]
    TooManyRequests {
        /// The cluster.
        cluster: String,
        /// Half of what there may be are this user's.
        of_user: bool,
    },
    /// Too many live watches, logs and tunnels are open.
    #[error("too many long-running requests ({full:?}), one more to cluster {cluster:?}")]
    TooManyLongRunning {
        /// The cluster.
        cluster: String,
        /// Whose are too many.
        full: Full,
    },
    /// The answer is not in memory, and the request forbids to ask the cluster.
    #[error("not in memory: {reason}")]
    NotCached {
        /// The cluster.
        cluster: String,
        /// Why it would have gone live.
        reason: &'static str,
    },
    /// The kind's informer has not synced, and the configuration forbids to ask the cluster.
    #[error("the informer of {resource:?} has not synced")]
    InformerMissing {
        /// The cluster.
        cluster: String,
        /// The resource.
        resource: String,
    },
    /// The page is one of the cluster that was there before.
    #[error("the page is of a former epoch")]
    PageExpired {
        /// Goes on at the same key with what the cluster holds now.
        continue_token: String,
    },
    /// The fleet's own API does not answer it.
    #[error("refused by the fleet's API: {0:?}")]
    Refused(Refusal),
    /// The request carries no credential that is known.
    #[error("unauthorized")]
    Unauthenticated,
    /// The request carries a credential that cannot be judged now.
    #[error("the credential cannot be judged: {0}")]
    AuthenticationUnavailable(Unavailable),
    /// The cluster is asked with its caller's own token, and the request has none.
    #[error("no token to ask cluster {cluster:?} with")]
    TokenNeeded {
        /// The cluster.
        cluster: String,
    },
    /// The request asks to impersonate somebody.
    #[error("impersonation is refused")]
    ImpersonationRefused,
    /// Nothing is served under that path.
    #[error("no such path")]
    NotFound,
    /// The method is one that a cluster cannot be sent: CONNECT names no path.
    #[error("method not allowed")]
    MethodNotAllowed,
    /// Something that must not happen did.
    #[error("internal error")]
    Internal,
}

impl From<AuthenticationError> for Error {
    fn from(error: AuthenticationError) -> Self {
        match error {
            AuthenticationError::Unauthenticated(_) => Self::Unauthenticated,
            AuthenticationError::Unavailable(why) => Self::AuthenticationUnavailable(why),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Error {
    /// Whether the request may have changed something all the same.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::ConnectionEnded {
                outcome_unknown, ..
            }
            | Self::Upstream {
                outcome_unknown, ..
            }
            | Self::UpstreamTimeout {
                outcome_unknown, ..
            } => *outcome_unknown,
            Self::ClusterNotFound { .. }
            | Self::ClusterNotConnected { .. }
            | Self::TooManyRequests { .. }
            | Self::TooManyLongRunning { .. }
            | Self::NotCached { .. }
            | Self::InformerMissing { .. }
            | Self::PageExpired { .. }
            | Self::Refused(_)
            | Self::Unauthenticated
            | Self::AuthenticationUnavailable(_)
            | Self::TokenNeeded { .. }
            | Self::ImpersonationRefused
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::Internal => false,
        }
    }
}

/// What went wrong, in one word: the `reason` of metrics and of `details.causes[]`.
pub fn cause(error: &Error) -> &'static str {
    match error {
        Error::ClusterNotFound { .. } => "ClusterNotFound",
        Error::ClusterNotConnected { why, .. } => why.reason.as_str(),
        Error::ConnectionEnded { .. } => "ConnectionEnded",
        Error::Upstream { source, .. } => NotConnectedReason::from(source).as_str(),
        Error::UpstreamTimeout { .. } => "UpstreamTimeout",
        Error::TooManyRequests { of_user: true, .. } => "TooManyRequestsOfUser",
        Error::TooManyRequests { .. } => "TooManyRequests",
        Error::TooManyLongRunning { .. } => "TooManyLongRunning",
        Error::NotCached { .. } => "NotCached",
        Error::InformerMissing { .. } => "InformerMissing",
        Error::PageExpired { .. } => "PageExpired",
        Error::Refused(_) => "Refused",
        Error::Unauthenticated => "Unauthorized",
        Error::AuthenticationUnavailable(_) => "AuthenticationUnavailable",
        Error::TokenNeeded { .. } => "TokenNeeded",
        Error::ImpersonationRefused => "ImpersonationRefused",
        Error::NotFound => "NotFound",
        Error::MethodNotAllowed => "MethodNotAllowed",
        Error::Internal => "InternalError",
    }
}
