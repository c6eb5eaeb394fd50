//! kubectl where it waits: two of them on one cluster, directly and through the proxy, are told the same and say the same.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::kubectl::{Kubectl, Running};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::writers::configmap;
use crate::pair::{Pair, warm};
use crate::transcript::normalise;

/// The two kubectls, and a namespace in which both look.
struct Twins {
    pair: Pair,
    direct: Kubectl,
    proxied: Kubectl,
    namespace: String,
}

impl Twins {
    async fn new() -> Self {
        let pair = Pair::shared().await;
        let namespace = pair.cluster.namespace("clients").await.unwrap();
        let direct = pair.cluster.kubectl().await.unwrap();
        let proxied = pair.proxy.kubectl(pair.cluster.name()).await.unwrap();
        Self {
            pair,
            direct,
            proxied,
            namespace,
        }
    }

    fn client(&self) -> &Client {
        &self.pair.direct
    }

    fn path(&self, kind: &str) -> String {
        let prefix = match kind {
            "deployments" => "/apis/apps/v1",
            _ => "/api/v1",
        };
        format!("{prefix}/namespaces/{}/{kind}", self.namespace)
    }

    async fn create(&self, kind: &str, object: &Value) {
        let path = self.path(kind);
        let answer = self.client().create(&path, object).await;
        answer.unwrap().ok().unwrap();
    }

    async fn patch(&self, object: &str, patch: Value) {
        let (kind, name) = object.split_once('/').unwrap();
        let path = format!("{}/{name}", self.path(kind));
        let answer = self.client().patch(&path, &patch).await;
        answer.unwrap().ok().unwrap();
    }

    async fn delete(&self, object: &str) {
        let (kind, name) = object.split_once('/').unwrap();
        let path = format!("{}/{name}", self.path(kind));
        self.client().delete(&path).await.unwrap().ok().unwrap();
    }

    /// Starts a command on both sides; both have begun to watch when this returns.
    async fn start(&self, args: &str) -> Both {
        let args: Vec<&str> = args.split(' ').collect();
        let args = [&args[..], &["--namespace", &self.namespace]].concat();
        let (direct, proxied) = tokio::join!(
            self.direct.start_watching(&args),
            self.proxied.start_watching(&args)
        );
        Both {
            direct: direct.unwrap(),
            proxied: proxied.unwrap(),
        }
    }

