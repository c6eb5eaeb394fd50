//! What clusters have decided, and their questions under way.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use fleetcache_auth::{
    Decision, NonResourceAttributes, Question, UserInfo, decision, subject_access_review,
};
use fleetcache_cache::cluster_accessor::{ClusterAccessor, May, Right};
use fleetcache_cache::facts::{ClusterFacts, Facts, NoFact};
use fleetcache_cache::upstream::UpstreamError;
use http::StatusCode;
use tokio::time::{Instant, timeout};

use super::Access;
use super::key::Key;
use crate::review_line::{NoTurn, PATIENCE, ReviewLine};
use crate::reviewer::Reviewer;
use crate::shares::Holder;

/// Where it is asked.
const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Reviews that a cluster is asked at once.
const MAX_REVIEWS: usize = 64;

/// Those and the ones in line behind them. A read that waits in line costs the cluster less than one that goes live, and a
/// dashboard of somebody who has roles in each namespace alone brings hundreds at a time: it fits in one user's half.
const MAX_IN_LINE: usize = 2048;

/// For so long after a change of roles a server may answer as if there had been none: its authorizer hears of it by a watch,
/// and there may be other replicas.
const SETTLES: Duration = Duration::from_secs(2);

/// What it says in that time counts no longer than this.
const SETTLING_TTL: Duration = Duration::from_millis(250);

/// Bytes of decisions in memory, over all clusters; as many again may be kept for the time when nobody can be asked.
const MAX_WEIGHT: u64 = 64 << 20;

/// Why there is no decision. None is ever taken for an Allow.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum NoDecision {
    /// The proxy's own credential may not ask.
    #[error("the proxy may not create subjectaccessreviews")]
    MayNotAsk,
    /// It did not come to be asked, or not to an end.
    #[error(transparent)]
    NoTurn(#[from] NoTurn),
    /// No answer came.
    #[error("no answer: {0}")]
    NoAnswer(Arc<UpstreamError>),
    /// The cluster went, or its roles changed meanwhile.
    #[error("the question ended without an answer")]
    Ended,
    /// It is not an answer.
    #[error("{0}")]
    Unreadable(String),
}

/// What a cluster said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) decision: Decision,
    /// It counts until then.
    pub(super) until: Instant,
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
    pub fn of_cluster(&self) -> Arc<ClusterDecisions> {
        Arc::new(ClusterDecisions {
            decisions: self.decisions.of_cluster(),
            last_allows: self.last_allows.of_cluster(),
            changes: AtomicU64::new(0),
            settles: ArcSwapOption::empty(),
            line: ReviewLine::new(MAX_REVIEWS, MAX_IN_LINE),
        })
    }
}

/// What one cluster has decided.
#[derive(Debug)]
pub struct ClusterDecisions {
    decisions: ClusterFacts<Key, Decided, NoDecision>,
    /// For the time when nobody can be asked.
    last_allows: ClusterFacts<Key, (), Infallible>,
    /// See [`Key::changes`].
    changes: AtomicU64,
    /// Until when the last change of roles may not be seen by all of the cluster.
    settles: ArcSwapOption<Instant>,
    line: ReviewLine,
}

impl ClusterDecisions {
    /// Forgets what was decided: roles have changed.
    pub fn flush(&self) {
        let settles = Instant::now() + SETTLES;
        self.settles.store(Some(Arc::new(settles)));
        self.forget();
    }

