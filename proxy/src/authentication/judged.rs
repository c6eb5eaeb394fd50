//! What clusters have said of tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fleetcache_auth::{TokenError, TokenUser, reviewed, token_review, unverified_expiry};
use fleetcache_cache::cluster_accessor::ClusterAccessor;
use fleetcache_cache::facts::{ClusterFacts, Facts, NoFact};
use http::StatusCode;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::reviewer::Reviewer;

/// Where it is asked.
const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// How long it counts what a cluster has said of a token, whatever that was: as long as in kube-apiserver's own delegates.
const TTL: Duration = Duration::from_secs(10);

/// How long a request waits to be known.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tokens that are judged at once: what strangers send must not become a flood.
const MAX_REVIEWS: usize = 32;

/// Bytes of what is known of tokens.
const MAX_WEIGHT: u64 = 16 << 20;

/// A token, as a cluster knows it that was behind a name at a time.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    /// See `ClusterAccessor::instance`.
    instance: u64,
    /// See `Connection::epoch`.
    epoch: u64,
    /// SHA-256: what is kept for a while is no credential.
    digest: [u8; 32],
}

/// A user, or nobody; or why the token is not good.
type Said = Result<Option<TokenUser>, String>;

/// What clusters have said of tokens.
pub(super) struct Judged {
    known: ClusterFacts<Key, Said, String>,
    places: Arc<Semaphore>,
    /// It was said that the proxy's credential may not ask.
    may_not_ask: Arc<AtomicBool>,
}

impl Default for Judged {
    fn default() -> Self {
        Self {
            known: Facts::new(MAX_WEIGHT, |_, said| weight(said)).of_cluster(),
            places: Arc::new(Semaphore::new(MAX_REVIEWS)),
            may_not_ask: Arc::default(),
        }
    }
}

impl Judged {
    /// What a cluster says of a token, or said a moment ago.
    pub(super) async fn judge<R: Reviewer>(
        &self,
        cluster: &Arc<ClusterAccessor>,
        reviewer: &Arc<R>,
        token: &str,
        audiences: &[String],
    ) -> Result<Option<TokenUser>, TokenError> {
        let key = Key {
            instance: cluster.instance(),
            epoch: reviewer.epoch(),
            digest: Sha256::digest(token).into(),
        };
        let said = match self.known.get(&key) {
            Some(said) => Ok(said),
            None => {
                let asked = self.ask(cluster, reviewer, token, audiences);
                self.known.get_or_ask(key, asked).await
            }
        };
        match said {
            Ok(said) => said.map_err(TokenError::Invalid),
            Err(NoFact::Failed(why)) => Err(TokenError::Unavailable(why)),
            Err(why @ NoFact::Ended) => Err(TokenError::Unavailable(why.to_string())),
        }
    }

    fn ask<R: Reviewer>(
        &self,
        cluster: &Arc<ClusterAccessor>,
        reviewer: &Arc<R>,
        token: &str,
        audiences: &[String],
    ) -> impl Future<Output = Result<(Said, Option<Instant>), String>> + Send + use<R> {
        let (cluster, reviewer) = (Arc::clone(cluster), Arc::clone(reviewer));
        let (places, may_not_ask) = (Arc::clone(&self.places), Arc::clone(&self.may_not_ask));
        let body = token_review(token, audiences);
        let (expires, audiences) = (unverified_expiry(token), audiences.to_vec());
        async move {
            let began = Instant::now();
            let unavailable = |why: &str| format!("cluster {:?}: {why}", cluster.name());
            let place = places.try_acquire();
            let _place = place.map_err(|_| unavailable("too many tokens are judged just now"))?;
            let answer = reviewer
                .lost()
                .run_until_cancelled(reviewer.review(PATH, body));
            let answer = timeout(PATIENCE, answer).await.ok().flatten();
            let answer = answer.ok_or_else(|| unavailable("no answer to a TokenReview"))?;
            let (status, body) = answer.map_err(|error| unavailable(&error.to_string()))?;
            if status == StatusCode::FORBIDDEN {
                if !may_not_ask.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        cluster = cluster.name(),
                        hint = "grant it the ClusterRole that `fleetcache rbac` prints",
                        "the proxy's credential may not create tokenreviews"
                    );
                }
                return Err(unavailable("the proxy may not create tokenreviews"));
            }
            if !status.is_success() {
                return Err(unavailable(&format!(
                    "the answer to a TokenReview is a {status}"
                )));
            }
            may_not_ask.store(false, Ordering::Relaxed);
            // The cluster has read the same claim, and checked who wrote it.
            let left = expires.map_or(TTL, |at| {
                at.duration_since(SystemTime::now()).unwrap_or_default()
            });
            let until = Some(began + TTL.min(left));
            let said = match reviewed(&body, &audiences) {
                Ok(user) => Ok(user.map(|user| TokenUser {
                    expires,
                    known_until: until,
                    ..user
                })),
                Err(TokenError::Invalid(why)) => Err(why),
                Err(TokenError::Unavailable(why)) => return Err(unavailable(&why)),
            };
            Ok((said, until))
        }
    }
}

impl std::fmt::Debug for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judged").finish_non_exhaustive()
    }
}

/// About its bytes in memory, what the cache needs for it included.
fn weight(said: &Said) -> u32 {
    const OVERHEAD: usize = 512;
    let bytes = match said {
        Ok(user) => user.as_ref().map_or(0, |it| it.user.bytes()),
        Err(why) => why.len(),
    };
    u32::try_from(OVERHEAD + bytes).unwrap_or(u32::MAX)
}
