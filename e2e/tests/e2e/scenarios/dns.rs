//! Clusters that are reached by a name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use fleetcache_e2e::names::Names;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::sim::{Authority, SimCluster, SimConfig};
use serde_json::json;

use super::bed::{Bed, CONFIGMAPS, configmap};
use crate::pair::warm;

/// The one name that certificates of simulated clusters are for.
const NAME: &str = "localhost";

const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// One cluster with two addresses, of one port.
async fn twins() -> (SimCluster, SimCluster) {
    let authority = Arc::new(Authority::new("moves").unwrap());
    let mut config = SimConfig::new("moves");
    config.authority = Some(authority);
    loop {
        let first = SimCluster::start(config.clone()).await.unwrap();
        let mut config = config.clone();
        config.listen = SocketAddr::new(SECOND, first.address().port());
        config.store = Some(first.store().clone());
        // Somebody else may have that port of the other address.
        if let Ok(second) = SimCluster::start(config).await {
            return (first, second);
        }
    }
}

/// Reads what only the cluster can know until it is the cluster of this address that is asked, and memory has it too.
async fn is_served(bed: &Bed, cluster: &SimCluster, name: &str) {
    let object = configmap(name, "x");
    cluster.store().create("configmaps", object).unwrap();
    let client = bed.client("moves");
    let before = cluster.counts().requests("patch", "configmaps");
    let path = format!("{CONFIGMAPS}/{name}");
    let patch = json!({"data": {"value": "y"}});
    wait_for("a write to arrive", PATIENCE, async || {
        client.patch(&path, &patch).await?.ok()?;
        let after = cluster.counts().requests("patch", "configmaps");
        anyhow::ensure!(after > before, "it arrived elsewhere");
        Ok(())
    })
    .await
    .unwrap();
    wait_for("the object to be in memory", PATIENCE, async || {
        let answer = client.get(&path).await?.ok()?;
        anyhow::ensure!(answer.is_hit(), "{}", answer.cache_status());
        let value = answer.json()?["data"]["value"].clone();
        anyhow::ensure!(value == "y", "{value}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_moves_to_another_address_is_followed_and_nothing_is_listed_again() {
    let (first, second) = twins().await;
    let names = Names::new().unwrap();
    names.set(NAME, Some(FIRST)).unwrap();
    let mut context = first.context();
    context.server = format!("https://{NAME}:{}", first.address().port());
    let files = tempfile::tempdir().unwrap();
    fleetcache_e2e::kubeconfig::write(&files.path().join("kubeconfig"), &[context]).unwrap();
    let settings = "connections: { backoffMin: 100ms, backoffMax: 500ms }";
    let env = names.env();
    let env = env.each_ref().map(|(key, value)| (*key, value.as_str()));
    let bed = Bed::serve_with(files, settings, &env).await;
    let client = bed.client("moves");
    bed.served("moves", CONFIGMAPS).await;
    first
        .store()
        .create("configmaps", configmap("kept", "x"))
        .unwrap();
    warm(&client, CONFIGMAPS).await;
    is_served(&bed, &first, "at-first").await;
    let lists = || bed.metrics().get("fleetcache_cluster_informer_lists_total");
    let connects = || bed.metrics().get("fleetcache_cluster_connects_total");
    assert_eq!((lists(), connects()), (Some(1.0), Some(1.0)));
    assert_eq!(second.counts().resource_requests(), 0);

    // Another answer alone changes nothing: what is connected stays connected.
    names.set(NAME, Some(SECOND)).unwrap();
    let held = client.get(CONFIGMAPS).await.unwrap();
    assert!(held.is_hit(), "{}", held.cache_status());
    assert_eq!(connects(), Some(1.0));

    // The old address ends, and the next dial asks for the name. Where the next probe finds the cluster at the new one, it was
    // never away.
    first.kill();
    is_served(&bed, &second, "at-second").await;
    assert_eq!(lists(), Some(1.0));

    // A name that has no address for a while is told as such, and asked for again.
    names.set(NAME, None).unwrap();
    second.kill();
    bed.told("moves", "NameNotResolved").await;
    first.heal().unwrap();
    names.set(NAME, Some(FIRST)).unwrap();
    is_served(&bed, &first, "at-first-again").await;
    assert_eq!(lists(), Some(1.0));
}
