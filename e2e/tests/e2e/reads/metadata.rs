//! Metadata alone, from the memory of the objects.

use super::*;

use http::{HeaderValue, Method};

use crate::protobuf::{Frame, frames};
use crate::watches::stream::Stream;

const ONE: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const OLD_LIST: &str =
    "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io,application/json";

/// As client-go's metadata client asks for objects and watches.
const PROTOBUF_ONE: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The same as it is asked for in protobuf.
fn in_protobuf(accept: &str) -> String {
    accept.replacen("application/json", "application/vnd.kubernetes.protobuf", 1)
}

/// Attempts at watches that must outlast what is written beside them, however slow the machine.
pub(super) const ATTEMPTS: u64 = 4;

/// Owners that are there: the garbage collector would delete what has none.
pub(super) async fn owners(client: &Client) -> Value {
    let uid = async |name: &str| {
        let namespace = client.get(&format!("/api/v1/namespaces/{name}")).await;
        let namespace = namespace.unwrap().ok().unwrap().json().unwrap();
        namespace["metadata"]["uid"].clone()
    };
    json!([
        {
            "apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": uid("default").await,
            "controller": false, "blockOwnerDeletion": true,
        },
        {"uid": uid("kube-system").await, "name": "kube-system", "kind": "Namespace", "apiVersion": "v1"},
    ])
}

/// Everything that metadata can have, as a client may write it.
pub(super) fn metadata(name: &str, owners: &Value) -> Value {
    json!({
        "name": name, "labels": {"is": name, "empty": ""}, "annotations": {"text": "<&> \\ \" }{", "z": "", "a": "b"},
        "finalizers": ["example.com/b", "example.com/a"],
        "ownerReferences": owners,
    })
}

#[tokio::test]
async fn of_objects_lists_and_pages_it_is_the_servers() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let group = format!("{}.example.com", random_name("reads"));
    define_widgets(&pair.direct, &group).await;
    let owners = owners(&pair.direct).await;
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let widgets = format!("/apis/{group}/v1/namespaces/{namespace}/widgets");
    for (path, api_version, kind) in [
        (&configmaps, "v1".to_owned(), "ConfigMap"),
        (&widgets, format!("{group}/v1"), "Widget"),
    ] {
        for name in ["a", "b", "c"] {
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata(name, &owners)});
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
            let protobuf = [("accept", &*in_protobuf(accept))];
            check_with(&pair, &path, &protobuf, true).await;
        }
        check_with(&pair, &one, &[("accept", PROTOBUF_ONE)], true).await;
        let old_one = in_protobuf(&ONE.replace("v=v1", "v=v1beta1"));
        check_with(&pair, &one, &[("accept", &old_one)], true).await;
        let old_page = format!("{path}?limit=1");
        check_with(
            &pair,
            &old_page,
            &[("accept", &in_protobuf(OLD_LIST))],
            true,
        )
        .await;
        // What is no list, and what is one.
        for (path, accept) in [(&one, LIST), (path, ONE)] {
            check_same(&pair, path, &[("accept", accept)]).await;
            check_same(&pair, path, &[("accept", &in_protobuf(accept))]).await;
        }
    }
    for path in [
        "/api/v1/namespaces",
        "/api/v1/nodes",
        "/apis/apps/v1/deployments",
    ] {
        warm(&pair.proxied, path).await;
        check_with(&pair, path, &[("accept", LIST)], true).await;
        check_with(&pair, path, &[("accept", &in_protobuf(LIST))], true).await;
    }
}

#[tokio::test]
async fn of_watches_it_is_the_servers_in_protobuf() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let group = format!("{}.example.com", random_name("reads"));
    define_widgets(&pair.direct, &group).await;
    let owners = owners(&pair.direct).await;
    for (path, api_version, kind) in [
        (
            format!("/api/v1/namespaces/{namespace}/configmaps"),
            "v1".to_owned(),
            "ConfigMap",
        ),
        (
            format!("/apis/{group}/v1/namespaces/{namespace}/widgets"),
            format!("{group}/v1"),
            "Widget",
        ),
    ] {
        let object = |name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": metadata(name, &owners)});
        let mut attempt = 1;
        loop {
            let [server, proxy] = watched(&pair, &path, PROTOBUF_ONE, attempt, object).await;
            if server == proxy {
                break;
            }
            assert!(attempt < ATTEMPTS, "{server:#?}\n{proxy:#?}");
            attempt += 1;
        }
    }
}