    /// Waits until the deployment is as its controller leaves it.
    async fn settled(&self) {
        let path = format!("{}/web", self.path("deployments"));
        wait_for("the deployment to settle", PATIENCE, async || {
            let web = self.client().get(&path).await?.ok()?.json()?;
            let (metadata, status) = (&web["metadata"], &web["status"]);
            let is_observed = status["observedGeneration"] == metadata["generation"];
            anyhow::ensure!(is_observed && status["availableReplicas"] == 2, "{web}");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Watches that were answered from memory.
    fn cached_watches(&self) -> f64 {
        let labels = [("verb", "watch"), ("source", "cached")];
        let metrics = self.pair.proxy.metrics().unwrap();
        let found = metrics.sum("fleetcache_request_total", &labels);
        found.unwrap_or(0.0)
    }
}

/// One command on both sides.
struct Both {
    direct: Running,
    proxied: Running,
}

impl Both {
    /// Reads both until a line that has this in it, and returns what they said, which must be the same.
    async fn until(&mut self, last: &str) -> Vec<String> {
        let direct = until(&mut self.direct, last).await;
        assert_eq!(direct, until(&mut self.proxied, last).await);
        direct
    }

    /// Reads both to their ends, which must be the same.
    async fn end(self) -> (String, Option<i32>) {
        let direct = self.direct.end().await.unwrap();
        assert_eq!(direct, self.proxied.end().await.unwrap());
        direct
    }

    async fn kill(self) {
        self.direct.kill().await.unwrap();
        self.proxied.kill().await.unwrap();
    }
}

async fn until(kubectl: &mut Running, last: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let line = kubectl.next_line().await.unwrap();
        let line = line.unwrap_or_else(|| panic!("it ended before '{last}': {lines:#?}"));
        lines.push(normalise(&line));
        if line.contains(last) {
            return lines;
        }
    }
}

/// Each watch with the line that ends what is compared. Tables are always live, what is printed otherwise was asked for as JSON.
const WATCHES: [(&str, &str); 10] = [
    ("get configmaps -w", "end"),
    ("get configmaps -w --output-watch-events", "end"),
    ("get configmaps -w -o name", "end"),
    ("get configmaps -w -o json", r#""name": "end""#),
    (
        "get configmaps -w -o yaml --output-watch-events",
        "  name: end",
    ),
    ("get configmaps --watch-only -o name", "end"),
    ("get configmaps -w -l app=a -o name", "end"),
    (
        "get configmaps -w -l app!=a -o yaml --output-watch-events",
        "  name: end",
    ),
    (
        "get configmap b -w -o yaml --output-watch-events",
        "type: DELETED",
    ),
    (
        "get configmaps -w --field-selector=metadata.name!=b -o name",
        "end",
    ),
];

#[tokio::test]
async fn a_watch_prints_the_same_on_both_sides() {
    let twins = Twins::new().await;
    let path = twins.path("configmaps");
    let labels = |app| json!({"metadata": {"labels": {"app": app}}});
    let make = async |name: &str, app: &str| {
        let mut object = configmap(name, "0");
        object["metadata"]["labels"]["app"] = app.into();
        twins.create("configmaps", &object).await;
    };
    for round in ["cold", "warm"] {
        make("a", "a").await;
        make("b", "b").await;
        if round == "warm" {
            warm(&twins.pair.proxied, &path).await;
        }
        let cached = twins.cached_watches();
        let watches = WATCHES.map(|(args, _)| twins.start(args));
        let watches = join_all(watches).await;
        make("c", "a").await;
        twins.patch("configmaps/b", labels("a")).await;
        twins.patch("configmaps/a", labels("b")).await;
        twins
            .patch("configmaps/c", json!({"data": {"more": "yes"}}))
            .await;
        twins.delete("configmaps/b").await;
        make("b", "b").await;
        twins.delete("configmaps/c").await;
        make("end", "a").await;
        twins.patch("configmaps/end", labels("b")).await;
        for ((args, end), mut both) in WATCHES.into_iter().zip(watches) {
            let lines = both.until(end).await;
            println!("{round} $ kubectl {args}\n{}", lines.concat());
            both.kill().await;
        }
        let hits = twins.cached_watches() - cached;
        let are_hits = hits >= (WATCHES.len() - 2) as f64;
        assert!(are_hits || round == "cold", "{hits}");
        for name in ["a", "b", "end"] {
            twins.delete(&format!("configmaps/{name}")).await;
        }
    }
}

#[tokio::test]
async fn wait_ends_when_what_it_waits_for_has_come() {
    let twins = Twins::new().await;
    let data = |value| json!({"data": {"state": value}});
    for round in ["cold", "warm"] {
        if round == "warm" {
            warm(&twins.pair.proxied, &twins.path("configmaps")).await;
            warm(&twins.pair.proxied, &twins.path("pods")).await;
        }
        let cached = twins.cached_watches();
        for name in ["a", "b"] {
            twins.create("configmaps", &configmap(name, "0")).await;
        }
        // The second is looked at when the first has come.
        let mut wait = twins
            .start("wait configmap/a configmap/b --for=jsonpath={.data.state}=done --timeout=90s")
            .await;
        twins.patch("configmaps/a", data("begun")).await;
        twins.patch("configmaps/a", data("done")).await;
        wait.until("configmap/a condition met").await;
        twins.patch("configmaps/b", data("begun")).await;
        twins.patch("configmaps/b", data("done")).await;
        let said = ("configmap/b condition met\n".to_owned(), Some(0));
        assert_eq!(wait.end().await, said);

        let wait = twins
            .start("wait configmaps --all --for=delete --timeout=90s")
            .await;
        twins.patch("configmaps/b", data("old")).await;
        twins.delete("configmaps/a").await;
        twins.delete("configmaps/b").await;
        let said = "configmap/a condition met\nconfigmap/b condition met\n";
        assert_eq!(wait.end().await, (said.to_owned(), Some(0)));

        twins.create("pods", &pod()).await;
        let wait = twins
            .start("wait pod/p --for=condition=Ready=False --timeout=90s")
            .await;
        twins
            .patch("pods/p", json!({"metadata": {"labels": {"app": "p"}}}))
            .await;
        let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        twins.patch("pods/p/status", not_ready).await;
        let said = ("pod/p condition met\n".to_owned(), Some(0));
        assert_eq!(wait.end().await, said);
        twins.delete("pods/p").await;

        let hits = twins.cached_watches() - cached;
        assert!(hits > 3.0 || round == "cold", "{hits}");
    }
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

#[tokio::test]
async fn a_rollout_is_followed_to_its_end() {
    let twins = Twins::new().await;
    let image = |image| {
        json!({"spec": {
            "paused": true,
            "template": {"spec": {"containers": [{"name": "c", "image": image}]}},
        }})
    };
    twins.create("deployments", &deployment()).await;
    for round in ["cold", "warm"] {
        if round == "warm" {
            warm(&twins.pair.proxied, &twins.path("deployments")).await;
        }
        let cached = twins.cached_watches();
        // It cannot end before both have begun, and both find it where it stays.
        twins.settled().await;
        twins.patch("deployments/web", image(round)).await;
        twins.settled().await;
        let mut status = twins
            .start("rollout status deployment/web --timeout=90s")
            .await;
        let said = status
            .until("0 out of 2 new replicas have been updated")
            .await;
        println!("{round} {said:?}");
        twins
            .patch("deployments/web", json!({"spec": {"paused": false}}))
            .await;
        let (said, code) = status.end().await;
        println!("{round} {said}");
        let last = said.lines().last();
        let wanted = "deployment \"web\" successfully rolled out";
        assert_eq!((last, code), (Some(wanted), Some(0)));
        let hits = twins.cached_watches() - cached;
        assert!(hits > 0.0 || round == "cold");
    }
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "first"}]},
            },
        },
    })
}
