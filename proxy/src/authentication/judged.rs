//! What clusters have said of tokens.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fleetcache_auth::{
    FaultSort, NotReviewed, TokenError, TokenUser, Unavailable, reviewed, token_review,
    unverified_expiry,
};
use fleetcache_cache::cluster_accessor::{ClusterAccessor, Right};
use fleetcache_cache::facts::{ClusterFacts, Facts, NoFact};
use http::StatusCode;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::review_line::ReviewLine;
use crate::reviewer::Reviewer;
use crate::shares::Holder;

/// Where it is asked.
const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// How long it counts what a cluster has said of a token, whatever that was: as long as in kube-apiserver's own delegates.
const TTL: Duration = Duration::from_secs(10);

/// Tokens that a cluster is asked about at once: what strangers send to one must not keep others from another.
const MAX_REVIEWS: usize = 32;

/// Those and the ones in line behind them, each with its token.
const MAX_IN_LINE: usize = 256;

/// How long a token that was good has its place among others that were, and not behind those of strangers.
const REMEMBERED: Duration = Duration::from_secs(10 * 60);

/// Bytes of users whose tokens are known; and of the names of those whose tokens were.
const MAX_KNOWN: u64 = 16 << 20;

/// Bytes of what is known of other tokens. Apart, as anybody can send those without end.
const MAX_REFUSED: u64 = 4 << 20;

/// Clusters that are asked, kept in memory.
const MAX_CLUSTERS: u64 = 100_000;

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

/// What a cluster says of a token that is nobody's: why, where it says that.
type Refused = Option<Arc<str>>;

/// Why a token has no user.
#[derive(Clone)]
enum NotKnown {
    Refused(Refused),
    /// The cluster could not say, and why.
    Unavailable(String),
}

/// How a cluster is asked.
struct Asked {
    /// For tokens of which nothing is known: anybody can fill it.
    strangers: ReviewLine,
    /// For tokens that were good the last time, with places of their own. A user may have many: of this one, half.
    known: ReviewLine,
}

/// What clusters have said of tokens.
pub(super) struct Judged {
    known: ClusterFacts<Key, TokenUser, NotKnown>,
    refused: Arc<ClusterFacts<Key, Refused, Infallible>>,
    /// Whose tokens were good, by name: what is good is known for a moment only, and is asked about again.
    were_good: Arc<ClusterFacts<Key, Arc<str>, Infallible>>,
    /// By instance.
    asked: ClusterFacts<u64, Arc<Asked>, Infallible>,
}

impl Default for Judged {
    fn default() -> Self {
        Self::with_room(MAX_KNOWN, MAX_KNOWN, MAX_REFUSED)
    }
}

impl Judged {
    /// By many clusters, of which each has a quarter at most: what one calls good is for it alone to say.
    pub(super) fn by_many() -> Self {
        Self::with_room(MAX_KNOWN, MAX_KNOWN / 4, MAX_REFUSED)
    }

