//! `deploy/`: its objects as a real server takes them, the proxy run as its Deployment says, and what its image is built from.
//! There is no container engine and no kubelet that would start one: what those do with the files is done here.

mod files;
mod image;
mod objects;
mod run;

use fleetcache_e2e::cluster_api;
use fleetcache_e2e::control_plane::{ControlPlane, Options};
use fleetcache_e2e::kubectl::Kubectl;
use serde_json::Value;
use tokio::sync::OnceCell;

use files::Files;

/// The namespace of all that is deployed.
const NAMESPACE: &str = "fleetcache";

/// The cluster that it is deployed to, with Cluster API in it. The manifests have names of their own, so it is theirs alone.
async fn management() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = async || {
        let plane = ControlPlane::start(Options::named("management")).await?;
        cluster_api::install(&plane).await?;
        anyhow::Ok(plane)
    };
    SHARED.get_or_try_init(start).await.unwrap()
}

/// The objects that `kubectl apply --kustomize` would apply, as one file.
async fn kustomize(kubectl: &Kubectl, files: &Files, folder: &str) -> String {
    let folder = files.path(folder).display().to_string();
    let built = kubectl.run(&["kustomize", &folder]).await.unwrap();
    built.ok().unwrap()
}

/// The objects of a file, one by one.
async fn objects(kubectl: &Kubectl, manifest: &str) -> Vec<Value> {
    let as_json = [
        "create",
        "--dry-run=client",
        "--validate=false",
        "--output=json",
        "--filename=-",
    ];
    let text = kubectl.run_with_input(&as_json, manifest).await.unwrap();
    let text = text.ok().unwrap();
    let read: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text)
        .into_iter()
        .collect();
    let mut objects = read.unwrap();
    // Several are printed as one List.
    if let [list] = &mut objects[..]
        && let Value::Array(items) = list["items"].take()
    {
        return items;
    }
    objects
}

/// The one object of a kind.
fn the<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut found = objects.iter().filter(|it| it["kind"] == kind);
    let first = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "two of {kind}");
    first
}
