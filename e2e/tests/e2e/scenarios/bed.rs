//! A proxy over clusters that a test chooses, and what is asked of it again and again.

use std::path::PathBuf;

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::fault::BlackHole;
use fleetcache_e2e::kubeconfig::{self, Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::Signal;
use fleetcache_e2e::proxy::{Metrics, Options, Proxy};
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(super) const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The paths of every sort of read, for a cluster that is away.
pub(super) const READS: [&str; 6] = [
    CONFIGMAPS,
    "/api/v1/namespaces/default/configmaps/state",
    "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0",
    "/api/v1/namespaces/default/secrets",
    "/apis/apps/v1/deployments?limit=1",
    "/api/v1/namespaces/default/pods/a/log",
];

/// A proxy, and the kubeconfig that it serves.
pub(super) struct Bed {
    pub(super) proxy: Proxy,
    files: TempDir,
}

impl Bed {
    /// A proxy for these clusters, with these further lines of configuration.
    pub(super) async fn start(contexts: &[Context], settings: &str) -> Self {
        let files = tempfile::tempdir().unwrap();
        kubeconfig::write(&files.path().join("kubeconfig"), contexts).unwrap();
        Self::serve(files, settings).await
    }

    /// A proxy for the file `kubeconfig` among these.
    pub(super) async fn serve(files: TempDir, settings: &str) -> Self {
        Self::serve_with(files, settings, &[]).await
    }

    /// The same, with these environment variables.
    pub(super) async fn serve_with(files: TempDir, settings: &str, env: &[(&str, &str)]) -> Self {
        let config = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\n{settings}",
            files.path().join("kubeconfig").display()
        );
        let options = Options {
            config: Some(config),
            env: env
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Options::default()
        };
        let proxy = Proxy::start(options).await.unwrap();
        Self { proxy, files }
    }

    /// Where the files of the test are.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// One of the proxy's own files.
    pub(super) fn file_of_proxy(&self, name: &str) -> PathBuf {
        self.proxy.kubeconfig().with_file_name(name)
    }

    /// Serves these clusters from now on; the proxy is told to look.
    pub(super) fn change(&self, contexts: &[Context]) {
        let next = self.file("next");
        kubeconfig::write(&next, contexts).unwrap();
        std::fs::rename(next, self.file("kubeconfig")).unwrap();
        self.proxy.signal(Signal::Hangup);
    }

    /// A client of a cluster by its name, whether or not there is one of it.
    pub(super) fn client(&self, cluster: &str) -> Client {
        Client::new(&self.context(cluster)).unwrap()
    }

    pub(super) fn context(&self, cluster: &str) -> Context {
        let mut context = self.proxy.root().unwrap();
        context.server = format!("{}/clusters/{cluster}", self.proxy.url());
        context
    }

    /// Waits until a cluster answers this path.
    pub(super) async fn served(&self, cluster: &str, path: &str) -> Answer {
        let client = self.client(cluster);
        let what = format!("{path} of {cluster} to be served");
        wait_for(&what, PATIENCE, async || client.get(path).await?.ok())
            .await
            .unwrap()
    }

    /// Waits until the proxy says of a cluster that it is away, for this reason.
    pub(super) async fn told(&self, cluster: &str, reason: &str) -> Answer {
        let client = self.client(cluster);
        wait_for(
            &format!("{cluster} to be told as {reason}"),
            PATIENCE,
            async || {
                let answer = client.get(CONFIGMAPS).await?;
                let is_it = answer.status == 503 && is_about(&answer, reason);
                anyhow::ensure!(is_it, "{}: {}", answer.status, answer.text());
                Ok(answer)
            },
        )
        .await
        .unwrap()
    }

    pub(super) fn metrics(&self) -> Metrics {
        self.proxy.metrics().unwrap()
    }

    /// Whether a cluster is connected; `None` where there is none.
    pub(super) fn is_up(&self, cluster: &str) -> Option<bool> {
        let up = self
            .metrics()
            .sum("fleetcache_cluster_connection_up", &[("cluster", cluster)]);
        up.map(|up| up == 1.0)
    }

    /// Waits until a cluster's connects have failed so often that no request waits for one any more.
    pub(super) async fn grace_spent(&self, cluster: &str) {
        wait_for("the grace to be spent", PATIENCE, async || {
            let failures = self.failures(cluster);
            anyhow::ensure!(failures >= 7, "{failures} failures");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Probes and connects of a cluster that failed.
    pub(super) fn failures(&self, cluster: &str) -> u32 {
        let labels = [("cluster", cluster), ("status", "error")];
        let failed = self
            .metrics()
            .sum("fleetcache_cluster_healthchecks_total", &labels);
        failed.unwrap_or_default() as u32
    }
}

/// The words for machines in a Status of the proxy's own: what to do, and what happened.
pub(super) fn causes(answer: &Answer) -> Vec<String> {
    let status = answer.json().unwrap_or_default();
    let causes = status["details"]["causes"].as_array();
    let reason = |cause: &Value| cause["reason"].as_str().unwrap_or_default().to_owned();
    causes.into_iter().flatten().map(reason).collect()
}

/// Whether the last of the words is this one: the one that tells most.
pub(super) fn is_about(answer: &Answer, reason: &str) -> bool {
    causes(answer).last().is_some_and(|last| last == reason)
}

/// What every answer of the proxy for a cluster that is away must be.
#[track_caller]
pub(super) fn assert_unavailable(cluster: &str, answer: &Answer) {
    let status = answer.json().unwrap();
    assert_eq!(
        (answer.status.as_u16(), &status["reason"]),
        (503, &json!("ServiceUnavailable")),
        "{status}"
    );
    assert!(
        !answer.headers.contains_key("retry-after"),
        "client-go would retry ten times"
    );
    assert_eq!(status["details"]["name"], cluster, "{status}");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains(&format!("{cluster:?}")), "{message}");
    assert!(!message.contains("127.0.0.1"), "an address: {message}");
}

/// Answers from here (`local`: the proxy's own) so far, and how many of them took longer than `within` seconds, one of the
/// histogram's bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answers {
    pub(super) all: f64,
    pub(super) late: f64,
}

impl Answers {
    pub(super) fn of(metrics: &Metrics, source: &str, within: &str) -> Self {
        let name = "fleetcache_request_duration_seconds";
        let of = |suffix: &str, labels: &[(&str, &str)]| {
            let sum = metrics.sum(&format!("{name}_{suffix}"), labels);
            sum.unwrap_or_default()
        };
        let all = of("count", &[("source", source)]);
        let quick = of("bucket", &[("source", source), ("le", within)]);
        Self {
            all,
            late: all - quick,
        }
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            all: self.all - before.all,
            late: self.late - before.late,
        }
    }

    /// How many of all were late.
    pub(super) fn share(self) -> f64 {
        self.late / self.all.max(1.0)
    }
}

pub(super) async fn sim(name: &str) -> SimCluster {
    SimCluster::start(SimConfig::new(name)).await.unwrap()
}

pub(super) fn configmap(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"value": value}})
}

/// A cluster whose address swallows every packet.
pub(super) fn lost(name: &str, hole: &BlackHole) -> Context {
    Context {
        name: name.to_owned(),
        server: format!("https://{}", hole.address()),
        ca_pem: String::new(),
        credential: Credential::Token("t".to_owned()),
    }
}
