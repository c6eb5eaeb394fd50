//! What a program built on client-go sees of an endpoint.

use std::path::Path;

use tokio::process::Command;

use crate::binaries::Program;

/// Runs a scenario of `e2e/controlplane/cmd/client` and returns its JSON lines.
///
/// `client` is `typed`, `dynamic` or `metadata`, `scenario` is `crud` or `informer`. The namespace must hold no ConfigMaps,
/// and holds none afterwards.
pub async fn run(
    kubeconfig: &Path,
    context: &str,
    namespace: &str,
    client: &str,
    scenario: &str,
) -> anyhow::Result<Vec<String>> {
    let mut command = Command::new(Program::Client.path().await?);
    command.arg("--kubeconfig").arg(kubeconfig).args([
        "--context",
        context,
        "--namespace",
        namespace,
    ]);
    command
        .args(["--client", client, scenario])
        .kill_on_drop(true);
    let output = command.output().await?;
    let stdout = String::from_utf8(output.stdout)?;
    anyhow::ensure!(
        output.status.success(),
        "{client} {scenario} on {context} failed after:\n{stdout}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(stdout.lines().map(str::to_owned).collect())
}