    /// Of so many bytes of tokens that are good, as many of those that were, of both so many at most by one cluster, and so
    /// many of others.
    pub(super) fn with_room(known: u64, by_one: u64, refused: u64) -> Self {
        let refused = Facts::new(refused, |_, why: &Refused| {
            weight(why.as_deref().map_or(0, str::len))
        });
        let cluster = |key: &Key| key.instance;
        let of_user = |_: &Key, it: &TokenUser| weight(it.user.bytes());
        let good = Facts::in_shares(known, of_user, by_one, cluster);
        let of_name = |_: &Key, name: &Arc<str>| weight(name.len());
        let were_good = Facts::in_shares(known, of_name, by_one, cluster);
        Self {
            known: good.of_cluster(),
            refused: Arc::new(refused.of_cluster()),
            were_good: Arc::new(were_good.of_cluster()),
            asked: Facts::new(MAX_CLUSTERS, |_, _| 1).of_cluster(),
        }
    }

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
        if let Some(user) = self.known.get(&key) {
            return Ok(Some(user));
        }
        if let Some(why) = self.refused.get(&key) {
            return nobody(why);
        }
        let new = || Asked {
            strangers: ReviewLine::new(MAX_REVIEWS, MAX_IN_LINE),
            known: ReviewLine::new(MAX_REVIEWS, MAX_IN_LINE),
        };
        let asked = async move { Ok((Arc::new(new()), None)) };
        let asked = self.asked.get_or_ask(key.instance, asked).await;
        let unavailable = |why: String| TokenError::Unavailable(unavailable(cluster.name(), why));
        let ended = || unavailable("the question ended without an answer".to_owned());
        let asked = asked.map_err(|_| ended())?;
        let question = self.ask(asked, cluster, reviewer, &key, token, audiences);
        match self.known.get_or_ask(key, question).await {
            Ok(user) => Ok(Some(user)),
            Err(NoFact::Failed(NotKnown::Refused(why))) => nobody(why),
            Err(NoFact::Failed(NotKnown::Unavailable(why))) => Err(unavailable(why)),
            Err(NoFact::Ended) => Err(ended()),
        }
    }

    fn ask<R: Reviewer>(
        &self,
        asked: Arc<Asked>,
        cluster: &Arc<ClusterAccessor>,
        reviewer: &Arc<R>,
        key: &Key,
        token: &str,
        audiences: &[String],
    ) -> impl Future<Output = Result<(TokenUser, Option<Instant>), NotKnown>> + Send + use<R> {
        let (cluster, reviewer, key) = (Arc::clone(cluster), Arc::clone(reviewer), key.clone());
        let (refused, were_good) = (Arc::clone(&self.refused), Arc::clone(&self.were_good));
        let (body, token) = (token_review(token, audiences), token.to_owned());
        let (expires, audiences) = (unverified_expiry(&token), audiences.to_vec());
        async move {
            // Somebody else's question may have ended since.
            if let Some(why) = refused.get(&key) {
                return Err(NotKnown::Refused(why));
            }
            let began = Instant::now();
            let review = reviewer.review(PATH, body);
            // Whose another token is nobody knows before it is judged. Whoever asks one cluster is told apart by name.
            let asker = were_good.get(&key).map(|name| Holder::User {
                name: name.as_ref().to_owned(),
                named_by: None,
            });
            let line = match asker {
                Some(_) => &asked.known,
                None => &asked.strangers,
            };
            let answer = line.ask(asker, reviewer.lost(), review).await;
            let unavailable = NotKnown::Unavailable;
            let answer = answer.map_err(|why| unavailable(why.to_string()))?;
            let (status, body) = answer.map_err(|error| unavailable(error.to_string()))?;
            if status == StatusCode::FORBIDDEN {
                cluster.refused(Right::TokenReviews, None);
                let why = "the proxy's credential may not create tokenreviews";
                return Err(unavailable(why.to_owned()));
            }
            if !status.is_success() {
                let why = format!("the answer to a TokenReview is a {status}");
                return Err(unavailable(why));
            }
            cluster.granted(Right::TokenReviews);
            // The cluster has read the same claim, and checked who wrote it.
            let left = expires.map_or(TTL, |at| {
                at.duration_since(SystemTime::now()).unwrap_or_default()
            });
            let until = Some(began + TTL.min(left));
            let why = match reviewed(&body, &audiences) {
                Ok(Some(user)) => {
                    let user = TokenUser {
                        expires,
                        known_until: until,
                        ..user
                    };
                    let name = user.user.name.as_str().into();
                    were_good.put(key, name, Some(began + REMEMBERED));
                    return Ok((user, until));
                }
                Ok(None) => None,
                Err(NotReviewed::Refused(why)) => Some(in_short(&why, &token).into()),
                Err(NotReviewed::NoAnswer(why)) => return Err(unavailable(why)),
            };
            were_good.forget(&key);
            refused.put(key, Refused::clone(&why), until);
            Err(NotKnown::Refused(why))
        }
    }
}

/// That a cluster cannot say, and why.
pub(super) fn unavailable(cluster: &str, why: String) -> Unavailable {
    let judge = format!("cluster {cluster:?}");
    Unavailable { judge, why }
}

/// What a cluster says of a token, for logs: no more of it than fits into a line, and not the token, should it repeat that.
fn in_short(why: &str, token: &str) -> String {
    const LINE: usize = 200;
    why.replace(token, "…").chars().take(LINE).collect()
}

fn nobody(why: Refused) -> Result<Option<TokenUser>, TokenError> {
    match why {
        None => Ok(None),
        Some(why) => Err(TokenError::Invalid(FaultSort::Judged.because(&*why))),
    }
}

impl std::fmt::Debug for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judged").finish_non_exhaustive()
    }
}

/// About the bytes in memory of what is so long, what the cache needs for it included.
fn weight(bytes: usize) -> u32 {
    const OVERHEAD: usize = 512;
    u32::try_from(OVERHEAD + bytes).unwrap_or(u32::MAX)
}
