//! Watches on paused time, over clusters and authenticators that say one thing and then another.

use std::sync::atomic::AtomicUsize;

use fleetcache_auth::{
    Authenticator, FaultSort, Method, Methods, ReviewTokens, TokenError, TokenFile, TokenUser,
    UserInfo,
};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use http_body_util::StreamBody;
use parking_lot::Mutex;
use tokio::time::advance;

use super::*;
use crate::authorization::AuthorizationMode;
use crate::authorization::testing::{Cluster, Clusters, Says, alice, cluster_wide, pod};
use crate::handler::ClusterSettings;
use crate::identity::Identity;

const TEN_SECONDS: Duration = Duration::from_secs(10);
const STALE: Duration = Duration::from_secs(300);

fn known() -> Authenticated {
    Authenticated {
        user: Arc::new(alice()),
        expires: None,
        known_until: None,
        method: Method::TokenFile,
    }
}

/// When a watch ends by these looks; `None` where it lasts.
async fn ends<F: Future<Output = Look>>(look: impl Fn() -> F) -> Option<Duration> {
    let began = Instant::now();
    // Not on a multiple of what it waits for: who is first is not said.
    let hour = Duration::from_secs(3605);
    let ended = tokio::time::timeout(hour, over(look, STALE, Arc::default())).await;
    ended.is_ok().then(|| Instant::now() - began)
}