/// What the server and the proxy tell of the same writes: the headers that may not differ, the events, and the bookmarks, of
/// which one may have none.
pub(super) async fn watched(
    pair: &Pair,
    path: &str,
    accept: &str,
    attempt: u64,
    object: impl Fn(&str) -> Value,
) -> [(HeaderValue, Vec<Frame>); 2] {
    let query = format!(
        "{path}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds={}&labelSelector=is!%3Dx",
        5 * attempt
    );
    let name = |name: &str| format!("{name}-{attempt}");
    for first in ["a", "b"] {
        create(&pair.direct, path, object(&name(first))).await;
    }
    warm(&pair.proxied, path).await;
    let watch = async |client: &Client| {
        let headers = [("accept", accept)];
        Stream::request(client, Method::GET, &query, &headers).await
    };
    // What was read live a moment ago may be newer than memory.
    let proxied = wait_for(&query, PATIENCE, async || {
        let stream = watch(&pair.proxied).await;
        let status = stream.cache_status();
        anyhow::ensure!(status.starts_with("fleetcache; hit"), "{status}");
        Ok(stream)
    });
    let proxied = proxied.await.unwrap();
    let direct = watch(&pair.direct).await;
    create(&pair.direct, path, object(&name("c"))).await;
    let one = format!("{path}/{}", name("a"));
    for patch in [
        json!({"metadata": {"annotations": {"more": "\u{1f600}\u{2028}ü"}}}),
        // Leaves the selection: the object as it was, with the version of the change.
        json!({"metadata": {"labels": {"is": "x"}}}),
        json!({"metadata": {"labels": {"is": null}}}),
        json!({"metadata": {"finalizers": null}}),
    ] {
        pair.direct.patch(&one, &patch).await.unwrap().ok().unwrap();
    }
    pair.direct.delete(&one).await.unwrap();
    let told = async |stream: &Stream| {
        stream.ended_clean().await;
        let content_type = stream.headers["content-type"].clone();
        (content_type, frames(&stream.bytes()).unwrap())
    };
    let (mut server, mut proxy) = (told(&direct).await, told(&proxied).await);
    // Bookmarks but the one that ends the initial events come when they come.
    let is_plain =
        |frame: &Frame| frame.event_type == "BOOKMARK" && !frame.object.contains("initial-events");
    let bookmark = |frames: &[Frame]| frames.iter().find(|it| is_plain(it)).cloned();
    if let (Some(server), Some(proxy)) = (bookmark(&server.1), bookmark(&proxy.1)) {
        assert_eq!(server, proxy);
    }
    for (_, frames) in [&mut server, &mut proxy] {
        frames.retain(|frame| !is_plain(frame));
    }
    assert!(server.1.len() > 4, "{server:#?}");
    [server, proxy]
}

/// Managed fields are JSON, of which the server keeps other bytes in protobuf than it shows within JSON.
#[tokio::test]
async fn what_json_does_not_tell_of_protobuf_is_the_servers() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let pod = |name: &str, attribute: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "<&>"}]}],
                "volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {attribute: "<"}}}],
            },
        })
    };
    create(&pair.direct, &pods, pod("plain", "ü\u{1f600}")).await;
    warm(&pair.proxied, &pods).await;
    let (one, list) = (in_protobuf(ONE), in_protobuf(LIST));
    let (plain, odd) = (format!("{pods}/plain"), format!("{pods}/odd"));
    check_with(&pair, &plain, &[("accept", &one)], true).await;
    check_with(&pair, &pods, &[("accept", &list)], true).await;

    create(&pair.direct, &pods, pod("odd", "a<b&c>d\u{2028}")).await;
    for (path, accept) in [(&odd, &one), (&pods, &list)] {
        let answer = check_with(&pair, path, &[("accept", accept)], false).await;
        let status = answer.cache_status();
        assert!(
            status.ends_with("detail=representation"),
            "{path}: {status}"
        );
    }
    // JSON tells all of itself.
    check_with(&pair, &odd, &[("accept", ONE)], true).await;
    check_with(&pair, &plain, &[("accept", &one)], true).await;
    // And so does protobuf, once there are objects in it.
    warm_as(&pair.proxied, &pods, "application/vnd.kubernetes.protobuf").await;
    check_with(&pair, &odd, &[("accept", &one)], true).await;
    check_with(&pair, &pods, &[("accept", &list)], true).await;
}
