//! A reader never sees the past of what a writer was told: the answer to every read that begins after a write was answered
//! holds that write, on the writer's own connection and on any other.

mod odd_writes;
mod told_live;
mod versions;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::{Value, json};

use crate::counts::Counts;
use crate::pair::{Pair, warm};

/// How many rounds each rule is tried. `FLEETCACHE_E2E_ROUNDS` makes it more for a night, or fewer for a look.
fn rounds() -> usize {
    std::env::var("FLEETCACHE_E2E_ROUNDS")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(1000)
}

/// A writer, a reader, and a namespace whose ConfigMaps and pods are in the proxy's memory.
struct Bench {
    writer: Client,
    reader: Client,
    configmaps: String,
    pods: String,
    counts: Counts,
    /// Last, so that the proxy ends after its clients.
    _pair: Pair,
}

const STEPS: [&str; 8] = [
    "create, get",
    "patch, list",
    "patch status, get",
    "delete, get",
    "finalizer removal, get",
    "eviction, list",
    "deletecollection, list",
    "delete and create again, get",
];

impl Bench {
    /// One connection for both, or one for each.
    async fn new(connections: usize) -> Self {
        let pair = Pair::shared().await;
        let namespace = pair.cluster.namespace("past").await.unwrap();
        let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        warm(&pair.proxied, &configmaps).await;
        warm(&pair.proxied, &pods).await;
        let writer = pair.proxy.client(pair.cluster.name()).unwrap();
        let reader = if connections == 1 {
            writer.clone()
        } else {
            pair.proxy.client(pair.cluster.name()).unwrap()
        };
        Self {
            writer,
            reader,
            configmaps,
            pods,
            counts: Counts::of(&STEPS),
            _pair: pair,
        }
    }

    async fn get(&self, step: &'static str, path: &str) -> Answer {
        let answer = self.reader.get(path).await.unwrap();
        self.counts.count(step, &answer);
        answer
    }

    /// The object at `path` must be there and be at least as new as `written`.
    async fn must_see(&self, step: &'static str, path: &str, written: &Value) -> Value {
        let answer = self.get(step, path).await;
        let seen = answer.json().unwrap();
        assert_eq!(
            answer.status,
            200,
            "{step}: {path} is missing right after {written}: {seen} ({})",
            answer.cache_status()
        );
        assert_eq!(
            seen["metadata"]["uid"],
            written["metadata"]["uid"],
            "{step}: another {path} ({})",
            answer.cache_status()
        );
        assert!(
            version(&seen) >= version(written),
            "{step}: {seen} is older than {written} ({})",
            answer.cache_status()
        );
        seen
    }

    async fn must_be_gone(&self, step: &'static str, path: &str) {
        let answer = self.get(step, path).await;
        assert_eq!(
            answer.status,
            404,
            "{step}: {path} is still there ({}): {}",
            answer.cache_status(),
            answer.text()
        );
    }

    /// The items of a list by name.
    async fn list(&self, step: &'static str, path: &str) -> BTreeMap<String, Value> {
        let answer = self.get(step, path).await;
        assert_eq!(answer.status, 200, "{step}: {}", answer.text());
        let mut list = answer.json().unwrap();
        let Value::Array(items) = list["items"].take() else {
            panic!("{step}: no items")
        };
        items
            .into_iter()
            .map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), item))
            .collect()
    }

    async fn create(&self, path: &str, object: &Value) -> Value {
        self.writer
            .create(path, object)
            .await
            .unwrap()
            .ok()
            .unwrap()
            .json()
            .unwrap()
    }

    async fn patch(&self, path: &str, patch: &Value) -> Value {
        self.writer
            .patch(path, patch)
            .await
            .unwrap()
            .ok()
            .unwrap()
            .json()
            .unwrap()
    }

    async fn delete(&self, path: &str) {
        self.writer.delete(path).await.unwrap().ok().unwrap();
    }

    /// A ConfigMap's life: made, changed, deleted, made again under the same name, and kept by a finalizer for a while.
    async fn configmap_round(&self, round: usize) {
        let path = format!("{}/c", self.configmaps);
        let created = self.create(&self.configmaps, &configmap("c", &[])).await;
        self.must_see("create, get", &path, &created).await;

        let patched = self
            .patch(&path, &json!({"data": {"round": round.to_string()}}))
            .await;
        let listed = self.list("patch, list", &self.configmaps).await;
        let seen = listed
            .get("c")
            .unwrap_or_else(|| panic!("the list lacks what was just patched"));
        assert!(
            version(seen) >= version(&patched),
            "{seen} is older than {patched}"
        );

        self.delete(&path).await;
        self.must_be_gone("delete, get", &path).await;

        let created = self
            .create(&self.configmaps, &configmap("c", &["example.com/wait"]))
            .await;
        self.must_see("delete and create again, get", &path, &created)
            .await;
        self.delete(&path).await;
        let waiting = self
            .must_see("finalizer removal, get", &path, &created)
            .await;
        assert!(
            waiting["metadata"]["deletionTimestamp"].is_string(),
            "the deletion is not to be seen: {waiting}"
        );
        self.patch(&path, &json!({"metadata": {"finalizers": null}}))
            .await;
        self.must_be_gone("finalizer removal, get", &path).await;
    }

    /// Pods, for what ConfigMaps do not have: a status, an eviction, and several that go at once.
    async fn pod_round(&self, round: usize) {
        let path = format!("{}/a", self.pods);
        for name in ["a", "b", "c"] {
            self.create(&self.pods, &pod(name)).await;
        }
        let patched = self
            .patch(
                &format!("{path}/status"),
                &json!({"status": {"message": round.to_string()}}),
            )
            .await;
        let seen = self.must_see("patch status, get", &path, &patched).await;
        assert_eq!(seen["status"]["message"], round.to_string());

        let eviction =
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}});
        self.create(&format!("{path}/eviction"), &eviction).await;
        let listed = self.list("eviction, list", &self.pods).await;
        assert!(
            listed
                .get("a")
                .is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string()),
            "an evicted pod is still there"
        );

        self.delete(&format!("{}?labelSelector=app%3Dpast", self.pods))
            .await;
        let listed = self.list("deletecollection, list", &self.pods).await;
        assert!(
            listed
                .values()
                .all(|pod| pod["metadata"]["deletionTimestamp"].is_string()),
            "still there: {:?}",
            listed.keys()
        );
    }

    fn finish(&self, connections: usize) {
        println!(
            "reads on {connections} connection(s), {} rounds:\n{}",
            rounds(),
            self.counts
        );
        assert!(
            self.counts.cached() > 0,
            "nothing was answered from memory, so nothing was proven:\n{}",
            self.counts
        );
    }
}

