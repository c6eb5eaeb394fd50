//! Reads from memory are, byte for byte, what the apiserver would have answered; and everything else is what it did answer.

use std::path::Path;
use std::time::Duration;

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::random_name;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::{Value, json};

use crate::pair::{Comparable, Pair, assert_same, compare, warm};

/// Asks both sides until they agree, so that writes of other tests to the shared cluster cannot make them differ: the
/// server is asked before and after the proxy, and only counts when it said the same twice.
async fn check_with(pair: &Pair, path: &str, headers: &[(&str, &str)], must_hit: bool) -> Answer {
    let what = format!("{path} {headers:?} to be the same through the proxy");
    wait_for(&what, Duration::from_secs(20), async || {
        let before = Comparable::from(&pair.direct.get_with(path, headers).await?);
        let proxied = pair.proxied.get_with(path, headers).await?;
        let after = Comparable::from(&pair.direct.get_with(path, headers).await?);
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
    check(&pair, &format!("/apis/{group}/v1/widgets")).await;
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
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
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
async fn options_of_a_list_are_understood_as_the_server_does() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut versions = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let object = create(&pair.direct, &path, configmap(name, name)).await;
        versions.push(
            object["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    warm(&pair.proxied, &path).await;
    let last = versions.last().unwrap();
    for query in [
        "labelSelector=name%3Da".to_owned(),
        "labelSelector=name+in+%28a%2Cc%29".to_owned(),
        "labelSelector=name+notin+%28a%2Cc%29%2Ctest".to_owned(),
        "labelSelector=%21test".to_owned(),
        "labelSelector=none".to_owned(),
        "fieldSelector=metadata.name%3Db".to_owned(),
        "fieldSelector=metadata.name%21%3Db%2Cmetadata.namespace%3D".to_owned() + &namespace,
        "limit=500".to_owned(),
        format!("resourceVersion={last}"),
        format!("resourceVersion={last}&resourceVersionMatch=NotOlderThan"),
        format!("resourceVersion={}&resourceVersionMatch=Exact", versions[1]),
        format!("resourceVersion={}&limit=1", versions[2]),
        "resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(),
        "resourceVersion=0&limit=1".to_owned(),
        "pretty=true".to_owned(),
        "timeout=30s".to_owned(),
        "unknown=1".to_owned(),
    ] {
        check_same(
            &pair,
            &format!("{path}?{query}"),
            &[("accept", "application/json")],
        )
        .await;
    }
    assert_eq!(
        pages(&pair.direct, &path, 3).await,
        pages(&pair.proxied, &path, 3).await
    );
}

/// The names on each page.
async fn pages(client: &Client, path: &str, limit: usize) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut token = String::new();
    loop {
        let page = client
            .get(&format!("{path}?limit={limit}&continue={token}"))
            .await
            .unwrap()
            .ok()
            .unwrap()
            .json()
            .unwrap();
        let names = page["items"].as_array().unwrap().iter();
        pages.push(
            names
                .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
                .collect(),
        );
        token = page["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if token.is_empty() {
            return pages;
        }
    }
}

#[tokio::test]
async fn other_encodings_are_the_servers_own() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    create(&pair.direct, &path, configmap("a", "x")).await;
    warm(&pair.proxied, &path).await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let partial_list = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for (path, accept) in [
        (format!("{path}/a"), "application/yaml"),
        (format!("{path}/a"), "application/vnd.kubernetes.protobuf"),
        (format!("{path}/a"), partial),
        (path.clone(), partial_list),
        (path.clone(), "application/json;charset=utf-8"),
        (path.clone(), "*/*"),
        (path.clone(), "text/html"),
        (path.clone(), "application/*"),
        (
            path.clone(),
            "application/vnd.kubernetes.protobuf;as=Nonsense;g=meta.k8s.io;v=v1,application/json",
        ),
    ] {
        check_same(&pair, &path, &[("accept", accept)]).await;
    }
    for path in [path.clone(), format!("{path}/a")] {
        check_tables(&pair, &path, table).await;
    }
    let compressed = [("accept", "application/json"), ("accept-encoding", "gzip")];
    check_same(&pair, &path, &compressed).await;
}

/// A table renders ages, so only those may differ.
async fn check_tables(pair: &Pair, path: &str, accept: &str) {
    wait_for("equal tables", Duration::from_secs(20), async || {
        let mut tables = Vec::new();
        for client in [&pair.direct, &pair.proxied] {
            let mut table = client
                .get_with(path, &[("accept", accept)])
                .await?
                .ok()?
                .json()?;
            let columns = table["columnDefinitions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let age = columns.iter().position(|column| column["name"] == "Age");
            for row in table["rows"].as_array_mut().into_iter().flatten() {
                age.inspect(|&age| row["cells"][age] = "age".into());
            }
            table["metadata"]["resourceVersion"] = "?".into();
            tables.push(table);
        }
        anyhow::ensure!(
            tables[0]["kind"] == "Table" && tables[0] == tables[1],
            "{} is not {}",
            tables[0],
            tables[1]
        );
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn errors_are_the_servers_own() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    warm(&pair.proxied, &path).await;
    for path in [
        format!("{path}/absent"),
        format!("{path}?labelSelector=a%20b%20c"),
        format!("{path}?fieldSelector=spec.x%3D1"),
        format!("{path}?fieldSelector=nonsense"),
        format!("{path}?resourceVersion=abc"),
        format!("{path}/absent?resourceVersion=abc"),
        format!("{path}?resourceVersionMatch=Exact"),
        format!("{path}?resourceVersion=0&resourceVersionMatch=Exact"),
        format!("{path}?resourceVersion=1&resourceVersionMatch=Sometimes"),
        format!("{path}?continue=nonsense"),
        format!("{path}?limit=-1"),
        format!("{path}?limit=many"),
        format!("{path}?sendInitialEvents=true"),
        format!("{path}?watch=true&resourceVersion=abc"),
        "/api/v1/nothings".to_owned(),
        "/api/v2/configmaps".to_owned(),
        "/apis/none.example.com/v1/things".to_owned(),
        "/apis/apps/v1/namespaces/default/deployments/absent/scale".to_owned(),
        "/nothing".to_owned(),
        "//api/v1/configmaps".to_owned(),
        "/api/v1/namespaces/default/configmaps/".to_owned(),
        "/api/v1/namespaces//configmaps".to_owned(),
        "/api/v1/namespaces/default/configmaps/%2e%2e".to_owned(),
    ] {
        check_same(&pair, &path, &[("accept", "application/json")]).await;
    }
}

#[tokio::test]
async fn discovery_is_equal() {
    let pair = Pair::shared().await;
    let aggregated =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    // Other tests define kinds meanwhile; that the two agree at one moment is what counts.
    for (path, accept) in [
        ("/api", "application/json"),
        ("/apis", "application/json"),
        ("/api", aggregated),
        ("/apis", aggregated),
        ("/api/v1", "application/json"),
        ("/apis/apps/v1", "application/json"),
        ("/version", "application/json"),
        ("/openapi/v3", "application/json"),
        ("/openapi/v3/api/v1", "application/json"),
        ("/healthz", "*/*"),
        ("/readyz?verbose", "*/*"),
        ("/", "application/json"),
    ] {
        check_same(&pair, path, &[("accept", accept)]).await;
    }
}

#[tokio::test]
async fn a_client_go_program_sees_the_same() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    for (client, scenario) in [
        ("typed", "crud"),
        ("dynamic", "crud"),
        ("typed", "informer"),
        ("dynamic", "informer"),
        ("metadata", "informer"),
    ] {
        let run = async |kubeconfig: &Path| {
            fleetcache_e2e::client_go::run(
                kubeconfig,
                pair.cluster.name(),
                &namespace,
                client,
                scenario,
            )
            .await
            .unwrap()
        };
        let direct = run(&pair.cluster.kubeconfig()).await;
        // Twice: the first run is answered live for the most part and warms the proxy for the second.
        for round in ["cold", "warm"] {
            assert_eq!(
                direct,
                run(&pair.proxy.kubeconfig()).await,
                "{client} {scenario}, {round}"
            );
        }
    }
}

#[tokio::test]
async fn a_watch_tells_the_same_events() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    create(&pair.direct, &path, configmap("before", "x")).await;
    let list = warm(&pair.proxied, &path).await.json().unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let query = format!("{path}?watch=true&resourceVersion={version}");
    let mut direct = pair.direct.lines(&query).await.unwrap();
    let mut proxied = pair.proxied.lines(&query).await.unwrap();
    create(&pair.direct, &path, configmap("a", "<1>")).await;
    pair.direct
        .patch(&format!("{path}/a"), &json!({"data": {"value": "2"}}))
        .await
        .unwrap()
        .ok()
        .unwrap();
    pair.direct
        .delete(&format!("{path}/a"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        let (line, same) = (
            direct.next().await.unwrap().unwrap(),
            proxied.next().await.unwrap().unwrap(),
        );
        assert_eq!(
            String::from_utf8_lossy(&line),
            String::from_utf8_lossy(&same)
        );
        assert!(
            line.starts_with(format!("{{\"type\":\"{kind}\"").as_bytes()),
            "{}",
            String::from_utf8_lossy(&line)
        );
    }
}

#[tokio::test]
async fn an_unknown_cluster_is_not_found() {
    let pair = Pair::shared().await;
    let root = Client::new(&pair.proxy.root().unwrap()).unwrap();
    let answer = root.get("/clusters/nowhere/api/v1/pods").await.unwrap();
    let status = answer.json().unwrap();
    assert_eq!(
        (answer.status.as_u16(), &status["reason"]),
        (404, &json!("NotFound")),
        "{status}"
    );
    assert_eq!(status["message"], "clusters \"nowhere\" not found");
    let mut stranger = pair.proxy.context(pair.cluster.name()).unwrap();
    stranger.credential = fleetcache_e2e::kubeconfig::Credential::Token("wrong".to_owned());
    let answer = Client::new(&stranger)
        .unwrap()
        .get("/api/v1/pods")
        .await
        .unwrap();
    let mut direct = pair
        .cluster
        .context(fleetcache_e2e::control_plane::User::Admin)
        .unwrap();
    direct.credential = stranger.credential;
    let refused = Client::new(&direct)
        .unwrap()
        .get("/api/v1/pods")
        .await
        .unwrap();
    assert_same(
        "a wrong token",
        &Comparable::from(&refused),
        &Comparable::from(&answer),
    );
}
