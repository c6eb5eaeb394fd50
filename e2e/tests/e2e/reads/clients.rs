//! What a program sees: client-go, a watch, and clients that ask for what is not theirs.

use std::path::Path;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::client_go;
use fleetcache_e2e::control_plane::User;
use fleetcache_e2e::kubeconfig::Credential;
use serde_json::json;

use super::{configmap, create};
use crate::pair::{Comparable, Pair, assert_same, warm};

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
            client_go::run(
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
    stranger.credential = Credential::Token("wrong".to_owned());
    let answer = Client::new(&stranger)
        .unwrap()
        .get("/api/v1/pods")
        .await
        .unwrap();
    let mut direct = pair.cluster.context(User::Admin).unwrap();
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