fn configmap(name: &str, finalizers: &[&str]) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "finalizers": finalizers}})
}

/// A pod that no kubelet runs, so that nobody but the test writes to it and its deletion takes no grace period.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "past"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]},
    })
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|version| version.parse().ok())
        .unwrap_or_else(|| panic!("no resourceVersion: {object}"))
}

#[tokio::test]
async fn configmaps_on_one_connection() {
    let bench = Bench::new(1).await;
    for round in 0..rounds() {
        bench.configmap_round(round).await;
    }
    bench.finish(1);
}

#[tokio::test]
async fn configmaps_on_two_connections() {
    let bench = Bench::new(2).await;
    for round in 0..rounds() {
        bench.configmap_round(round).await;
    }
    bench.finish(2);
}

#[tokio::test]
async fn pods_on_one_connection() {
    let bench = Bench::new(1).await;
    for round in 0..rounds() {
        bench.pod_round(round).await;
    }
    bench.finish(1);
}

#[tokio::test]
async fn pods_on_two_connections() {
    let bench = Bench::new(2).await;
    for round in 0..rounds() {
        bench.pod_round(round).await;
    }
    bench.finish(2);
}

/// Readers that come and go while one writer counts up: what any of them sees never decreases from one answer to the next,
/// whichever encoding it asks for and wherever the answer comes from.
#[tokio::test]
async fn no_reader_goes_back_between_encodings() {
    let bench = Bench::new(1).await;
    let path = format!("{}/counter", bench.configmaps);
    bench
        .create(&bench.configmaps, &configmap("counter", &[]))
        .await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let done = AtomicU64::new(0);
    let write = async {
        for round in 1..=rounds() {
            bench
                .patch(
                    &path,
                    &json!({"metadata": {"annotations": {"round": round.to_string()}}}),
                )
                .await;
        }
        done.store(1, Ordering::Relaxed);
    };
    let read = async {
        let mut highest = 0;
        let mut answers = 0_u64;
        while done.load(Ordering::Relaxed) == 0 {
            for (path, accept) in [
                (path.as_str(), "application/json"),
                (bench.configmaps.as_str(), table),
                (path.as_str(), partial),
                (bench.configmaps.as_str(), "application/json"),
            ] {
                let answer = bench
                    .reader
                    .get_with(path, &[("accept", accept)])
                    .await
                    .unwrap()
                    .ok()
                    .unwrap();
                let object = answer.json().unwrap();
                let seen = match (&object["rows"], &object["items"]) {
                    (Value::Array(rows), _) => version(
                        &rows
                            .iter()
                            .find(|row| row["cells"][0] == "counter")
                            .unwrap()["object"],
                    ),
                    (_, Value::Array(items)) => version(
                        items
                            .iter()
                            .find(|item| item["metadata"]["name"] == "counter")
                            .unwrap(),
                    ),
                    _ => version(&object),
                };
                assert!(
                    seen >= highest,
                    "{seen} after {highest}: {accept} of {path} ({})",
                    answer.cache_status()
                );
                highest = seen;
                answers += 1;
            }
        }
        answers
    };
    let (_, answers) = tokio::join!(write, read);
    println!("{answers} answers, none of them older than the one before");
}

/// What was written past the proxy shows too, only not at once: nothing promises when.
#[tokio::test]
async fn writes_past_the_proxy_arrive() {
    let bench = Bench::new(1).await;
    let direct = bench._pair.cluster.client().unwrap();
    direct
        .create(&bench.configmaps, &configmap("past", &[]))
        .await
        .unwrap()
        .ok()
        .unwrap();
    let path = format!("{}/past", bench.configmaps);
    wait_for("the object", PATIENCE, async || {
        bench.reader.get(&path).await?.ok()
    })
    .await
    .unwrap();
    direct.delete(&path).await.unwrap().ok().unwrap();
    wait_for("its deletion", PATIENCE, async || {
        let answer = bench.reader.get(&path).await?;
        anyhow::ensure!(answer.status == 404, "{}", answer.status);
        Ok(())
    })
    .await
    .unwrap();
}
