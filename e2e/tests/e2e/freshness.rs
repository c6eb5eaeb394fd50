//! How new a read is: what `Cache-Control` and the configuration ask for is what the client gets, and memory is used where
//! it may be.

mod configured;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::{self, ControlPlane, Server};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::sim::{Fault, SimCluster, SimConfig};
use serde_json::{Value, json};

use crate::fleet::{CONFIGMAPS, configmap};
use crate::pair::{connected, warm};
use crate::reload::fleetcache;

const NO_CACHE: &[(&str, &str)] = &[("cache-control", "no-cache")];
/// Less than the minute after which a bookmark would do it.
const SOONER: Duration = Duration::from_secs(45);

const PODS: &str = "/api/v1/namespaces/default/pods";

/// How often a consistent read is tried. `FLEETCACHE_E2E_ROUNDS` makes it more for a night, or fewer for a look.
fn rounds() -> usize {
    std::env::var("FLEETCACHE_E2E_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(1000)
}

/// A proxy with these lines of configuration in front of one kubeconfig.
async fn proxy(kubeconfig: &std::path::Path, config: &str) -> Proxy {
    let head = "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n";
    Proxy::start(Options {
        kubeconfigs: vec![kubeconfig.to_owned()],
        config: Some(format!("{head}{config}\n")),
        ..Options::default()
    })
    .await
    .unwrap()
}

/// A cluster of its own, in which nothing happens but what the test does.
struct Real {
    direct: Client,
    proxied: Client,
    _proxy: Proxy,
    cluster: ControlPlane,
}

impl Real {
    async fn start(config: &str) -> Self {
        let options = control_plane::Options::named("fresh");
        let cluster = ControlPlane::start(options).await.unwrap();
        let proxy = proxy(&cluster.proxy_kubeconfig(), config).await;
        let proxied = proxy.client(cluster.name()).unwrap();
        connected(&proxied).await;
        Self {
            direct: cluster.client().unwrap(),
            proxied,
            _proxy: proxy,
            cluster,
        }
    }
}

/// A simulated cluster that sends no bookmark by itself.
struct Sim {
    cluster: SimCluster,
    proxied: Client,
    _proxy: Proxy,
}

impl Sim {
    async fn start(config: &str) -> Self {
        let cluster = SimCluster::start(SimConfig {
            bookmark_interval: Duration::from_secs(3600),
            ..SimConfig::new("sim")
        })
        .await
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.kubeconfig()).unwrap();
        let sim = Self {
            proxied: Client::new(&cluster.context()).unwrap(),
            _proxy: proxy(&kubeconfig, config).await.keeping(dir),
            cluster,
        };
        let proxied = sim._proxy.client(sim.cluster.name()).unwrap();
        connected(&proxied).await;
        sim.create("configmaps", "kept");
        Self { proxied, ..sim }
    }

    fn create(&self, plural: &str, name: &str) {
        let object = json!({"metadata": {"name": name, "namespace": "default"}});
        self.cluster.store().create(plural, object).unwrap();
    }

    /// Moves the cluster's newest version, so that the ConfigMaps' informer is behind it without an event of its own.
    fn move_on(&self) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        self.create("services", &format!("s{number}"));
    }

    fn asked(&self, verb: &str) -> u64 {
        self.cluster.counts().requests(verb, "configmaps")
    }
}

fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.unwrap().parse().unwrap()
}

