//! A RoleBinding is deleted.

use super::*;

const TOKENS: [(&str, &str); 1] = [("tokens.csv", "a,revoked-alice,1\nb,revoked-bob,2\n")];
const FILE: &str = "authentication: { tokenFile: tokens.csv }\n";

#[tokio::test(flavor = "multi_thread")]
async fn at_the_cluster_itself_it_counts_within_the_time_of_an_allow() {
    let setup = Setup::start(&format!("{FILE}{SHORT}"), &TOKENS).await;
    let binding = setup.bind_user("revoked-alice").await;
    setup.bind_user("revoked-bob").await;
    let alice = setup.reader(token("a")).await;
    let bystander = setup.bystander(token("b")).await;
    let watches = alice.watch().await;
    setup.delete(&binding).await;
    end(watches).await;
    alice.is_refused(403).await;
    bystander.missed_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn through_the_proxy_it_counts_at_once_however_long_an_allow_does() {
    let setup = Setup::start(&format!("{FILE}{LONG}"), &TOKENS).await;
    let binding = setup.bind_user("revoked-alice").await;
    // Bob may do everything here.
    let path = format!(
        "/apis/{RBAC}/v1/namespaces/{}/rolebindings",
        setup.namespace
    );
    let admin = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": {"name": "bob"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "revoked-bob"}],
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "admin"},
    });
    setup.create(&path, &admin).await;
    let alice = setup.reader(token("a")).await;
    let bystander = setup.bystander(token("b")).await;
    let watches = alice.watch().await;
    let bob = Client::new(&setup.endpoint(token("b"))).unwrap();
    bob.delete(&binding).await.unwrap().ok().unwrap();
    alice.is_refused(403).await;
    end(watches).await;
    bystander.missed_nothing().await;
}
