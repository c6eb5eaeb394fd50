//! What ends watches that their clients did not end: a cluster that is down, a proxy that is told to end, a configuration
//! without their cluster.

use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::User;
use fleetcache_e2e::fault::Mode;
use fleetcache_e2e::kubeconfig;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::Signal;
use fleetcache_e2e::proxy::Proxy;
use tokio::time::Instant;

use super::cluster::{Breakable, configmap, configmaps, create, list_version, plain, served};
use super::stream::{End, Stream};
use crate::pair::{connected, warm};

/// A watch from memory, the same over HTTP/2, one by a selector, and one that is live in any case.
async fn open(client: &Client, http2: &Client, path: &str, from: u64) -> Vec<Stream> {
    let plain = format!("{path}?watch=1&resourceVersion={from}");
    vec![
        Stream::watch(client, &plain).await,
        Stream::watch(http2, &plain).await,
        Stream::watch(client, &format!("{plain}&labelSelector=a")).await,
        Stream::watch(client, &format!("{plain}&shardSelector=x")).await,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_of_a_cluster_that_is_down_are_silent_and_end_after_the_grace() {
    let cluster = plain().await;
    let path = configmaps(cluster, "down").await;
    let grace = Duration::from_secs(3);
    let settings = "defaults: { watchDisconnectGrace: 3s }";
    let broken = Breakable::start(cluster, settings).await;
    let (client, http2) = (broken.client(), broken.http2());
    warm(&client, &path).await;
    let from = list_version(&client, &path).await;
    let watches = open(&client, &http2, &path, from).await;
    watches[0].assert_hit();
    watches[2].assert_hit();

    broken.relay.set(Mode::Refuse).unwrap();
    broken.relay.cut();
    let cut = Instant::now();
    wait_for("the proxy to notice", PATIENCE, async || {
        let answer = client.get(&path).await?;
        let noticed = answer.status == 503 && answer.text().contains("is not connected");
        anyhow::ensure!(noticed, "{}: {}", answer.status, answer.text());
        Ok(())
    })
    .await
    .unwrap();
    // New watches are told at once, in the same words as any request.
    let mut took = Vec::new();
    for query in [
        "",
        "&resourceVersion=0",
        "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    ] {
        for client in [&client, &http2] {
            let answer = client.get(&format!("{path}?watch=1{query}")).await.unwrap();
            assert_eq!(answer.status, 503, "{}", answer.text());
            let status = answer.json().unwrap();
            assert_eq!(
                status["details"]["causes"][0]["reason"],
                "ClusterNotConnected"
            );
            assert!(!answer.headers.contains_key("retry-after"));
            took.push(answer.elapsed);
        }
    }
    took.sort();
    assert!(took[took.len() / 2] < Duration::from_millis(50), "{took:?}");
    for watch in &watches {
        watch.ended_clean().await;
        assert_eq!(watch.text(), "");
        let silent = watch.opened + watch.lasted() - cut;
        assert!(silent > grace / 2, "ended after {silent:?}");
    }

    // And it all works again.
    broken.relay.set(Mode::Forward).unwrap();
    served(&client, &path).await;
    let watch = Stream::watch(&client, &format!("{path}?watch=1&resourceVersion={from}")).await;
    create(&client, &path, &configmap("later", "0")).await;
    watch.has("\"later\"").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_is_told_to_end_ends_its_watches() {
    let cluster = plain().await;
    let path = configmaps(cluster, "drain").await;
    let broken = Breakable::start(cluster, "").await;
    let (client, http2) = (broken.client(), broken.http2());
    warm(&client, &path).await;
    let from = list_version(&client, &path).await;
    let watches = open(&client, &http2, &path, from).await;
    let told = Instant::now();
    broken.proxy.signal(Signal::Terminate);
    for watch in &watches {
        watch.ended_clean().await;
    }
    println!("the watches ended after {:?}", told.elapsed());
    assert!(broken.proxy.stop().await.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_removed_ends_its_watches_and_no_others() {
    let cluster = plain().await;
    let path = configmaps(cluster, "removed").await;
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("kubeconfig");
    let contexts = ["stays", "goes"].map(|name| {
        let mut context = cluster.context(User::Proxy).unwrap();
        context.name = name.to_owned();
        context
    });
    kubeconfig::write(&file, &contexts).unwrap();
    let proxy = Proxy::for_kubeconfigs(std::slice::from_ref(&file))
        .await
        .unwrap();
    let mut watches = Vec::new();
    for name in ["stays", "goes"] {
        let client = proxy.client(name).unwrap();
        let http2 = Client::http2(&proxy.context(name).unwrap()).unwrap();
        connected(&client).await;
        warm(&client, &path).await;
        let from = list_version(&client, &path).await;
        watches.push(open(&client, &http2, &path, from).await);
    }
    kubeconfig::write(&file, &contexts[..1]).unwrap();
    for watch in &watches[1] {
        let end = watch.ended().await;
        assert!(end == End::Clean, "{end:?}");
    }
    let direct = cluster.client().unwrap();
    create(&direct, &path, &configmap("later", "0")).await;
    watches[0][0].has("\"later\"").await;
    for watch in &watches[0] {
        assert_eq!(watch.end(), None);
    }
}
