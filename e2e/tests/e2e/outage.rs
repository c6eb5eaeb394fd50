//! One cluster goes away, in every way a cluster can: the others do not notice, its clients are told at once, and nothing
//! it serves afterwards is older than what the apiserver itself says.

use std::time::Instant;

use fleetcache_e2e::control_plane::{ControlPlane, Server};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::Signal;

use crate::fleet::{CONFIGMAPS, Fleet, configmap};

#[tokio::test]
async fn a_killed_apiserver_is_told_at_once_and_nobody_else_notices() {
    let mut fleet = Fleet::start().await;
    let beta = fleet.watch_beta();
    let killed = Instant::now();
    fleet.alpha.kill(Server::Apiserver);
    fleet.wait_until_unavailable().await;
    println!("noticed after {:?}", killed.elapsed());
    fleet.assert_fails_fast().await;
    assert_eq!(
        fleet.proxy.admin_status("/readyz").unwrap(),
        200,
        "one cluster's trouble is its own"
    );
    let up = |cluster| {
        fleet
            .proxy
            .metrics()
            .unwrap()
            .sum("fleetcache_cluster_connection_up", &[("cluster", cluster)])
    };
    assert_eq!((up("alpha"), up("beta")), (Some(0.0), Some(1.0)));

    // Back, and changed before the proxy can have seen it: a deletion, and a name that is another object now.
    fleet.alpha.start_server(Server::Apiserver).await.unwrap();
    change_past_the_proxy(&fleet.alpha).await;
    fleet.assert_equal_to_the_server().await;
    let recreated = fleet
        .client()
        .get(&format!("{CONFIGMAPS}/recreated"))
        .await
        .unwrap()
        .json()
        .unwrap();
    assert_eq!(recreated["data"]["value"], "after");
    fleet
        .kubectl
        .run(&["get", "pods"])
        .await
        .unwrap()
        .ok()
        .unwrap();
    beta.assert_unharmed().await;
    assert_eq!(
        fleet
            .beta
            .client()
            .unwrap()
            .get("/readyz")
            .await
            .unwrap()
            .status,
        200
    );
}

async fn change_past_the_proxy(cluster: &ControlPlane) {
    let direct = cluster.client().unwrap();
    for name in ["deleted", "recreated"] {
        direct
            .delete(&format!("{CONFIGMAPS}/{name}"))
            .await
            .unwrap()
            .ok()
            .unwrap();
    }
    direct
        .create(CONFIGMAPS, &configmap("recreated", "after"))
        .await
        .unwrap()
        .ok()
        .unwrap();
}

#[tokio::test]
async fn a_stopped_apiserver_is_noticed_although_its_connections_stay_open() {
    let fleet = Fleet::start().await;
    let beta = fleet.watch_beta();
    let stopped = Instant::now();
    fleet.alpha.signal(Server::Apiserver, Signal::Stop);
    fleet.wait_until_unavailable().await;
    println!("noticed after {:?}", stopped.elapsed());
    fleet.assert_fails_fast().await;
    fleet.alpha.signal(Server::Apiserver, Signal::Continue);
    fleet.assert_equal_to_the_server().await;
    beta.assert_unharmed().await;
}

/// An apiserver that is there and not well is not away: what is in memory is still true as far as anybody can know.
#[tokio::test]
async fn an_apiserver_without_its_etcd_is_unhealthy_and_its_memory_is_served() {
    let fleet = Fleet::start().await;
    let healthy = || {
        fleet
            .proxy
            .metrics()
            .unwrap()
            .sum("fleetcache_cluster_healthcheck", &[("cluster", "alpha")])
    };
    assert_eq!(healthy(), Some(1.0));
    fleet.alpha.signal(Server::Etcd, Signal::Stop);
    let client = fleet.client();
    wait_for("the probe to fail", PATIENCE, async || {
        let answer = client.get(CONFIGMAPS).await?;
        assert!(
            answer.status == 200 && answer.is_hit(),
            "{} ({}): {}",
            answer.status,
            answer.cache_status(),
            answer.text()
        );
        if healthy() == Some(0.0) {
            Ok(())
        } else {
            Err(anyhow::anyhow!("it does not"))
        }
    })
    .await
    .unwrap();
    for _ in 0..100 {
        let answer = client.get(CONFIGMAPS).await.unwrap();
        assert!(
            answer.status == 200 && answer.is_hit(),
            "{} ({}): {}",
            answer.status,
            answer.cache_status(),
            answer.text()
        );
    }
    fleet.alpha.signal(Server::Etcd, Signal::Continue);
    wait_for("the probe to succeed", PATIENCE, async || {
        if healthy() == Some(1.0) {
            Ok(())
        } else {
            Err("it fails")
        }
    })
    .await
    .unwrap();
    client
        .create(CONFIGMAPS, &configmap("later", "after"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    fleet.assert_equal_to_the_server().await;
}
