//! The cluster behind dashboards: thirty kinds in twenty namespaces, and who may read what of them.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options, User};
use fleetcache_e2e::kubeconfig::{Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::json;
use tokio::sync::OnceCell;

/// Thirty kinds that every cluster has in its namespaces.
pub(super) const KINDS: [(&str, &[&str]); 11] = [
    (
        "/api/v1",
        &[
            "configmaps",
            "endpoints",
            "events",
            "limitranges",
            "persistentvolumeclaims",
            "pods",
            "podtemplates",
            "replicationcontrollers",
            "resourcequotas",
            "secrets",
            "serviceaccounts",
            "services",
        ],
    ),
    (
        "/apis/apps/v1",
        &[
            "controllerrevisions",
            "daemonsets",
            "deployments",
            "replicasets",
            "statefulsets",
        ],
    ),
    ("/apis/autoscaling/v2", &["horizontalpodautoscalers"]),
    ("/apis/batch/v1", &["cronjobs", "jobs"]),
    ("/apis/coordination.k8s.io/v1", &["leases"]),
    ("/apis/discovery.k8s.io/v1", &["endpointslices"]),
    (
        "/apis/networking.k8s.io/v1",
        &["ingresses", "networkpolicies"],
    ),
    ("/apis/policy/v1", &["poddisruptionbudgets"]),
    (
        "/apis/rbac.authorization.k8s.io/v1",
        &["rolebindings", "roles"],
    ),
    (
        "/apis/resource.k8s.io/v1",
        &["resourceclaims", "resourceclaimtemplates"],
    ),
    ("/apis/storage.k8s.io/v1", &["csistoragecapacities"]),
];

pub(super) const NAMESPACES: usize = 20;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Who opens dashboards: each of these has a token and is seen once.
pub(super) const USERS: [&str; 7] = [
    "crowd",
    "everywhere",
    "exact",
    "narrow",
    "narrow-crowd",
    "one",
    "warmer",
];

pub(super) fn tokens() -> String {
    let line = |user| format!("{user}s,{user},{user}\n");
    USERS.map(line).concat()
}

/// A control plane whose reviews nobody else causes.
pub(super) async fn cluster() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = async || {
        let options = Options {
            tokens: tokens().into(),
            ..Options::named("dashboard")
        };
        let plane = ControlPlane::start(options).await?;
        let client = plane.client()?;
        for at in 0..NAMESPACES {
            let name = namespace(at);
            let metadata = json!({"name": name});
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
            client.create("/api/v1/namespaces", &object).await?.ok()?;
            let path = format!("/api/v1/namespaces/{name}/configmaps");
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("of-{name}")}});
            client.create(&path, &object).await?.ok()?;
        }
        let path = format!("/apis/{RBAC}/v1/clusterroles");
        let rules =
            json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
        let role = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": rules,
        });
        client.create(&path, &role).await?.ok()?;
        grant(&plane, "warmer", None).await;
        anyhow::Ok(plane)
    };
    SHARED.get_or_try_init(start).await.unwrap()
}

pub(super) fn namespace(at: usize) -> String {
    format!("team-{at}")
}

/// The paths of all kinds in one namespace.
pub(super) fn paths(namespace: &str) -> Vec<String> {
    let of = |&(group, kinds): &(&str, &[&str])| {
        let path = |kind: &&str| format!("{group}/namespaces/{namespace}/{kind}");
        kinds.iter().map(path).collect::<Vec<_>>()
    };
    KINDS.iter().flat_map(of).collect()
}

/// Lets a user read everything, in one namespace or in all.
pub(super) async fn grant(plane: &ControlPlane, user: &str, namespace: Option<&str>) {
    let (kind, path) = match namespace {
        Some(namespace) => (
            "RoleBinding",
            format!("namespaces/{namespace}/rolebindings"),
        ),
        None => ("ClusterRoleBinding", "clusterrolebindings".to_owned()),
    };
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": {"name": user},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "reader"},
    });
    let client = plane.client().unwrap();
    let path = format!("/apis/{RBAC}/v1/{path}");
    client.create(&path, &binding).await.unwrap().ok().unwrap();
    // Its authorizer hears of it a moment later.
    let client = direct(plane, user);
    let path = format!("/api/v1/namespaces/{}/pods", namespace.unwrap_or("default"));
    let allowed = wait_for("the role to count", PATIENCE, async || {
        client.get(&path).await?.ok()
    });
    allowed.await.unwrap();
}

/// A user of the cluster itself.
pub(super) fn direct(plane: &ControlPlane, user: &str) -> Client {
    let endpoint = Context {
        credential: Credential::Token(format!("{user}s")),
        ..plane.context(User::Bob).unwrap()
    };
    Client::new(&endpoint).unwrap()
}

/// The reviews that the server was ever asked for.
pub(super) async fn reviews(plane: &ControlPlane) -> u64 {
    let metrics = plane.client().unwrap().get("/metrics").await.unwrap();
    let metrics = metrics.ok().unwrap().text();
    let counted = metrics.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && line.contains("resource=\"subjectaccessreviews\"")
            && line.contains("verb=\"POST\"")
    });
    let counts = counted.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    counts.sum::<f64>() as u64
}
