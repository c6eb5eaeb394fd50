//! A quiet cluster with something of every sort, behind a proxy that knows it under many names: each name is a cluster of
//! its own to the proxy, with informers of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options, User};
use fleetcache_e2e::fault::{Fork, Mode, Relay};
use fleetcache_e2e::kubeconfig;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::Proxy;
use http::Method;
use serde_json::{Value, json};

use super::State;
use crate::pair::{ENCODINGS, warm_as};

/// Names under which nobody has asked for anything: one for each row and attempt.
const COLD: usize = 800;

/// The kinds that rows ask for.
const KINDS: [&str; 8] = [
    "/api/v1/configmaps",
    "/api/v1/endpoints",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/pods",
    "/apis/apps/v1/deployments",
    "/apis/ex.io/v1/widgets",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
];

/// What rows need to know of the cluster.
pub(super) struct Facts {
    /// A version after all that was made.
    pub(super) newest: u64,
    /// A version at which there was only the first ConfigMap.
    pub(super) first: u64,
    /// A version whose history is gone from etcd.
    pub(super) compacted: u64,
    /// A token for the second page of the ConfigMaps of `diff`, two a page.
    pub(super) token: String,
    /// One for the pods of all namespaces.
    pub(super) token_of_pods: String,
}

pub(super) struct Cluster {
    direct: Client,
    proxied: Client,
    facts: Facts,
    asked_cold: AtomicUsize,
    _proxy: Proxy,
    _fork: Fork,
    _held: Relay,
    _server: ControlPlane,
}

impl Cluster {
    pub(super) async fn start() -> Self {
        let server = ControlPlane::start(Options::named("quiet")).await.unwrap();
        let direct = server.client().unwrap();
        let facts = populate(&server, &direct).await;

        let address: SocketAddr = server.url().trim_start_matches("https://").parse().unwrap();
        let held = Relay::start(address).unwrap();
        held.set(Mode::Stall).unwrap();
        let fork = Fork::start(held.address(), address).unwrap();
        let mut contexts = Vec::new();
        let mut add = |name: &str, url: String| {
            let mut context = server.context(User::Proxy).unwrap();
            context.name = name.to_owned();
            context.server = url;
            contexts.push(context);
        };
        add("warm", server.url());
        add("syncing", format!("https://{}", fork.address()));
        (0..COLD).for_each(|n| add(&format!("cold-{n}"), server.url()));
        let dir = tempfile::tempdir().unwrap();
        let file = kubeconfig::write(&dir.path().join("kubeconfig"), &contexts).unwrap();
        let proxy = Proxy::for_kubeconfigs(&[file]).await.unwrap().keeping(dir);

        let cluster = Self {
            direct,
            proxied: Client::new(&proxy.root().unwrap()).unwrap(),
            facts,
            asked_cold: AtomicUsize::new(0),
            _proxy: proxy,
            _fork: fork,
            _held: held,
            _server: server,
        };
        for name in contexts.iter().map(|context| &context.name) {
            let path = format!("/clusters/{name}/version");
            wait_for(name, PATIENCE, async || {
                cluster.proxied.get(&path).await?.ok()
            })
            .await
            .unwrap();
        }
        let both = |kind: &'static str| ENCODINGS.map(|accept| (kind, accept));
        for (kind, accept) in KINDS.into_iter().flat_map(both) {
            let warm = format!("/clusters/warm{kind}");
            warm_as(&cluster.proxied, &warm, accept).await;
            let syncing = format!("/clusters/syncing{kind}");
            wait_for("the informer to start", PATIENCE, async || {
                let headers = [("accept", accept)];
                let answer = cluster.proxied.get_with(&syncing, &headers).await?.ok()?;
                anyhow::ensure!(
                    answer.cache_status() == State::Syncing.detail(),
                    "{}",
                    answer.cache_status()
                );
                Ok(())
            })
            .await
            .unwrap();
        }
        cluster
    }

    pub(super) fn direct(&self) -> &Client {
        &self.direct
    }

    /// A client of the proxy itself: see [`Self::prefix`].
    pub(super) fn proxied(&self) -> &Client {
        &self.proxied
    }

    /// Waits until what the warm informers hold is what anybody was told. While nobody asks for anything else that stays so,
    /// since nobody writes.
    pub(super) async fn caught_up(&self) {
        for kind in KINDS {
            for accept in ENCODINGS {
                warm_as(&self.proxied, &format!("/clusters/warm{kind}"), accept).await;
            }
        }
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What stands before a path to reach the cluster in this state. Each call in the cold state gives another name.
    pub(super) fn prefix(&self, state: State) -> String {
        match state {
            State::Cold => {
                let n = self.asked_cold.fetch_add(1, Ordering::Relaxed);
                assert!(n < COLD, "more cold requests than names");
                format!("/clusters/cold-{n}")
            }
            State::Syncing => "/clusters/syncing".to_owned(),
            State::Warm => "/clusters/warm".to_owned(),
        }
    }
}

async fn create(direct: &Client, path: &str, object: Value) -> Value {
    let answer = direct.create(path, &object).await.unwrap();
    answer.ok().unwrap().json().unwrap()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|version| version.parse().ok())
        .unwrap()
}

