//! A cluster that nobody else writes to, behind a proxy that knows it under many names.

use std::sync::atomic::{AtomicUsize, Ordering};

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{self, ControlPlane, User};
use fleetcache_e2e::kubeconfig;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::rows::{CONFIGMAPS, ENDPOINTS, EVENTS, NODES, PODS, ROLES, SECRETS, WIDGETS};
use crate::pair::{ENCODINGS, warm_as};
use crate::watches::cluster::{create, list_version, patch};

/// Names under which nobody has asked for anything: some rows are asked of them, in turn.
const COLD: usize = 200;

/// The kinds that informers keep.
const KINDS: [&str; 6] = [
    "/api/v1/configmaps",
    "/api/v1/endpoints",
    "/api/v1/nodes",
    "/api/v1/pods",
    "/apis/ex.io/v1/widgets",
    ROLES,
];

pub(super) struct World {
    pub(super) direct: Client,
    pub(super) proxied: Client,
    pub(super) http2: Client,
    /// The version when the first watches were opened.
    pub(super) now: u64,
    mid: u64,
    asked_cold: AtomicUsize,
    _proxy: Proxy,
    /// The proxy follows its kubeconfig.
    _files: TempDir,
    _server: ControlPlane,
}

impl World {
    pub(super) async fn start() -> Self {
        let server = ControlPlane::start(control_plane::Options::named("watched"))
            .await
            .unwrap();
        let direct = server.client().unwrap();
        populate(&direct).await;
        let mut contexts = Vec::new();
        let names = (0..COLD).map(|n| format!("cold-{n}"));
        for name in ["warm".to_owned()].into_iter().chain(names) {
            let mut context = server.context(User::Proxy).unwrap();
            context.name = name;
            contexts.push(context);
        }
        let dir = tempfile::tempdir().unwrap();
        let file = kubeconfig::write(&dir.path().join("kubeconfig"), &contexts).unwrap();
        // So many probes would be most of the load.
        let config = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\ndefaults: {{ probe: {{ interval: 10m }}, remoteConnectionGracePeriod: 20m }}\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\n",
            file.display()
        );
        let proxy = Proxy::start(Options {
            config: Some(config),
            ..Options::default()
        })
        .await
        .unwrap();
        let proxied = Client::new(&proxy.root().unwrap()).unwrap();
        for name in contexts.iter().map(|context| &context.name) {
            let path = format!("/clusters/{name}/version");
            wait_for(name, PATIENCE, async || proxied.get(&path).await?.ok())
                .await
                .unwrap();
        }
        for kind in KINDS {
            for accept in ENCODINGS {
                warm_as(&proxied, &format!("/clusters/warm{kind}"), accept).await;
            }
        }
        // Events that every informer has seen, so that a watch can begin before them.
        let mid = list_version(&direct, CONFIGMAPS).await;
        for _ in 0..2 {
            super::script::run(&direct, &control_plane::random_name("p")).await;
        }
        let now = list_version(&direct, CONFIGMAPS).await;
        for kind in KINDS {
            // A version that was told is in memory.
            for accept in ENCODINGS {
                warm_as(&proxied, &format!("/clusters/warm{kind}"), accept).await;
            }
        }
        Self {
            direct,
            http2: Client::http2(&proxy.root().unwrap()).unwrap(),
            proxied,
            now,
            mid,
            asked_cold: AtomicUsize::new(0),
            _proxy: proxy,
            _files: dir,
            _server: server,
        }
    }

    /// The path with what stands for numbers replaced.
    pub(super) fn fill_in(&self, path: &str, seconds: u64) -> String {
        path.replace("$T", &seconds.max(1).to_string())
            .replace("$NOW", &self.now.to_string())
            .replace("$MID", &self.mid.to_string())
            .replace("$FUTURE", &(self.now + 1_000_000).to_string())
    }

    /// What stands before a path to reach the cluster where nobody has asked for anything.
    pub(super) fn cold(&self) -> String {
        let n = self.asked_cold.fetch_add(1, Ordering::Relaxed);
        format!("/clusters/cold-{}", n % COLD)
    }
}

async fn populate(direct: &Client) {
    for namespace in ["w", "w-b"] {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        create(direct, "/api/v1/namespaces", &object).await;
    }
    let object = |kind: &str, name: &str, mut rest: Value| {
        let version = if kind == "ClusterRole" {
            "rbac.authorization.k8s.io/v1"
        } else {
            "v1"
        };
        rest["apiVersion"] = version.into();
        rest["kind"] = kind.into();
        rest["metadata"] = json!({"name": name, "labels": {"app": "x"}});
        rest
    };
    for name in ["a", "moves", "z"] {
        create(
            direct,
            CONFIGMAPS,
            &object("ConfigMap", name, json!({"data": {"k": "v"}})),
        )
        .await;
    }
    create(
        direct,
        "/api/v1/namespaces/w-b/configmaps",
        &object("ConfigMap", "moves", json!({})),
    )
    .await;
    create(direct, NODES, &object("Node", "n1", json!({}))).await;
    create(
        direct,
        SECRETS,
        &object("Secret", "s", json!({"stringData": {"a": "b"}})),
    )
    .await;
    create(
        direct,
        ROLES,
        &object("ClusterRole", "t:one:two", json!({"rules": []})),
    )
    .await;
    create(
        direct,
        ENDPOINTS,
        &object(
            "Endpoints",
            "ep",
            json!({"subsets": [{"addresses": [{"ip": "10.1.0.1"}], "ports": [{"port": 80}]}]}),
        ),
    )
    .await;
    let event = json!({"involvedObject": {"kind": "Pod", "namespace": "w", "name": "p"}, "reason": "Tested", "type": "Normal"});
    create(direct, EVENTS, &object("Event", "e", event)).await;
    let spec =
        json!({"spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]}});
    create(direct, PODS, &object("Pod", "p", spec)).await;
    widgets(direct).await;
}

async fn widgets(direct: &Client) {
    let spec = json!({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.ex.io"},
        "spec": {
            "group": "ex.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetCollection"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": ".spec.n"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    });
    create(
        direct,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &definition,
    )
    .await;
    let widget = json!({"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": {"name": "w1"}, "spec": {"n": 1}});
    wait_for("the kind to be served", PATIENCE, async || {
        direct.create(WIDGETS, &widget).await?.ok()
    })
    .await
    .unwrap();
    patch(
        direct,
        &format!("{WIDGETS}/w1"),
        &json!({"spec": {"s": "a"}}),
    )
    .await;
}
