//! A service account is deleted. The cluster itself takes its tokens for some ten seconds more.

use super::*;

async fn is_ended_by_its_deletion(review: &str, allow: impl Fn(&str) -> String) {
    let cluster = control_plane().await;
    let namespace = cluster.namespace("accounts").await.unwrap();
    let name = format!("system:serviceaccount:{namespace}:app");
    let rest = format!(
        "authentication: {{ tokenFile: tokens.csv, tokenReview: {{ {review} }}{} }}\n{SHORT}",
        allow(&name)
    );
    let setup = Setup::start(&rest, &[("tokens.csv", "b,revoked-bob,2\n")]).await;
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let app = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app"}});
    setup.create(&accounts, &app).await;
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let issued = setup
        .create(&format!("{accounts}/app/token"), &request)
        .await;
    let issued = token(issued["status"]["token"].as_str().unwrap());
    setup
        .bind(json!({"kind": "ServiceAccount", "namespace": namespace, "name": "app"}))
        .await;
    setup.bind_user("revoked-bob").await;

    let app = setup.reader(issued.clone()).await;
    let bystander = setup.bystander(token("b")).await;
    let (watches, live) = (app.watch().await, app.live_watch().await);
    setup.delete(&format!("{accounts}/app")).await;
    let mut direct = setup
        .cluster
        .context(fleetcache_e2e::control_plane::User::Admin)
        .unwrap();
    direct.credential = issued;
    let direct = Client::new(&direct).unwrap();
    wait_for("the cluster to refuse it", PATIENCE, async || {
        let status = direct.get(&setup.configmaps()).await?.status;
        ensure!(status == 401, "{status}");
        Ok(())
    })
    .await
    .unwrap();
    app.is_refused(401).await;
    end(watches).await;
    end_of(live).await;
    bystander.missed_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn as_judged_by_a_cluster_for_all() {
    let allow = |name: &str| format!(", allowSystemNames: [ \"{name}\" ]");
    is_ended_by_its_deletion("cluster: shared", allow).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn as_judged_by_its_own_cluster() {
    is_ended_by_its_deletion("targetCluster: true", |_| String::new()).await;
}
