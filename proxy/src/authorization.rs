//! May this user see from memory what it asks for? The cluster that is asked about says so, by a SubjectAccessReview, and
//! what it said counts for a while.
//!
//! ```text
//! a read ──► Access::verdict ──► known? ──► ClusterDecisions: one question for all who ask the same
//!                                                 │
//!                                             Reviewer: the cluster's connection
//! ```
//! Where the cluster does not say yes, or says nothing, the request goes to it as its user, and its own answer is given:
//! nothing here ever refuses a request.

mod again;
mod decisions;
mod key;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use fleetcache_auth::{Decision, Question, UserInfo, broader};
use fleetcache_cache::cluster_accessor::{ClusterAccessor, May, Right};
use http::StatusCode;
use tokio::time::Instant;

pub(crate) use self::again::ask_again;
pub use self::decisions::{Authorizer, ClusterDecisions};
use self::key::Key;
use crate::identity::Identity;
use crate::limits::ClusterLimits;
use crate::reviewer::Reviewer;

/// Bytes of a question. What is decided is kept with it: a user's lists by ever new selectors, each as long as a path may be,
/// would push out what is decided of all others.
const MAX_QUESTION: usize = 2 << 10;

/// Whether it is too long to be asked.
pub(crate) fn is_too_long(question: &Question) -> bool {
    key::bytes(question) > MAX_QUESTION
}

/// What the configuration says about a cluster's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorizationSettings {
    /// Whether the cluster is asked.
    pub mode: AuthorizationMode,
    /// How long an Allow counts.
    pub allow_ttl: Duration,
    /// How long a Deny counts.
    pub deny_ttl: Duration,
    /// How long the last Allow counts while the cluster is not connected.
    pub stale_allow_ttl: Duration,
    /// Whether who may do something to all objects may do it to each, as under RBAC.
    pub broad_questions: bool,
}

/// Who decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// The cluster, by SubjectAccessReview.
    #[default]
    SubjectAccessReview,
    /// Nobody: who may use the proxy may read all that is in memory.
    AlwaysAllow,
}

impl Default for AuthorizationSettings {
    fn default() -> Self {
        Self {
            mode: AuthorizationMode::default(),
            allow_ttl: Duration::from_secs(10),
            deny_ttl: Duration::from_secs(10),
            stale_allow_ttl: Duration::from_secs(5 * 60),
            broad_questions: true,
        }
    }
}

/// What is known of what somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The cluster allows it; that counts until then, or for good where nobody need be asked.
    Allowed {
        /// When the cluster is to be asked again.
        until: Option<Instant>,
    },
    /// The cluster does not allow it.
    Denied,
    /// The cluster did not say.
    Unknown,
}

/// Who asks a cluster for something, and what is known of what it may do there.
#[derive(Clone, Debug)]
pub struct Access {
    /// The cluster.
    pub cluster: Arc<ClusterAccessor>,
    /// What it has decided.
    pub decisions: Arc<ClusterDecisions>,
    /// What the configuration says.
    pub settings: AuthorizationSettings,
    /// Whom the cluster is asked about.
    pub subject: Subject,
}

/// Whom a cluster is asked about.
#[derive(Clone, Debug)]
pub enum Subject {
    /// Nobody: the proxy's own identity is everybody's.
    Nobody,
    /// This user.
    User(Arc<UserInfo>),
    /// Nobody in particular, but somebody whom it allows what is asked for, if it can be asked at all. It is not.
    Allowed,
}

