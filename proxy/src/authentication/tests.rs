//! Tokens of clusters that count what they are asked, on paused time.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use fleetcache_auth::{AUTHENTICATED, Method, Methods};
use fleetcache_cache::cluster_accessor::{May, Right};
use fleetcache_cache::eviction::Fleet;
use fleetcache_cache::informers::InformersConfig;
use fleetcache_cache::upstream::UpstreamError;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::advance;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::*;
use crate::authorization::testing::idle;
use crate::reviewer::Reviewer;

mod floods;
mod own_tokens;

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:default:app";

/// A cluster that knows some tokens.
struct Cluster {
    epoch: u64,
    lost: CancellationToken,
    /// What it calls itself.
    issuer: Mutex<&'static str>,
    /// The status of its answers to reviews.
    code: AtomicUsize,
    tokens: Mutex<BTreeSet<String>>,
    documents: AtomicUsize,
    reviews: Mutex<Vec<Value>>,
    may_answer: Semaphore,
}

impl Cluster {
    fn of_epoch(epoch: u64, tokens: &[&str]) -> Arc<Self> {
        Arc::new(Self {
            epoch,
            lost: CancellationToken::new(),
            issuer: Mutex::new(ISSUER),
            code: AtomicUsize::new(201),
            tokens: Mutex::new(tokens.iter().map(|&token| token.to_owned()).collect()),
            documents: AtomicUsize::new(0),
            reviews: Mutex::default(),
            may_answer: Semaphore::new(Semaphore::MAX_PERMITS),
        })
    }

    fn that_knows(tokens: &[&str]) -> Arc<Self> {
        Self::of_epoch(1, tokens)
    }

    fn answers_with(&self, code: usize) {
        self.code.store(code, Ordering::Relaxed);
    }

    /// From now on it answers so many reviews, and no more.
    fn answers(&self, reviews: usize) {
        self.may_answer.forget_permits(Semaphore::MAX_PERMITS);
        self.may_answer.add_permits(reviews);
    }

    fn reviews(&self) -> usize {
        self.reviews.lock().len()
    }

    fn documents(&self) -> usize {
        self.documents.load(Ordering::Relaxed)
    }
}

impl Reviewer for Cluster {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    async fn review(
        &self,
        path: &'static str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), UpstreamError> {
        assert_eq!(path, "/apis/authentication.k8s.io/v1/tokenreviews");
        let mut review: Value = serde_json::from_slice(&body).unwrap();
        self.reviews.lock().push(review["spec"].clone());
        self.may_answer.acquire().await.unwrap().forget();
        let token = review["spec"]["token"].as_str().unwrap();
        review["status"] = match self.tokens.lock().contains(token) {
            true => json!({
                "authenticated": true,
                "user": {"username": SERVICE_ACCOUNT, "uid": "7", "groups": ["system:serviceaccounts", AUTHENTICATED]},
                "audiences": review["spec"].get("audiences").cloned().unwrap_or_default(),
            }),
            // As nobody should.
            false => json!({"error": format!("no such token: {token}")}),
        };
        let code = u16::try_from(self.code.load(Ordering::Relaxed)).unwrap();
        let code = StatusCode::from_u16(code).unwrap();
        Ok((code, review.to_string().into()))
    }

    async fn document(&self, path: &'static str) -> Result<(StatusCode, Bytes), UpstreamError> {
        assert_eq!(path, "/.well-known/openid-configuration");
        self.documents.fetch_add(1, Ordering::Relaxed);
        let issuer = *self.issuer.lock();
        if issuer.is_empty() {
            return Ok((StatusCode::FORBIDDEN, Bytes::new()));
        }
        let document = json!({"issuer": issuer, "jwks_uri": "https://a/openid/v1/jwks"});
        Ok((StatusCode::OK, document.to_string().into()))
    }
}

/// Clusters that are not dialled.
struct Clusters {
    cache: Arc<ClusterCache>,
    _shutdown: DropGuard,
}

