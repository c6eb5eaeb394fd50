//! May this user see from memory what it asks for? The cluster that is asked about says so, by a SubjectAccessReview, and
//! what it said counts for a while.
//!
//! Where it does not say yes, or says nothing, the request goes to the cluster as its user, and the cluster's own answer
//! is given: nothing here ever refuses a request.

mod key;
mod recheck;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use fleetcache_auth::{Decision, Question, UserInfo, broader, decision, subject_access_review};
use fleetcache_cache::cluster_accessor::ClusterAccessor;
use fleetcache_cache::connection::Connection;
use fleetcache_cache::facts::{ClusterFacts, Facts, NoFact};
use fleetcache_cache::upstream::UpstreamError;
use http::StatusCode;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use self::key::Key;
pub(crate) use self::recheck::while_allowed;

/// Where it is asked.
const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A read that waits longer for the answer is answered live sooner.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reviews that a cluster is asked at once: a flood of new users must not become a flood of questions.
const MAX_REVIEWS: usize = 64;

/// Whoever may not ask tries again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Bytes of decisions in memory, over all clusters.
const MAX_WEIGHT: u64 = 64 << 20;

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

/// Why there is no decision. None is ever taken for an Allow.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoDecision {
    /// The proxy's own credential may not ask.
    #[error("the proxy may not create subjectaccessreviews")]
    MayNotAsk,
    /// Too many questions are under way.
    #[error("too many questions under way")]
    TooMany,
    /// No answer came.
    #[error("no answer")]
    NoAnswer(Arc<UpstreamError>),
    /// No answer came in time.
    #[error("no answer in time")]
    TooSlow,
    /// The cluster went, or its roles changed meanwhile.
    #[error("the question ended without an answer")]
    Ended,
    /// It is not an answer.
    #[error("{0}")]
    Unreadable(String),
}

/// What a cluster said.
#[derive(Clone, Copy, Debug)]
struct Decided {
    decision: Decision,
    /// It counts until then.
    until: Instant,
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

/// The decisions of all clusters.
#[derive(Debug)]
pub struct Authorizer {
    decisions: Arc<Facts<Key, Decided, NoDecision>>,
    last_allows: Arc<Facts<Key, (), Infallible>>,
}

impl Default for Authorizer {
    fn default() -> Self {
        Self {
            decisions: Facts::new(MAX_WEIGHT, |key, _| key.weight()),
            last_allows: Facts::new(MAX_WEIGHT, |key, ()| key.weight()),
        }
    }
}

impl Authorizer {
    /// Decisions of a cluster that is new.
    pub fn of_cluster(&self, name: &str) -> Arc<ClusterDecisions> {
        Arc::new(ClusterDecisions {
            name: name.to_owned(),
            decisions: self.decisions.of_cluster(),
            last_allows: self.last_allows.of_cluster(),
            reviews: Semaphore::new(MAX_REVIEWS),
            may_not_ask: ArcSwapOption::empty(),
        })
    }
}

/// What one cluster has decided.
#[derive(Debug)]
pub struct ClusterDecisions {
    name: String,
    decisions: ClusterFacts<Key, Decided, NoDecision>,
    /// For the time when nobody can be asked.
    last_allows: ClusterFacts<Key, (), Infallible>,
    reviews: Semaphore,
    /// Until when it is taken as known that the proxy's credential may not ask.
    may_not_ask: ArcSwapOption<Instant>,
}

impl ClusterDecisions {
    /// Forgets what was decided: roles have changed. What counts while nobody can be asked goes, too.
    pub fn flush(&self) {
        self.decisions.flush();
        self.last_allows.flush();
    }

    /// Whether the proxy's own credential may not ask, as far as is known. Reads go live while it is so.
    pub fn may_not_ask(&self) -> bool {
        self.may_not_ask.load().is_some()
    }

