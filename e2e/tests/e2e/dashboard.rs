//! What it costs a cluster that a user whom nobody has seen yet opens a dashboard: lists and watches of thirty kinds in twenty
//! namespaces, from memory, each allowed by the cluster itself. Reviews are counted where they arrive.

use std::collections::BTreeSet;
use std::future::ready;

use fleetcache_e2e::client::{Answer, Client, Lines};
use fleetcache_e2e::control_plane::ControlPlane;
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::proxy::{self, Proxy};
use fleetcache_e2e::sim::{Rule, SimCluster, SimConfig};
use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};
use futures_util::stream;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use crate::pair::{Comparable, assert_same, connected, warm};

mod cluster;

use cluster::*;

/// All of them may be kept; those that are not by default are named. What was allowed stays so for longer than a test takes, so
/// that what is counted is what opening costs.
const CONFIG: &str = "\
apiVersion: fleetcache.dev/v1alpha1
kind: Configuration
resources:
- { group: '', resource: secrets, cache: onDemand }
- { group: '', resource: events, cache: onDemand }
- { group: coordination.k8s.io, resource: leases, cache: onDemand }
";

/// A proxy that knows the users by their tokens, and holds all kinds in memory.
struct Dashboard {
    proxy: Proxy,
    plane: &'static ControlPlane,
    _files: TempDir,
    /// What the cluster is asked, and what is in it, is one dashboard's business at a time.
    _alone: MutexGuard<'static, ()>,
}

impl Dashboard {
    async fn start(authorization: &str) -> Self {
        static ALONE: Mutex<()> = Mutex::const_new(());
        let alone = ALONE.lock().await;
        let plane = cluster().await;
        let files = tempfile::tempdir().unwrap();
        let tokens = files.path().join("tokens.csv");
        std::fs::write(&tokens, self::tokens()).unwrap();
        let users = format!("authentication: {{ tokenFile: {} }}\n", tokens.display());
        let authorization =
            format!("authorization: {{ allowTTL: 1h, denyTTL: 1h{authorization} }}\n");
        let proxy = Proxy::start(proxy::Options {
            kubeconfigs: vec![plane.kubeconfig()],
            config: Some(format!("{CONFIG}{users}{authorization}")),
            ..proxy::Options::default()
        });
        Self {
            proxy: proxy.await.unwrap(),
            plane,
            _files: files,
            _alone: alone,
        }
    }

    /// Connections of a user, one for each namespace. That they are open is no read of anything in memory.
    async fn clients(&self, user: &str, namespaces: usize) -> Vec<Client> {
        let mut clients = Vec::new();
        for _ in 0..namespaces {
            let client = Client::http2(&self.endpoint(user)).unwrap();
            connected(&client).await;
            clients.push(client);
        }
        clients
    }

    fn endpoint(&self, user: &str) -> Context {
        Context {
            credential: Credential::Token(format!("{user}s")),
            ..self.proxy.context(self.plane.name()).unwrap()
        }
    }

    /// Brings all kinds into memory, as somebody who may read them all.
    async fn warm(&self) {
        let client = Client::new(&self.endpoint("warmer")).unwrap();
        connected(&client).await;
        for path in paths(&namespace(0)) {
            warm(&client, &path).await;
        }
    }

    /// All lists, then all watches, of these namespaces; each namespace over a connection of its own, and so many at a time.
    async fn open(&self, user: &str, namespaces: usize, at_once: usize) -> Opened {
        let clients = self.clients(user, namespaces).await;
        let clients = &clients;
        let all = (0..namespaces)
            .flat_map(|at| paths(&namespace(at)).into_iter().map(move |it| (at, it)));
        let lists = all.clone().map(|(at, path)| async move {
            let answer = clients[at].get(&path).await.unwrap();
            (path, answer)
        });
        let watches = all.map(|(at, path)| async move {
            let lines = clients[at].lines(&format!("{path}?watch=1")).await;
            (path, lines)
        });
        let before = reviews(self.plane).await;
        let lists: Vec<_> = stream::iter(lists)
            .buffer_unordered(at_once)
            .collect()
            .await;
        let between = reviews(self.plane).await;
        let watches: Vec<_> = stream::iter(watches)
            .buffer_unordered(at_once)
            .collect()
            .await;
        let after = reviews(self.plane).await;
        let opened = Opened {
            reviews: [between - before, after - between],
            lists,
            watches,
        };
        let [of_lists, of_watches] = opened.reviews;
        let hits = opened.hits();
        println!(
            "{user}: {} lists, {} from memory, for {of_lists} reviews; {} watches, {} from memory, for {of_watches} reviews",
            opened.lists.len(),
            hits[0],
            opened.watches.len(),
            hits[1],
        );
        opened
    }
}