/// When a watch ends that the cluster allows at first; `after` is what it says from then on, `None` where it is not connected.
async fn ends_after(access: &Access, after: Option<Arc<Cluster>>) -> Option<Duration> {
    let (first, looks) = (Cluster::that(cluster_wide), AtomicUsize::new(0));
    ends(|| {
        let cluster = match looks.fetch_add(1, Ordering::Relaxed) {
            0 => Some(Arc::clone(&first)),
            _ => after.clone(),
        };
        async move {
            found(
                now(access, cluster, &pod("x")).await,
                &known(),
                &access.settings,
            )
        }
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_watch_lasts_as_long_as_it_is_allowed() {
    let clusters = Clusters::start(&["a"]);
    let new = || clusters.access("a", &alice());
    let allows = Cluster::that(cluster_wide);
    assert_eq!(ends_after(&new(), Some(Arc::clone(&allows))).await, None);
    assert_eq!(allows.asked(), 360, "once in ten seconds");
    let denies = Cluster::that(|_| Says::Deny);
    assert_eq!(ends_after(&new(), Some(denies)).await, Some(TEN_SECONDS));
    assert_eq!(ends_after(&new(), None).await, Some(STALE));
    let fails = Cluster::that(|_| Says::Status(500));
    let ended = ends_after(&new(), Some(Arc::clone(&fails))).await;
    assert_eq!(ended, Some(STALE));
    assert!(fails.asked() < 60, "{}", fails.asked());
    let forbids = Cluster::that(|_| Says::Status(403));
    assert_eq!(ends_after(&new(), Some(forbids)).await, Some(STALE));
}

#[tokio::test(start_paused = true)]
async fn where_nobody_need_be_asked_no_cluster_need_be_there() {
    let clusters = Clusters::start(&["a"]);
    let mut access = clusters.access("a", &alice());
    access.settings.mode = AuthorizationMode::AlwaysAllow;
    assert_eq!(ends_after(&access, None).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_silent_ends_too() {
    let lines = futures_util::stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(b"{}\n"))));
    let body = StreamBody::new(lines).boxed_unsync();
    // Nobody can say.
    let never = || std::future::ready(Look::Unknown);
    let mut body = until(body, never, STALE);
    let began = Instant::now();
    while body.frame().await.is_some() {
        advance(Duration::from_secs(1)).await;
        assert!(Instant::now() - began < Duration::from_secs(310));
    }
    assert!(Instant::now() - began >= STALE);
}

/// The look was begun in time and answered soon, when nobody was there to hear it.
#[tokio::test(start_paused = true)]
async fn what_was_said_while_nobody_read_is_of_then() {
    let lines = futures_util::stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(b"{}\n"))));
    let body = StreamBody::new(lines).boxed_unsync();
    let looks = AtomicUsize::new(0);
    let look = move || {
        let at = looks.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let said = match at {
            0 | 1 => Look::May {
                again: now + TEN_SECONDS,
                at_last: now + STALE,
            },
            _ => Look::MayNot,
        };
        async move {
            if at == 1 {
                tokio::task::yield_now().await;
            }
            said
        }
    };
    let mut body = until(body, look, STALE);
    assert!(body.frame().await.is_some());
    advance(TEN_SECONDS).await;
    assert!(body.frame().await.is_some(), "it is asked");
    advance(Duration::from_secs(60)).await;
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_shown_before_a_look_that_comes_late() {
    for may in [true, false] {
        let lines =
            futures_util::stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(b"{}\n"))));
        let body = StreamBody::new(lines).boxed_unsync();
        let looks = AtomicUsize::new(0);
        let look = move || {
            let is_first = looks.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                if !is_first {
                    tokio::time::sleep(Duration::from_secs(3)).await;
                }
                let now = Instant::now();
                match is_first || may {
                    true => Look::May {
                        again: now + TEN_SECONDS,
                        at_last: now + STALE,
                    },
                    false => Look::MayNot,
                }
            }
        };
        let mut body = until(body, look, STALE);
        assert!(body.frame().await.is_some());
        // It reads again after a minute.
        advance(Duration::from_secs(60)).await;
        let began = Instant::now();
        assert_eq!(body.frame().await.is_some(), may);
        assert_eq!(began.elapsed(), Duration::from_secs(3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_comes_before_what_is_known_is_over() {
    let settings = AuthorizationSettings::default();
    let now = Instant::now();
    let seconds = |count: u64| now + Duration::from_secs(count);
    let may = |verdict, known: &Authenticated, settings| match found(verdict, known, settings) {
        // The clock of credentials is another one.
        Look::May { again, at_last } => {
            let whole = |at: Instant| (at - now).as_secs_f64().round() as u64;
            (whole(again), whole(at_last))
        }
        other => panic!("{other:?}"),
    };
    let until = |count| Verdict::Allowed {
        until: Some(seconds(count)),
    };
    assert_eq!(may(until(4), &known(), &settings), (4, 294));
    assert_eq!(
        may(Verdict::Allowed { until: None }, &known(), &settings),
        (10, 300)
    );
    let reviewed = Authenticated {
        known_until: Some(seconds(3)),
        ..known()
    };
    assert_eq!(may(until(4), &reviewed, &settings), (3, 294));
    let expiring = |at| Authenticated {
        expires: Some(at),
        ..known()
    };
    let soon = SystemTime::now() + Duration::from_secs(2);
    assert_eq!(may(until(4), &expiring(soon), &settings), (2, 2));
    // Who judges it may see that otherwise, or by another clock.
    let over = SystemTime::now() - Duration::from_secs(2);
    assert_eq!(may(until(4), &expiring(over), &settings), (4, 294));
    let never = SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX as u64);
    assert_eq!(may(until(4), &expiring(never), &settings), (4, 294));
    // However long an Allow counts, who asks for it is looked at.
    let long = AuthorizationSettings {
        allow_ttl: Duration::from_secs(3600),
        ..settings
    };
    assert_eq!(may(until(3600), &known(), &long), (10, 300));
    let short = AuthorizationSettings {
        allow_ttl: Duration::from_secs(1),
        ..settings
    };
    assert_eq!(
        may(Verdict::Allowed { until: None }, &known(), &short),
        (1, 300)
    );
}

/// What is in force, and a watch that Alice began with her token.
struct Watching {
    recheck: Arc<Recheck>,
    clusters: Clusters,
}

impl Watching {
    fn new(shows: impl FnOnce(&Clusters) -> Shows) -> Self {
        let clusters = Clusters::start(&["a"]);
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, "Bearer t".parse().unwrap());
        let recheck = Arc::new(Recheck {
            authentication: Arc::default(),
            limits: Arc::default(),
            credentials: KeptCredentials::of(&headers, None),
            shows: shows(&clusters),
        });
        let watching = Self { recheck, clusters };
        watching.settings(Identity::Impersonate, AuthorizationMode::AlwaysAllow);
        watching.tokens("t,alice,1\n");
        watching
    }

    fn of_cluster() -> Self {
        Self::new(|clusters| Shows::Memory(clusters.cache.get("a").unwrap(), Box::new(pod("x"))))
    }

    fn methods(&self, methods: Methods) {
        let authenticator = Authenticator::new(methods);
        let authentication = Authentication::new(authenticator, None);
        self.recheck
            .authentication
            .store(Some(Arc::new(authentication)));
    }

    fn tokens(&self, file: &str) {
        self.methods(Methods {
            token_file: Some(TokenFile::new(file.as_bytes()).unwrap()),
            ..Methods::default()
        });
    }

    fn settings(&self, identity: Identity, mode: AuthorizationMode) {
        let settings = ClusterSettings {
            request_timeout: Duration::from_secs(1),
            watch_disconnect_grace: Duration::ZERO,
            max_in_flight: 1,
            reads: Default::default(),
            identity,
            authorization: AuthorizationSettings {
                mode,
                ..AuthorizationSettings::default()
            },
        };
        self.recheck.limits.set([("a".to_owned(), settings)]);
    }

    async fn may(&self) -> bool {
        match self.recheck.look().await {
            Look::May { .. } => true,
            Look::MayNot => false,
            Look::Unknown => panic!("it is not known"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_credential_is_judged_by_what_is_in_force() {
    for watching in [
        Watching::of_cluster(),
        Watching::new(|clusters| live(clusters, Some(first_alice()))),
        Watching::new(|_| Shows::Fleet),
    ] {
        assert!(watching.may().await);
        watching.tokens("u,alice,1\n");
        assert!(!watching.may().await, "her token is gone from the file");
        watching.tokens("t,alice,1\n");
        assert!(watching.may().await);
        watching.methods(Methods::default());
        assert!(!watching.may().await, "there is no token file any more");
        // From now on nobody needs a credential.
        watching.recheck.authentication.store(None);
        let is_somebodys = matches!(watching.recheck.shows, Shows::Live { .. });
        assert_eq!(watching.may().await, !is_somebodys);
    }
}

fn first_alice() -> UserInfo {
    UserInfo {
        name: "alice".to_owned(),
        uid: "1".to_owned(),
        ..UserInfo::default()
    }
}

fn live(clusters: &Clusters, user: Option<UserInfo>) -> Shows {
    Shows::Live {
        cluster: clusters.cache.get("a").unwrap(),
        user: user.map(Arc::new),
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_watch_goes_on_as_nobody_else() {
    let watching = Watching::new(|clusters| live(clusters, Some(first_alice())));
    assert!(watching.may().await);
    watching.tokens("t,alice,2\n");
    assert!(!watching.may().await, "it is another alice");
    watching.tokens("t,bob,1\n");
    assert!(!watching.may().await);
    let named_by_the_cluster = UserInfo {
        named_by: Some("a".into()),
        ..first_alice()
    };
    let watching = Watching::new(|clusters| live(clusters, Some(named_by_the_cluster)));
    assert!(!watching.may().await, "her name is the token file's now");
}

#[tokio::test(start_paused = true)]
async fn a_live_watch_as_the_proxy_ends_where_there_are_users() {
    let watching = Watching::new(|clusters| live(clusters, None));
    watching.settings(Identity::Proxy, AuthorizationMode::AlwaysAllow);
    watching.recheck.authentication.store(None);
    assert!(watching.may().await);
    watching.methods(Methods {
        anonymous: true,
        ..Methods::default()
    });
    assert!(!watching.may().await, "with a credential nobody knows");
    watching.tokens("t,alice,1\n");
    assert!(!watching.may().await);
}

#[tokio::test(start_paused = true)]
async fn the_settings_are_those_in_force() {
    let watching = Watching::of_cluster();
    assert!(watching.may().await);
    // The cluster would have to be asked from now on, and is not connected.
    let asks = AuthorizationMode::SubjectAccessReview;
    watching.settings(Identity::Impersonate, asks);
    assert_eq!(watching.recheck.look().await, Look::Unknown);
    watching.settings(Identity::Token, AuthorizationMode::AlwaysAllow);
    assert!(watching.may().await);
    // A user without a token of her own is none of such a cluster.
    watching.methods(Methods {
        generated_token: Some("t".to_owned()),
        ..Methods::default()
    });
    assert!(!watching.may().await);
    watching.settings(Identity::Proxy, asks);
    assert!(watching.may().await);
    watching.recheck.limits.set([]);
    assert!(!watching.may().await, "the cluster is gone");
    drop(watching.clusters);
}

#[tokio::test(start_paused = true)]
async fn whoever_reads_of_the_fleet_no_more_watches_it_no_more() {
    let watching = Watching::new(|_| Shows::Fleet);
    let mut readers = crate::fleet_api::FleetReaders {
        users: ["alice".to_owned()].into(),
        groups: Default::default(),
    };
    watching.recheck.limits.set_fleet_readers(readers.clone());
    assert!(watching.may().await);
    readers.users.clear();
    watching.recheck.limits.set_fleet_readers(readers);
    assert!(!watching.may().await);
}

/// Says what it is told to say.
struct Judge(Arc<Mutex<Result<Option<TokenUser>, TokenError>>>);

impl ReviewTokens for Judge {
    fn review<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<TokenUser>, TokenError>> {
        Box::pin(std::future::ready(self.0.lock().clone()))
    }
}

#[tokio::test(start_paused = true)]
async fn that_nobody_can_judge_a_credential_takes_it_from_nobody() {
    let down = || {
        Err(TokenError::Unavailable(fleetcache_auth::Unavailable {
            judge: "a judge".to_owned(),
            why: "down".to_owned(),
        }))
    };
    let user = |expires| {
        let user = UserInfo {
            name: "alice".to_owned(),
            ..UserInfo::default()
        };
        Ok(Some(TokenUser {
            user,
            expires,
            known_until: None,
        }))
    };
    let soon = SystemTime::now() + Duration::from_secs(60);
    for (first, after, ended) in [
        // Who knew the token said how long it is good: first, as that is by another clock, which goes on.
        (user(Some(soon)), down(), Some(60)),
        (user(None), user(None), None),
        (user(None), Ok(None), Some(10)),
        (
            user(None),
            Err(TokenError::Invalid(FaultSort::Judged.because("no"))),
            Some(10),
        ),
        (user(None), down(), Some(300)),
    ] {
        let watching = Watching::of_cluster();
        let says = Arc::new(Mutex::new(first));
        watching.methods(Methods {
            token_review: Some(Arc::new(Judge(Arc::clone(&says)))),
            ..Methods::default()
        });
        let recheck = Arc::clone(&watching.recheck);
        let looks = AtomicUsize::new(0);
        let lasted = ends(|| {
            if looks.fetch_add(1, Ordering::Relaxed) == 1 {
                *says.lock() = after.clone();
            }
            let recheck = Arc::clone(&recheck);
            async move { recheck.look().await }
        });
        let lasted = lasted.await.map(|it| it.as_secs_f64().round() as u64);
        assert_eq!(lasted, ended, "{after:?}");
    }
}
