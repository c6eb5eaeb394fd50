//! What `/metrics` says of clusters: which are down, since when and why, and no more than twelve series of each.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use fleetcache_e2e::kubeconfig::{self, Context};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Metrics, Options, Proxy};
use fleetcache_e2e::sim::{SimCluster, SimConfig};

use crate::fleet::CONFIGMAPS;
use crate::pair::{connected, warm};

/// Series of one cluster, whatever its state.
const MOST: usize = 12;

/// What may stand beside `cluster`: neither resources nor verbs.
const BESIDE: [&str; 3] = ["status", "outcome", "reason"];

fn write(path: &Path, clusters: &[&SimCluster]) {
    let contexts: Vec<Context> = clusters.iter().map(|it| it.context()).collect();
    kubeconfig::write(path, &contexts).unwrap();
}

async fn until<T>(proxy: &Proxy, what: &str, check: impl Fn(&Metrics) -> anyhow::Result<T>) -> T {
    wait_for(what, PATIENCE, async || check(&proxy.metrics()?))
        .await
        .unwrap()
}

/// The series of a cluster, checked.
fn series<'a>(metrics: &'a Metrics, cluster: &str) -> Vec<&'a str> {
    let series = metrics.with_label("cluster", cluster);
    assert!(series.len() <= MOST, "{series:#?}");
    for one in &series {
        let labels = one.split_once('{').unwrap().1.trim_end_matches('}');
        for label in labels.split(',').map(|it| it.split('=').next().unwrap()) {
            assert!(label == "cluster" || BESIDE.contains(&label), "{one}");
        }
    }
    series
}

fn of(metrics: &Metrics, name: &str, cluster: &str) -> Option<f64> {
    metrics.sum(
        &format!("fleetcache_cluster_{name}"),
        &[("cluster", cluster)],
    )
}

#[tokio::test]
async fn who_is_down_since_when_and_why_in_twelve_series_each() {
    let start = async |name: &str| SimCluster::start(SimConfig::new(name)).await.unwrap();
    let (up, down) = (start("up").await, start("down").await);
    down.kill();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    write(&path, &[&up, &down]);
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let config = format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nconnections: {{ backoffMax: 2s }}\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\n",
        path.display()
    );
    let options = Options {
        config: Some(config),
        ..Options::default()
    };
    let proxy = Proxy::start(options).await.unwrap();
    let client = proxy.client("up").unwrap();
    connected(&client).await;
    warm(&client, CONFIGMAPS).await;

    let metrics = until(&proxy, "both outcomes", |metrics| {
        let failed = [("cluster", "down"), ("outcome", "error")];
        let failed = metrics.sum("fleetcache_cluster_connects_total", &failed);
        ensure!(failed >= Some(2.0), "{failed:?}");
        Ok(metrics.clone())
    })
    .await;
    assert_eq!(
        series(&metrics, "up").len(),
        MOST,
        "{:#?}",
        series(&metrics, "up")
    );
    assert_eq!(of(&metrics, "connection_up", "up"), Some(1.0));
    assert_eq!(of(&metrics, "not_connected", "up"), None);
    assert_eq!(of(&metrics, "next_attempt_timestamp_seconds", "up"), None);
    assert_eq!(of(&metrics, "disconnects_total", "up"), Some(0.0));
    assert_eq!(of(&metrics, "informer_lists_total", "up"), Some(1.0));
    for since in ["last_transition", "last_probe_success"] {
        let at = of(&metrics, &format!("{since}_timestamp_seconds"), "up").unwrap();
        assert!(at >= began.as_secs_f64() - 0.001, "{since}: {at}");
    }
    let took = of(&metrics, "last_connect_duration_seconds", "up").unwrap();
    assert!(took > 0.0 && took < 60.0, "{took}");

    series(&metrics, "down");
    assert_eq!(of(&metrics, "connection_up", "down"), Some(0.0));
    assert_eq!(
        of(&metrics, "last_probe_success_timestamp_seconds", "down"),
        None
    );
    let why = [("cluster", "down"), ("reason", "ConnectionRefused")];
    assert_eq!(
        metrics.sum("fleetcache_cluster_not_connected", &why),
        Some(1.0)
    );
    let connected = [("state", "Connected"), ("reason", "")];
    assert_eq!(metrics.sum("fleetcache_clusters", &connected), Some(1.0));
    let refused = [("reason", "ConnectionRefused")];
    assert_eq!(metrics.sum("fleetcache_clusters", &refused), Some(1.0));
    assert_eq!(metrics.get("fleetcache_clusters"), Some(2.0));
    let connects = metrics.get("fleetcache_connect_duration_seconds_count");
    let ended = metrics.get("fleetcache_cluster_connects_total");
    assert_eq!(connects, ended);

    // When the next try is, while one is planned.
    let (next, now) = until(&proxy, "a planned try", |metrics| {
        let next = of(metrics, "next_attempt_timestamp_seconds", "down");
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        Ok((next.ok_or_else(|| anyhow::anyhow!("none is"))?, now))
    })
    .await;
    assert!((now - 1.0..now + 3.0).contains(&next), "{next} at {now}");

    // It comes: nothing but its first connect has happened to it. It goes: a loss, and since when.
    down.heal().unwrap();
    until(&proxy, "it to be connected", |metrics| {
        series(metrics, "down");
        ensure!(of(metrics, "connection_up", "down") == Some(1.0));
        Ok(())
    })
    .await;
    let before = proxy.metrics().unwrap();
    assert_eq!(of(&before, "disconnects_total", "down"), Some(0.0));
    down.kill();
    let after = until(&proxy, "the loss", |metrics| {
        series(metrics, "down");
        ensure!(of(metrics, "disconnects_total", "down") == Some(1.0));
        Ok(metrics.clone())
    })
    .await;
    let since = |metrics| of(metrics, "last_transition_timestamp_seconds", "down").unwrap();
    assert!(since(&after) > since(&before));

    // It is no cluster any more, and has no series.
    write(&path, &[&up]);
    until(&proxy, "its series to go", |metrics| {
        let left = metrics.with_label("cluster", "down");
        ensure!(left.is_empty(), "{left:?}");
        ensure!(metrics.get("fleetcache_clusters") == Some(1.0));
        Ok(())
    })
    .await;
    assert_eq!(series(&proxy.metrics().unwrap(), "up").len(), MOST);
}
