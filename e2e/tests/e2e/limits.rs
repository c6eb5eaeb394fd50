//! Which kinds are kept, how long, and how much of them: what the configuration says about informers.

use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::raw::Raw;
use fleetcache_e2e::sim::{Fault, SimCluster, SimConfig};
use http::Method;
use serde_json::json;

use crate::pair::{connected, warm};

/// A simulated cluster with 20 ConfigMaps behind a proxy with this configuration of `cache` and `resources`.
async fn start(settings: &str) -> (SimCluster, Client, Proxy) {
    let cluster = SimCluster::start(SimConfig::new("sim")).await.unwrap();
    for n in 0..20 {
        let object = json!({
            "kind": "ConfigMap", "apiVersion": "v1", "data": {"text": "x".repeat(10_000)},
            "metadata": {"name": format!("c{n}"), "namespace": "default"},
        });
        cluster.store().create("configmaps", object).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, cluster.kubeconfig()).unwrap();
    let config = format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\n{settings}",
        kubeconfig.display()
    );
    let options = Options {
        config: Some(config),
        ..Options::default()
    };
    let proxy = Proxy::start(options).await.unwrap().keeping(dir);
    let client = proxy.client("sim").unwrap();
    connected(&client).await;
    (cluster, client, proxy)
}

async fn informers(proxy: &Proxy, expected: f64) {
    wait_for(&format!("{expected} informers"), PATIENCE, async || {
        let running = proxy.metrics()?.get("fleetcache_informers");
        anyhow::ensure!(running == Some(expected), "{running:?}");
        anyhow::Ok(())
    })
    .await
    .unwrap();
}

async fn stays_live(client: &Client, path: &str, detail: &str) {
    wait_for(
        &format!("{path} to be live for {detail}"),
        PATIENCE,
        async || {
            let answer = client.get(path).await?.ok()?;
            anyhow::ensure!(
                answer.cache_status().ends_with(&format!("detail={detail}")),
                "{}",
                answer.cache_status()
            );
            anyhow::Ok(())
        },
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn an_informer_that_nobody_reads_stops_and_starts_again() {
    let (cluster, client, proxy) = start("cache: { idleTimeout: 1s }").await;
    warm(&client, "/api/v1/configmaps").await;
    informers(&proxy, 0.0).await;
    wait_for("the watch to end", PATIENCE, async || {
        let open = cluster.counts().watches("configmaps");
        anyhow::ensure!(open == 0, "{open} open");
        anyhow::Ok(())
    })
    .await
    .unwrap();
    warm(&client, "/api/v1/configmaps").await;
}

#[tokio::test]
async fn a_kind_with_too_many_objects_stays_live() {
    let (_cluster, client, proxy) = start("cache: { maxObjectsPerKind: 10 }").await;
    stays_live(&client, "/api/v1/configmaps", "too-many-objects").await;
    informers(&proxy, 0.0).await;
}

#[tokio::test]
async fn a_kind_that_grows_past_the_limit_is_let_go() {
    let (cluster, client, proxy) = start("cache: { maxObjectsPerKind: 20 }").await;
    warm(&client, "/api/v1/configmaps").await;
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "more", "namespace": "default"}});
    cluster.store().create("configmaps", object).unwrap();
    stays_live(&client, "/api/v1/configmaps", "too-many-objects").await;
    informers(&proxy, 0.0).await;
}

#[tokio::test]
async fn past_the_memory_limit_informers_stop_for_a_while() {
    // The ConfigMaps hold some 200 kB.
    let (_cluster, client, proxy) = start("cache: { memoryLimit: 100Ki }").await;
    // Nor does a read start them again at once, to list the whole kind and stop once more.
    stays_live(&client, "/api/v1/configmaps", "memory-limit").await;
    informers(&proxy, 0.0).await;
    stays_live(&client, "/api/v1/configmaps", "memory-limit").await;
}

#[tokio::test]
async fn kinds_are_kept_from_the_start_or_never() {
    let resources = "resources: [ { group: apps, resource: deployments, cache: always }, { group: \"\", resource: configmaps, cache: never } ]";
    let (_cluster, client, proxy) = start(resources).await;
    informers(&proxy, 1.0).await;
    warm(&client, "/apis/apps/v1/deployments").await;
    for _ in 0..5 {
        stays_live(&client, "/api/v1/configmaps", "never").await;
        stays_live(&client, "/api/v1/secrets", "never").await;
    }
    informers(&proxy, 1.0).await;
}

