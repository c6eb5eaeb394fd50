//! What the configuration leaves out is left alone.

use std::collections::BTreeSet;

use fleetcache_e2e::kubeconfig;
use serde_json::{Value, json};

use super::*;

/// Each request for Secrets that the log of the management cluster's server holds: verb, namespace and name, empty for all.
fn secrets_asked_for(audit: &std::path::Path, user: &str) -> BTreeSet<(String, String, String)> {
    let log = std::fs::read_to_string(audit).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    lines
        .filter(|line: &Value| {
            line["user"]["username"] == user && line["objectRef"]["resource"] == "secrets"
        })
        .map(|line| {
            let object = &line["objectRef"];
            (
                text(&line["verb"]),
                text(&object["namespace"]),
                text(&object["name"]),
            )
        })
        .collect()
}

#[tokio::test]
async fn an_excluded_cluster_gets_no_packet_and_its_secret_is_never_read() {
    let files = tempfile::tempdir().unwrap();
    let (policy, audit) = (files.path().join("policy"), files.path().join("audit"));
    let rules = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]});
    std::fs::write(&policy, rules.to_string()).unwrap();
    let mut options = Options::named("management");
    options.apiserver_args = vec![
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", audit.display()),
        "--audit-log-mode=blocking".to_owned(),
    ];
    let plane = ControlPlane::start(options).await.unwrap();
    cluster_api::install(&plane).await.unwrap();
    let mgmt = plane.client().unwrap();
    let (mine, theirs) = ("mine", "theirs");
    for namespace in [mine, theirs] {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        mgmt.create("/api/v1/namespaces", &object)
            .await
            .unwrap()
            .ok()
            .unwrap();
    }
    // Bob may see one namespace, and what he needs of it.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "fleetcache"}, "rules": [
        {"apiGroups": ["cluster.x-k8s.io"], "resources": ["clusters"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]},
    ]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "fleetcache"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "fleetcache"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{mine}");
    mgmt.create(&format!("{rbac}/roles"), &role)
        .await
        .unwrap()
        .ok()
        .unwrap();
    mgmt.create(&format!("{rbac}/rolebindings"), &binding)
        .await
        .unwrap()
        .ok()
        .unwrap();

    let (wanted, other_label, other_namespace) = (sim("a").await, sim("b").await, sim("c").await);
    for (namespace, sim, tier) in [
        (mine, &wanted, "edge"),
        (mine, &other_label, "core"),
        (theirs, &other_namespace, "edge"),
    ] {
        let name = sim.name();
        cluster_api::create_cluster(&mgmt, "v1beta2", namespace, name, &[("tier", tier)])
            .await
            .unwrap();
        let kubeconfig = sim.kubeconfig();
        cluster_api::write_secret(&mgmt, namespace, name, &[("value", &kubeconfig)])
            .await
            .unwrap();
    }
    let bob = kubeconfig::write(
        &files.path().join("bob"),
        &[plane.context(User::Bob).unwrap()],
    )
    .unwrap();
    let proxy = start(&format!(
        "  clusterAPI: {{ kubeconfig: {}, useControlPlaneSecret: true, namespaces: [{mine}], labelSelector: tier=edge }}\n",
        bob.display()
    ))
    .await;
    served(&proxy, "mine.a").await;
    unknown(&proxy, "mine.b").await;
    unknown(&proxy, "theirs.c").await;
    for sim in [&other_label, &other_namespace] {
        assert_eq!(sim.counts(), Default::default(), "{}", sim.name());
    }
    let of = |verb: &str, name: &str| (verb.to_owned(), mine.to_owned(), name.to_owned());
    let expected = BTreeSet::from([of("list", ""), of("watch", ""), of("get", "a-kubeconfig")]);
    // The record of a watch comes when it has begun, which may be after its cluster is served.
    wait_for("the watch to be in the log", PATIENCE, async || {
        let asked = secrets_asked_for(&audit, "bob");
        if asked == expected {
            Ok(())
        } else {
            Err(format!("{asked:?}"))
        }
    })
    .await
    .unwrap();

    // A label decides, as it changes.
    let path = |name: &str| format!("{}/{name}", cluster_api::clusters("v1beta2", mine));
    let label = async |name: &str, tier: &str| {
        let patch = json!({"metadata": {"labels": {"tier": tier}}});
        mgmt.patch(&path(name), &patch).await.unwrap().ok().unwrap();
    };
    label("b", "edge").await;
    served(&proxy, "mine.b").await;
    label("a", "core").await;
    unknown(&proxy, "mine.a").await;
    wait_for("its connections to be closed", PATIENCE, async || {
        let open = wanted.counts().connections;
        anyhow::ensure!(open == 0, "{open}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(other_namespace.counts(), Default::default());
    assert!(
        !secrets_asked_for(&audit, "bob")
            .iter()
            .any(|(_, namespace, _)| namespace != mine)
    );
}
