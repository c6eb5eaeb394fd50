//! Decisions over a cluster that counts what it is asked, on paused time.

use fleetcache_auth::{NonResourceAttributes, ResourceAttributes};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::advance;

use super::testing::{Cluster, Clusters, Says, alice, cluster_wide, get, pod, user};
use super::*;

mod line;

const TEN_SECONDS: Duration = Duration::from_secs(10);

impl Access {
    /// The same cluster, asked by somebody else.
    fn by(&self, user: UserInfo) -> Self {
        let subject = Subject::User(Arc::new(user));
        Self {
            subject,
            ..self.clone()
        }
    }

    async fn ask_it(&self, cluster: &Arc<Cluster>, question: &Question) -> Verdict {
        self.verdict(cluster, || question.clone()).await
    }

    async fn allows(&self, cluster: &Arc<Cluster>, question: &Question) -> bool {
        matches!(
            self.ask_it(cluster, question).await,
            Verdict::Allowed { .. }
        )
    }
}

/// Polls it until it waits for somebody else.
async fn begin<T>(future: &mut (impl Future<Output = T> + Unpin)) {
    for _ in 0..10 {
        assert!(future.now_or_never().is_none());
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_read_all_is_asked_about_once_a_kind() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let access = clusters.access("a", &alice());
    for at in 0..5000 {
        let question = get("pods", &format!("n{}", at % 7), &format!("p{at}"));
        assert!(access.allows(&cluster, &question).await);
    }
    assert_eq!(cluster.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn thirty_kinds_in_twenty_namespaces_are_thirty_questions() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let access = clusters.access("a", &alice());
    for kind in 0..30 {
        for namespace in 0..20 {
            let question = get(&format!("k{kind}"), &format!("n{namespace}"), "x");
            assert!(access.allows(&cluster, &question).await);
        }
    }
    assert_eq!(cluster.asked(), 30);
}

#[tokio::test(start_paused = true)]
async fn equal_questions_at_once_are_one() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let access = clusters.access("a", &alice());
    cluster.hold();
    let question = pod("x");
    let mut many: Vec<_> = (0..100)
        .map(|_| Box::pin(access.ask_it(&cluster, &question)))
        .collect();
    for one in &mut many {
        begin(one).await;
    }
    let began = Instant::now();
    advance(Duration::from_secs(3)).await;
    cluster.let_answer();
    let verdicts = join_all(many).await;
    // It counts from when it was asked, for all of them.
    let until = Some(began + TEN_SECONDS);
    assert!(
        verdicts.iter().all(|it| *it == Verdict::Allowed { until }),
        "{verdicts:?}"
    );
    assert_eq!(cluster.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_allow_counts_for_its_time_and_not_longer() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let access = clusters.access("a", &alice());
    assert!(access.allows(&cluster, &pod("x")).await);
    cluster.now(|_| Says::Deny);
    advance(TEN_SECONDS - Duration::from_millis(1)).await;
    assert!(access.allows(&cluster, &pod("x")).await);
    assert_eq!(cluster.asked(), 1);
    advance(Duration::from_millis(1)).await;
    assert_eq!(access.ask_it(&cluster, &pod("x")).await, Verdict::Denied);
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_asked_again_and_counts_as_before() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let access = clusters.access("a", &alice());
    assert!(access.allows(&cluster, &pod("x")).await);
    access.decisions.forget();
    assert!(!access.was_allowed(1, || pod("x")));
    let until = Some(Instant::now() + TEN_SECONDS);
    let verdict = access.ask_it(&cluster, &pod("x")).await;
    assert_eq!(verdict, Verdict::Allowed { until });
    assert_eq!(cluster.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_deny_is_known_for_its_time() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(|_| Says::Deny));
    let access = clusters.access("a", &alice());
    for _ in 0..3 {
        assert_eq!(access.ask_it(&cluster, &pod("x")).await, Verdict::Denied);
        // In all namespaces, in this one, and this one pod.
        assert_eq!(cluster.asked(), 3);
    }
    cluster.now(cluster_wide);
    advance(TEN_SECONDS).await;
    assert!(access.allows(&cluster, &pod("x")).await);
}

/// A change of roles meanwhile does not end it, which else would be a way to have it unanswered.
#[tokio::test(start_paused = true)]
async fn what_is_asked_of_now_is_answered_of_now_and_kept_for_nobody() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(|_| Says::Deny));
    let access = clusters.access("a", &alice());
    let question = pod("x");
    assert_eq!(access.ask_it(&cluster, &question).await, Verdict::Denied);
    assert!(access.is_denied(&cluster, &question).await);
    assert_eq!(cluster.asked(), 4);
    cluster.now(|_| Says::Allow);
    assert!(!access.is_denied(&cluster, &question).await);
    assert_eq!(
        access.ask_it(&cluster, &question).await,
        Verdict::Denied,
        "known"
    );
    cluster.now(|_| Says::Deny);
    cluster.hold();
    let mut asking = Box::pin(access.is_denied(&cluster, &question));
    begin(&mut asking).await;
    access.decisions.flush();
    cluster.let_answer();
    assert!(asking.await);
    for says in [Says::Breaks, Says::Status(429), Says::Status(403)] {
        cluster.now(move |_| says);
        cluster.let_answer();
        assert!(!access.is_denied(&cluster, &question).await);
    }
}

