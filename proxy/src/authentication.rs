//! Who is asking: whom the configuration knows, and whom clusters know.
//!
//! ```text
//! a request ──► Authenticator ──────────────► certificate, token file, JWT
//!                    │ else                   TokenReview in the cluster that is named for it: ClusterTokens
//!                    ▼
//!               OwnTokens: the tokens of the cluster that is asked for, judged by that cluster, and good there alone
//! ```

mod judged;
mod own_tokens;
mod refusals;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use fleetcache_auth::{
    Authenticated, AuthenticationError, Authenticator, Credentials, FaultSort, Method, Refusal,
    ReviewTokens, TokenError, TokenUser, Unavailable, UserInfo,
};
use fleetcache_cache::cluster_accessor::ClusterAccessor;
use fleetcache_cache::cluster_cache::ClusterCache;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use self::judged::{Judged, unavailable};
use self::own_tokens::Own;
pub use self::own_tokens::OwnTokens;
pub(crate) use self::refusals::Refusals;

/// Who is asking, by what is in force now; see [`Authentication::authenticate`].
///
/// # Errors
/// None of its credentials is known, or none that is known can be judged now.
pub(crate) async fn authenticate(
    in_force: &ArcSwapOption<Authentication>,
    credentials: Credentials<'_>,
    target: Option<&Arc<ClusterAccessor>>,
) -> Result<Authenticated, AuthenticationError> {
    let authentication = in_force.load_full();
    match authentication {
        Some(it) => it.authenticate(credentials, target).await,
        // Everybody is who has the proxy's own token.
        None => Ok(Authenticated {
            user: Arc::new(UserInfo::admin()),
            expires: None,
            known_until: None,
            method: Method::Disabled,
        }),
    }
}

/// Says who is asking.
#[derive(Debug)]
pub struct Authentication {
    authenticator: Authenticator,
    own_tokens: Option<Arc<OwnTokens>>,
}

impl Authentication {
    /// Knows whom the authenticator knows, and the tokens that a cluster has issued itself where that cluster is asked for,
    /// if these count at all.
    pub fn new(authenticator: Authenticator, own_tokens: Option<Arc<OwnTokens>>) -> Self {
        Self {
            authenticator,
            own_tokens,
        }
    }

    /// The user of a request. `target` is the cluster that it is for, where the cluster's own tokens count: a user that they
    /// stand for is one of that cluster alone.
    ///
    /// # Errors
    /// None of its credentials is known, or none that is known can be judged now.
    pub async fn authenticate(
        &self,
        credentials: Credentials<'_>,
        target: Option<&Arc<ClusterAccessor>>,
    ) -> Result<Authenticated, AuthenticationError> {
        let refused = match self.authenticator.authenticate(credentials).await {
            Ok(authenticated) => return Ok(authenticated),
            Err(refused) => refused,
        };
        let (Some(own_tokens), Some(target)) = (&self.own_tokens, target) else {
            return Err(refused);
        };
        // Seldom, and large.
        let own = Box::pin(own_tokens.authenticate(credentials.headers, target));
        own_first(own.await, refused)
    }
}

/// What the cluster says of its own token; and what the others said, where that is nothing, or where one of them may know it
/// who cannot be asked now.
fn own_first(own: Own, refused: AuthenticationError) -> Result<Authenticated, AuthenticationError> {
    match (own, refused) {
        (
            Own::Judged(Err(AuthenticationError::Unauthenticated(_))),
            refused @ AuthenticationError::Unavailable(_),
        ) => Err(refused),
        (Own::Judged(own), _) => own,
        (Own::NotKnown(why), AuthenticationError::Unauthenticated(Some(refusal))) => Err(
            AuthenticationError::Unauthenticated(Some(or_own(refusal, &why))),
        ),
        (Own::No | Own::NotKnown(_), refused) => Err(refused),
    }
}

/// A refusal of a token that may be the cluster's own, but for one by whoever claims it. It stays a 401: a 503 would tell
/// strangers, who can make up such a token, which clusters there are.
fn or_own(refusal: Refusal, why: &str) -> Refusal {
    let Refusal { method, fault } = refusal;
    let fault = match method {
        None | Some(Method::TokenReview) => {
            FaultSort::Unasked.because(format!("{}, and {why}", fault.why))
        }
        Some(_) => fault,
    };
    Refusal { method, fault }
}

/// The clusters that can be asked about tokens, and what is known of their own ones. They are there a moment later than what
/// is made of the configuration, and outlast it.
#[derive(Clone, Debug, Default)]
pub struct AskedClusters {
    clusters: Arc<OnceLock<Arc<ClusterCache>>>,
    own_tokens: Arc<OwnTokens>,
}

impl AskedClusters {
    /// These can be asked from now on. For one call.
    pub fn are(&self, clusters: &Arc<ClusterCache>) {
        self.clusters.get_or_init(|| Arc::clone(clusters));
    }

    /// Asks the cluster of that name whether a token is good for one of these audiences; for its own where there are none.
    pub fn named(&self, cluster: String, audiences: &[String]) -> ClusterTokens {
        ClusterTokens {
            clusters: Arc::clone(&self.clusters),
            cluster,
            audiences: audiences.to_vec(),
            judged: Judged::default(),
        }
    }

    /// The tokens that clusters have issued themselves.
    pub fn own_tokens(&self) -> Arc<OwnTokens> {
        Arc::clone(&self.own_tokens)
    }
}

/// Who cannot say whose a token is, to whom nobody knows: a token is shown to this cluster whatever path it comes with, and no
/// path tells a stranger which clusters there are.
const UNNAMED: &str = "the cluster of authentication.tokenReview";

/// Tokens that one cluster of the fleet judges, for all of it.
pub struct ClusterTokens {
    clusters: Arc<OnceLock<Arc<ClusterCache>>>,
    cluster: String,
    audiences: Vec<String>,
    judged: Judged,
}

impl ClusterTokens {
    async fn judge(&self, token: &str) -> Result<Option<TokenUser>, TokenError> {
        let unavailable = |why| TokenError::Unavailable(unavailable(&self.cluster, why));
        let clusters = self.clusters.get();
        let cluster = clusters.and_then(|it| it.get(&self.cluster));
        let cluster = cluster.ok_or_else(|| unavailable("it is not known".to_owned()))?;
        let connection = cluster.connected().await;
        let connection = connection
            .map_err(|why| unavailable(format!("it is not connected: {}", why.message)))?;
        self.judged
            .judge(&cluster, &connection, token, &self.audiences)
            .await
    }
}

impl ReviewTokens for ClusterTokens {
    fn review<'a>(
        &'a self,
        token: &'a str,
    ) -> BoxFuture<'a, Result<Option<TokenUser>, TokenError>> {
        let unnamed = |error| match error {
            TokenError::Unavailable(why) => TokenError::Unavailable(Unavailable {
                judge: UNNAMED.to_owned(),
                why: why.to_string(),
            }),
            TokenError::Invalid(fault) => TokenError::Invalid(fault),
        };
        async move { self.judge(token).await.map_err(unnamed) }.boxed()
    }
}