fn cause(answer: &Answer) -> (u16, String) {
    let status = answer.json().unwrap();
    let cause = status["details"]["causes"][0]["reason"].as_str();
    (answer.status.as_u16(), cause.unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_consistent_read_misses_nothing_that_was_written_past_the_proxy() {
    let real = Real::start("").await;
    let path = format!("{CONFIGMAPS}/counter");
    let counter = configmap("counter", "0");
    real.direct
        .create(CONFIGMAPS, &counter)
        .await
        .unwrap()
        .ok()
        .unwrap();
    warm(&real.proxied, CONFIGMAPS).await;
    let (mut hits, mut misses) = (0, 0);
    for round in 1..=rounds() {
        let patch = json!({"data": {"value": round.to_string()}});
        let written = real
            .direct
            .patch(&path, &patch)
            .await
            .unwrap()
            .ok()
            .unwrap();
        let written = version(&written.json().unwrap());
        let one = round % 2 == 0;
        let read = if one { path.as_str() } else { CONFIGMAPS };
        let answer = real.proxied.get_with(read, NO_CACHE).await.unwrap();
        let answer = answer.ok().unwrap();
        let body = answer.json().unwrap();
        let seen = if one {
            version(&body)
        } else {
            let mut items = body["items"].as_array().unwrap().iter();
            version(
                items
                    .find(|it| it["metadata"]["name"] == "counter")
                    .unwrap(),
            )
        };
        let status = answer.cache_status();
        assert!(seen >= written, "{seen} after {written} ({status})");
        if answer.is_hit() {
            hits += 1
        } else {
            misses += 1
        }
    }
    println!("{hits} from memory, {misses} live");
    assert!(hits > 0, "nothing came from memory, so nothing was proven");
}

/// Nothing happens to pods, so only a bookmark can tell that the informer misses nothing.
#[tokio::test]
async fn a_consistent_read_of_a_quiet_kind_comes_from_memory() {
    let real = Real::start("").await;
    warm(&real.proxied, PODS).await;
    for round in 0..5 {
        let other = configmap(&format!("c{round}"), "x");
        let written = real.direct.create(CONFIGMAPS, &other).await.unwrap();
        let written = version(&written.ok().unwrap().json().unwrap());
        let asked = Instant::now();
        let answer = real.proxied.get_with(PODS, NO_CACHE).await.unwrap();
        println!("{:?}: {}", asked.elapsed(), answer.cache_status());
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert!(version(&answer.json().unwrap()) >= written);
    }
}

#[tokio::test]
async fn many_consistent_reads_are_few_questions() {
    let sim = Sim::start("").await;
    warm(&sim.proxied, CONFIGMAPS).await;
    sim.move_on();
    let before = (sim.asked("list"), sim.asked("watch"));
    // Long enough that the readers come while a question is on its way.
    sim.cluster.fault(Fault::Slow(Duration::from_millis(200)));
    let reads = (0..50).map(|_| sim.proxied.get_with(CONFIGMAPS, NO_CACHE));
    let answers = futures_util::future::join_all(reads).await;
    let hits = answers.iter().filter(|it| it.as_ref().unwrap().is_hit());
    let hits = hits.count() as u64;
    // A read that was not proven in time is a LIST too.
    let lists = sim.asked("list") - before.0 - (50 - hits);
    let watches = sim.asked("watch") - before.1;
    println!("{hits} from memory, {lists} questions, {watches} watches");
    assert!(hits > 0);
    assert!(
        (1..=10).contains(&lists),
        "{lists} questions for 50 readers"
    );
    assert!((1..=3).contains(&watches), "{watches} watches");
}

/// The cluster never sends a bookmark by itself, so only the second watch can bring the informer to the new floor.
#[tokio::test]
async fn after_a_write_of_unknown_effect_reads_come_from_memory_again() {
    let sim = Sim::start("").await;
    warm(&sim.proxied, CONFIGMAPS).await;
    for _ in 0..3 {
        sim.move_on();
        let kept = configmap("kept", "again");
        let conflict = sim.proxied.create(CONFIGMAPS, &kept).await.unwrap();
        assert_eq!(conflict.status, 409);
        warm(&sim.proxied, CONFIGMAPS).await;
    }
    // A floor that was reached is not tried for again.
    let watches = sim.asked("watch");
    for _ in 0..100 {
        assert!(sim.proxied.get(CONFIGMAPS).await.unwrap().is_hit());
    }
    assert_eq!(sim.asked("watch"), watches);
}

#[tokio::test]
async fn after_an_eviction_and_a_deletecollection_reads_come_from_memory_again() {
    let real = Real::start("").await;
    warm(&real.proxied, PODS).await;
    for name in ["a", "b"] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]},
        });
        real.proxied.create(PODS, &pod).await.unwrap().ok().unwrap();
    }
    let back = async |what: &str| {
        let asked = Instant::now();
        wait_for("an answer from memory", SOONER, async || {
            let answer = real.proxied.get(PODS).await?.ok()?;
            anyhow::ensure!(answer.is_hit(), "{}", answer.cache_status());
            Ok(())
        })
        .await
        .unwrap();
        println!("{what}: {:?}", asked.elapsed());
    };
    // So that the version that confirms a write is no event of a pod.
    let move_on = async |name: &str| {
        let written = real.direct.create(CONFIGMAPS, &configmap(name, "x")).await;
        written.unwrap().ok().unwrap();
    };
    let evict = async |name: &str| {
        let path = format!("{PODS}/{name}/eviction");
        let eviction =
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        real.proxied.create(&path, &eviction).await.unwrap().status
    };
    assert_eq!(evict("a").await, 201);
    back("an eviction").await;
    move_on("one").await;
    assert_eq!(evict("never").await, 404);
    back("an eviction of nothing").await;
    move_on("two").await;
    let nothing = format!("{PODS}?labelSelector=is%3Dnothing");
    real.proxied.delete(&nothing).await.unwrap().ok().unwrap();
    back("a deletecollection of nothing").await;
    real.proxied.delete(PODS).await.unwrap().ok().unwrap();
    back("a deletecollection").await;
    let left = warm(&real.proxied, PODS).await.json().unwrap();
    assert_eq!(left["items"], json!([]));
}