impl Clusters {
    fn start() -> Self {
        let shutdown = CancellationToken::new();
        let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &shutdown);
        let configs = vec![idle("a"), idle("b")];
        Self {
            cache: ClusterCache::start(configs, 1, &fleet, &shutdown),
            _shutdown: shutdown.drop_guard(),
        }
    }

    fn get(&self, name: &str) -> Arc<ClusterAccessor> {
        self.cache.get(name).unwrap()
    }
}

fn jwt(claims: &Value) -> String {
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn is_refused(said: &Own) -> bool {
    let unauthenticated = |it| matches!(it, &AuthenticationError::Unauthenticated(_));
    matches!(said, Own::Judged(Err(it)) if unauthenticated(it))
}

fn bearer(token: &str) -> HeaderMap {
    let value = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
    HeaderMap::from_iter([(AUTHORIZATION, value)])
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_asked_about_a_token_once_in_ten_seconds() {
    let (clusters, judged) = (Clusters::start(), Judged::default());
    let (a, cluster) = (clusters.get("a"), Cluster::that_knows(&["good"]));
    let audiences = ["x".to_owned(), "y".to_owned()];
    for _ in 0..3 {
        let user = judged.judge(&a, &cluster, "good", &audiences).await;
        let user = user.unwrap().unwrap().user;
        assert_eq!((&*user.name, user.named_by), (SERVICE_ACCOUNT, None));
        let nobody = judged.judge(&a, &cluster, "bad", &audiences).await;
        // The reason is for logs.
        let why = FaultSort::Judged.because("no such token: …");
        assert_eq!(nobody, Err(TokenError::Invalid(why)));
    }
    assert_eq!(cluster.reviews(), 2);
    let asked = json!({"token": "good", "audiences": ["x", "y"]});
    assert_eq!(cluster.reviews.lock()[0], asked);
    // It is taken back, and the cluster says so as soon as it is asked.
    cluster.tokens.lock().clear();
    advance(Duration::from_secs(9)).await;
    assert!(judged.judge(&a, &cluster, "good", &audiences).await.is_ok());
    advance(Duration::from_secs(1)).await;
    assert!(
        judged
            .judge(&a, &cluster, "good", &audiences)
            .await
            .is_err()
    );
    assert_eq!(cluster.reviews(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_was_said_of_a_token_counts_no_longer_than_the_token() {
    let (clusters, judged) = (Clusters::start(), Judged::default());
    let a = clusters.get("a");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap().as_secs();
    // The clock of tokens goes on while this runs.
    let token = jwt(&json!({"exp": now + 6}));
    let cluster = Cluster::that_knows(&[&token]);
    let user = judged.judge(&a, &cluster, &token, &[]).await;
    let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(now + 6);
    assert_eq!(user.unwrap().unwrap().expires, Some(expires));
    advance(Duration::from_secs(6)).await;
    judged.judge(&a, &cluster, &token, &[]).await.unwrap();
    assert_eq!(cluster.reviews(), 2);
    // By this clock it is over, by the cluster's it is not: nothing is kept.
    let over = jwt(&json!({"exp": now - 1}));
    let cluster = Cluster::that_knows(&[&over]);
    for asked in 1..3 {
        assert!(judged.judge(&a, &cluster, &over, &[]).await.is_ok());
        assert_eq!(cluster.reviews(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_cluster_says_of_a_token_is_nothing_to_another() {
    let (clusters, judged) = (Clusters::start(), Judged::default());
    let knows = Cluster::that_knows(&["t"]);
    let (other, rebuilt) = (Cluster::that_knows(&[]), Cluster::of_epoch(2, &[]));
    let (a, b) = (clusters.get("a"), clusters.get("b"));
    assert!(judged.judge(&a, &knows, "t", &[]).await.is_ok());
    assert!(judged.judge(&b, &other, "t", &[]).await.is_err());
    assert!(judged.judge(&a, &rebuilt, "t", &[]).await.is_err());
    assert!(judged.judge(&a, &knows, "t", &[]).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_cannot_say_says_neither_yes_nor_no() {
    let (clusters, judged) = (Clusters::start(), Judged::default());
    let (a, cluster) = (clusters.get("a"), Cluster::that_knows(&["t"]));
    for code in [500, 403, 401, 429, 404] {
        cluster.answers_with(code);
        let said = judged.judge(&a, &cluster, "t", &[]).await;
        assert!(
            matches!(said, Err(TokenError::Unavailable(_))),
            "{code} {said:?}"
        );
        // Only that is about the proxy's own rights.
        let is_refused = a.may(Right::TokenReviews) == May::No;
        assert_eq!(is_refused, code != 500, "{code}");
    }
    cluster.answers_with(201);
    assert!(judged.judge(&a, &cluster, "t", &[]).await.is_ok());
    assert_eq!(a.may(Right::TokenReviews), May::Yes);
    assert_eq!(cluster.reviews(), 6);
    cluster.lost.cancel();
    let said = judged.judge(&a, &cluster, "u", &[]).await;
    assert!(matches!(said, Err(TokenError::Unavailable(_))), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn the_configured_ways_come_first_and_their_refusal_stands() {
    let clusters = Clusters::start();
    let authenticator = Authenticator::new(Methods {
        generated_token: Some("mine".to_owned()),
        ..Methods::default()
    });
    let own_tokens = Some(AskedClusters::default().own_tokens());
    let authentication = Authentication::new(authenticator, own_tokens);
    let a = clusters.get("a");
    let ask = async |token: &str| {
        let headers = bearer(token);
        let credentials = Credentials {
            headers: &headers,
            certificates: None,
        };
        authentication.authenticate(credentials, Some(&a)).await
    };
    assert_eq!(ask("mine").await.unwrap().method, Method::Generated);
    for token in ["other", &jwt(&json!({"iss": ISSUER}))] {
        let said = ask(token).await;
        assert!(is_refused(&Own::Judged(said.clone())), "{said:?}");
    }
}

#[test]
fn what_another_judge_may_know_is_not_refused() {
    let refused = || AuthenticationError::Unauthenticated(None);
    let away = || {
        AuthenticationError::Unavailable(Unavailable {
            judge: "a judge".to_owned(),
            why: "down".to_owned(),
        })
    };
    let user = || {
        Ok(Authenticated {
            user: Arc::new(UserInfo::admin()),
            expires: None,
            known_until: None,
            method: Method::TokenReview,
        })
    };
    for (own, others, expected) in [
        (Own::No, refused(), Err(refused())),
        (Own::No, away(), Err(away())),
        (Own::NotKnown("x".to_owned()), away(), Err(away())),
        (Own::Judged(user()), away(), user()),
        (Own::Judged(Err(refused())), refused(), Err(refused())),
        (Own::Judged(Err(refused())), away(), Err(away())),
        (Own::Judged(Err(away())), refused(), Err(away())),
    ] {
        assert_eq!(own_first(own, others), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_judge_is_away_cannot_tell_who_is_asking() {
    let clusters = Clusters::start();
    let asked = AskedClusters::default();
    asked.are(&clusters.cache);
    for (judge, expected) in [
        ("a", "cluster \"a\": it is not connected: "),
        ("z", "cluster \"z\": it is not known"),
    ] {
        let authenticator = Authenticator::new(Methods {
            token_review: Some(Arc::new(asked.named(judge.to_owned(), &[]))),
            ..Methods::default()
        });
        let authentication = Authentication::new(authenticator, None);
        let headers = bearer("t");
        let credentials = Credentials {
            headers: &headers,
            certificates: None,
        };
        let said = authentication.authenticate(credentials, None).await;
        let Err(AuthenticationError::Unavailable(why)) = said else {
            panic!("{said:?}");
        };
        // The name is for logs.
        assert_eq!(why.judge, "the cluster of authentication.tokenReview");
        assert!(why.why.starts_with(expected), "{why}");
    }
}
