//! A proxy that starts with many clusters.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::kubeconfig::Context;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::sim::Fault;
use futures_util::{StreamExt as _, stream};

use super::bed::{Bed, CONFIGMAPS, assert_unavailable, is_about, sim};

const CLUSTERS: usize = 500;

/// Connects that may be in flight at once.
const CAP: u64 = 16;

/// All names are one simulated cluster, which sees how many of them come at a time: it accepts connections and does not
/// greet them until it is healed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_with_five_hundred_clusters_is_ready_at_once_and_connects_within_the_cap() {
    let cluster = sim("many").await;
    cluster.fault(Fault::Stall);
    let contexts: Vec<Context> = (0..CLUSTERS)
        .map(|n| Context {
            name: format!("c{n:03}"),
            ..cluster.context()
        })
        .collect();
    let settings =
        format!("defaults: {{ connectTimeout: 10m }}\nconnections: {{ maxConcurrent: {CAP} }}");
    let bed = Bed::start(&contexts, &settings).await;
    assert_eq!(bed.proxy.admin_status("/readyz").unwrap(), 200);
    // One connection for all clients of the test, whose handshakes are not what is tested.
    let client = Client::http2(&bed.proxy.root().unwrap()).unwrap();
    let path = |n: usize| format!("/clusters/c{n:03}{CONFIGMAPS}");
    for n in 0..CLUSTERS {
        let answer = client.get(&path(n)).await.unwrap();
        assert_unavailable(&format!("c{n:03}"), &answer);
        assert!(is_about(&answer, "ClusterStarting"), "{}", answer.text());
    }
    let up = || bed.metrics().get("fleetcache_cluster_connection_up");
    wait_for("the cap to be reached", PATIENCE, async || {
        let connections = cluster.counts().connections;
        anyhow::ensure!(connections == CAP, "{connections}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(bed.proxy.admin_status("/readyz").unwrap(), 200);
    assert_eq!(up(), Some(0.0));

    cluster.heal().unwrap();
    wait_for("all to be connected", PATIENCE, async || {
        anyhow::ensure!(up() == Some(CLUSTERS as f64), "{:?}", up());
        Ok(())
    })
    .await
    .unwrap();
    let answers = stream::iter(0..CLUSTERS)
        .map(|n| {
            let (client, path) = (client.clone(), path(n));
            async move { client.get(&path).await.unwrap().status }
        })
        .buffer_unordered(16);
    let served = answers.filter(|status| std::future::ready(status.is_success()));
    assert_eq!(served.count().await, CLUSTERS);
}
