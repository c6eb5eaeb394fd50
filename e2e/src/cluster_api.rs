//! Cluster API on a real control plane: its own definitions of Clusters, and the objects that tell of clusters. There are no
//! controllers of it: tests write what those would.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::client::Client;
use crate::control_plane::ControlPlane;
use crate::poll::{PATIENCE, wait_for};

/// Where the Go module has the definition of Clusters.
const DEFINITION: &str = "core/config/crd/bases/cluster.x-k8s.io_clusters.yaml";

/// Creates the definition of Clusters, as the release that `e2e/crds/go.mod` names has it, and waits until both versions are
/// served.
pub async fn install(control_plane: &ControlPlane) -> anyhow::Result<()> {
    let module = tokio::task::spawn_blocking(module_dir).await??;
    let definition = module.join(DEFINITION).display().to_string();
    let kubectl = control_plane.kubectl().await?;
    kubectl.run(&["create", "-f", &definition]).await?.ok()?;
    let client = control_plane.client()?;
    wait_for("Clusters to be served", PATIENCE, async || {
        for version in ["v1beta1", "v1beta2"] {
            client.get(&clusters(version, "default")).await?.ok()?;
        }
        anyhow::Ok(())
    })
    .await
}

/// The path of the Clusters of a namespace.
pub fn clusters(version: &str, namespace: &str) -> String {
    format!("/apis/cluster.x-k8s.io/{version}/namespaces/{namespace}/clusters")
}

/// The path of the Secrets of a namespace.
pub fn secrets(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets")
}

/// Creates a Cluster in a version, with these labels.
pub async fn create_cluster(
    client: &Client,
    version: &str,
    namespace: &str,
    name: &str,
    labels: &[(&str, &str)],
) -> anyhow::Result<()> {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let cluster = json!({
        "apiVersion": format!("cluster.x-k8s.io/{version}"),
        "kind": "Cluster",
        "metadata": { "name": name, "labels": labels },
        "spec": { "controlPlaneEndpoint": { "host": "control-plane.example", "port": 6443 } },
    });
    let path = clusters(version, namespace);
    client.create(&path, &cluster).await?.ok()?;
    Ok(())
}

/// Writes the kubeconfig Secret of a Cluster, as its control plane provider does: a kubeconfig and whatever else is in it.
pub async fn write_secret(
    client: &Client,
    namespace: &str,
    cluster: &str,
    data: &[(&str, &str)],
) -> anyhow::Result<()> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "cluster.x-k8s.io/secret",
        "metadata": {
            "name": format!("{cluster}-kubeconfig"),
            "labels": { "cluster.x-k8s.io/cluster-name": cluster },
        },
        "data": encoded(data),
    });
    put(client, namespace, &secret).await
}

/// Writes a Secret of no special type.
pub async fn write_plain_secret(
    client: &Client,
    namespace: &str,
    name: &str,
    labels: &[(&str, &str)],
    data: &[(&str, &str)],
) -> anyhow::Result<()> {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "labels": labels },
        "data": encoded(data),
    });
    put(client, namespace, &secret).await
}

/// Creates a Secret, or puts it in the place of the one that is there.
async fn put(client: &Client, namespace: &str, secret: &Value) -> anyhow::Result<()> {
    let path = secrets(namespace);
    let answer = client.create(&path, secret).await?;
    if answer.status != 409 {
        answer.ok()?;
        return Ok(());
    }
    let name = secret["metadata"]["name"].as_str().unwrap_or_default();
    client
        .update(&format!("{path}/{name}"), secret)
        .await?
        .ok()?;
    Ok(())
}

fn encoded(data: &[(&str, &str)]) -> BTreeMap<String, String> {
    let data = data.iter();
    data.map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value)))
        .collect()
}

/// Where Go keeps the module, downloaded first where it must be.
fn module_dir() -> anyhow::Result<PathBuf> {
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
    let mut command = Command::new("go");
    command
        .current_dir(crds)
        .args(["mod", "download", "-json", "sigs.k8s.io/cluster-api"]);
    let output = command.output().context(
        "cannot run go, which fetches the definitions of Cluster API; install Go 1.26 or later",
    )?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "go mod download failed: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let told: Value = serde_json::from_str(&text)?;
    Ok(told["Dir"]
        .as_str()
        .context("go told of no directory")?
        .into())
}
