//! A Secret is written again: with what it had, with another token, with another address.

use fleetcache_e2e::fault::Relay;

use super::*;

/// A proxy that serves what is in a namespace, and the Cluster `x` in it.
async fn serving_x(plane: &ControlPlane, mgmt: &Client, namespace: &str) -> Proxy {
    let proxy = start(&cluster_api_of(
        plane,
        &format!("namespaces: [{namespace}]"),
    ))
    .await;
    cluster_api::create_cluster(mgmt, "v1beta2", namespace, "x", &[])
        .await
        .unwrap();
    proxy
}

#[tokio::test]
async fn a_secret_that_is_rewritten_all_the_time_reconnects_nobody() {
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let namespace = plane.namespace("rewritten").await.unwrap();
    let sim = sim("x").await;
    let proxy = serving_x(plane, &mgmt, &namespace).await;
    let write = async |kubeconfig: &str, count: u32| {
        // Something is different in it each time, or the server would take no notice.
        let count = count.to_string();
        let data = [("value", kubeconfig), ("count", count.as_str())];
        cluster_api::write_secret(&mgmt, &namespace, "x", &data)
            .await
            .unwrap();
    };
    write(&sim.kubeconfig(), 0).await;
    let name = format!("{namespace}.x");
    let client = served(&proxy, &name).await;
    crate::pair::warm(&client, LIST).await;
    // Where it was known before its Secret was, that was a change.
    let changed = || count_logged(&proxy, &["configuration of the cluster changed", &name]);
    let (before, changed_before) = (sim.counts(), changed());
    for count in 1..=40 {
        write(&sim.kubeconfig(), count).await;
    }
    all_is_read(&proxy, &mgmt, &namespace).await;
    let after = sim.counts();
    assert_eq!(after.accepted, before.accepted, "connections");
    assert_eq!(
        after.requests("list", "configmaps"),
        before.requests("list", "configmaps")
    );
    assert_eq!(after.watches("configmaps"), 1);
    assert!(client.get(LIST).await.unwrap().is_hit());
    assert_eq!(changed(), changed_before);

    // Another token: in place.
    sim.accept_tokens(vec![sim.token(), "next".to_owned()]);
    write(&sim.kubeconfig().replace(&sim.token(), "next"), 41).await;
    logged(&proxy, &["credential rotated", &name]).await;
    sim.accept_tokens(vec!["next".to_owned()]);
    client.get("/version").await.unwrap().ok().unwrap();
    let after = sim.counts();
    assert_eq!(
        after.requests("list", "configmaps"),
        before.requests("list", "configmaps")
    );
    assert_eq!(after.watches("configmaps"), 1);
    assert!(client.get(LIST).await.unwrap().is_hit());
}

#[tokio::test]
async fn another_address_is_connected_before_the_old_one_is_let_go() {
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let namespace = plane.namespace("moved").await.unwrap();
    let sim = sim("x").await;
    let relay = Relay::start(sim.address()).unwrap();
    let proxy = serving_x(plane, &mgmt, &namespace).await;
    let kubeconfig = sim.kubeconfig_via(relay.address());
    cluster_api::write_secret(&mgmt, &namespace, "x", &[("value", &kubeconfig)])
        .await
        .unwrap();
    let name = format!("{namespace}.x");
    let client = served(&proxy, &name).await;
    crate::pair::warm(&client, LIST).await;
    let changed = || count_logged(&proxy, &["configuration of the cluster changed", &name]);
    // Where it was known before its Secret was, that was a change too.
    let changed_before = changed();
    let connected = ["\"connected\"", name.as_str()];
    let connects_before = logged(&proxy, &connected).await;
    let kubeconfig = sim.kubeconfig();
    cluster_api::write_secret(&mgmt, &namespace, "x", &[("value", &kubeconfig)])
        .await
        .unwrap();
    // No request fails, from memory or live, until the new one is in use; and none after, without the old address.
    wait_for("the new address to be used", PATIENCE, async || {
        client.get(LIST).await?.ok().unwrap();
        client.get("/version").await?.ok().unwrap();
        let changes = changed() - changed_before;
        anyhow::ensure!(changes == 1, "{changes} changes");
        let connects = count_logged(&proxy, &connected) - connects_before;
        anyhow::ensure!(connects == 1, "{connects} connects");
        Ok(())
    })
    .await
    .unwrap();
    relay.stop().await;
    client.get("/version").await.unwrap().ok().unwrap();
}
