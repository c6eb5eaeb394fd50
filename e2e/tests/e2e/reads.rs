//! Reads from memory are, byte for byte, what the apiserver would have answered; and everything else is what it did answer.

mod answers;
mod clients;
mod compressed;
mod fields;
mod metadata;
mod odd;
mod pretty;
mod protobuf;
mod selectors;
mod stripped;
mod tables;
mod warnings;

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::{ControlPlane, Options, random_name};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::{Value, json};

use crate::pair::{Comparable, Pair, compare, connect, connected, warm, warm_as};

/// Asks both sides until they agree, so that writes of other tests to the shared cluster cannot make them differ: the
/// server is asked before and after the proxy, and only counts when it said the same twice.
async fn check_with(pair: &Pair, path: &str, headers: &[(&str, &str)], must_hit: bool) -> Answer {
    check_between(&pair.direct, &pair.proxied, path, headers, must_hit).await
}

async fn check_between(
    direct: &Client,
    proxied: &Client,
    path: &str,
    headers: &[(&str, &str)],
    must_hit: bool,
) -> Answer {
    let what = format!("{path} {headers:?} to be the same through the proxy");
    wait_for(&what, PATIENCE, async || {
        let before = Comparable::from(&direct.get_with(path, headers).await?);
        let proxied = proxied.get_with(path, headers).await?;
        let after = Comparable::from(&direct.get_with(path, headers).await?);
        anyhow::ensure!(before == after, "the cluster does not hold still");
        compare(&before, &Comparable::from(&proxied)).map_err(anyhow::Error::msg)?;
        anyhow::ensure!(
            !must_hit || proxied.is_hit(),
            "it was the same, but not from memory: {}",
            proxied.cache_status()
        );
        Ok(proxied)
    })
    .await
    .unwrap()
}

/// A read that must come from memory once it is warm.
async fn check(pair: &Pair, path: &str) {
    warm(&pair.proxied, path).await;
    check_with(pair, path, &[("accept", "application/json")], true).await;
}

/// A read that must be the same, wherever it comes from.
async fn check_same(pair: &Pair, path: &str, headers: &[(&str, &str)]) {
    check_with(pair, path, headers, false).await;
}

async fn create(client: &Client, path: &str, object: Value) -> Value {
    client
        .create(path, &object)
        .await
        .unwrap()
        .ok()
        .unwrap()
        .json()
        .unwrap()
}

fn configmap(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"value": value},
        "metadata": {"name": name, "labels": {"name": name, "test": "reads"}, "annotations": {"html": "<a href=\"x\">&</a>"}},
    })
}

#[tokio::test]
async fn lists_and_objects_of_a_namespaced_kind_are_equal() {
    let pair = Pair::shared().await;
    let base = random_name("zz");
    // '-' sorts before '/', so the namespace with the longer name comes first in a list of all namespaces.
    for namespace in [base.clone(), format!("{base}-b"), format!("{base}-empty")] {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        create(&pair.direct, "/api/v1/namespaces", object).await;
    }
    for namespace in [base.clone(), format!("{base}-b")] {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        for name in ["b", "a", "a.b", "a-b"] {
            create(
                &pair.direct,
                &path,
                configmap(name, "<tag attribute=\"1\"> & 'ü' \u{2028} \u{1f600}"),
            )
            .await;
        }
    }
    check(&pair, "/api/v1/configmaps").await;
    check(&pair, &format!("/api/v1/namespaces/{base}/configmaps")).await;
    check(&pair, &format!("/api/v1/namespaces/{base}-b/configmaps")).await;
    check(
        &pair,
        &format!("/api/v1/namespaces/{base}-empty/configmaps"),
    )
    .await;
    check(
        &pair,
        &format!("/api/v1/namespaces/{base}-absent/configmaps"),
    )
    .await;
    check(&pair, &format!("/api/v1/namespaces/{base}/configmaps/a.b")).await;
    check(&pair, &format!("/api/v1/namespaces/{base}-b/configmaps/a")).await;

    let all = pair
        .proxied
        .get("/api/v1/configmaps")
        .await
        .unwrap()
        .json()
        .unwrap();
    let ours: Vec<String> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            format!(
                "{}/{}",
                item["metadata"]["namespace"].as_str().unwrap(),
                item["metadata"]["name"].as_str().unwrap()
            )
        })
        .filter(|key| key.starts_with(&base))
        .collect();
    let names = ["a", "a-b", "a.b", "b"];
    let first = names.iter().map(|name| format!("{base}-b/{name}"));
    let second = names.iter().map(|name| format!("{base}/{name}"));
    assert_eq!(ours, first.chain(second).collect::<Vec<_>>());
}

