//! A management cluster that is down, slow, or forbids something.

use fleetcache_e2e::control_plane::Server;
use fleetcache_e2e::fault::{Mode, Relay};
use fleetcache_e2e::kubeconfig;
use serde_json::json;

use super::*;

#[tokio::test]
async fn a_management_cluster_that_is_down_holds_up_nobody() {
    let mut plane = start_management().await;
    let mgmt = plane.client().unwrap();
    let (fixed, kept, gone, new) = (
        sim("fixed").await,
        sim("kept").await,
        sim("gone").await,
        sim("new").await,
    );
    for sim in [&kept, &gone] {
        cluster_api::create_cluster(&mgmt, "v1beta2", "default", sim.name(), &[])
            .await
            .unwrap();
        let kubeconfig = sim.kubeconfig();
        cluster_api::write_secret(&mgmt, "default", sim.name(), &[("value", &kubeconfig)])
            .await
            .unwrap();
    }
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("fixed.kubeconfig"), fixed.kubeconfig()).unwrap();
    let relay = Relay::start(plane.url().trim_start_matches("https://").parse().unwrap()).unwrap();
    let mut context = plane.context(User::Admin).unwrap();
    context.server = format!("https://{}", relay.address());
    let management = kubeconfig::write(&files.path().join("management"), &[context]).unwrap();

    // It is down at the start: the proxy starts, and serves what it knows.
    plane.kill(Server::Apiserver);
    let proxy = start(&format!(
        "  directory: {{ path: {} }}\n  clusterAPI: {{ kubeconfig: {}, useControlPlaneSecret: true }}\nconnections: {{ backoffMax: 2s }}",
        files.path().display(),
        management.display()
    ))
    .await;
    served(&proxy, "fixed").await;
    unknown(&proxy, "default.kept").await;
    source_is(&proxy, "Directory", true).await;
    // Before its first connect has failed it says that it has not told yet.
    let told = "clusters.clusterAPI: the management cluster is not connected: ";
    source_says(&proxy, "ClusterAPI", told).await;
    plane.start_server(Server::Apiserver).await.unwrap();
    let client = served(&proxy, "default.kept").await;
    served(&proxy, "default.gone").await;
    crate::pair::warm(&client, LIST).await;
    let report = source_is(&proxy, "ClusterAPI", true).await;
    assert_eq!(report["message"], "");
    entries_are(&proxy, "ClusterAPI", [2.0, 0.0, 0.0]).await;

    // It is cut off. What is known goes on, and what has changed meanwhile is applied when it is back.
    relay.set(Mode::Refuse).unwrap();
    relay.cut();
    let down = ["\"cluster\":\"clusters.clusterAPI\"", "disconnected"];
    logged(&proxy, &down).await;
    source_is(&proxy, "ClusterAPI", false).await;
    entries_are(&proxy, "ClusterAPI", [2.0, 0.0, 0.0]).await;
    let mgmt = plane.client().unwrap();
    let path = format!("{}/gone", cluster_api::clusters("v1beta2", "default"));
    mgmt.delete(&path).await.unwrap().ok().unwrap();
    cluster_api::create_cluster(&mgmt, "v1beta2", "default", "new", &[])
        .await
        .unwrap();
    let kubeconfig = new.kubeconfig();
    cluster_api::write_secret(&mgmt, "default", "new", &[("value", &kubeconfig)])
        .await
        .unwrap();
    self::client(&proxy, "default.gone")
        .get(LIST)
        .await
        .unwrap()
        .ok()
        .unwrap();
    assert!(client.get(LIST).await.unwrap().is_hit());
    relay.set(Mode::Forward).unwrap();
    served(&proxy, "default.new").await;
    unknown(&proxy, "default.gone").await;
    source_is(&proxy, "ClusterAPI", true).await;
    // Those that are still there were not touched by the list that told so.
    assert!(client.get(LIST).await.unwrap().is_hit());
    assert_eq!(kept.counts().watches("configmaps"), 1);
    let changed = ["configuration of the cluster changed", "default.kept"];
    assert_eq!(count_logged(&proxy, &changed), 0, "{}", proxy.log());
}

#[tokio::test]
async fn what_a_management_cluster_forbids_is_told_once_and_taken_when_it_is_allowed() {
    let plane = shared().await;
    let mgmt = plane.client().unwrap();
    let (open, shut) = (
        plane.namespace("open").await.unwrap(),
        plane.namespace("shut").await.unwrap(),
    );
    let rbac = |namespace: &str| {
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings")
    };
    let allow = async |namespace: &str| {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "alice"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
        mgmt.create(&rbac(namespace), &binding)
            .await
            .unwrap()
            .ok()
            .unwrap();
    };
    allow(&open).await;
    let (one, two) = (sim("one").await, sim("two").await);
    for (namespace, sim) in [(&open, &one), (&shut, &two)] {
        cluster_api::create_cluster(&mgmt, "v1beta1", namespace, sim.name(), &[])
            .await
            .unwrap();
        let kubeconfig = sim.kubeconfig();
        cluster_api::write_secret(&mgmt, namespace, sim.name(), &[("value", &kubeconfig)])
            .await
            .unwrap();
    }
    let files = tempfile::tempdir().unwrap();
    let alice = kubeconfig::write(
        &files.path().join("alice"),
        &[plane.context(User::Alice).unwrap()],
    )
    .unwrap();
    let proxy = start(&format!(
        "  clusterAPI: {{ kubeconfig: {}, useControlPlaneSecret: true, namespaces: [{open}, {shut}] }}\n",
        alice.display()
    ))
    .await;
    served(&proxy, &format!("{open}.one")).await;
    let told = [
        "not served",
        &format!(
            "clusters.clusterAPI: Clusters in the namespace \\\"{shut}\\\" cannot be followed"
        ),
        "forbidden",
    ];
    logged(&proxy, &told).await;
    assert_eq!(two.counts().accepted, 0);
    source_says(&proxy, "ClusterAPI", "forbidden").await;
    allow(&shut).await;
    served(&proxy, &format!("{shut}.two")).await;
    source_is(&proxy, "ClusterAPI", true).await;
    assert_eq!(count_logged(&proxy, &told), 1);
}
