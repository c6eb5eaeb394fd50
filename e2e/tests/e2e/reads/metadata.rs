//! Metadata alone, from the memory of the objects.

use super::*;

const ONE: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const OLD_LIST: &str =
    "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io,application/json";

/// Everything that metadata can have, as a client may write it.
fn metadata(name: &str) -> Value {
    json!({
        "name": name, "labels": {"is": name, "empty": ""}, "annotations": {"text": "<&> \\ \" }{", "z": "", "a": "b"},
        "finalizers": ["example.com/b", "example.com/a"],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Namespace", "name": "o", "uid": "5", "controller": false, "blockOwnerDeletion": true},
            {"uid": "6", "name": "p", "kind": "Node", "apiVersion": "v1"},
        ],
    })
}

#[tokio::test]
async fn of_objects_lists_and_pages_it_is_the_servers() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let group = format!("{}.example.com", random_name("reads"));
    define_widgets(&pair.direct, &group).await;
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let widgets = format!("/apis/{group}/v1/namespaces/{namespace}/widgets");
    for (path, api_version, kind) in [
        (&configmaps, "v1".to_owned(), "ConfigMap"),
        (&widgets, format!("{group}/v1"), "Widget"),
    ] {
        for name in ["a", "b", "c"] {
            let object =
                json!({"apiVersion": api_version, "kind": kind, "metadata": metadata(name)});
            create(&pair.direct, path, object).await;
        }
        let patch = json!({"metadata": {"labels": {"is": null, "new": "x"}}});
        let one = format!("{path}/a");
        pair.direct.patch(&one, &patch).await.unwrap().ok().unwrap();
        // It stays, for its finalizers, with a time of deletion.
        pair.direct.delete(&format!("{path}/c")).await.unwrap();
        warm(&pair.proxied, path).await;
        let absent = path.replace(&namespace, &format!("{namespace}-absent"));
        for (path, accept) in [
            (one.clone(), ONE),
            (format!("{path}/c?pretty=true"), ONE),
            (path.clone(), LIST),
            (path.clone(), OLD_LIST),
            (format!("{path}?pretty=1"), LIST),
            (format!("{path}?limit=2"), LIST),
            (format!("{path}?labelSelector=new"), LIST),
            (format!("{path}?labelSelector=new%3Dy"), LIST),
            (format!("{path}?fieldSelector=metadata.name%3Db"), LIST),
            (absent, LIST),
        ] {
            check_with(&pair, &path, &[("accept", accept)], true).await;
        }
        // What is no list, and what is one.
        check_same(&pair, &one, &[("accept", LIST)]).await;
        check_same(&pair, path, &[("accept", ONE)]).await;
    }
    for path in [
        "/api/v1/namespaces",
        "/api/v1/nodes",
        "/apis/apps/v1/deployments",
    ] {
        warm(&pair.proxied, path).await;
        check_with(&pair, path, &[("accept", LIST)], true).await;
    }
}
