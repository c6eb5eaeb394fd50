//! Writers who hang up before their answer: what became of their writes is known all the same, and nobody else pays for it.

use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::User;
use fleetcache_e2e::kubeconfig::{self, Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::raw::Raw;
use fleetcache_e2e::sim::{Fault, SimCluster, SimConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pair::{Pair, connected, warm};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A cluster that takes its time, and a proxy that knows two of its users.
struct Bench {
    sim: SimCluster,
    proxy: Proxy,
    alice: Client,
    files: TempDir,
}

impl Bench {
    async fn start() -> Self {
        let sim = SimCluster::start(SimConfig::new("sim")).await.unwrap();
        let files = tempfile::tempdir().unwrap();
        let kubeconfig = files.path().join("kubeconfig");
        kubeconfig::write(&kubeconfig, &[sim.context()]).unwrap();
        std::fs::write(files.path().join("tokens.csv"), "a,alice,1\nm,mallory,2\n").unwrap();
        let config = files.path().join("fleetcache.yaml");
        let text = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\n\
             authentication: {{ tokenFile: tokens.csv }}\nauthorization: {{ allowTTL: 1h, denyTTL: 1h }}\n\
             audit: {{ path: {} }}\ndefaults: {{ probe: {{ interval: 60s }}, remoteConnectionGracePeriod: 2m }}\n",
            kubeconfig.display(),
            files.path().join("audit.log").display(),
        );
        std::fs::write(&config, text).unwrap();
        let proxy = Proxy::start(Options {
            args: vec!["--config".to_owned(), config.display().to_string()],
            ..Options::default()
        });
        let proxy = proxy.await.unwrap();
        let alice = Client::new(&endpoint(&proxy, "a")).unwrap();
        connected(&alice).await;
        warm(&alice, CONFIGMAPS).await;
        Self {
            sim,
            proxy,
            alice,
            files,
        }
    }

    /// A whole write whose writer has gone before it is answered so; returns when that has happened.
    async fn write_and_go(&self, path: &str, code: u16) {
        let arrived = || {
            let counts = self.sim.counts();
            counts.requests("other", path) + counts.requests("create", "configmaps")
        };
        let before = arrived();
        self.sim.fault(Fault::Answer {
            code,
            paths: vec![path.to_owned()],
        });
        self.sim.fault(Fault::Slow(Duration::from_secs(2)));
        let mut raw = Raw::connect(&endpoint(&self.proxy, "m"), "http/1.1")
            .await
            .unwrap();
        let id = format!("{code}-of-{}", path.rsplit('/').next().unwrap());
        let request = format!(
            "POST /clusters/sim{path} HTTP/1.1\r\nhost: p\r\nauthorization: Bearer m\r\naudit-id: {id}\r\n\
             content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        raw.send(request.as_bytes()).await;
        wait_for("the write to arrive", PATIENCE, async || {
            anyhow::ensure!(arrived() > before);
            Ok(())
        })
        .await
        .unwrap();
        drop(raw);
        let log = self.files.path().join("audit.log");
        wait_for("the end of the write", PATIENCE, async || {
            let log = std::fs::read_to_string(&log)?;
            let line = log.lines().find(|line| line.contains(&id));
            let event: Value = serde_json::from_str(line.unwrap_or("null"))?;
            anyhow::ensure!(event["stage"] == "ResponseComplete", "{event}");
            assert_eq!(event["responseStatus"]["code"], code, "{event}");
            Ok(())
        })
        .await
        .unwrap();
        self.sim.heal().unwrap();
    }

    /// What alice's reads cost: reviews, and lists of ConfigMaps.
    fn costs(&self) -> (u64, u64) {
        let counts = self.sim.counts();
        let reviews = counts.requests("other", REVIEWS);
        (reviews, counts.requests("list", "configmaps"))
    }
}

fn endpoint(proxy: &Proxy, token: &str) -> Context {
    Context {
        credential: Credential::Token(token.to_owned()),
        ..proxy.context("sim").unwrap()
    }
}

#[tokio::test]
async fn what_the_cluster_refused_changes_nothing_for_others() {
    let bench = Bench::start().await;
    let before = bench.costs();
    for path in [ROLES, CONFIGMAPS] {
        bench.write_and_go(path, 403).await;
        assert!(
            bench.alice.get(CONFIGMAPS).await.unwrap().is_hit(),
            "{path}"
        );
        assert_eq!(bench.costs(), before, "{path}");
    }
}

/// As a real server does with `timeout=1ns`, before it looks whether the user may: it is asked.
#[tokio::test]
async fn what_nobody_may_changes_nothing_however_it_is_answered() {
    let bench = Bench::start().await;
    bench.sim.restrict("mallory", Vec::new());
    let (_, lists) = bench.costs();
    for path in [ROLES, CONFIGMAPS] {
        bench.write_and_go(path, 504).await;
        // Mallory's own questions are among them.
        let (reviews, _) = bench.costs();
        assert!(
            bench.alice.get(CONFIGMAPS).await.unwrap().is_hit(),
            "{path}"
        );
        assert_eq!(bench.costs(), (reviews, lists), "{path}");
    }
}

/// Roles may have changed: the cluster is asked again.
#[tokio::test]
async fn what_may_have_been_done_counts_for_all() {
    let bench = Bench::start().await;
    bench.write_and_go(ROLES, 500).await;
    let (reviews, _) = bench.costs();
    assert!(bench.alice.get(CONFIGMAPS).await.unwrap().is_hit());
    assert!(bench.costs().0 > reviews);
}

/// Bodies that are all there but for their end: the last byte of the length that was announced, or the last chunk.
fn broken_off(method: &str, path: &str, content_type: &str, body: &Value) -> [String; 2] {
    let body = body.to_string();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: p\r\nAUTHORIZATION\r\ncontent-type: {content_type}\r\n"
    );
    let (announced, length) = (body.len() + 1, body.len());
    [
        format!("{head}content-length: {announced}\r\n\r\n{body}"),
        format!("{head}transfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n"),
    ]
}

/// The server's own rule, on which it rests that a broken body is no write. Through the proxy it is the same.
#[tokio::test]
async fn a_write_without_its_end_is_none() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("broken-off").await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let configmap = |name: &str, value: &str| {
        let metadata = json!({"name": name, "labels": {"broken": "off"}});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": value}})
    };
    let kept = configmap("kept", "before");
    let created = pair.direct.create(&path, &kept).await.unwrap();
    let before = created.ok().unwrap().json().unwrap();
    let (direct, proxied) = (
        pair.cluster.context(User::Admin).unwrap(),
        pair.proxy.context(pair.cluster.name()).unwrap(),
    );
    let (json, merge) = ("application/json", "application/merge-patch+json");
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    let one = format!("{path}/kept");
    let all = format!("{path}?labelSelector=broken%3Doff");
    let writes = [
        ("POST", &path, json, configmap("made", "after")),
        ("PUT", &one, json, configmap("kept", "after")),
        ("PATCH", &one, merge, json!({"data": {"k": "after"}})),
        ("DELETE", &one, json, options.clone()),
        ("DELETE", &all, json, options),
    ];
    for (endpoint, prefix) in [
        (&direct, String::new()),
        (&proxied, format!("/clusters/{}", pair.cluster.name())),
    ] {
        let authorization = match &endpoint.credential {
            Credential::Token(token) => format!("authorization: Bearer {token}"),
            _ => "x-none: 1".to_owned(),
        };
        for (method, path, content_type, body) in &writes {
            let path = format!("{prefix}{path}");
            for request in broken_off(method, &path, content_type, body) {
                let request = request.replace("AUTHORIZATION", &authorization);
                let mut raw = Raw::connect(endpoint, "http/1.1").await.unwrap();
                raw.send(request.as_bytes()).await;
                raw.end().await;
                let said = String::from_utf8(raw.read_to_end().await.unwrap()).unwrap();
                assert!(!said.starts_with("HTTP/1.1 2"), "{request}: {said}");
            }
        }
        let list = pair.direct.get(&path).await.unwrap().ok().unwrap();
        let mut items = list.json().unwrap()["items"].take();
        let items = items.as_array_mut().unwrap();
        items.retain(|it| it["metadata"]["name"] != "kube-root-ca.crt");
        let versions = items.iter().map(|it| &it["metadata"]["resourceVersion"]);
        let versions: Vec<_> = versions.collect();
        assert_eq!(versions, [&before["metadata"]["resourceVersion"]]);
    }
}