#[tokio::test(start_paused = true)]
async fn questions_that_differ_in_anything_do_not_answer_each_other() {
    let clusters = Clusters::start(&["x", "y"]);
    let x = clusters.access("x", &alice());
    let y = Access {
        cluster: clusters.cache.get("y").unwrap(),
        ..x.clone()
    };
    // Exactly one user may do exactly one thing.
    let allowed = Cluster::that(|spec| {
        let pod = json!({"namespace": "default", "verb": "get", "version": "v1", "resource": "pods", "name": "x"});
        let is_it = spec["resourceAttributes"] == pod
            && spec["user"] == "alice"
            && spec["groups"] == json!(["system:authenticated"]);
        if is_it { Says::Allow } else { Says::Deny }
    });
    assert!(x.allows(&allowed, &pod("x")).await);
    let asked = allowed.asked();
    for other in [
        get("configmaps", "default", "x"),
        get("pods", "x", "default"),
        get("pods", "", "x"),
        get("pods", "default", ""),
        pod("y"),
        Question::Resource(ResourceAttributes {
            subresource: "log".to_owned(),
            ..attributes(pod("x"))
        }),
        Question::Resource(ResourceAttributes {
            group: "x".to_owned(),
            ..attributes(pod("x"))
        }),
        Question::Resource(ResourceAttributes {
            verb: "list",
            ..attributes(pod("x"))
        }),
        Question::NonResource(NonResourceAttributes {
            verb: "get",
            path: "/version".to_owned(),
        }),
    ] {
        assert!(!x.allows(&allowed, &other).await, "{other:?}");
    }
    assert!(allowed.asked() > asked);
    for other in [
        user("bob", &["system:authenticated"]),
        user("alice", &["system:authenticated", ""]),
        user("alice", &["system:authenticated,"]),
        user("alice", &[]),
        UserInfo {
            uid: "1".to_owned(),
            ..user("alice", &["a,b"])
        },
    ] {
        assert!(
            !x.by(other.clone()).allows(&allowed, &pod("x")).await,
            "{other:?}"
        );
        assert!(!x.by(other).was_allowed(1, || pod("x")));
    }
    assert!(x.was_allowed(1, || pod("x")));
    // The other cluster says no, and so does the one that was here in another epoch.
    let no = Cluster::that(|_| Says::Deny);
    assert!(!y.allows(&no, &pod("x")).await);
    assert!(!y.was_allowed(1, || pod("x")));
    let rebuilt = Cluster::of_epoch(2, |_| Says::Deny);
    assert!(!x.allows(&rebuilt, &pod("x")).await);
    assert!(!x.was_allowed(2, || pod("x")));
    assert!(x.allows(&allowed, &pod("x")).await);
}

fn attributes(question: Question) -> ResourceAttributes {
    match question {
        Question::Resource(attributes) => attributes,
        Question::NonResource(_) => panic!("no resource"),
    }
}

#[tokio::test(start_paused = true)]
async fn groups_with_commas_stay_what_they_are() {
    let clusters = Clusters::start(&["a"]);
    let one = clusters.access("a", &user("u", &["a,b"]));
    let two = one.by(user("u", &["a", "b"]));
    let cluster = Cluster::that(|spec| match spec["groups"] == json!(["a,b"]) {
        true => Says::Allow,
        false => Says::Deny,
    });
    for _ in 0..2 {
        assert!(one.allows(&cluster, &pod("x")).await);
        assert!(!two.allows(&cluster, &pod("x")).await);
    }
}

