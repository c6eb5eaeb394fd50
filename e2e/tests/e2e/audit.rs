//! The audit log: beside kube-apiserver's own, request by request, and what becomes of it when files and disks do.

mod compared;
mod files;

use std::path::{Path, PathBuf};

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, User};
use fleetcache_e2e::kubeconfig::Context;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pair::connected;

/// Two users of the clusters, and a directory with the files of a proxy that knows them.
struct Users {
    dir: TempDir,
}

impl Users {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tokens = "alice-token,alice,2,developers\nbob-token,bob,3\n";
        std::fs::write(dir.path().join("tokens.csv"), tokens).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self) -> PathBuf {
        self.path("audit.log")
    }

    /// A configuration with an audit log at that path, relative to the directory, or none.
    fn config(&self, audit: Option<&str>) -> String {
        let tokens = self.path("tokens.csv");
        let audit = audit.map(|path| {
            let path = match path {
                "-" => path.to_owned(),
                name => self.path(name).display().to_string(),
            };
            format!("audit: {{ path: \"{path}\" }}\n")
        });
        format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nauthentication: {{ tokenFile: {} }}\n{}",
            tokens.display(),
            audit.unwrap_or_default()
        )
    }

    async fn proxy(&self, cluster: &ControlPlane, audit: &str) -> Proxy {
        let proxy = Proxy::start(Options {
            kubeconfigs: vec![cluster.kubeconfig()],
            config: Some(self.config(Some(audit))),
            ..Options::default()
        })
        .await
        .unwrap();
        connected(&client(&proxy, cluster, User::Alice)).await;
        proxy
    }
}

/// The cluster through the proxy, with the credential that the user has for the cluster itself.
fn endpoint(proxy: &Proxy, cluster: &ControlPlane, user: User) -> Context {
    let proxied = proxy.context(cluster.name()).unwrap();
    Context {
        credential: cluster.context(user).unwrap().credential,
        ..proxied
    }
}

fn client(proxy: &Proxy, cluster: &ControlPlane, user: User) -> Client {
    Client::new(&endpoint(proxy, cluster, user)).unwrap()
}

/// The events of a log, each of which must be one line.
fn events(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines();
    let event = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    lines.map(event).collect()
}

/// The events of one request, once the last is there.
async fn events_of(log: &Path, audit_id: &str) -> Vec<Value> {
    wait_for(&format!("the end of {audit_id}"), PATIENCE, async || {
        let mut events = events(log);
        events.retain(|it| it["auditID"] == audit_id);
        let stages: Vec<_> = events.iter().map(|it| it["stage"].clone()).collect();
        let ends = |stage: &Value| stage == "ResponseComplete" || stage == "Panic";
        match stages.iter().any(ends) {
            true => Ok(events),
            false => Err(format!("{stages:?}")),
        }
    })
    .await
    .unwrap()
}

/// Gives alice all rights of a cluster.
async fn alice_may_all(cluster: &ControlPlane) {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "alice"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "alice"}],
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
    });
    let path = format!("/apis/{RBAC}/v1/clusterrolebindings");
    let created = cluster.client().unwrap().create(&path, &binding).await;
    created.unwrap().ok().unwrap();
}
