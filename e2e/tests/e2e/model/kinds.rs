//! What is written and read.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::{Value, json};

use crate::forward::Key;

/// Names of each kind in each namespace: few, so that writers and readers meet.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// One storage, under all its names.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) storage: &'static str,
    /// Group versions, each with the kind's path below a namespace's and its name in that version.
    pub(super) versions: &'static [(&'static str, &'static str)],
    pub(super) resource: &'static str,
    pub(super) kind: &'static str,
    pub(super) status: bool,
    pub(super) scale: bool,
    /// Not a custom resource: strategic merge patches and protobuf.
    pub(super) built_in: bool,
}

pub(super) static KINDS: [Kind; 5] = [
    Kind {
        storage: "configmaps",
        versions: &[("v1", "/api/v1")],
        resource: "configmaps",
        kind: "ConfigMap",
        status: false,
        scale: false,
        built_in: true,
    },
    Kind {
        storage: "pods",
        versions: &[("v1", "/api/v1")],
        resource: "pods",
        kind: "Pod",
        status: true,
        scale: false,
        built_in: true,
    },
    Kind {
        storage: "deployments",
        versions: &[("apps/v1", "/apis/apps/v1")],
        resource: "deployments",
        kind: "Deployment",
        status: true,
        scale: true,
        built_in: true,
    },
    Kind {
        storage: "gadgets",
        versions: &[
            ("model.example.com/v1", "/apis/model.example.com/v1"),
            ("model.example.com/v2", "/apis/model.example.com/v2"),
        ],
        resource: "gadgets",
        kind: "Gadget",
        status: true,
        scale: true,
        built_in: false,
    },
    Kind {
        storage: "events",
        versions: &[
            ("v1", "/api/v1"),
            ("events.k8s.io/v1", "/apis/events.k8s.io/v1"),
        ],
        resource: "events",
        kind: "Event",
        status: false,
        scale: false,
        built_in: true,
    },
];

impl Kind {
    /// The collection in a namespace, or everywhere.
    pub(super) fn collection(&self, version: usize, namespace: Option<&str>) -> String {
        let (_, base) = self.versions[version];
        match namespace {
            Some(namespace) => format!("{base}/namespaces/{namespace}/{}", self.resource),
            None => format!("{base}/{}", self.resource),
        }
    }

    pub(super) fn key(&self, namespace: &str, name: &str) -> Key {
        (self.storage, format!("{namespace}/{name}"))
    }

    /// Everything there can be in a namespace.
    pub(super) fn keys(&self, namespace: &str) -> Vec<Key> {
        NAMES.iter().map(|name| self.key(namespace, name)).collect()
    }

    /// A new object; `n` makes it another one.
    pub(super) fn object(&self, version: usize, namespace: &str, name: &str, n: u32) -> Value {
        let (api_version, _) = self.versions[version];
        let mut object = json!({
            "apiVersion": api_version, "kind": self.kind,
            "metadata": {"namespace": namespace, "name": name, "labels": {"n": (n % 2).to_string()}},
        });
        let container = json!({"name": "c", "image": "i"});
        let more = match (self.storage, api_version) {
            ("configmaps", _) => json!({"data": {"n": n.to_string()}}),
            ("pods", _) => json!({"spec": {"schedulerName": "nobody", "containers": [container]}}),
            ("deployments", _) => json!({"spec": {
                "replicas": n % 5, "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
            }}),
            ("events", "v1") => json!({
                "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "a"}, "type": "Normal", "reason": "N",
            }),
            ("events", _) => json!({
                "regarding": {"kind": "Pod", "namespace": namespace, "name": "a"}, "type": "Normal", "reason": "N",
                "eventTime": "2026-01-01T00:00:00.000000Z", "action": "a", "reportingController": "x.io/y", "reportingInstance": "z",
            }),
            _ => json!({"spec": {"n": n, "replicas": n % 5}}),
        };
        for (field, value) in more.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        object
    }
}

/// Defines gadgets: two versions of one storage, which differ in their name only.
pub(super) async fn define_gadgets(client: &Client) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"n": {"type": "integer"}, "replicas": {"type": "integer"}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}});
    let subresources = json!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    let version = |name: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": schema, "subresources": subresources});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.model.example.com"},
        "spec": {
            "group": "model.example.com", "scope": "Namespaced", "conversion": {"strategy": "None"},
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [version("v1"), version("v2")],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client
        .create(path, &definition)
        .await
        .unwrap()
        .ok()
        .unwrap();
    for version in ["v1", "v2"] {
        let path = format!("/apis/model.example.com/{version}/gadgets");
        wait_for("the kind to be served", PATIENCE, async || {
            client.get(&path).await?.ok()
        })
        .await
        .unwrap();
    }
}