#[tokio::test]
async fn kinds_of_every_sort_are_equal() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "args": ["<", ">", "&"]}]},
    });
    create(&pair.direct, &pods, pod).await;
    let role = random_name("system:reads:a");
    let role_object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    });
    create(
        &pair.direct,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        role_object,
    )
    .await;

    for path in [
        "/api/v1/pods".to_owned(),
        pods.clone(),
        format!("{pods}/p"),
        "/api/v1/namespaces".to_owned(),
        format!("/api/v1/namespaces/{namespace}"),
        "/api/v1/nodes".to_owned(),
        "/api/v1/nodes/node-1".to_owned(),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:job-controller"
            .to_owned(),
        format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}"),
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
        "/apis/apps/v1/deployments".to_owned(),
        format!("/apis/apps/v1/namespaces/{namespace}/statefulsets"),
        "/apis/autoscaling/v2/horizontalpodautoscalers".to_owned(),
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas".to_owned(),
        "/apis/apiregistration.k8s.io/v1/apiservices".to_owned(),
        "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps".to_owned(),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
    ] {
        check(&pair, &path).await;
    }
}

#[tokio::test]
async fn custom_resources_are_equal() {
    let pair = Pair::shared().await;
    let group = format!("{}.example.com", random_name("reads"));
    let widgets = define_widgets(&pair.direct, &group).await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    // Without any object the definition may be gone, so the cluster is asked.
    check_same(&pair, &format!("/apis/{group}/v1/widgets"), &[]).await;
    for name in ["b", "a"] {
        let widget = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": name}, "spec": {"z": 1, "a": "<&>"}});
        create(
            &pair.direct,
            &format!("/apis/{group}/v1/namespaces/{namespace}/widgets"),
            widget,
        )
        .await;
    }
    check(&pair, &format!("/apis/{group}/v1/widgets")).await;
    check(
        &pair,
        &format!("/apis/{group}/v1/namespaces/default/widgets"),
    )
    .await;
    check(
        &pair,
        &format!("/apis/{group}/v1/namespaces/{namespace}/widgets"),
    )
    .await;
    check(
        &pair,
        &format!("/apis/{group}/v1/namespaces/{namespace}/widgets/a"),
    )
    .await;
    check(
        &pair,
        &format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{widgets}"),
    )
    .await;
    let list = pair
        .proxied
        .get(&format!("/apis/{group}/v1/widgets"))
        .await
        .unwrap()
        .json()
        .unwrap();
    assert_eq!(list["kind"], "WidgetCollection");
    pair.direct
        .delete(&format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{widgets}"
        ))
        .await
        .unwrap();
}

/// Defines a kind whose list has a name of its own, and returns when it is served.
pub(crate) async fn define_widgets(client: &Client, group: &str) -> String {
    let name = format!("widgets.{group}");
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        // Asked for where a group is Kubernetes' own.
        "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetCollection"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    create(
        client,
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        definition,
    )
    .await;
    wait_for("the new kind to be served", PATIENCE, async || {
        client.get(&format!("/apis/{group}/v1/widgets")).await?.ok()
    })
    .await
    .unwrap();
    name
}

#[tokio::test]
async fn a_default_added_to_a_schema_is_served() {
    let cluster = ControlPlane::start(Options::named("alpha")).await.unwrap();
    let (direct, proxied, _proxy) = connect(&cluster).await;
    let definition = define_widgets(&direct, "outage.example.com").await;
    let path = "/apis/outage.example.com/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "outage.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}});
    direct.create(path, &widget).await.unwrap().ok().unwrap();
    let before = warm(&proxied, path).await;

    let property = json!({"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"colour": {"type": "string", "default": "blue"}}}});
    let patch = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties", "value": property}]);
    let definition =
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition}");
    let headers = [("content-type", "application/json-patch+json")];
    direct
        .send(
            http::Method::PATCH,
            &definition,
            &headers,
            patch.to_string(),
        )
        .await
        .unwrap()
        .ok()
        .unwrap();

    for path in [path.to_owned(), format!("{path}/w")] {
        wait_for(
            "the default to be served from memory",
            PATIENCE,
            async || {
                let (direct, proxied) = (
                    direct.get(&path).await?.ok()?,
                    proxied.get(&path).await?.ok()?,
                );
                anyhow::ensure!(
                    direct.text().contains("blue"),
                    "the server does not serve it yet"
                );
                compare(&Comparable::from(&direct), &Comparable::from(&proxied))
                    .map_err(anyhow::Error::msg)?;
                anyhow::ensure!(
                    proxied.is_hit(),
                    "not from memory: {}",
                    proxied.cache_status()
                );
                Ok(())
            },
        )
        .await
        .unwrap();
    }
    let version =
        |list: &Answer| list.json().unwrap()["items"][0]["metadata"]["resourceVersion"].clone();
    assert_eq!(
        version(&before),
        version(&proxied.get(path).await.unwrap()),
        "the object was written, so this proved nothing"
    );
}