impl Access {
    /// A user of a cluster that is asked as `identity` says.
    pub(crate) fn of(
        cluster: &Arc<ClusterAccessor>,
        limits: &ClusterLimits,
        identity: Identity,
        user: &Arc<UserInfo>,
    ) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            decisions: Arc::clone(&limits.decisions),
            settings: limits.settings.authorization,
            subject: match identity {
                Identity::Proxy => Subject::Nobody,
                Identity::Impersonate | Identity::Token => Subject::User(Arc::clone(user)),
            },
        }
    }

    /// The user, where it is anybody in particular.
    pub(crate) fn user(&self) -> Option<&Arc<UserInfo>> {
        match &self.subject {
            Subject::User(user) => Some(user),
            Subject::Nobody | Subject::Allowed => None,
        }
    }

    /// What the cluster says of it, or said a moment ago. May ask it, and wait for the answer.
    pub(crate) async fn verdict<R: Reviewer>(
        &self,
        reviewer: &Arc<R>,
        question: impl FnOnce() -> Question,
    ) -> Verdict {
        let Some(user) = self.reviewed_user() else {
            return self.verdict_on_nobody();
        };
        let keys = self.keys(reviewer.epoch(), user, question());
        let known = keys.iter().filter_map(|key| self.decisions.known(key));
        let mut allows = known.filter(|known| known.decision == Decision::Allow);
        if let Some(known) = allows.next() {
            let until = Some(known.until);
            return Verdict::Allowed { until };
        }
        // Seldom, and large.
        Box::pin(self.ask(reviewer, keys)).await
    }

    /// One after the other, broad ones first: most users are answered by the first for all that they may read.
    async fn ask<R: Reviewer>(&self, reviewer: &Arc<R>, keys: Vec<Key>) -> Verdict {
        for key in keys {
            match ClusterDecisions::decide(self, reviewer, key).await {
                Ok(decided) if decided.decision == Decision::Allow => {
                    let until = Some(decided.until);
                    return Verdict::Allowed { until };
                }
                Ok(_) => {}
                Err(why) => {
                    let cluster = self.cluster.name();
                    tracing::debug!(cluster, %why, "no decision");
                    return Verdict::Unknown;
                }
            }
        }
        Verdict::Denied
    }

    /// Whether the cluster says now that the user may not. Nothing that is known counts, nothing is remembered, and nobody in
    /// line is before it: else users who may do nothing could see to it that this cannot be answered.
    pub(crate) async fn is_denied<R: Reviewer>(
        &self,
        reviewer: &Arc<R>,
        question: &Question,
    ) -> bool {
        let Some(user) = self.reviewed_user() else {
            return false;
        };
        if self.cluster.may(Right::AccessReviews) == May::No {
            return false;
        }
        let answer = self
            .decisions
            .ask_now(&self.cluster, &**reviewer, user, question);
        match answer.await {
            Ok(decision) => decision == Decision::Deny,
            Err(why) => {
                tracing::debug!(cluster = self.cluster.name(), %why, "no decision");
                false
            }
        }
    }

    /// Whether the cluster allowed it when it was last asked, and that was not too long ago.
    pub fn was_allowed(&self, epoch: u64, question: impl FnOnce() -> Question) -> bool {
        let Some(user) = self.reviewed_user() else {
            return true;
        };
        let keys = self.keys(epoch, user, question());
        keys.iter().any(|key| self.decisions.was_allowed(key))
    }

    /// The cluster is about to answer the user itself, which is as good as an Allow or a Deny. To be called before it is
    /// asked: what it answers may be of before a change of roles that is seen meanwhile.
    pub fn asks(&self, epoch: u64, question: impl FnOnce() -> Question) -> AskedItself {
        let key = self.reviewed_user();
        let key = key.map(|user| self.key(epoch, user, question()));
        AskedItself {
            key,
            decisions: Arc::clone(&self.decisions),
            asked: Instant::now(),
            counts_for: self.settings.stale_allow_ttl,
        }
    }

    /// Where the cluster [need not be asked](Self::asks_nobody).
    pub(crate) fn verdict_on_nobody(&self) -> Verdict {
        let is_reviewed = self.settings.mode == AuthorizationMode::SubjectAccessReview;
        match self.subject {
            Subject::Allowed
                if is_reviewed && self.cluster.may(Right::AccessReviews) == May::No =>
            {
                Verdict::Unknown
            }
            _ => Verdict::Allowed { until: None },
        }
    }

    /// Whether the cluster need not be asked.
    pub(crate) fn asks_nobody(&self) -> bool {
        self.reviewed_user().is_none()
    }

    /// Who is asked about; `None` where nobody need be.
    fn reviewed_user(&self) -> Option<&Arc<UserInfo>> {
        match self.settings.mode {
            AuthorizationMode::SubjectAccessReview => self.user(),
            AuthorizationMode::AlwaysAllow => None,
        }
    }

    /// What is asked, in this order.
    fn keys(&self, epoch: u64, user: &Arc<UserInfo>, question: Question) -> Vec<Key> {
        let key = |question| self.key(epoch, user, question);
        match self.settings.broad_questions {
            true => broader(&question).map(key).collect(),
            false => vec![key(question)],
        }
    }

    fn key(&self, epoch: u64, user: &Arc<UserInfo>, question: Question) -> Key {
        Key {
            instance: self.cluster.instance(),
            epoch,
            changes: self.decisions.changes(),
            user: Arc::clone(user),
            question,
        }
    }
}

/// A question whose answer the cluster gives to the user itself.
#[derive(Debug)]
pub struct AskedItself {
    /// `None` where nobody need be asked.
    key: Option<Key>,
    decisions: Arc<ClusterDecisions>,
    asked: Instant,
    counts_for: Duration,
}

impl AskedItself {
    /// What it answered, for the time when it cannot be asked. What is neither a yes nor a no says nothing.
    pub fn answered(self, status: StatusCode) {
        let Some(key) = self.key else { return };
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            let until = self.asked + self.counts_for;
            self.decisions.allowed(key, self.asked, until);
        } else if matches!(status, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) {
            self.decisions.denied(&key);
        }
    }
}
