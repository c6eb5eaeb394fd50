//! What the proxy's own credential may do in a cluster for its users, as far as the cluster has said. Without one of these rights
//! users are served badly or not at all, and the cluster is connected all the same.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::ClusterAccessor;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// To act as its users.
    Impersonation,
    /// To ask whose a token is.
    TokenReviews,
    /// To ask what users may do.
    AccessReviews,
}

/// Whether the credential has a right, by what the cluster said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// It has not asked yet.
    Unknown,
    /// It was not refused.
    Yes,
    /// It was refused.
    No,
}

impl Right {
    /// All of them, those first whose lack is worse.
    pub const ALL: [Self; 3] = [Self::Impersonation, Self::TokenReviews, Self::AccessReviews];

    /// Its name, as a condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Impersonation => "Impersonation",
            Self::TokenReviews => "TokenReviews",
            Self::AccessReviews => "AccessReviews",
        }
    }

    /// Why a cluster is not as it should be that refuses it, in a word.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Impersonation => "ImpersonationForbidden",
            Self::TokenReviews => "TokenReviewsForbidden",
            Self::AccessReviews => "AccessReviewsForbidden",
        }
    }

    /// The same in a sentence, with what to do.
    pub fn refused(self) -> &'static str {
        match self {
            Self::Impersonation => {
                "the proxy's credential may not impersonate users, so that the cluster refuses all that goes live: grant it the \
                 ClusterRole that `fleetcache rbac` prints"
            }
            Self::TokenReviews => {
                "the proxy's credential may not create tokenreviews, so that tokens which the cluster is to judge are not known: \
                 grant it the ClusterRole that `fleetcache rbac --token-review` prints"
            }
            Self::AccessReviews => {
                "the proxy's credential may not create subjectaccessreviews, so that all reads go live: grant it the ClusterRole \
                 that `fleetcache rbac` prints"
            }
        }
    }

    /// Why nothing is known of it.
    pub fn not_asked(self) -> &'static str {
        match self {
            Self::Impersonation => "nothing has gone live on behalf of a user yet",
            Self::TokenReviews => "no token has been asked about yet",
            Self::AccessReviews => "nobody has been asked about yet",
        }
    }

    /// What is said when it is granted after that.
    pub fn granted(self) -> &'static str {
        match self {
            Self::Impersonation => "the proxy's credential may impersonate users again",
            Self::TokenReviews => "the proxy's credential may create tokenreviews again",
            Self::AccessReviews => "the proxy's credential may create subjectaccessreviews again",
        }
    }

    /// What helps, and when it is seen that it has.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Impersonation => {
                "bind the ClusterRole that `fleetcache rbac` prints (with `--token-review` where the cluster is asked whose tokens \
                 are) to the account of the proxy's credential; the next request that goes live tells"
            }
            Self::TokenReviews => {
                "bind the ClusterRole that `fleetcache rbac --token-review` prints to the account of the proxy's credential; the \
                 next token asks again"
            }
            Self::AccessReviews => {
                "bind the ClusterRole that `fleetcache rbac` prints (with `--token-review` where the cluster is asked whose tokens \
                 are) to the account of the proxy's credential; `fleetcache refresh` asks again at once"
            }
        }
    }
}

/// What is known of each.
#[derive(Debug)]
pub(super) struct Rights {
    known: [AtomicU8; Right::ALL.len()],
    began: Instant,
    /// When each was granted last: milliseconds since `began`, from 1 on.
    granted: [AtomicU64; Right::ALL.len()],
}

impl Default for Rights {
    fn default() -> Self {
        Self {
            known: Default::default(),
            began: Instant::now(),
            granted: Default::default(),
        }
    }
}

impl Rights {
    fn now(&self, right: Right) -> May {
        may(self.known[right as usize].load(Ordering::Relaxed))
    }

    /// What was known before.
    fn swap(&self, right: Right, now: May) -> May {
        may(self.known[right as usize].swap(now as u8, Ordering::Relaxed))
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }
}

fn may(known: u8) -> May {
    [May::Yes, May::No]
        .into_iter()
        .find(|it| *it as u8 == known)
        .unwrap_or(May::Unknown)
}

impl ClusterAccessor {
    /// Whether the proxy's own credential has a right there, as far as is known.
    pub fn may(&self, right: Right) -> May {
        self.rights.now(right)
    }

    /// Whether the cluster granted it within this time.
    pub fn was_granted(&self, right: Right, within: Duration) -> bool {
        let at = self.rights.granted[right as usize].load(Ordering::Relaxed);
        let since = Duration::from_millis(self.rights.elapsed().saturating_sub(at));
        at > 0 && since < within
    }

    /// The cluster refused the proxy's own credential what needs this right, in its words where there are any. Said once, until
    /// it is granted.
    pub fn refused(&self, right: Right, why: Option<&str>) {
        if self.rights.swap(right, May::No) != May::No {
            tracing::warn!(cluster = self.name(), why, "{}", right.refused());
            self.has_news();
        }
    }

    /// The cluster did for the proxy's own credential what needs this right.
    pub fn granted(&self, right: Right) {
        let now = self.rights.elapsed();
        self.rights.granted[right as usize].store(now, Ordering::Relaxed);
        if self.may(right) == May::Yes {
            return;
        }
        let before = self.rights.swap(right, May::Yes);
        if before == May::No {
            tracing::info!(cluster = self.name(), "{}", right.granted());
        }
        if before != May::Yes {
            self.has_news();
        }
    }
}