/// What came of it, by the path that was listed or watched.
struct Opened {
    /// What it cost: lists, then watches.
    reviews: [u64; 2],
    lists: Vec<(String, Answer)>,
    watches: Vec<(String, anyhow::Result<Lines>)>,
}

impl Opened {
    /// Answers from memory: lists, then watches.
    fn hits(&self) -> [usize; 2] {
        let lists = self.lists.iter().filter(|(_, answer)| answer.is_hit());
        let is_hit = |lines: &&(String, anyhow::Result<Lines>)| {
            let lines = lines.1.as_ref();
            lines.is_ok_and(|it| it.headers["cache-status"] == "fleetcache; hit")
        };
        [lists.count(), self.watches.iter().filter(is_hit).count()]
    }

    /// Fails unless everything is what the cluster itself says to this user.
    async fn assert_right(&self, user: &str) -> usize {
        let direct = direct(cluster().await, user);
        let mut refused = 0;
        let mut allowed = BTreeSet::new();
        for (path, answer) in &self.lists {
            let expected = direct.get(path).await.unwrap();
            assert_same(
                path,
                &Comparable::from(&expected),
                &Comparable::from(answer),
            );
            if answer.status == 200 {
                allowed.insert(path);
            } else {
                refused += 1;
            }
        }
        for (path, lines) in &self.watches {
            assert_eq!(lines.is_ok(), allowed.contains(path), "{path}: {lines:?}");
        }
        refused
    }
}

#[tokio::test]
async fn who_may_read_all_costs_one_review_for_each_kind_and_verb() {
    let plane = cluster().await;
    let dashboard = Dashboard::start("").await;
    dashboard.warm().await;
    grant(plane, "everywhere", None).await;
    let opened = dashboard.open("everywhere", NAMESPACES, 600).await;
    assert_eq!(opened.hits(), [600, 600]);
    assert_eq!(opened.reviews, [30, 30]);
    assert_eq!(opened.assert_right("everywhere").await, 0);
    drop(opened);
    // As long as that counts, it is open at no cost.
    let again = dashboard.open("everywhere", NAMESPACES, 600).await;
    assert_eq!(again.hits(), [600, 600]);
    assert_eq!(again.reviews, [0, 0]);
    drop(again);

    // Lists and watches together.
    grant(plane, "crowd", None).await;
    let before = reviews(plane).await;
    let clients = dashboard.clients("crowd", NAMESPACES).await;
    let all = clients.iter().enumerate().map(|(at, client)| async move {
        let paths = paths(&namespace(at));
        let lists = join_all(paths.iter().map(|path| client.get(path)));
        let watches: Vec<_> = paths.iter().map(|path| format!("{path}?watch=1")).collect();
        let watches = join_all(watches.iter().map(|path| client.lines(path)));
        let (lists, watches) = join(lists, watches).await;
        assert!(lists.iter().all(|it| it.as_ref().unwrap().status == 200));
        assert!(watches.iter().all(Result::is_ok));
    });
    join_all(all).await;
    let asked = reviews(plane).await - before;
    assert!((1..=60).contains(&asked), "{asked}");
}