    async fn review(&self, connection: &Connection, key: &Key) -> Result<Decision, NoDecision> {
        let known = self.may_not_ask.load_full();
        if known.is_some_and(|until| Instant::now() < *until) {
            return Err(NoDecision::MayNotAsk);
        }
        let Ok(_place) = self.reviews.try_acquire() else {
            return Err(NoDecision::TooMany);
        };
        let review = connection.review(PATH, subject_access_review(&key.user, &key.question));
        let review = connection.lost().run_until_cancelled(review);
        let Ok(Some(answer)) = timeout(PATIENCE, review).await else {
            return Err(NoDecision::TooSlow);
        };
        let (status, body) = answer.map_err(|why| NoDecision::NoAnswer(Arc::new(why)))?;
        if status == StatusCode::FORBIDDEN {
            let until = Arc::new(Instant::now() + ASK_AGAIN);
            if self.may_not_ask.swap(Some(until)).is_none() {
                tracing::warn!(
                    cluster = self.name,
                    "the proxy's credential may not create subjectaccessreviews: all reads go live; \
                     grant it the ClusterRole that `fleetcache rbac` prints"
                );
            }
            return Err(NoDecision::MayNotAsk);
        }
        if !status.is_success() {
            return Err(NoDecision::Unreadable(format!("the answer is a {status}")));
        }
        if self.may_not_ask.swap(None).is_some() {
            tracing::info!(
                cluster = self.name,
                "the proxy's credential may create subjectaccessreviews again"
            );
        }
        decision(&body).map_err(NoDecision::Unreadable)
    }
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
    /// The user; `None` where the proxy's own identity is everybody's, and there is nobody to ask about.
    pub user: Option<Arc<UserInfo>>,
}

impl Access {
    /// What the cluster says of it, or said a moment ago. May ask it, and wait for the answer.
    pub async fn verdict(
        &self,
        connection: &Arc<Connection>,
        question: impl FnOnce() -> Question,
    ) -> Verdict {
        let Some(user) = self.reviewed_user() else {
            return Verdict::Allowed { until: None };
        };
        let decisions = &self.decisions.decisions;
        let keys: Vec<_> = self.keys(connection.epoch, user, question()).collect();
        let known = keys.iter().filter_map(|key| decisions.get(key));
        let mut allows = known.filter(|known| known.decision == Decision::Allow);
        if let Some(known) = allows.next() {
            let until = Some(known.until);
            return Verdict::Allowed { until };
        }
        // Seldom, and large.
        Box::pin(self.ask(connection, keys)).await
    }

    /// One after the other, broad ones first: most users are answered by the first for all that they may read.
    async fn ask(&self, connection: &Arc<Connection>, keys: Vec<Key>) -> Verdict {
        for key in keys {
            match self.decide(connection, key).await {
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

    /// Whether the cluster allowed it when it was last asked, and that was not too long ago.
    pub fn was_allowed(&self, epoch: u64, question: impl FnOnce() -> Question) -> bool {
        let Some(user) = self.reviewed_user() else {
            return true;
        };
        let mut keys = self.keys(epoch, user, question());
        keys.any(|key| self.decisions.last_allows.get(&key).is_some())
    }

    /// The cluster has just answered the user itself: as good as an Allow.
    pub fn note_allowed(&self, epoch: u64, question: impl FnOnce() -> Question) {
        let Some(user) = self.reviewed_user() else {
            return;
        };
        let key = self.key(epoch, user, question());
        let until = Instant::now() + self.settings.stale_allow_ttl;
        self.decisions.last_allows.put(key, (), Some(until));
    }

    /// Who is asked about; `None` where nobody need be.
    fn reviewed_user(&self) -> Option<&Arc<UserInfo>> {
        match self.settings.mode {
            AuthorizationMode::SubjectAccessReview => self.user.as_ref(),
            AuthorizationMode::AlwaysAllow => None,
        }
    }

    /// What is asked, in this order.
    fn keys(
        &self,
        epoch: u64,
        user: &Arc<UserInfo>,
        question: Question,
    ) -> impl Iterator<Item = Key> {
        let questions: Vec<_> = match self.settings.broad_questions {
            true => broader(&question).collect(),
            false => vec![question],
        };
        let key = move |question| self.key(epoch, user, question);
        questions.into_iter().map(key)
    }

    fn key(&self, epoch: u64, user: &Arc<UserInfo>, question: Question) -> Key {
        Key {
            instance: self.cluster.instance(),
            epoch,
            user: Arc::clone(user),
            question,
        }
    }

    async fn decide(&self, connection: &Arc<Connection>, key: Key) -> Result<Decided, NoDecision> {
        let asked = {
            let (decisions, connection) = (Arc::clone(&self.decisions), Arc::clone(connection));
            let (settings, key) = (self.settings, key.clone());
            async move {
                // It counts from before the question: the cluster may have found it at any time since.
                let began = Instant::now();
                let decision = decisions.review(&connection, &key).await?;
                let ttl = match decision {
                    Decision::Allow => {
                        let until = began + settings.stale_allow_ttl;
                        decisions.last_allows.put(key, (), Some(until));
                        settings.allow_ttl
                    }
                    Decision::Deny => {
                        decisions.last_allows.forget(&key);
                        settings.deny_ttl
                    }
                };
                let until = began + ttl;
                Ok((Decided { decision, until }, Some(until)))
            }
        };
        let decided = self.decisions.decisions.get_or_ask(key, asked).await;
        decided.map_err(|why| match why {
            NoFact::Failed(why) => why,
            NoFact::Ended => NoDecision::Ended,
        })
    }
}
