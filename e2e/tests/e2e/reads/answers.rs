//! What is not a plain read of everything: options, encodings, errors and discovery.

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use http::Method;
use http::header::CONTENT_LENGTH;

use super::{check_same, check_with, configmap, create};
use crate::pair::{Pair, warm};

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
        "timeout=2562048h".to_owned(),
        "unknown=1".to_owned(),
        "fieldSelector=metadata.name%3Da%zz".to_owned(),
        "labelSelector=none%".to_owned(),
        "limit=%zz&pretty=true%&resourceVersion=x%1".to_owned(),
    ] {
        check_same(
            &pair,
            &format!("{path}?{query}"),
            &[("accept", "application/json")],
        )
        .await;
    }
    for query in [
        format!("?resourceVersion={last}"),
        format!("?resourceVersion={last}&resourceVersionMatch=NotOlderThan&limit=500"),
        format!("?resourceVersion={}&labelSelector=name", versions[0]),
        format!("/b?resourceVersion={last}"),
        format!("/b?resourceVersion={last}&resourceVersionMatch=Exact"),
    ] {
        let accept = [("accept", "application/json")];
        check_with(&pair, &format!("{path}{query}"), &accept, true).await;
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
    wait_for("equal tables", PATIENCE, async || {
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

/// A body after the answer to a HEAD breaks the stream over HTTP/2, and only there.
#[tokio::test]
async fn a_head_gets_the_proxys_own_errors_without_their_body() {
    let pair = Pair::shared().await;
    let context = pair.proxy.root().unwrap();
    for client in [
        Client::new(&context).unwrap(),
        Client::http2(&context).unwrap(),
    ] {
        let path = "/clusters/nope/api";
        let get = client.get(path).await.unwrap();
        let head = client.send(Method::HEAD, path, &[], "").await.unwrap();
        assert_eq!((head.status, head.body.len()), (get.status, 0));
        let length = |answer: &Answer| answer.headers.get(CONTENT_LENGTH).cloned();
        assert_eq!(length(&head), length(&get));
    }
}
