//! Where clusters are asked about tokens, tokens that nobody knows let a TokenReview reach one, made by the proxy itself;
//! that is all that does, once for a token and a while, and few at once.

use anyhow::ensure;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use futures_util::future::join_all;

use super::*;

const TOKEN_REVIEWS: (&str, &str) = ("other", "/apis/authentication.k8s.io/v1/tokenreviews");
const CONNECTION: &str = "/apis/fleetcache.dev/v1alpha1/clusterconnections/sim";
const DOCUMENT: (&str, &str) = ("other", "/.well-known/openid-configuration");

struct Reviewed {
    proxy: Proxy,
    sim: SimCluster,
    _files: TempDir,
}

impl Reviewed {
    async fn start(review: &str) -> Self {
        let sim = SimCluster::start(SimConfig::new("sim")).await.unwrap();
        sim.accept_user("alices", "alice");
        let files = tempfile::tempdir().unwrap();
        let kubeconfig = files.path().join("kubeconfig");
        // Where nobody listens.
        let away = Context {
            name: "away".to_owned(),
            server: "https://127.0.0.1:1".to_owned(),
            ..sim.context()
        };
        kubeconfig::write(&kubeconfig, &[sim.context(), away]).unwrap();
        let tokens = files.path().join("tokens.csv");
        std::fs::write(&tokens, "bobs,bob,1\n").unwrap();
        let proxy = Proxy::start(Options {
            kubeconfigs: vec![kubeconfig],
            config: Some(format!(
                "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n\
                 authentication: {{ tokenFile: {}, tokenReview: {{ {review} }} }}\n",
                tokens.display()
            )),
            ..Options::default()
        });
        let proxy = proxy.await.unwrap();
        let bob = Context {
            credential: Credential::Token("bobs".to_owned()),
            ..proxy.context("sim").unwrap()
        };
        connected(&Client::new(&bob).unwrap()).await;
        warm(&Client::new(&bob).unwrap(), CONFIGMAPS).await;
        Self {
            proxy,
            sim,
            _files: files,
        }
    }

    fn clients(&self) -> [Client; 2] {
        both(&self.proxy.context("sim").unwrap())
    }

    /// What came that had not come before.
    fn since(&self, before: &BTreeMap<(String, String), u64>) -> BTreeMap<(String, String), u64> {
        let mut now = reached(&self.sim);
        now.retain(|what, count| {
            *count -= before.get(what).copied().unwrap_or_default();
            *count > 0
        });
        now
    }
}

fn counted(what: (&str, &str), count: u64) -> BTreeMap<(String, String), u64> {
    BTreeMap::from([((what.0.to_owned(), what.1.to_owned()), count)])
}

fn bearer(token: &str) -> Shown {
    Shown {
        what: "a token",
        authorization: vec![format!("Bearer {token}")],
        is_none: false,
    }
}

fn jwt(claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.c2ln", part(&json!({"alg": "RS256"})), part(claims))
}