async fn populate(server: &ControlPlane, direct: &Client) -> Facts {
    for namespace in ["diff", "diff-b", "big", "seq"] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"of": "test"}}});
        create(direct, "/api/v1/namespaces", object).await;
    }
    // An event that is gone from history: events are in no watch cache of the server.
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e1", "namespace": "diff"},
        "involvedObject": {"kind": "Pod", "namespace": "diff", "name": "p1"}, "reason": "Tested", "type": "Normal",
    });
    let compacted = version(&create(direct, "/api/v1/namespaces/diff/events", event.clone()).await);
    let mut event = event;
    event["metadata"]["name"] = json!("e2");
    let later = version(&create(direct, "/api/v1/namespaces/diff/events", event).await);
    server.compact(later).await.unwrap();

    let first = configmaps(direct).await;
    workloads(direct).await;
    widgets(direct).await;
    let newest = create(
        direct,
        "/api/v1/namespaces/diff-b/configmaps",
        configmap("last", "y"),
    )
    .await;
    Facts {
        newest: version(&newest),
        first,
        compacted,
        token: token(direct, "/api/v1/namespaces/diff/configmaps?limit=2").await,
        token_of_pods: token(direct, "/api/v1/pods?limit=1").await,
    }
}

fn configmap(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"html": "<a href=\"x\">&</a> 'ü' \u{2028} \u{1f600}"},
        "metadata": {"name": name, "labels": {"app": app, "n": name.trim_start_matches("cm"), "ex.io/a": "b.c_d-e"}},
    })
}

async fn configmaps(direct: &Client) -> u64 {
    let path = "/api/v1/namespaces/diff/configmaps";
    let first = version(&create(direct, path, configmap("cm1", "x")).await);
    for (name, app) in [("cm2", "y"), ("cm3", "x"), ("cm4", ""), ("cm5", "x")] {
        create(direct, path, configmap(name, app)).await;
    }
    // '-' sorts before '/': the longer namespace comes first.
    let path = "/api/v1/namespaces/diff-b/configmaps";
    create(direct, path, configmap("cm1", "x")).await;
    for name in ["a", "b", "c"] {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "x".repeat(100_000)}});
        create(direct, "/api/v1/namespaces/big/configmaps", object).await;
    }
    first
}

async fn workloads(direct: &Client) {
    for name in ["n1", "n2"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"unschedulable": name == "n2"}});
        create(direct, "/api/v1/nodes", node).await;
    }
    let pods = "/api/v1/namespaces/diff/pods";
    for (name, node, host) in [("p1", "n1", false), ("p2", "n2", true), ("p3", "", false)] {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}},
            "spec": {"schedulerName": "nobody", "hostNetwork": host, "containers": [{"name": "c", "image": "i"}]},
        });
        if !node.is_empty() {
            pod["spec"]["nodeName"] = json!(node);
        }
        create(direct, pods, pod).await;
    }
    let status = json!({"status": {"phase": "Running", "podIP": "10.1.0.1", "podIPs": [{"ip": "10.1.0.1"}]}});
    let path = format!("{pods}/p1/status");
    direct.patch(&path, &status).await.unwrap().ok().unwrap();
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "ep"}, "subsets": [{"addresses": [{"ip": "10.1.0.1"}], "ports": [{"port": 80}]}]});
    create(direct, "/api/v1/namespaces/diff/endpoints", endpoints).await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d1"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    create(
        direct,
        "/apis/apps/v1/namespaces/diff/deployments",
        deployment,
    )
    .await;
}

/// A kind whose list has a name of its own, and whose objects can be selected by a field.
async fn widgets(direct: &Client) {
    let spec = json!({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}, "b": {"type": "boolean"}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetCollection"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "selectableFields": [{"jsonPath": ".spec.n"}, {"jsonPath": ".spec.s"}, {"jsonPath": ".spec.b"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
            }],
        },
    });
    create(
        direct,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition,
    )
    .await;
    let path = "/apis/ex.io/v1/namespaces/diff/widgets";
    for (name, spec) in [
        ("w1", json!({"n": 1, "s": "a,b=c\\d", "b": true})),
        ("w2", json!({"n": 2, "s": "", "b": false})),
        ("w3", json!({})),
    ] {
        let widget = json!({"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec});
        wait_for("the kind to be served", PATIENCE, async || {
            let answer = direct
                .send(
                    Method::POST,
                    path,
                    &[("content-type", "application/json")],
                    widget.to_string(),
                )
                .await?;
            anyhow::ensure!(
                answer.status == 201 || answer.status == 409,
                "{}",
                answer.text()
            );
            Ok(())
        })
        .await
        .unwrap();
    }
}

async fn token(direct: &Client, path: &str) -> String {
    let page = direct.get(path).await.unwrap().ok().unwrap();
    let page = page.json().unwrap();
    page["metadata"]["continue"].as_str().unwrap().to_owned()
}
