//! The proxy's account exists in a cluster, and nobody has bound the role to it.

use fleetcache_e2e::client::Answer;

use super::*;
use crate::reload::fleetcache;

#[tokio::test]
async fn a_role_that_nobody_has_bound_is_told_when_the_first_user_asks() {
    let cluster = control_plane().await;
    let admin = cluster.client().unwrap();
    let namespace = cluster.namespace("unbound").await.unwrap();
    let token = account_token(&admin, &namespace).await;
    let mut endpoint = cluster.context(User::Admin).unwrap();
    endpoint.credential = Credential::Token(token);

    let files = tempfile::tempdir().unwrap();
    let file = |name: &str| files.path().join(name);
    std::fs::write(file("tokens.csv"), "dora-token,dora,2\n").unwrap();
    let proxy = Proxy::start(proxy::Options {
        kubeconfigs: vec![kubeconfig::write(&file("kubeconfig"), &[endpoint]).unwrap()],
        config: Some(format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nauthentication: {{ tokenFile: {} }}\n",
            file("tokens.csv").display()
        )),
        ..proxy::Options::default()
    });
    let proxy = proxy.await.unwrap();
    let credential = || Credential::Token("dora-token".to_owned());
    let mut through = proxy.context(cluster.name()).unwrap();
    through.credential = credential();
    let dora = Client::new(&through).unwrap();
    let mut root = proxy.root().unwrap();
    root.credential = credential();
    let mine = kubeconfig::write(&file("fleet"), std::slice::from_ref(&root)).unwrap();
    let fleet = Client::new(&root).unwrap();
    let told = async || {
        let path = format!(
            "/apis/fleetcache.dev/v1alpha1/clusterconnections/{}",
            cluster.name()
        );
        anyhow::Ok(fleet.get(&path).await?.ok()?.json()?["status"].take())
    };
    let condition = |told: &Value| {
        let conditions = told["conditions"].as_array().unwrap().iter();
        let mut it = conditions.filter(|it| it["type"] == "Impersonation");
        it.next().cloned().unwrap()
    };
    wait_for("a connection", PATIENCE, async || {
        let told = told().await?;
        ensure!(told["state"] == "Connected", "{told}");
        Ok(())
    })
    .await
    .unwrap();
    let before = told().await.unwrap();
    assert_eq!(condition(&before)["status"], "Unknown");
    assert_eq!(before["reason"], Value::Null);

    // Each form of the cluster's words is read, and reaches the client as it is.
    let refusal = |answer: &Answer| {
        assert_eq!(answer.status, 403);
        assert!(answer.text().contains("cannot impersonate"));
    };
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
    refusal(&dora.get_with(&configmaps, &protobuf).await.unwrap());
    let told_so = wait_for("the condition", PATIENCE, async || {
        let told = told().await?;
        ensure!(condition(&told)["status"] == "False", "{told}");
        Ok(told)
    })
    .await
    .unwrap();
    assert_eq!(told_so["reason"], "ImpersonationForbidden");
    assert_eq!(condition(&told_so)["reason"], "Forbidden");
    for path in [
        &configmaps,
        &format!("{configmaps}/one"),
        "/api",
        "/version",
    ] {
        refusal(&dora.get(path).await.unwrap());
    }
    let labels = [("state", "Connected"), ("reason", "ImpersonationForbidden")];
    let broken = || proxy.metrics().unwrap().sum("fleetcache_clusters", &labels);
    assert_eq!(broken(), Some(1.0));
    let status = async || {
        let mine = mine.to_str().unwrap();
        let (_, text) = fleetcache(&["status", "--broken", "--fleet-kubeconfig", mine]).await;
        text
    };
    let text = status().await;
    assert!(text.contains("ImpersonationForbidden"), "{text}");
    let lines = |words: &str| proxy.log().matches(words).count();
    assert_eq!(lines("may not impersonate users"), 1);
    // So say a refresh, which asks again, and whoever asks why.
    let refresh = async || fleetcache(&["refresh", "--admin", proxy.admin(), cluster.name()]).await;
    let (code, text) = refresh().await;
    assert!(
        code == Some(1) && text.contains("may not impersonate users"),
        "{text}"
    );
    let asked = format!("/clusters/{}{configmaps}", cluster.name());
    let (_, text) = fleetcache(&["why", "--admin", proxy.admin(), &asked]).await;
    assert!(text.contains("may not impersonate users"), "{text}");

    let role = cluster_role(&[]).await.unwrap();
    let kubectl = cluster.kubectl().await.unwrap();
    let arguments = ["create", "--dry-run=client", "-o", "json", "-f", "-"];
    let role = kubectl.run_with_input(&arguments, &role).await.unwrap();
    let role: Value = serde_json::from_str(&role.ok().unwrap()).unwrap();
    let subject = json!({"kind": "ServiceAccount", "namespace": namespace, "name": "proxy"});
    grant(&admin, &namespace, &role["rules"], &subject)
        .await
        .unwrap();
    wait_for("a refresh without a fault", PATIENCE, async || {
        let (code, text) = refresh().await;
        ensure!(code == Some(0), "{text}");
        Ok(())
    })
    .await
    .unwrap();
    wait_for("the condition", PATIENCE, async || {
        // That dora may nothing is the cluster's to say, and no fault of the role's.
        let answer = dora.get(&configmaps).await?;
        ensure!(answer.status == 403, "{}", answer.status);
        let told = told().await?;
        ensure!(condition(&told)["status"] == "True", "{told}");
        ensure!(told["reason"].is_null(), "{told}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(broken().unwrap_or_default(), 0.0);
    assert!(!status().await.contains("Forbidden"));
    assert_eq!(lines("may impersonate users again"), 1);
    assert_eq!(lines("may not impersonate users"), 1);
}