#[tokio::test]
async fn only_if_cached_never_asks_the_cluster() {
    let sim = Sim::start("").await;
    let only: &[(&str, &str)] = &[("cache-control", "only-if-cached")];
    let asked = sim.cluster.counts().resource_requests();
    let answer = sim.proxied.get_with(CONFIGMAPS, only).await.unwrap();
    assert_eq!(cause(&answer), (504, "NotCached".to_owned()));
    assert!(answer.text().contains("not-started"), "{}", answer.text());
    let table = &[
        ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),
        only[0],
    ];
    let answer = sim.proxied.get_with(CONFIGMAPS, table).await.unwrap();
    assert_eq!(cause(&answer), (504, "NotCached".to_owned()));
    assert_eq!(sim.cluster.counts().resource_requests(), asked);

    warm(&sim.proxied, CONFIGMAPS).await;
    let answer = sim.proxied.get_with(CONFIGMAPS, only).await.unwrap();
    assert!(answer.status == 200 && answer.is_hit());
    let absent = format!("{CONFIGMAPS}/never");
    let answer = sim.proxied.get_with(&absent, only).await.unwrap();
    assert_eq!(cause(&answer), (504, "NotCached".to_owned()));
    // It is about GET and LIST of resources alone.
    let answer = sim.proxied.get_with("/version", only).await.unwrap();
    assert_eq!(answer.status, 200);

    let young: &[(&str, &str)] = &[("cache-control", "max-age=3600")];
    let answer = sim.proxied.get_with(CONFIGMAPS, young).await.unwrap();
    assert!(answer.is_hit());
    let none: &[(&str, &str)] = &[("cache-control", "no-store, max-age=3600")];
    let answer = sim.proxied.get_with(CONFIGMAPS, none).await.unwrap();
    let expected = "fleetcache; fwd=request; detail=cache-control";
    assert_eq!(answer.cache_status(), expected);
}

/// Second watches take turns. A kind that had to wait for its turn is no kind for which second watches are in vain.
#[tokio::test]
async fn many_quiet_kinds_at_once_all_come_from_memory_again() {
    let real = Real::start("").await;
    let kinds = quiet_kinds(&real.direct).await;
    assert!(kinds.len() > 30, "{kinds:?}");
    for path in &kinds {
        warm(&real.proxied, path).await;
    }
    let moved = configmap("moved", "x");
    let moved = real.direct.create(CONFIGMAPS, &moved).await;
    moved.unwrap().ok().unwrap();
    let reads = kinds
        .iter()
        .map(|path| real.proxied.get_with(path, NO_CACHE));
    futures_util::future::join_all(reads).await;
    for path in &kinds {
        let what = format!("a consistent read of {path} to come from memory");
        wait_for(&what, SOONER, async || {
            let answer = real.proxied.get_with(path, NO_CACHE).await?.ok()?;
            anyhow::ensure!(answer.is_hit(), "{}", answer.cache_status());
            Ok(())
        })
        .await
        .unwrap();
    }
}

/// The lists of all built-in kinds that have objects of their own and are kept.
async fn quiet_kinds(client: &Client) -> Vec<String> {
    let mut paths = Vec::new();
    let groups = client.get("/apis").await.unwrap().json().unwrap();
    let groups = groups["groups"].as_array().unwrap().iter().map(|group| {
        let version = group["preferredVersion"]["groupVersion"].as_str();
        format!("/apis/{}", version.unwrap())
    });
    for group in groups.chain(["/api/v1".to_owned()]) {
        let resources = client.get(&group).await.unwrap().json().unwrap();
        for resource in resources["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].to_string();
            let name = resource["name"].as_str().unwrap();
            let never = ["secrets", "events", "leases"].contains(&name);
            if verbs.contains("\"watch\"") && verbs.contains("\"list\"") && !never {
                paths.push(format!("{group}/{name}"));
            }
        }
    }
    paths
}
