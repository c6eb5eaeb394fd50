//! What users are shown from memory, and as whom clusters are asked for the rest.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use fleetcache_e2e::client::{Client, Lines};
use fleetcache_e2e::control_plane::{User, control_plane};
use fleetcache_e2e::kubeconfig::{self, Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::sim::{Fault, Rule, SimCluster, SimConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pair::{connected, warm};

mod may_not_ask;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const CONNECTION: &str = "/apis/fleetcache.dev/v1alpha1/clusterconnections/sim";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A simulated cluster with some ConfigMaps behind a proxy that knows alice and bob by their tokens.
struct Users {
    cluster: SimCluster,
    proxy: Proxy,
    files: TempDir,
}

impl Users {
    async fn start(settings: &str) -> Self {
        let cluster = SimCluster::start(SimConfig::new("sim")).await.unwrap();
        for n in 0..20 {
            let metadata = json!({"name": format!("c{n}"), "namespace": "default"});
            let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata});
            cluster.store().create("configmaps", object).unwrap();
        }
        for user in ["alice", "bob"] {
            cluster.accept_user(&format!("{user}s"), user);
        }
        let files = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let tokens = "alices,alice,2,developers\nbobs,bob,3\nstrangers,carol,4\n";
        let tokens = file("tokens.csv", tokens);
        let proxy = Proxy::start(Options {
            kubeconfigs: vec![file("kubeconfig", &cluster.kubeconfig())],
            config: Some(config(&tokens.display().to_string(), settings)),
            ..Options::default()
        });
        let users = Self {
            cluster,
            proxy: proxy.await.unwrap(),
            files,
        };
        connected(&users.client("alices")).await;
        users
    }

    fn client(&self, token: &str) -> Client {
        with_token(&self.proxy, "sim", token)
    }

    /// The fleet's own API.
    fn root(&self, token: &str) -> Client {
        let mut endpoint = self.proxy.root().unwrap();
        endpoint.credential = Credential::Token(token.to_owned());
        Client::new(&endpoint).unwrap()
    }

    /// A kubeconfig with the fleet alone, under a name of somebody's own.
    fn with_kubeconfig(&self, token: &str) -> PathBuf {
        let endpoint = Context {
            name: "mine".to_owned(),
            credential: Credential::Token(token.to_owned()),
            ..self.proxy.root().unwrap()
        };
        kubeconfig::write(&self.files.path().join(token), &[endpoint]).unwrap()
    }

    fn reviews(&self) -> u64 {
        self.cluster.counts().requests("other", REVIEWS)
    }
}

fn config(tokens: &str, settings: &str) -> String {
    format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nauthentication: {{ tokenFile: {tokens} }}\n{settings}"
    )
}

fn with_token(proxy: &Proxy, cluster: &str, token: &str) -> Client {
    let mut endpoint = proxy.context(cluster).unwrap();
    endpoint.credential = Credential::Token(token.to_owned());
    Client::new(&endpoint).unwrap()
}

fn reads() -> Rule {
    Rule::new(&["get", "list", "watch"], &["configmaps"])
}

/// A watch that came from memory.
async fn watch(client: &Client) -> Lines {
    let lines = client.lines(&format!("{CONFIGMAPS}?watch=1")).await;
    let lines = lines.unwrap();
    assert_eq!(lines.headers["cache-status"], "fleetcache; hit");
    lines
}

async fn status(client: &Client, path: &str) -> u16 {
    client.get(path).await.unwrap().status.as_u16()
}

#[tokio::test]
async fn one_question_answers_all_that_a_role_for_the_whole_cluster_allows() {
    let users = Users::start("authorization: { allowTTL: 1h }").await;
    users.cluster.restrict("alice", vec![reads()]);
    let alice = users.client("alices");
    warm(&alice, CONFIGMAPS).await;
    warm(&alice, &format!("{CONFIGMAPS}/c0")).await;
    let asked = users.reviews();
    for n in 0..100 {
        let path = format!("{CONFIGMAPS}/c{}", n % 20);
        assert!(alice.get(&path).await.unwrap().is_hit());
    }
    assert_eq!(users.reviews(), asked);
    assert_eq!(asked, 2, "to get, and to list");
}