#[tokio::test]
async fn who_may_read_some_namespaces_costs_one_more_for_each_of_them() {
    let plane = cluster().await;
    let dashboard = Dashboard::start("").await;
    dashboard.warm().await;
    for at in 0..NAMESPACES {
        grant(plane, "narrow", Some(&namespace(at))).await;
    }
    let opened = dashboard.open("narrow", NAMESPACES, 10).await;
    assert_eq!(opened.hits(), [600, 600]);
    assert_eq!(opened.reviews, [630, 630]);
    drop(opened);

    // One namespace, and another that is none of this user's business.
    grant(plane, "one", Some(&namespace(0))).await;
    let opened = dashboard.open("one", 2, 10).await;
    assert_eq!(opened.hits(), [30, 30]);
    assert_eq!(opened.assert_right("one").await, 30);
    // All namespaces, this one, that one; who is refused is refused by the cluster.
    assert_eq!(opened.reviews, [90, 90]);
}

#[tokio::test]
async fn more_questions_than_may_be_asked_at_once_wait_their_turn() {
    let plane = cluster().await;
    let dashboard = Dashboard::start("").await;
    dashboard.warm().await;
    for at in 0..NAMESPACES {
        grant(plane, "narrow-crowd", Some(&namespace(at))).await;
    }
    let opened = dashboard.open("narrow-crowd", NAMESPACES, 600).await;
    assert_eq!(opened.hits(), [600, 600]);
    assert_eq!(opened.reviews, [630, 630]);
    assert_eq!(opened.assert_right("narrow-crowd").await, 0);
}

#[tokio::test]
async fn without_broad_questions_each_question_is_asked_and_answered() {
    let plane = cluster().await;
    let dashboard = Dashboard::start(", broadQuestions: false").await;
    dashboard.warm().await;
    for at in 0..2 {
        grant(plane, "exact", Some(&namespace(at))).await;
    }
    let opened = dashboard.open("exact", 4, 10).await;
    assert_eq!(opened.hits(), [60, 60]);
    assert_eq!(opened.reviews, [120, 120]);
    assert_eq!(opened.assert_right("exact").await, 60);
}

#[tokio::test]
async fn five_thousand_names_cost_one_review() {
    const OBJECTS: usize = 5000;
    let sim = SimCluster::start(SimConfig::new("sim")).await.unwrap();
    sim.accept_user("everywheres", "everywhere");
    let rule = Rule::new(&["get", "list"], &["configmaps"]);
    sim.restrict("everywhere", vec![rule]);
    for n in 0..OBJECTS {
        let metadata = json!({"name": format!("c{n}"), "namespace": "default"});
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata});
        sim.store().create("configmaps", object).unwrap();
    }
    let files = tempfile::tempdir().unwrap();
    let (kubeconfig, users) = (
        files.path().join("kubeconfig"),
        files.path().join("tokens.csv"),
    );
    std::fs::write(&kubeconfig, sim.kubeconfig()).unwrap();
    std::fs::write(&users, tokens()).unwrap();
    for (broad, expected) in [(true, 1), (false, OBJECTS as u64)] {
        let users = format!("authentication: {{ tokenFile: {} }}\n", users.display());
        let authorization = format!("authorization: {{ allowTTL: 1h, broadQuestions: {broad} }}\n");
        let proxy = Proxy::start(proxy::Options {
            kubeconfigs: vec![kubeconfig.clone()],
            config: Some(format!("{CONFIG}{users}{authorization}")),
            ..proxy::Options::default()
        });
        let proxy = proxy.await.unwrap();
        let mut endpoint = proxy.context("sim").unwrap();
        let as_user = |endpoint: &mut Context, user: &str| {
            endpoint.credential = Credential::Token(format!("{user}s"));
            Client::http2(endpoint).unwrap()
        };
        let (user, warmer) = (
            as_user(&mut endpoint, "everywhere"),
            as_user(&mut endpoint, "warmer"),
        );
        connected(&warmer).await;
        warm(&warmer, "/api/v1/namespaces/default/configmaps").await;
        let asked = || {
            sim.counts().requests(
                "other",
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            )
        };
        let before = asked();
        let user = &user;
        let gets = (0..OBJECTS).map(|n| async move {
            let path = format!("/api/v1/namespaces/default/configmaps/c{n}");
            user.get(&path).await.unwrap().is_hit()
        });
        let hits = stream::iter(gets)
            .buffer_unordered(50)
            .filter(|&hit| ready(hit));
        assert_eq!(hits.count().await, OBJECTS);
        assert_eq!(asked() - before, expected, "broadQuestions: {broad}");
    }
}
