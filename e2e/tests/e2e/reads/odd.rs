//! Custom resources whose names and contents are those of something else.

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Defines a namespaced kind of any content, and returns the path of its objects in all namespaces.
async fn define(client: &Client, group: &str, plural: &str, kind: &str, list: &str) -> String {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": list},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    create(client, DEFINITIONS, definition).await;
    let path = format!("/apis/{group}/v1/{plural}");
    wait_for("the new kind to be served", PATIENCE, async || {
        client.get(&path).await?.ok()
    })
    .await
    .unwrap();
    path
}

#[tokio::test]
async fn odd_custom_resources_are_equal() {
    let pair = Pair::shared().await;
    let group = format!("{}.example.com", random_name("odd"));
    let deep = (0..100).fold(json!(1), |inner, _| json!({"a": inner}));
    let marks =
        json!({"k8s.io/initial-events-end": "true", "text": "\"k8s.io/initial-events-end\""});
    let objects = [
        ("status", json!({"status": {"x": 1}})),
        (
            "watch",
            json!({"zz\"\\\n\u{1}\u{7f}": "\u{2028}<>&", "nul": null, "f": 1.0, "e": 1.5e300}),
        ),
        ("proxy", json!({"deep": deep})),
        (
            "namespaces",
            json!({"metadata": {"annotations": marks, "generateName": "x", "finalizers": []}}),
        ),
        ("scale", json!({"huge": "x".repeat(1_000_000)})),
        (
            "a.b",
            json!({"type": "ERROR", "object": {}, "code": 410, "metadata2": {"name": "no"}}),
        ),
    ];
    for (plural, kind, list) in [
        ("namespaces", "Namespace", "NamespaceList"),
        ("tables", "Table", "List"),
        ("configmaps", "ConfigMap", "ConfigMapList"),
    ] {
        let all = define(&pair.direct, &group, plural, kind, list).await;
        let own = format!("/apis/{group}/v1/namespaces/default/{plural}");
        for (name, object) in &objects {
            let mut object = object.clone();
            object["apiVersion"] = json!(format!("{group}/v1"));
            object["kind"] = json!(kind);
            object["metadata"]["name"] = json!(name);
            create(&pair.direct, &own, object).await;
        }
        check(&pair, &all).await;
        check(&pair, &own).await;
        for (name, _) in &objects {
            check(&pair, &format!("{own}/{name}")).await;
            check_same(&pair, &format!("{all}/{name}"), &[]).await;
            check_same(&pair, &format!("{own}/{name}/status"), &[]).await;
        }
    }
}

/// To the server `/namespaces/default/status` is the status of a namespace, also in a group that has none.
#[tokio::test]
async fn a_kind_called_status_is_in_no_namespace() {
    let pair = Pair::shared().await;
    let group = format!("{}.example.com", random_name("odd"));
    let all = define(&pair.direct, &group, "status", "Status", "StatusList").await;
    check_same(&pair, &all, &[]).await;
    for path in ["", "/a", "/a/status"] {
        let path = format!("/apis/{group}/v1/namespaces/default/status{path}");
        check_same(&pair, &path, &[]).await;
    }
}

/// The objects of a removed definition go first; the server ends their watch a second after it has begun to answer 404.
#[tokio::test]
async fn a_removed_definition_is_never_an_empty_list_from_memory() {
    let pair = Pair::shared().await;
    let group = format!("{}.example.com", random_name("odd"));
    let all = define(&pair.direct, &group, "gadgets", "Gadget", "GadgetList").await;
    let object =
        json!({"apiVersion": format!("{group}/v1"), "kind": "Gadget", "metadata": {"name": "g"}});
    let own = format!("/apis/{group}/v1/namespaces/default/gadgets");
    create(&pair.direct, &own, object).await;
    check(&pair, &all).await;
    let definition = format!("{DEFINITIONS}/gadgets.{group}");
    pair.direct.delete(&definition).await.unwrap().ok().unwrap();
    wait_for("the kind to be gone", PATIENCE, async || {
        let answer = pair.proxied.get(&all).await?;
        let empty = answer.json().is_ok_and(|list| list["items"] == json!([]));
        assert!(!(empty && answer.is_hit()), "{}", answer.text());
        anyhow::ensure!(answer.status == 404, "{}", answer.status);
        anyhow::Ok(())
    })
    .await
    .unwrap();
}
