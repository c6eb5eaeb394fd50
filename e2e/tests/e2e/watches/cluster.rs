//! The cluster that the tests of watches share: nobody but them writes to it.

use std::net::SocketAddr;

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::{ControlPlane, Options, User, random_name};
use fleetcache_e2e::fault::Relay;
use fleetcache_e2e::kubeconfig;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{self, Proxy};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::pair::connected;

/// Without a controller manager, whose own watches would be counted too.
pub(super) async fn plain() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = || ControlPlane::start(Options::named("plain"));
    SHARED.get_or_try_init(start).await.unwrap()
}

/// A namespace of a test's own, and the path of its ConfigMaps.
pub(super) async fn configmaps(cluster: &ControlPlane, prefix: &str) -> String {
    let namespace = cluster.namespace(prefix).await.unwrap();
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// A ConfigMap with this value.
pub(super) fn configmap(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

/// What a ConfigMap's value becomes.
pub(super) fn value(value: impl Into<Value>) -> Value {
    json!({"data": {"value": value.into()}})
}

/// Creates an object, which must work.
pub(super) async fn create(client: &Client, path: &str, object: &Value) -> Value {
    let created = client.create(path, object).await.unwrap();
    created.ok().unwrap().json().unwrap()
}

/// Patches an object, which must work.
pub(super) async fn patch(client: &Client, path: &str, patch: &Value) -> Value {
    let patched = client.patch(path, patch).await.unwrap();
    patched.ok().unwrap().json().unwrap()
}

/// Deletes an object, which must work.
pub(super) async fn delete(client: &Client, path: &str) -> Answer {
    client.delete(path).await.unwrap().ok().unwrap()
}

/// The version of an object, a list or an event.
pub(super) fn version(value: &Value) -> u64 {
    let metadata = if value["object"].is_object() {
        &value["object"]["metadata"]
    } else {
        &value["metadata"]
    };
    let version = metadata["resourceVersion"].as_str();
    let parsed = version.and_then(|version| version.parse().ok());
    parsed.unwrap_or_else(|| panic!("no version: {value}"))
}

/// The version of a list at the server, from which a watch has nothing to tell but what comes.
pub(super) async fn list_version(client: &Client, path: &str) -> u64 {
    let list = client.get(path).await.unwrap().ok().unwrap();
    version(&list.json().unwrap())
}

/// Waits until a collection is served again. `/version` is answered from what is held while the cluster is away.
pub(super) async fn served(client: &Client, path: &str) {
    wait_for("the cluster to be back", PATIENCE, async || {
        client.get(path).await?.ok()
    })
    .await
    .unwrap();
}

/// A proxy that reaches a cluster by a relay, which a test can break.
pub(super) struct Breakable {
    pub(super) relay: Relay,
    pub(super) proxy: Proxy,
    pub(super) name: String,
    _files: TempDir,
}

impl Breakable {
    /// With these further lines of configuration.
    pub(super) async fn start(cluster: &ControlPlane, rest: &str) -> Self {
        let address: SocketAddr = cluster
            .url()
            .trim_start_matches("https://")
            .parse()
            .unwrap();
        let relay = Relay::start(address).unwrap();
        let mut context = cluster.context(User::Proxy).unwrap();
        context.server = format!("https://{}", relay.address());
        let name = context.name.clone();
        let files = tempfile::tempdir().unwrap();
        let path = kubeconfig::write(&files.path().join("kubeconfig"), &[context]).unwrap();
        let config = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\n{rest}",
            path.display()
        );
        let proxy = Proxy::start(proxy::Options {
            config: Some(config),
            ..Default::default()
        })
        .await
        .unwrap();
        connected(&proxy.client(&name).unwrap()).await;
        Self {
            relay,
            proxy,
            name,
            _files: files,
        }
    }

    pub(super) fn client(&self) -> Client {
        self.proxy.client(&self.name).unwrap()
    }

    pub(super) fn http2(&self) -> Client {
        Client::http2(&self.proxy.context(&self.name).unwrap()).unwrap()
    }
}

/// A kind of a test's own.
pub(super) struct Kind {
    /// The path of its definition.
    pub(super) definition: String,
    pub(super) group: String,
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

impl Kind {
    /// Defines a kind with versions v1 and v2, and returns when it is served.
    pub(super) async fn define(client: &Client) -> Self {
        let group = format!("{}.example.com", random_name("watch"));
        let kind = Self {
            definition: format!("{DEFINITIONS}/gadgets.{group}"),
            group,
        };
        kind.make(client).await;
        kind
    }

    /// Makes its definition, also again.
    pub(super) async fn make(&self, client: &Client) {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"value": {"type": "string"}, "other": {"type": "string"}}},
        }}});
        let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("gadgets.{}", self.group)},
            "spec": {
                "group": self.group, "scope": "Namespaced",
                "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
                "versions": [version("v1", true), version("v2", false)],
            },
        });
        wait_for("the definition to be taken", PATIENCE, async || {
            client.create(DEFINITIONS, &definition).await?.ok()
        })
        .await
        .unwrap();
        for version in ["v1", "v2"] {
            let path = self.path(version);
            wait_for("the new kind to be served", PATIENCE, async || {
                client.get(&path).await?.ok()
            })
            .await
            .unwrap();
        }
    }

    /// The path of its objects in a version.
    pub(super) fn path(&self, version: &str) -> String {
        format!("/apis/{}/{version}/namespaces/default/gadgets", self.group)
    }

    /// An object of it.
    pub(super) fn object(&self, name: &str, value: &str) -> Value {
        json!({
            "apiVersion": format!("{}/v1", self.group), "kind": "Gadget",
            "metadata": {"name": name, "labels": {"of": "test"}}, "spec": {"value": value},
        })
    }
}