/// Two clusters, of which one may have few requests in flight and takes its time to answer.
#[tokio::test]
async fn requests_in_flight_are_limited_for_each_cluster_by_itself() {
    let start = async |name: &str| SimCluster::start(SimConfig::new(name)).await.unwrap();
    let (slow, quick) = (start("slow").await, start("quick").await);
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let contexts = [slow.context(), quick.context()];
    fleetcache_e2e::kubeconfig::write(&kubeconfig, &contexts).unwrap();
    let path = dir.path().join("fleetcache.yaml");
    let limit = |max: usize| {
        let config = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\noverrides: [ {{ cluster: slow, maxInFlight: {max}, probe: {{ interval: 60s }}, remoteConnectionGracePeriod: 2m }} ]\n",
            kubeconfig.display()
        );
        std::fs::write(&path, config).unwrap();
    };
    limit(2);
    let options = Options {
        args: vec!["--config".to_owned(), path.display().to_string()],
        ..Options::default()
    };
    let proxy = Proxy::start(options).await.unwrap();
    for cluster in ["slow", "quick"] {
        let client = proxy.client(cluster).unwrap();
        connected(&client).await;
        warm(&client, "/api/v1/configmaps").await;
    }
    let client = || proxy.client("slow").unwrap();
    let in_flight = |client: Client| {
        tokio::spawn(async move { client.get("/api/v1/secrets").await.unwrap().status })
    };
    let arrived = async |expected: u64| {
        wait_for("requests to arrive", PATIENCE, async || {
            let arrived = slow.counts().requests("list", "secrets");
            anyhow::ensure!(arrived == expected, "{arrived}");
            anyhow::Ok(())
        })
        .await
        .unwrap();
    };
    // New connections are answered, as a stall would not.
    slow.fault(Fault::Slow(Duration::from_secs(55)));
    let mut waiting = vec![in_flight(client()), in_flight(client())];
    arrived(2).await;
    let refused = async || {
        let answer = client().get("/api/v1/secrets").await.unwrap();
        assert_eq!(answer.status, 429, "{}", answer.text());
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(answer.json().unwrap()["reason"], "TooManyRequests");
    };
    refused().await;
    // Neither memory nor the other cluster has a part in it.
    let answer = client().get("/api/v1/configmaps").await.unwrap();
    assert!(answer.is_hit() && answer.status == 200);
    let other = proxy.client("quick").unwrap();
    other.get("/api/v1/secrets").await.unwrap().ok().unwrap();

    // One more from now on; those in flight count.
    limit(3);
    wait_for("the new limit", PATIENCE, async || {
        let log = proxy.log();
        anyhow::ensure!(log.contains("configuration reloaded"), "{log}");
        anyhow::Ok(())
    })
    .await
    .unwrap();
    waiting.push(in_flight(client()));
    arrived(3).await;
    refused().await;
    // Their clients give up, and their places are free.
    for request in &waiting {
        request.abort();
    }
    slow.heal().unwrap();
    wait_for("a place", PATIENCE, async || {
        client().get("/api/v1/secrets").await?.ok()
    })
    .await
    .unwrap();
}

/// A simulated cluster behind a proxy that knows alice and bob, and may open so many files.
async fn start_with_users(
    settings: &str,
    open_files: Option<u32>,
) -> (SimCluster, Proxy, tempfile::TempDir) {
    let cluster = SimCluster::start(SimConfig::new("sim")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(&kubeconfig, cluster.kubeconfig()).unwrap();
    std::fs::write(dir.path().join("tokens.csv"), "a,alice,1\nb,bob,2\n").unwrap();
    let config = dir.path().join("fleetcache.yaml");
    let text = format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\n\
         authentication: {{ tokenFile: tokens.csv }}\n{settings}",
        kubeconfig.display()
    );
    std::fs::write(&config, text).unwrap();
    let options = Options {
        args: vec!["--config".to_owned(), config.display().to_string()],
        open_files,
        ..Options::default()
    };
    (cluster, Proxy::start(options).await.unwrap(), dir)
}

fn endpoint(proxy: &Proxy, token: &str) -> Context {
    Context {
        credential: Credential::Token(token.to_owned()),
        ..proxy.context("sim").unwrap()
    }
}

