//! The first list of a kind that has no end.

use std::time::Duration;

use fleetcache_e2e::client::Answer;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::sim::{Fault, SimCluster};
use serde_json::json;

use super::bed::{Answers, Bed, CONFIGMAPS, configmap, sim};
use crate::pair::warm;

/// Some 40 MB of them: more than a connection takes at a time.
const COUNT: usize = 10_000;

const OBJECT: &str = "/api/v1/namespaces/default/configmaps/huge-0";
const SERVICES: &str = "/api/v1/services";
const PODS: &str = "/api/v1/pods";

/// How long the client of one request waits.
const DEADLINE: Duration = Duration::from_millis(300);

fn fill(cluster: &SimCluster) {
    let value = "x".repeat(4_000);
    for n in 0..COUNT {
        let object = configmap(&format!("huge-{n}"), &value);
        cluster.store().create("configmaps", object).unwrap();
    }
    serve(cluster, "first");
}

fn serve(cluster: &SimCluster, name: &str) {
    let service = json!({"metadata": {"name": name, "namespace": "default"}});
    cluster.store().create("services", service).unwrap();
}

fn items(answer: &Answer) -> usize {
    let list = answer.json().unwrap();
    list["items"].as_array().map_or(0, Vec::len)
}

/// An answer of the cluster's own, since its informer has not synced.
#[track_caller]
fn is_live(answer: Answer) -> Answer {
    let answer = answer.ok().unwrap();
    let said = answer.cache_status();
    assert!(said.ends_with("detail=not-synced"), "{said}");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_list_without_end_holds_up_neither_its_readers_nor_other_kinds_and_clusters() {
    let (large, small) = (sim("large").await, sim("small").await);
    fill(&large);
    let one = configmap("one", "x");
    small.store().create("configmaps", one).unwrap();
    // What an informer lists; clients ask for one namespace.
    large.fault(Fault::HoldLists("configmaps".to_owned()));
    let bed = Bed::start(&[large.context(), small.context()], "").await;
    let (client, other) = (bed.client("large"), bed.client("small"));
    bed.served("large", SERVICES).await;
    bed.served("small", CONFIGMAPS).await;
    warm(&client, SERVICES).await;
    warm(&other, CONFIGMAPS).await;
    let before = Answers::of(&bed.metrics(), "local", "0.1");
    // The first of these starts the informer, which is heard of no more.
    wait_for("the first list to have begun", PATIENCE, async || {
        client.get(&format!("{CONFIGMAPS}?limit=1")).await?.ok()?;
        let lists = large.counts().requests("list", "configmaps");
        let watches = large.counts().requests("watch", "configmaps");
        anyhow::ensure!(watches > 0, "{lists} lists, {watches} watches");
        Ok(())
    })
    .await
    .unwrap();

    // Its own readers get the cluster's answers, whole and at once,
    is_live(client.get(OBJECT).await.unwrap());
    let all = is_live(client.get(CONFIGMAPS).await.unwrap());
    assert_eq!(items(&all), COUNT);
    let patch = json!({"data": {"value": "written"}});
    client.patch(OBJECT, &patch).await.unwrap().ok().unwrap();
    let read = is_live(client.get(OBJECT).await.unwrap());
    assert_eq!(read.json().unwrap()["data"]["value"], "written");
    // or what they would get of the cluster: one that has no end for this list, and one client gives it up.
    let endless = client.get("/api/v1/configmaps");
    let endless = tokio::time::timeout(DEADLINE, endless).await;
    assert!(endless.is_err(), "the list has ended");
    is_live(client.get(OBJECT).await.unwrap());

    // Another kind of the cluster is followed, and one that nobody has asked for yet comes into memory.
    serve(&large, "second");
    wait_for("the second service", PATIENCE, async || {
        let answer = client.get(SERVICES).await?.ok()?;
        anyhow::ensure!(answer.is_hit(), "{}", answer.cache_status());
        anyhow::ensure!(items(&answer) == 2, "{}", answer.text());
        Ok(())
    })
    .await
    .unwrap();
    warm(&client, PODS).await;
    // So is another cluster, of the same kind.
    let two = configmap("two", "x");
    small.store().create("configmaps", two).unwrap();
    wait_for("the second object", PATIENCE, async || {
        let answer = other.get(CONFIGMAPS).await?.ok()?;
        anyhow::ensure!(answer.is_hit(), "{}", answer.cache_status());
        anyhow::ensure!(items(&answer) == 2, "{}", answer.text());
        Ok(())
    })
    .await
    .unwrap();

    // All that while nothing was refused, and no connection was taken for dead.
    is_live(client.get(OBJECT).await.unwrap());
    let metrics = bed.metrics();
    assert_eq!(Answers::of(&metrics, "local", "0.1").since(before).all, 0.0);
    for cluster in ["large", "small"] {
        let labels = [("cluster", cluster)];
        let connects = metrics.sum("fleetcache_cluster_connects_total", &labels);
        assert_eq!(connects, Some(1.0), "{cluster}");
    }

    // The list goes on: what comes from memory is all of it.
    large.heal().unwrap();
    let synced = wait_for("the list to be in memory", PATIENCE, async || {
        let answer = client.get(CONFIGMAPS).await?.ok()?;
        assert_eq!(items(&answer), COUNT, "{}", answer.cache_status());
        anyhow::ensure!(answer.is_hit(), "{}", answer.cache_status());
        Ok(())
    });
    synced.await.unwrap();
}
