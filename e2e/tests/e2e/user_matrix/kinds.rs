//! The kinds that are asked for, and the objects that there are: of each kind some called alike.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::{Value, json};

/// A kind as its paths have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    api: &'static str,
    resource: &'static str,
    pub(super) namespaced: bool,
}

impl Kind {
    const fn namespaced(api: &'static str, resource: &'static str) -> Self {
        Self {
            api,
            resource,
            namespaced: true,
        }
    }

    const fn of_cluster(api: &'static str, resource: &'static str) -> Self {
        Self {
            api,
            resource,
            namespaced: false,
        }
    }

    /// Its objects in a namespace; in all where that is "".
    pub(super) fn within(self, namespace: &str) -> String {
        let Self { api, resource, .. } = self;
        match namespace {
            "" => format!("{api}/{resource}"),
            _ => format!("{api}/namespaces/{namespace}/{resource}"),
        }
    }

    /// All there are.
    pub(super) fn all(self) -> String {
        self.within("")
    }
}

pub(super) const CONFIGMAPS: Kind = Kind::namespaced("/api/v1", "configmaps");
pub(super) const EVENTS: Kind = Kind::namespaced("/api/v1", "events");
pub(super) const PODS: Kind = Kind::namespaced("/api/v1", "pods");
pub(super) const SECRETS: Kind = Kind::namespaced("/api/v1", "secrets");
pub(super) const NAMESPACES: Kind = Kind::of_cluster("/api/v1", "namespaces");
pub(super) const NODES: Kind = Kind::of_cluster("/api/v1", "nodes");
pub(super) const DEPLOYMENTS: Kind = Kind::namespaced("/apis/apps/v1", "deployments");
pub(super) const NEW_EVENTS: Kind = Kind::namespaced("/apis/events.k8s.io/v1", "events");
pub(super) const CLUSTER_ROLES: Kind =
    Kind::of_cluster("/apis/rbac.authorization.k8s.io/v1", "clusterroles");
pub(super) const WIDGETS: Kind = Kind::namespaced("/apis/ex.io/v1", "widgets");
pub(super) const GADGETS: Kind = Kind::of_cluster("/apis/ex.io/v1", "gadgets");
/// Of another group than the Secrets that everybody knows, and called as they are.
pub(super) const OTHER_SECRETS: Kind = Kind::namespaced("/apis/ex.io/v1", "secrets");

/// All of them.
pub(super) const KINDS: [Kind; 12] = [
    CONFIGMAPS,
    EVENTS,
    PODS,
    SECRETS,
    NAMESPACES,
    NODES,
    DEPLOYMENTS,
    NEW_EVENTS,
    CLUSTER_ROLES,
    WIDGETS,
    GADGETS,
    OTHER_SECRETS,
];

/// The namespaces that there are: one in which most users may do something, one in which few may, and one for each side of
/// writes that are really made.
pub(super) const NAMESPACE_NAMES: [&str; 5] =
    ["here", "there", "one", "written-direct", "written-proxied"];

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Makes everything, and returns when it stands still.
pub(super) async fn create_objects(admin: &Client) {
    for name in NAMESPACE_NAMES {
        create(admin, NAMESPACES, "", name, "x").await;
    }
    for (plural, kind, scope) in [
        ("widgets", "Widget", "Namespaced"),
        ("gadgets", "Gadget", "Cluster"),
        ("secrets", "Secret", "Namespaced"),
    ] {
        let definition = definition(plural, kind, scope);
        let created = admin.create(DEFINITIONS, &definition).await;
        created.unwrap().ok().unwrap();
    }
    for kind in KINDS {
        match kind.resource {
            "namespaces" => {}
            // The same objects by another name.
            "events" if kind.api != EVENTS.api => {}
            _ if kind.namespaced => {
                for (namespace, name, app) in [("here", "one", "x"), ("here", "two", "y")] {
                    create(admin, kind, namespace, name, app).await;
                }
                create(admin, kind, "there", "one", "x").await;
            }
            _ => create(admin, kind, "", "one", "x").await,
        }
    }
    for namespace in ["written-direct", "written-proxied"] {
        create(admin, DEPLOYMENTS, namespace, "one", "x").await;
        create(admin, WIDGETS, namespace, "one", "x").await;
    }
    let pod = format!("{}/one", PODS.within("here"));
    wait_for("the pod to run", PATIENCE, async || {
        let pod = admin.get(&pod).await?.ok()?.json()?;
        anyhow::ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]);
        Ok(())
    })
    .await
    .unwrap();
}

/// Waits where the kind is not served yet.
async fn create(admin: &Client, kind: Kind, namespace: &str, name: &str, app: &str) {
    let path = kind.within(namespace);
    let object = object(kind, namespace, name, app);
    wait_for(&path, PATIENCE, async || {
        let answer = admin.create(&path, &object).await?;
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

/// An object as it is posted.
pub(super) fn object(kind: Kind, namespace: &str, name: &str, app: &str) -> Value {
    let (api_version, kind_name) = match (kind.api, kind.resource) {
        (_, "configmaps") => ("v1", "ConfigMap"),
        (_, "events") => ("v1", "Event"),
        (_, "pods") => ("v1", "Pod"),
        (_, "namespaces") => ("v1", "Namespace"),
        (_, "nodes") => ("v1", "Node"),
        (_, "deployments") => ("apps/v1", "Deployment"),
        (_, "clusterroles") => ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        (_, "widgets") => ("ex.io/v1", "Widget"),
        (_, "gadgets") => ("ex.io/v1", "Gadget"),
        ("/api/v1", "secrets") => ("v1", "Secret"),
        (_, "secrets") => ("ex.io/v1", "Secret"),
        (_, other) => panic!("no object of {other}"),
    };
    let mut object = json!({
        "apiVersion": api_version, "kind": kind_name, "metadata": {"name": name, "labels": {"app": app}},
    });
    let containers = json!([{"name": "c", "image": "i"}]);
    let said = match (kind_name, api_version) {
        ("ConfigMap", _) => json!({"data": {"of": namespace}}),
        ("Secret", "v1") => json!({"data": {"of": "c2VjcmV0"}}),
        ("Event", _) => json!({
            "involvedObject": {"kind": "Pod", "namespace": namespace, "name": name}, "reason": "Tested", "type": "Normal",
        }),
        ("Pod", _) => json!({"spec": {"schedulerName": "nobody", "containers": containers}}),
        ("Deployment", _) => json!({"spec": {
            "replicas": 0, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}},
        }}),
        ("ClusterRole", _) => json!({"rules": []}),
        _ => json!({"spec": {"replicas": 1}}),
    };
    if !matches!(kind_name, "Namespace" | "Node") {
        for (key, value) in said.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
    }
    // The one pod that runs.
    if kind_name == "Pod" && namespace == "here" && name == "one" {
        object["spec"]["nodeName"] = json!("node-1");
    }
    object
}

fn definition(plural: &str, kind: &str, scope: &str) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let spec = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let status =
        json!({"type": "object", "properties": {"replicas": {"type": "integer"}, "said": any}});
    let scale =
        json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.ex.io")},
        "spec": {
            "group": "ex.io", "scope": scope, "names": {"plural": plural, "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": scale},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
            }],
        },
    })
}