    /// Forgets what was decided. What counts while nobody can be asked goes, too, and what is asked just now has no answer.
    pub fn forget(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.decisions.flush();
        self.last_allows.flush();
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    pub(super) fn known(&self, key: &Key) -> Option<Decided> {
        self.decisions.get(key)
    }

    pub(super) fn was_allowed(&self, key: &Key) -> bool {
        self.last_allows.get(key).is_some()
    }

    /// The cluster allowed it when it was asked at that time; that counts until then while it cannot be asked.
    pub(super) fn allowed(&self, key: Key, asked: Instant, until: Instant) {
        // It may be what was said before the roles changed, and would count for minutes.
        if !self.is_settling(asked) {
            self.last_allows.put(key, (), Some(until));
        }
    }

    /// The cluster did not allow it when it was asked last.
    pub(super) fn denied(&self, key: &Key) {
        self.last_allows.forget(key);
    }

    /// What the cluster says, or said a moment ago. Whoever asks the same meanwhile waits for the same answer.
    pub(super) async fn decide<R: Reviewer>(
        access: &Access,
        reviewer: &Arc<R>,
        key: Key,
    ) -> Result<Decided, NoDecision> {
        let asked = {
            let (cluster, decisions) = (Arc::clone(&access.cluster), Arc::clone(&access.decisions));
            let (settings, reviewer, key) = (access.settings, Arc::clone(reviewer), key.clone());
            async move {
                // It counts from before the question: the cluster may have found it at any time since.
                let began = Instant::now();
                let decision = decisions.review(&cluster, &*reviewer, &key).await?;
                let ttl = match decision {
                    Decision::Allow => {
                        decisions.allowed(key, began, began + settings.stale_allow_ttl);
                        settings.allow_ttl
                    }
                    Decision::Deny => {
                        decisions.denied(&key);
                        settings.deny_ttl
                    }
                };
                let until = match decisions.is_settling(began) {
                    true => began + ttl.min(SETTLING_TTL),
                    false => began + ttl,
                };
                Ok((Decided { decision, until }, Some(until)))
            }
        };
        let decided = access.decisions.decisions.get_or_ask(key, asked).await;
        decided.map_err(|why| match why {
            NoFact::Failed(why) => why,
            NoFact::Ended => NoDecision::Ended,
        })
    }

    async fn review<R: Reviewer>(
        &self,
        cluster: &ClusterAccessor,
        reviewer: &R,
        key: &Key,
    ) -> Result<Decision, NoDecision> {
        let question = async {
            // Whoever was before may have been refused.
            if cluster.may(Right::AccessReviews) == May::No {
                return Err(NoDecision::MayNotAsk);
            }
            let review = subject_access_review(&key.user, &key.question);
            self.send(cluster, reviewer, review).await
        };
        let asker = Holder::user(Some(&key.user));
        self.line.ask(asker, reviewer.lost(), question).await?
    }

    /// Sends a question, and notes whether it may be asked.
    async fn send<R: Reviewer>(
        &self,
        cluster: &ClusterAccessor,
        reviewer: &R,
        review: Bytes,
    ) -> Result<Decision, NoDecision> {
        let answer = reviewer.review(PATH, review).await;
        let (status, body) = answer.map_err(|why| NoDecision::NoAnswer(Arc::new(why)))?;
        if status == StatusCode::FORBIDDEN {
            cluster.refused(Right::AccessReviews, None);
            return Err(NoDecision::MayNotAsk);
        }
        if !status.is_success() {
            return Err(NoDecision::Unreadable(format!("the answer is a {status}")));
        }
        cluster.granted(Right::AccessReviews);
        decision(&body).map_err(NoDecision::Unreadable)
    }

    /// What the cluster says now, whatever is known or in line. Waits no longer than a request does.
    pub(super) async fn ask_now<R: Reviewer>(
        &self,
        cluster: &ClusterAccessor,
        reviewer: &R,
        user: &UserInfo,
        question: &Question,
    ) -> Result<Decision, NoDecision> {
        let answer = self.send(cluster, reviewer, subject_access_review(user, question));
        let answer = timeout(PATIENCE, reviewer.lost().run_until_cancelled(answer)).await;
        let answer = answer.map_err(|_| NoTurn::TooSlow)?;
        answer.ok_or(NoTurn::Ended)?
    }

    /// Asks anything, whatever was said before, only to see whether it may be asked.
    pub(crate) async fn try_again<R: Reviewer>(&self, cluster: &ClusterAccessor, reviewer: &R) {
        let anything = Question::NonResource(NonResourceAttributes {
            verb: "get",
            path: "/version".to_owned(),
        });
        let nobody = UserInfo::anonymous();
        if let Err(why) = self.ask_now(cluster, reviewer, &nobody, &anything).await {
            tracing::debug!(cluster = cluster.name(), %why, "no decision");
        }
    }

    fn is_settling(&self, at: Instant) -> bool {
        let settles = self.settles.load();
        settles.as_ref().is_some_and(|settles| at < **settles)
    }
}
