//! What a program built on client-go sees of an endpoint.

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::binaries::Program;

/// Runs a scenario of `e2e/clients` and returns its JSON lines.
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

/// A scenario of `e2e/clients` that tells what it sees while a test does something. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a scenario with these arguments, in which the scenario itself is the last, and environment variables. What it
    /// complains about is shown with the test's own output.
    pub async fn start(
        kubeconfig: &Path,
        context: &str,
        namespace: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let mut child = Command::new(Program::Client.path().await?)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--context", context, "--namespace", namespace])
            .args(args)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("stdout is a pipe")?);
        Ok(Self {
            child,
            stdin,
            stdout,
        })
    }

    /// The next line it prints, without the newline; `None` at its end. Cancelling this may lose a part of a line.
    pub async fn next_line(&mut self) -> anyhow::Result<Option<String>> {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line).await?;
        Ok((read > 0).then(|| line.trim_end_matches('\n').to_owned()))
    }

    /// Its input, once. Some scenarios take the end of it as the word to end.
    pub const fn take_input(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// How it ended; it has a limit of its own and ends in any case.
    pub async fn wait(mut self) -> anyhow::Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }
}