/// A user whose requests say that a body follows, and send none.
#[tokio::test]
async fn one_user_leaves_half_of_the_requests_in_flight_to_others() {
    let (cluster, proxy, _dir) = start_with_users("defaults: { maxInFlight: 4 }\n", None).await;
    let endpoint = |token| endpoint(&proxy, token);
    let [alice, bob] = ["a", "b"].map(|token| Client::new(&endpoint(token)).unwrap());
    connected(&alice).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let arrived = || cluster.counts().requests("create", "configmaps");
    let mut waiting = Vec::new();
    for count in 1..=2 {
        let mut raw = Raw::connect(&endpoint("a"), "http/1.1").await.unwrap();
        let head = format!(
            "POST /clusters/sim{path} HTTP/1.1\r\nhost: p\r\nauthorization: Bearer a\r\ncontent-length: 2\r\n\r\n"
        );
        raw.send(head.as_bytes()).await;
        waiting.push(raw);
        wait_for("the request to arrive", PATIENCE, async || {
            anyhow::ensure!(arrived() == count, "{}", arrived());
            anyhow::Ok(())
        })
        .await
        .unwrap();
    }
    let secrets = "/api/v1/secrets";
    let refused = alice.get(secrets).await.unwrap();
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.headers["retry-after"], "1");
    let message = refused.json().unwrap()["message"].take();
    let expected =
        "too many requests in flight of this user to cluster \"sim\", please try again later";
    assert_eq!(message, expected);
    bob.get(secrets).await.unwrap().ok().unwrap();
    drop(waiting);
    wait_for("a place", PATIENCE, async || alice.get(secrets).await?.ok())
        .await
        .unwrap();
}

/// Answers that have begun and do not end, as those that their clients do not read.
#[tokio::test]
async fn a_place_in_flight_is_taken_until_the_answer_has_passed() {
    let (cluster, proxy, _dir) = start_with_users("defaults: { maxInFlight: 4 }\n", None).await;
    let alice = Client::new(&endpoint(&proxy, "a")).unwrap();
    connected(&alice).await;
    let secrets = "/api/v1/secrets";
    // More than comes before it is held up.
    for at in 0..12 {
        let metadata = json!({"name": format!("s{at}"), "namespace": "default"});
        let data = json!({"a": "x".repeat(100_000)});
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data});
        cluster.store().create("secrets", secret).unwrap();
    }
    cluster.fault(Fault::HoldLists("secrets".to_owned()));
    let open = async || alice.open(Method::GET, secrets, &[], "").await.unwrap();
    let answers = [open().await, open().await];
    assert!(answers.iter().all(|answer| answer.status() == 200));
    assert_eq!(open().await.status(), 429);
    cluster.heal().unwrap();
    drop(answers);
    wait_for("a place", PATIENCE, async || alice.get(secrets).await?.ok())
        .await
        .unwrap();
}

/// Of 400 files 100 are for live watches and the like, and half of these for one user or cluster.
#[tokio::test]
async fn live_watches_leave_files_to_clusters_and_to_other_users() {
    let (_cluster, proxy, _dir) = start_with_users("", Some(400)).await;
    let alice = Client::http2(&endpoint(&proxy, "a")).unwrap();
    connected(&alice).await;
    let live = [("cache-control", "no-store")];
    let path = "/api/v1/configmaps?watch=1";
    let open = async || alice.open(Method::GET, path, &live, "").await.unwrap();
    let mut watches = Vec::new();
    for _ in 0..50 {
        let watch = open().await;
        assert_eq!(watch.status(), 200);
        watches.push(watch);
    }
    let counted = |expected: f64| {
        let proxy = &proxy;
        wait_for("the count", PATIENCE, async move || {
            let count = proxy.metrics()?.get("fleetcache_longrunning_requests");
            anyhow::ensure!(count == Some(expected), "{count:?}");
            anyhow::Ok(())
        })
    };
    counted(50.0).await.unwrap();
    let refused = alice.get_with(path, &live).await.unwrap();
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.headers["retry-after"], "1");
    let message = refused.json().unwrap()["message"].take();
    let expected = "too many open watches, logs and tunnels of this user, please try again later";
    assert_eq!(message, expected);
    // Her other requests go on.
    alice.get("/api/v1/secrets").await.unwrap().ok().unwrap();
    watches.clear();
    counted(0.0).await.unwrap();
    assert_eq!(open().await.status(), 200);
}