#[tokio::test(start_paused = true)]
async fn without_broad_questions_only_the_exact_one_is_asked() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let mut access = clusters.access("a", &alice());
    access.settings.broad_questions = false;
    assert_eq!(access.ask_it(&cluster, &pod("x")).await, Verdict::Denied);
    assert_eq!(cluster.asked(), 1);
    // Nor does a broad Allow answer it that is known already.
    assert!(access.allows(&cluster, &get("pods", "", "")).await);
    assert_eq!(access.ask_it(&cluster, &pod("x")).await, Verdict::Denied);
    assert_eq!(cluster.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_answer_is_never_an_allow_and_is_asked_again() {
    let clusters = Clusters::start(&["a"]);
    for says in [
        Says::Status(500),
        Says::Status(401),
        Says::Status(429),
        Says::Status(404),
        Says::Body("{}"),
        Says::Body(r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview"}"#),
        Says::Body(
            r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":"true"}}"#,
        ),
        Says::Body(
            r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":{"allowed":true,"denied":true}}"#,
        ),
        Says::Breaks,
        Says::Nothing,
    ] {
        let access = clusters.access("a", &alice());
        let cluster = Cluster::that(move |_| says);
        for asked in 1..3 {
            assert_eq!(
                access.ask_it(&cluster, &pod("x")).await,
                Verdict::Unknown,
                "{says:?}"
            );
            assert_eq!(cluster.asked(), asked, "{says:?}");
            assert!(!access.was_allowed(1, || pod("x")), "{says:?}");
        }
        cluster.now(cluster_wide);
        assert!(access.allows(&cluster, &pod("x")).await, "{says:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_cluster_that_is_lost_waits_no_longer() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(|_| Says::Nothing));
    let access = clusters.access("a", &alice());
    let question = pod("x");
    let mut asking = Box::pin(access.ask_it(&cluster, &question));
    begin(&mut asking).await;
    let began = Instant::now();
    cluster.lost.cancel();
    assert_eq!(asking.await, Verdict::Unknown);
    assert_eq!(Instant::now(), began);
}

#[tokio::test(start_paused = true)]
async fn the_last_allow_counts_while_nobody_can_be_asked() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let access = clusters.access("a", &alice());
    assert!(!access.was_allowed(1, || pod("x")), "nothing new");
    assert!(access.allows(&cluster, &pod("x")).await);
    advance(Duration::from_secs(299)).await;
    // By the same broad Allow.
    assert!(access.was_allowed(1, || pod("y")));
    assert!(!access.was_allowed(1, || get("secrets", "default", "y")));
    advance(Duration::from_secs(1)).await;
    assert!(!access.was_allowed(1, || pod("y")));
    assert_eq!(cluster.asked(), 1);
    assert!(access.allows(&cluster, &pod("x")).await);
    // A Deny takes it back.
    cluster.now(|_| Says::Deny);
    advance(TEN_SECONDS).await;
    assert!(!access.allows(&cluster, &pod("x")).await);
    assert!(!access.was_allowed(1, || pod("x")));
}

#[tokio::test(start_paused = true)]
async fn what_the_cluster_answers_the_user_itself_counts_too() {
    let clusters = Clusters::start(&["a"]);
    let access = clusters.access("a", &alice());
    let version = || {
        Question::NonResource(NonResourceAttributes {
            verb: "get",
            path: "/version".to_owned(),
        })
    };
    for (code, allowed) in [
        (500, false),
        (200, true),
        (503, true),
        (403, false),
        (304, true),
        (401, false),
    ] {
        let asks = access.asks(1, version);
        asks.answered(StatusCode::from_u16(code).unwrap());
        assert_eq!(access.was_allowed(1, version), allowed, "{code}");
    }
    // Asked before roles changed, it says nothing of what is so now.
    let asks = access.asks(1, version);
    access.decisions.flush();
    asks.answered(StatusCode::OK);
    assert!(!access.was_allowed(1, version));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_roles_ends_what_was_known_and_what_was_asked() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let access = clusters.access("a", &alice());
    assert!(access.allows(&cluster, &pod("x")).await);
    cluster.hold();
    let other = get("secrets", "default", "x");
    let mut asking = Box::pin(access.ask_it(&cluster, &other));
    begin(&mut asking).await;
    cluster.now(|_| Says::Deny);
    access.decisions.flush();
    // The cluster has found an Allow, of before.
    cluster.let_answer();
    assert_eq!(asking.await, Verdict::Unknown);
    for question in [&other, &pod("x")] {
        assert!(!access.was_allowed(1, || question.clone()), "{question:?}");
    }
    for _ in 0..6 {
        cluster.let_answer();
    }
    for question in [&other, &pod("x")] {
        assert_eq!(access.ask_it(&cluster, question).await, Verdict::Denied);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_cluster_says_right_after_a_change_of_roles_counts_for_a_moment() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let access = clusters.access("a", &alice());
    access.decisions.flush();
    // Its authorizer has not heard of it yet.
    assert!(access.allows(&cluster, &pod("x")).await);
    assert!(
        !access.was_allowed(1, || pod("x")),
        "it would count for minutes"
    );
    cluster.now(|_| Says::Deny);
    advance(Duration::from_millis(250)).await;
    assert_eq!(access.ask_it(&cluster, &pod("x")).await, Verdict::Denied);
    cluster.now(cluster_wide);
    advance(Duration::from_secs(2)).await;
    let until = Some(Instant::now() + TEN_SECONDS);
    assert_eq!(
        access.ask_it(&cluster, &pod("x")).await,
        Verdict::Allowed { until }
    );
    assert!(access.was_allowed(1, || pod("x")));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_asked_where_all_is_allowed_or_there_is_no_user() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(|_| Says::Deny));
    let access = clusters.access("a", &alice());
    let mut open = access.clone();
    open.settings.mode = AuthorizationMode::AlwaysAllow;
    let proxy = Access {
        subject: Subject::Nobody,
        ..access
    };
    for access in [open, proxy] {
        let verdict = access.ask_it(&cluster, &pod("x")).await;
        assert_eq!(verdict, Verdict::Allowed { until: None });
        assert!(access.was_allowed(1, || pod("x")));
    }
    assert_eq!(cluster.asked(), 0);
}
