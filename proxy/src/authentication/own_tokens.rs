//! The tokens that a cluster has issued itself, such as those of its service accounts.
//!
//! A token goes to a cluster only where it says that this cluster has issued it: what is meant for others is nothing that
//! each cluster of a fleet is shown.

use std::sync::Arc;
use std::time::Duration;

use fleetcache_auth::{
    AUTHENTICATED, Authenticated, AuthenticationError, Fault, FaultSort, Method, Refusal,
    TokenError, TokenUser, bearer_tokens, unverified_issuer,
};
use fleetcache_cache::cluster_accessor::ClusterAccessor;
use fleetcache_cache::facts::{ClusterFacts, Facts};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use super::judged::{Judged, unavailable};
use crate::reviewer::Reviewer;

/// Where a cluster says who it is as an issuer.
const PATH: &str = "/.well-known/openid-configuration";

/// How long a request waits for that.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a cluster calls itself is asked again after this time where a token calls it otherwise.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Issuers kept in memory.
const MAX_ISSUERS: u64 = 100_000;

/// What a cluster calls itself; `None` where it does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Issuer {
    name: Option<Arc<str>>,
    asked: Instant,
}

/// Tokens of the clusters that are asked for.
#[derive(Debug)]
pub struct OwnTokens {
    /// By instance and epoch.
    issuers: ClusterFacts<(u64, u64), Issuer, String>,
    judged: Judged,
}

impl Default for OwnTokens {
    fn default() -> Self {
        Self {
            issuers: Facts::new(MAX_ISSUERS, |_, _| 1).of_cluster(),
            judged: Judged::by_many(),
        }
    }
}

/// What a cluster says of a request's token.
#[derive(Debug)]
pub(super) enum Own {
    /// The request has no token of this cluster.
    No,
    /// It has one, and whether it is this cluster's is not known: why, for logs.
    NotKnown(String),
    /// It has one of this cluster.
    Judged(Result<Authenticated, AuthenticationError>),
}

/// Whether a cluster calls itself by a name.
enum IsIssuer {
    No,
    /// It cannot be asked, and why.
    NotKnown(String),
    Yes,
}

impl IsIssuer {
    fn of(known: &Issuer, name: &str) -> Self {
        match known.name.as_deref() {
            Some(known) if known == name => Self::Yes,
            Some(_) => Self::No,
            None => Self::NotKnown(format!(
                "{PATH} does not say it, or not to the proxy's credential"
            )),
        }
    }
}

impl OwnTokens {
    /// Whether a request has a token that this cluster has issued, and its user.
    pub(super) async fn authenticate(
        &self,
        headers: &HeaderMap,
        cluster: &Arc<ClusterAccessor>,
    ) -> Own {
        let tokens = bearer_tokens(headers);
        let found = tokens.into_iter().find_map(|token| {
            let issuer = unverified_issuer(&token)?;
            Some((token, issuer))
        });
        let Some((token, issuer)) = found else {
            return Own::No;
        };
        if let Some(connection) = cluster.current() {
            return self.of_issuer(&token, &issuer, cluster, &connection).await;
        }
        let away = "it is not connected";
        let key = (cluster.instance(), cluster.status().epoch);
        let Some(known) = self.issuers.get(&key) else {
            return not_known(cluster, away);
        };
        match IsIssuer::of(&known, &issuer) {
            IsIssuer::Yes => {
                let why = unavailable(cluster.name(), away.to_owned());
                Own::Judged(Err(AuthenticationError::Unavailable(why)))
            }
            IsIssuer::No => Own::No,
            IsIssuer::NotKnown(why) => not_known(cluster, &why),
        }
    }