#[tokio::test]
async fn a_right_that_is_taken_away_ends_reads_and_watches() {
    let users = Users::start("authorization: { allowTTL: 1s, denyTTL: 1s }").await;
    users
        .cluster
        .restrict("alice", vec![reads().within("default")]);
    let (alice, bob) = (users.client("alices"), users.client("bobs"));
    warm(&alice, CONFIGMAPS).await;
    let (mut alices, mut bobs) = (watch(&alice).await, watch(&bob).await);
    users
        .cluster
        .restrict("alice", vec![reads().within("elsewhere")]);
    while alices.next().await.unwrap().is_some() {}
    let refused = wait_for("alice to be refused", PATIENCE, async || {
        let answer = alice.get(CONFIGMAPS).await?;
        ensure!(answer.status == 403, "{}", answer.status);
        anyhow::Ok(answer)
    });
    let refused = refused.await.unwrap();
    assert_eq!(
        refused.cache_status(),
        "fleetcache; fwd=bypass; detail=not-allowed"
    );
    assert!(
        refused.text().contains("User \\\"alice\\\" cannot list"),
        "{}",
        refused.text()
    );
    assert!(alice.lines(&format!("{CONFIGMAPS}?watch=1")).await.is_err());
    // Nobody else loses anything.
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "new", "namespace": "default"}});
    users.cluster.store().create("configmaps", object).unwrap();
    loop {
        let line = bobs.next().await.unwrap().unwrap();
        let event: Value = serde_json::from_slice(&line).unwrap();
        if event["object"]["metadata"]["name"] == "new" {
            break;
        }
    }
}

#[tokio::test]
async fn whoever_may_not_starts_no_informer_and_waits_for_none() {
    for on_missing in ["fail", "wait"] {
        let users = Users::start(&format!("cache: {{ onMissingInformer: {on_missing} }}")).await;
        users.cluster.restrict("alice", vec![]);
        let (alice, bob) = (users.client("alices"), users.client("bobs"));
        let only_if_cached = [("cache-control", "only-if-cached")];
        for _ in 0..3 {
            assert_eq!(status(&alice, CONFIGMAPS).await, 403);
            let answer = alice.get_with(CONFIGMAPS, &only_if_cached).await.unwrap();
            assert_eq!(answer.status, 504, "{}", answer.text());
        }
        let informers = users.proxy.metrics().unwrap().get("fleetcache_informers");
        assert_eq!(informers.unwrap_or_default(), 0.0);
        let expected = if on_missing == "fail" { 503 } else { 200 };
        assert_eq!(status(&bob, CONFIGMAPS).await, expected);
        warm(&bob, CONFIGMAPS).await;
        // Now it is there, and still not for her.
        assert_eq!(status(&alice, CONFIGMAPS).await, 403);
        let answer = alice.get_with(CONFIGMAPS, &only_if_cached).await.unwrap();
        assert_eq!(answer.status, 504, "{}", answer.text());
        assert!(answer.text().contains("not-allowed"), "{}", answer.text());
    }
}

#[tokio::test]
async fn what_is_too_long_to_be_asked_goes_live_unasked() {
    let users = Users::start("authorization: { allowTTL: 1h }").await;
    users.cluster.restrict("alice", vec![reads()]);
    let alice = users.client("alices");
    warm(&alice, CONFIGMAPS).await;
    let one_of = |values: usize| {
        let values: Vec<_> = (0..values).map(|at| format!("value-{at:04}")).collect();
        format!("{CONFIGMAPS}?labelSelector=a%20in%20({})", values.join(","))
    };
    let asked = users.reviews();
    assert!(alice.get(&one_of(100)).await.unwrap().is_hit());
    for path in [one_of(250), format!("{CONFIGMAPS}/{}", "x".repeat(2100))] {
        let answer = alice.get(&path).await.unwrap();
        let status = "fleetcache; fwd=request; detail=too-long";
        assert_eq!(answer.cache_status(), status);
    }
    assert_eq!(users.reviews(), asked);
}

#[tokio::test]
async fn a_cluster_is_asked_with_the_callers_own_token() {
    let users = Users::start("defaults: { identity: token }").await;
    let (alice, bob) = (users.client("alices"), users.client("bobs"));
    let who = async |client: &Client| {
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer = client.create(path, &json!({})).await.unwrap();
        answer.json().unwrap()["status"]["userInfo"]["username"].clone()
    };
    assert_eq!(
        (who(&alice).await, who(&bob).await),
        (json!("alice"), json!("bob"))
    );
    // Who it is to the cluster is for the cluster to say: its 401 passes, and the proxy's credential has no part in it.
    let stranger = users.client("strangers");
    for _ in 0..3 {
        let refused = stranger.get(CONFIGMAPS).await.unwrap();
        assert_eq!(refused.status, 401);
        assert_eq!(refused.json().unwrap()["message"], "Unauthorized");
    }
    users.cluster.restrict("alice", vec![]);
    warm(&bob, CONFIGMAPS).await;
    let refused = alice.get(CONFIGMAPS).await.unwrap();
    assert_eq!(refused.status, 403);
    assert!(
        refused.text().contains("User \\\"alice\\\""),
        "{}",
        refused.text()
    );
}

