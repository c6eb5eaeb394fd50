//! The proxy's credential in a cluster with no more rights than `fleetcache rbac` prints, and the tests under it: with
//! `FLEETCACHE_E2E_IDENTITY=impersonate` the proxies of real control planes have users, whom they impersonate with such a
//! credential. `docs/TESTING.md` says which tests have a configuration of their own all the same.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::OnceCell;

use crate::binaries;
use crate::client::Client;
use crate::kubectl::Kubectl;
use crate::poll::{PATIENCE, wait_for};

const SWITCH: &str = "FLEETCACHE_E2E_IDENTITY";

/// The token of the proxy's credential in all control planes, where it is not the administrator's.
pub(crate) const PROXY_TOKEN: &str = "least-privilege-token";

/// Whose it is.
pub(crate) const PROXY_USER: &str = "least-privilege";

/// The token by which a proxy's clients are users: it is no token of the cluster's.
pub(crate) const CLIENT_TOKEN: &str = "through-the-proxy";

/// Whose that is: the administrator's user in every control plane, so that a client sees the same on either way.
pub(crate) const CLIENT: &str = "admin,1,system:masters";

/// Whether the tests run so.
///
/// # Panics
/// The variable says something else.
pub fn is_on() -> bool {
    match std::env::var(SWITCH).unwrap_or_default().as_str() {
        "" | "proxy" => false,
        "impersonate" => true,
        other => panic!("{SWITCH} is {other:?}: impersonate, or proxy, as where it is not set"),
    }
}

/// Gives the proxy's credential what it needs in a control plane whose etcd is new.
pub(crate) async fn prepare(admin: &Client, kubectl: &Kubectl) -> anyhow::Result<()> {
    static RULES: OnceCell<Value> = OnceCell::const_new();
    let rules = async || {
        let role = cluster_role(&[]).await?;
        let as_json = ["create", "--dry-run=client", "-o", "json", "-f", "-"];
        let role = kubectl.run_with_input(&as_json, &role).await?.ok()?;
        let role: Value = serde_json::from_str(&role)?;
        anyhow::Ok(role["rules"].clone())
    };
    let rules = RULES.get_or_try_init(rules).await?;
    let subject = json!({"apiGroup": RBAC, "kind": "User", "name": PROXY_USER});
    grant(admin, PROXY_USER, rules, &subject).await?;
    settled(admin, "least-privilege-settled").await
}

/// The group of roles.
pub const RBAC: &str = "rbac.authorization.k8s.io";

/// How a command ended: its code, and what it printed and complained of.
pub async fn rbac(args: &[&str]) -> anyhow::Result<(Option<i32>, String, String)> {
    let mut command = Command::new(binaries::fleetcache().await?);
    let output = command.arg("rbac").args(args).env_clear().output().await;
    let output = output.context("cannot run fleetcache rbac")?;
    Ok((
        output.status.code(),
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
    ))
}

/// What `fleetcache rbac` prints.
pub async fn cluster_role(args: &[&str]) -> anyhow::Result<String> {
    let (code, role, complaint) = rbac(args).await?;
    ensure!(code == Some(0), "fleetcache rbac {args:?}: {complaint}");
    Ok(role)
}

/// A ClusterRole of these rules, and who has it, both of that name. Does not wait until they count.
pub async fn grant(
    admin: &Client,
    name: &str,
    rules: &Value,
    subject: &Value,
) -> anyhow::Result<()> {
    let version = format!("{RBAC}/v1");
    let metadata = json!({"name": name});
    let role =
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules});
    let binding = json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata, "subjects": [subject],
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
    });
    for (resource, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let path = format!("/apis/{RBAC}/v1/{resource}");
        admin.create(&path, &object).await?.ok()?;
    }
    Ok(())
}

/// Returns when all that was granted before counts: the server hears of roles and of bindings in their order, a moment late.
pub async fn settled(admin: &Client, name: &str) -> anyhow::Result<()> {
    let rules = json!([{"nonResourceURLs": [format!("/{name}")], "verbs": ["get"]}]);
    let subject = json!({"apiGroup": RBAC, "kind": "User", "name": name});
    grant(admin, name, &rules, &subject).await?;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": name, "nonResourceAttributes": {"verb": "get", "path": format!("/{name}")}},
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    wait_for("roles to count", PATIENCE, async || {
        let answer = admin.create(path, &review).await?.ok()?.json()?;
        ensure!(answer["status"]["allowed"] == true, "{}", answer["status"]);
        Ok(())
    })
    .await
}