    pub(super) async fn of_issuer<R: Reviewer>(
        &self,
        token: &str,
        issuer: &str,
        cluster: &Arc<ClusterAccessor>,
        reviewer: &Arc<R>,
    ) -> Own {
        match self.is_issuer(issuer, cluster, reviewer).await {
            IsIssuer::Yes => {}
            IsIssuer::No => return Own::No,
            IsIssuer::NotKnown(why) => return not_known(cluster, &why),
        }
        match self.judged.judge(cluster, reviewer, token, &[]).await {
            Ok(None) => Own::No,
            Ok(Some(user)) => Own::Judged(admitted(user, cluster)),
            Err(TokenError::Invalid(fault)) => Own::Judged(Err(refused(cluster, fault))),
            Err(TokenError::Unavailable(why)) => {
                Own::Judged(Err(AuthenticationError::Unavailable(why)))
            }
        }
    }

    /// Whether the cluster calls itself by that name.
    async fn is_issuer<R: Reviewer>(
        &self,
        name: &str,
        cluster: &Arc<ClusterAccessor>,
        reviewer: &Arc<R>,
    ) -> IsIssuer {
        let key = (cluster.instance(), reviewer.epoch());
        if let Some(known) = self.issuers.get(&key) {
            let is_issuer = IsIssuer::of(&known, name);
            if matches!(is_issuer, IsIssuer::Yes) || known.asked.elapsed() < ASK_AGAIN {
                return is_issuer;
            }
            // It may have another name by now; until it says so it has this one, and only one request asks.
            let asked = Instant::now();
            self.issuers.put(key, Issuer { asked, ..known }, None);
            return match ask(&**reviewer).await {
                Ok(now) => {
                    let is_issuer = IsIssuer::of(&now, name);
                    self.issuers.put(key, now, None);
                    is_issuer
                }
                Err(why) => IsIssuer::NotKnown(why),
            };
        }
        let asked = {
            let reviewer = Arc::clone(reviewer);
            async move { Ok((ask(&*reviewer).await?, None)) }
        };
        match self.issuers.get_or_ask(key, asked).await {
            Ok(known) => IsIssuer::of(&known, name),
            Err(why) => IsIssuer::NotKnown(why.to_string()),
        }
    }
}

fn not_known(cluster: &ClusterAccessor, why: &str) -> Own {
    let cluster = cluster.name();
    tracing::debug!(cluster, why, "its issuer is not known");
    Own::NotKnown(format!(
        "whether it is cluster {cluster:?}'s own is not known, since that has not said yet who its issuer is: {why}"
    ))
}

async fn ask<R: Reviewer>(reviewer: &R) -> Result<Issuer, String> {
    #[derive(Deserialize)]
    struct Configuration {
        issuer: String,
    }
    let asked = Instant::now();
    let answer = reviewer.lost().run_until_cancelled(reviewer.document(PATH));
    let answer = timeout(PATIENCE, answer).await.ok().flatten();
    let (status, body) = answer
        .ok_or("no answer")?
        .map_err(|error| error.to_string())?;
    let name = match status {
        StatusCode::OK => serde_json::from_slice(&body).ok(),
        // It may not be read, or there is none: that is an answer, too.
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => None,
        _ => return Err(format!("the answer is a {status}")),
    };
    let name = name.map(|Configuration { issuer }| issuer);
    let name = name.filter(|name| !name.is_empty()).map(Arc::from);
    Ok(Issuer { name, asked })
}

fn refused(cluster: &ClusterAccessor, fault: Fault) -> AuthenticationError {
    tracing::debug!(
        cluster = cluster.name(),
        why = fault.why,
        "credential refused"
    );
    let method = Some(Method::TokenReview);
    AuthenticationError::Unauthenticated(Some(Refusal { method, fault }))
}

/// The names of the system are the cluster's own to give, and the user is one there alone.
fn admitted(
    it: TokenUser,
    cluster: &ClusterAccessor,
) -> Result<Authenticated, AuthenticationError> {
    let TokenUser {
        mut user,
        expires,
        known_until,
    } = it;
    if let Err(why) = user.check() {
        return Err(refused(cluster, FaultSort::Name.because(why)));
    }
    let group = AUTHENTICATED;
    if !user.groups.iter().any(|it| it == group) {
        user.groups.push(group.to_owned());
    }
    user.named_by = Some(cluster.name().into());
    Ok(Authenticated {
        user: Arc::new(user),
        expires,
        known_until,
        method: Method::TokenReview,
    })
}