#[tokio::test]
async fn a_change_of_roles_through_the_proxy_counts_at_once() {
    let cluster = control_plane().await;
    let namespace = cluster.namespace("roles").await.unwrap();
    let admin = cluster.client().unwrap();
    let version = "rbac.authorization.k8s.io/v1";
    let create = async |client: &Client, path: &str, object: Value| {
        client.create(path, &object).await.unwrap().ok().unwrap();
    };
    // Who may do everything, and so give and take rights. Nobody whom other tests look at: they share the cluster.
    let name = fleetcache_e2e::control_plane::random_name("roles-");
    let bind = |kind: &str, name: &str, role: &str, user: &str| {
        let group = "rbac.authorization.k8s.io";
        json!({
            "apiVersion": version, "kind": kind, "metadata": {"name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        })
    };
    let everywhere = format!("{RBAC}/clusterrolebindings");
    let all = bind("ClusterRoleBinding", &name, "cluster-admin", &name);
    create(&admin, &everywhere, all).await;

    let files = tempfile::tempdir().unwrap();
    let tokens = files.path().join("tokens.csv");
    let users = format!("alice-token,alice,2,developers\ngiver-token,{name},3\n");
    std::fs::write(&tokens, users).unwrap();
    let settings = "authorization: { allowTTL: 1h, denyTTL: 1h }";
    let proxy = Proxy::start(Options {
        kubeconfigs: vec![cluster.kubeconfig()],
        config: Some(config(&tokens.display().to_string(), settings)),
        ..Options::default()
    });
    let proxy = proxy.await.unwrap();
    let [alice, giver] =
        ["alice-token", "giver-token"].map(|token| with_token(&proxy, cluster.name(), token));
    connected(&alice).await;
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    warm(&giver, &configmaps).await;
    assert_eq!(status(&alice, &configmaps).await, 403);

    let here = format!("{RBAC}/namespaces/{namespace}/rolebindings");
    let hers = bind("RoleBinding", "alice", "view", "alice");
    create(&giver, &here, hers).await;
    // What she may not yesterday is not said for an hour.
    warm(&alice, &configmaps).await;
    giver
        .delete(&format!("{here}/alice"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    wait_for("alice to be refused", Duration::from_secs(60), async || {
        let status = alice.get(&configmaps).await?.status;
        ensure!(status == 403, "{status}");
        anyhow::Ok(())
    })
    .await
    .unwrap();
    let gone = format!("{everywhere}/{name}");
    admin.delete(&gone).await.unwrap().ok().unwrap();
}

#[tokio::test]
async fn a_clusters_own_tokens_are_users_of_that_cluster_alone() {
    let cluster = control_plane().await;
    let namespace = cluster.namespace("tokens").await.unwrap();
    let admin = cluster.client().unwrap();
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app"}});
    admin
        .create(&accounts, &account)
        .await
        .unwrap()
        .ok()
        .unwrap();
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = admin
        .create(&format!("{accounts}/app/token"), &request)
        .await;
    let token = token.unwrap().ok().unwrap().json().unwrap();
    let token = token["status"]["token"].as_str().unwrap();

    let sim = SimCluster::start(SimConfig::new("sim")).await.unwrap();
    let files = tempfile::tempdir().unwrap();
    let kubeconfig = files.path().join("kubeconfig");
    std::fs::write(&kubeconfig, sim.kubeconfig()).unwrap();
    let head = "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n";
    for identity in ["impersonate", "token"] {
        let settings = format!(
            "{head}authentication: {{ tokenReview: {{ targetCluster: true }} }}\ndefaults: {{ identity: {identity} }}\n"
        );
        let proxy = Proxy::start(Options {
            kubeconfigs: vec![cluster.kubeconfig(), kubeconfig.clone()],
            config: Some(settings),
            ..Options::default()
        });
        let proxy = proxy.await.unwrap();
        let app = with_token(&proxy, cluster.name(), token);
        connected(&app).await;
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let told = app
            .create(path, &review)
            .await
            .unwrap()
            .ok()
            .unwrap()
            .json()
            .unwrap();
        let user = &told["status"]["userInfo"];
        let name = format!("system:serviceaccount:{namespace}:app");
        assert_eq!(user["username"], name);
        let direct = {
            let mut endpoint = cluster.context(User::Admin).unwrap();
            endpoint.credential = Credential::Token(token.to_owned());
            let client = Client::new(&endpoint).unwrap();
            client
                .create(path, &review)
                .await
                .unwrap()
                .ok()
                .unwrap()
                .json()
                .unwrap()
        };
        assert_eq!(user, &direct["status"]["userInfo"]);
        // What it may not it is told by the cluster.
        let refused = app.get(&accounts).await.unwrap();
        assert_eq!(refused.status, 403);
        assert!(refused.text().contains(&name), "{}", refused.text());
        // To others it is nobody, also to the fleet.
        assert_eq!(
            status(&with_token(&proxy, "sim", token), "/version").await,
            401
        );
        let mut root = proxy.root().unwrap();
        root.credential = Credential::Token(token.to_owned());
        assert_eq!(status(&Client::new(&root).unwrap(), "/apis").await, 401);
        let forged = format!("{}x", &token[..token.len() - 1]);
        assert_eq!(
            status(&with_token(&proxy, cluster.name(), &forged), "/version").await,
            401
        );
    }
}