#[tokio::test]
async fn of_all_that_nobody_sends_a_token_review_alone_reaches_the_cluster() {
    let reviewed = Reviewed::start("cluster: sim").await;
    let clients = reviewed.clients();
    let requests = [&REQUESTS[..], &UPGRADES].concat();
    let none = |what, words: &[&str]| Shown {
        what,
        authorization: words.iter().map(|&it| it.to_owned()).collect(),
        is_none: true,
    };
    let before = reached(&reviewed.sim);
    for shown in [
        none("absent", &[]),
        none("empty", &[""]),
        none("Bearer alone", &["Bearer"]),
        none("Basic", &["Basic YWxpY2U6dA=="]),
        none("two", &["Bearer alices", "Bearer alices"]),
    ] {
        for (what, answer) in answers(&clients, &requests, &shown).await {
            assert_eq!(answer.status, 401, "{what}");
        }
    }
    assert_eq!(reviewed.since(&before), BTreeMap::new());
    // Some sixty requests, at once, and of the fleet as well.
    let strangers = bearer("strangers");
    let root = both(&reviewed.proxy.root().unwrap());
    let (of_cluster, of_fleet) = tokio::join!(
        answers(&clients, &requests, &strangers),
        answers(&root, &AT_THE_ROOT, &strangers)
    );
    for (what, answer) in of_cluster.iter().chain(&of_fleet) {
        assert_eq!(answer.status, 401, "{what}");
    }
    let came = reviewed.since(&before);
    // Once in ten seconds, on a machine that may be slow.
    let reviews = came.get(&(TOKEN_REVIEWS.0.to_owned(), TOKEN_REVIEWS.1.to_owned()));
    assert!(
        reviews.is_some_and(|count| (1..4).contains(count)),
        "{came:?}"
    );
    assert_eq!(came.len(), 1, "{came:?}");
    // Why is told to whoever reads the log, and not for each of them.
    let log = reviewed.proxy.log();
    let lines = log.matches("client's credential refused").count();
    assert!((1..10).contains(&lines), "{log}");
    assert!(!log.contains("strangers"), "{log}");
}

#[tokio::test]
async fn a_flood_of_tokens_is_judged_by_few_at_once() {
    let reviewed = Reviewed::start("cluster: sim").await;
    let clients = reviewed.clients();
    let before = reached(&reviewed.sim);
    // None is answered while they come.
    let slow = fleetcache_e2e::sim::Fault::Slow(Duration::from_secs(2));
    reviewed.sim.fault(slow);
    let asked: Vec<_> = (0..200).map(|at| bearer(&format!("t{at}"))).collect();
    let list = [get(CONFIGMAPS)];
    let told = join_all(asked.iter().map(|shown| answers(&clients, &list, shown))).await;
    reviewed.sim.heal().unwrap();
    let told: Vec<_> = told.into_iter().flatten().collect();
    let count = |code: u16| {
        told.iter()
            .filter(|(_, answer)| answer.status == code)
            .count() as u64
    };
    let (refused, unavailable) = (count(401), count(503));
    assert_eq!(refused + unavailable, 400);
    let told_why = told.iter().find(|(_, answer)| answer.status == 503);
    let message = told_why.unwrap().1.json().unwrap()["message"].clone();
    let expected = "the credential cannot be checked now, since the cluster of authentication.tokenReview cannot be asked about it";
    assert_eq!(message, expected);
    let log = reviewed.proxy.log();
    let mut lines = log.lines();
    let line = lines.find(|line| line.contains("client's credential not checked"));
    // Which it is, strangers do not learn, and operators do.
    assert!(
        line.is_some_and(|line| line.contains("cluster \\\"sim\\\"")),
        "{log}"
    );
    let came = reviewed.since(&before);
    let reviews = came.values().sum::<u64>();
    assert_eq!(came, counted(TOKEN_REVIEWS, reviews));
    // One that was not judged is asked about again, for whoever sends it again.
    assert!(unavailable > 0 && reviews < 400, "{unavailable} {came:?}");
    println!("{reviews} reviews, {refused} refused, {unavailable} not judged");
}

#[tokio::test]
async fn a_proxy_that_may_not_ask_about_tokens_says_what_it_needs() {
    let reviewed = Reviewed::start("cluster: sim").await;
    let clients = reviewed.clients();
    let reviews = vec![TOKEN_REVIEWS.1.to_owned()];
    let forbidden = fleetcache_e2e::sim::Fault::Forbidden(reviews);
    reviewed.sim.fault(forbidden);
    for token in ["one", "two"] {
        let list = [get(CONFIGMAPS)];
        for (what, answer) in answers(&clients, &list, &bearer(token)).await {
            assert_eq!(answer.status, 503, "{what}");
        }
    }
    let log = reviewed.proxy.log();
    assert_eq!(log.matches("`fleetcache rbac --token-review`").count(), 1);
    let bob = Context {
        credential: Credential::Token("bobs".to_owned()),
        ..reviewed.proxy.root().unwrap()
    };
    let bob = Client::new(&bob).unwrap();
    let condition = async |expected: &str| {
        wait_for("the condition", PATIENCE, async || {
            let told = bob.get(CONNECTION).await?.ok()?.json()?["status"].take();
            let conditions = told["conditions"].as_array().cloned().unwrap_or_default();
            let mut conditions = conditions.iter();
            let reviews = conditions.find(|it| it["type"] == "TokenReviews");
            let status = reviews.map_or(&Value::Null, |it| &it["status"]);
            ensure!(status == expected, "{told}");
            Ok(told["reason"].clone())
        })
        .await
        .unwrap()
    };
    assert_eq!(condition("False").await, "TokenReviewsForbidden");
    let metrics = reviewed.proxy.metrics().unwrap();
    let labels = [("state", "Connected"), ("reason", "TokenReviewsForbidden")];
    assert_eq!(metrics.sum("fleetcache_clusters", &labels), Some(1.0));
    // Whoever comes next finds that it may.
    reviewed.sim.heal().unwrap();
    for (what, answer) in answers(&clients, &[get(CONFIGMAPS)], &bearer("alices")).await {
        assert_eq!(answer.status, 200, "{what}");
    }
    assert_eq!(condition("True").await, Value::Null);
    let log = reviewed.proxy.log();
    assert_eq!(log.matches("may create tokenreviews again").count(), 1);
}

#[tokio::test]
async fn a_token_is_shown_to_no_cluster_that_has_not_issued_it() {
    let reviewed = Reviewed::start("targetCluster: true").await;
    let clients = reviewed.clients();
    let requests = [&REQUESTS[..], &UPGRADES].concat();
    let before = reached(&reviewed.sim);
    for token in [
        "strangers".to_owned(),
        jwt(&json!({"iss": "https://issuer.example", "sub": "alice"})),
    ] {
        for (what, answer) in answers(&clients, &requests, &bearer(&token)).await {
            assert_eq!(answer.status, 401, "{what}");
        }
        let root = both(&reviewed.proxy.root().unwrap());
        for (what, answer) in answers(&root, &AT_THE_ROOT, &bearer(&token)).await {
            assert_eq!(answer.status, 401, "{what}");
        }
    }
    // Who it is as an issuer, asked once.
    assert_eq!(reviewed.since(&before), counted(DOCUMENT, 1));
}

#[tokio::test]
async fn a_token_tells_no_stranger_which_clusters_there_are() {
    let reviewed = Reviewed::start("targetCluster: true").await;
    let issuer = "https://kubernetes.default.svc.cluster.local";
    let made_up = jwt(&json!({"iss": issuer, "sub": "system:serviceaccount:default:app"}));
    let of_cluster = "another https://issuer.example";
    for token in [
        "opaque".to_owned(),
        made_up,
        jwt(&json!({"iss": of_cluster})),
    ] {
        let mut told = Vec::new();
        // One line a minute: the first is of the cluster that is away.
        for cluster in ["away", "sim", "none"] {
            let sim = reviewed.proxy.context("sim").unwrap();
            let server = sim
                .server
                .replace("/clusters/sim", &format!("/clusters/{cluster}"));
            let clients = both(&Context { server, ..sim });
            let answers = answers(&clients, &REQUESTS, &bearer(&token)).await;
            let answers = answers.iter().map(|(_, it)| (it.status, it.text()));
            told.push(answers.collect::<Vec<_>>());
        }
        assert!(told[0].iter().all(|(status, _)| *status == 401), "{told:?}");
        assert!(told[0] == told[1] && told[1] == told[2], "{told:?}");
    }
    // Whoever reads the log is told who might know the token.
    let log = reviewed.proxy.log();
    let may_be = "whether it is cluster \\\"away\\\"'s own is not known";
    assert!(log.contains(may_be), "{log}");
    assert!(!log.contains("\\\"none\\\"'s own"), "{log}");
}
