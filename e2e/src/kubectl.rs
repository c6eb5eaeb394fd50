//! kubectl, run as a user would, with nothing of the user's own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::binaries::Program;
use crate::process::{Signal, remove_at_exit, signal_group};

/// Longer than any command in the tests takes; a command that hangs ends here, with what it printed until then.
const TIMEOUT: Duration = Duration::from_secs(120);

/// kubectl with a kubeconfig, a context, and a home directory and discovery cache of its own.
#[derive(Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    context: String,
    home: TempDir,
    env: Vec<(OsString, OsString)>,
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Output {
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
    /// Its exit code; `None` when it was killed.
    pub code: Option<i32>,
    /// How long it ran.
    pub elapsed: Duration,
}

impl Output {
    /// Standard output of a command that must have worked.
    pub fn ok(self) -> anyhow::Result<String> {
        anyhow::ensure!(
            self.code == Some(0),
            "kubectl ended with {:?} after {:?}: {}{}",
            self.code,
            self.elapsed,
            self.stdout,
            self.stderr
        );
        Ok(self.stdout)
    }
}

impl Kubectl {
    /// kubectl on one context of a kubeconfig.
    pub async fn new(kubeconfig: &Path, context: &str) -> anyhow::Result<Self> {
        let program = Program::Kubectl.path().await?;
        let home = tempfile::Builder::new()
            .prefix("fleetcache-kubectl-")
            .tempdir()?;
        remove_at_exit(home.path());
        Ok(Self {
            program,
            kubeconfig: kubeconfig.to_owned(),
            context: context.to_owned(),
            home,
            env: Vec::new(),
        })
    }

    /// Sets an environment variable for all commands from now on.
    #[must_use]
    pub fn with_env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The context it asks.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// Whether it uses this kubeconfig.
    pub fn is_for(&self, kubeconfig: &Path) -> bool {
        self.kubeconfig == kubeconfig
    }

    /// A directory for the test's own files; also kubectl's working directory.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Writes a file next to which the commands run, so that they can name it without a path.
    pub fn write_file(&self, name: &str, text: &str) -> anyhow::Result<()> {
        Ok(std::fs::write(self.home.path().join(name), text)?)
    }

    /// Runs a command to its end.
    pub async fn run(&self, args: &[&str]) -> anyhow::Result<Output> {
        self.run_with_input(args, "").await
    }

    /// Runs a command to its end, with something on its standard input.
    pub async fn run_with_input(&self, args: &[&str], input: &str) -> anyhow::Result<Output> {
        let started = Instant::now();
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        let group = child.id();
        let mut stdin = child.stdin.take().context("stdin is a pipe")?;
        let mut stdout = child.stdout.take().context("stdout is a pipe")?;
        let mut stderr = child.stderr.take().context("stderr is a pipe")?;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let ended = tokio::time::timeout(TIMEOUT, async {
            let feed = async {
                // A command that does not read its input closes the pipe, which is no failure.
                let _ = stdin.write_all(input.as_bytes()).await;
                drop(stdin);
            };
            let (_, _, _, status) = tokio::join!(
                feed,
                stdout.read_to_end(&mut out),
                stderr.read_to_end(&mut err),
                child.wait()
            );
            status
        })
        .await;
        let code = match ended {
            Ok(status) => status?.code(),
            Err(_) => {
                group.inspect(|&group| signal_group(group, Signal::Kill));
                None
            }
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Output {
            stdout: text(out),
            stderr: text(err),
            code,
            elapsed: started.elapsed(),
        })
    }

    /// Starts a command that runs until it is dropped: `get --watch`, `logs --follow`, `port-forward`.
    pub fn start(&self, args: &[&str]) -> anyhow::Result<Running> {
        let mut child = self
            .command(args)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?;
        let stdout = child.stdout.take().context("stdout is a pipe")?;
        Ok(Running {
            child,
            stdout: BufReader::new(stdout),
        })
    }

    /// Starts a command like [`Self::start`], and returns when the server has begun to answer its first watch.
    pub async fn start_watching(&self, args: &[&str]) -> anyhow::Result<Running> {
        let mut child = self
            .command(&[args, &["-v=6"]].concat())
            .stdin(Stdio::null())
            .spawn()?;
        let mut stderr = BufReader::new(child.stderr.take().context("stderr is a pipe")?).lines();
        let stdout = child.stdout.take().context("stdout is a pipe")?;
        let watches = async {
            let mut log = String::new();
            while let Some(line) = stderr.next_line().await? {
                if line.contains("watch=true") && line.contains("status=\"200 OK\"") {
                    return Ok(());
                }
                log.push_str(&line);
                log.push('\n');
            }
            anyhow::bail!("kubectl ended without a watch:\n{log}")
        };
        tokio::time::timeout(TIMEOUT, watches)
            .await
            .context("kubectl began no watch within two minutes")??;
        // A log that nobody reads would fill the pipe and hold the command up.
        tokio::spawn(async move { while let Ok(Some(_)) = stderr.next_line().await {} });
        Ok(Running {
            child,
            stdout: BufReader::new(stdout),
        })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("KUBECACHEDIR", self.home.path().join("cache"))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.home.path())
            .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
            .arg(format!("--context={}", self.context))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

/// A command that has not ended.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// The next line it prints, without the newline; `None` at its end.
    pub async fn next_line(&mut self) -> anyhow::Result<Option<String>> {
        let mut line = String::new();
        let read = tokio::time::timeout(TIMEOUT, self.stdout.read_line(&mut line))
            .await
            .context("kubectl printed nothing for two minutes")??;
        Ok((read > 0).then(|| line.trim_end_matches('\n').to_owned()))
    }

    /// The rest of what it prints, and its exit code.
    pub async fn end(mut self) -> anyhow::Result<(String, Option<i32>)> {
        let mut text = String::new();
        let rest = async {
            self.stdout.read_to_string(&mut text).await?;
            self.child.wait().await
        };
        let status = tokio::time::timeout(TIMEOUT, rest)
            .await
            .context("kubectl did not end within two minutes")??;
        Ok((text, status.code()))
    }

    /// Ends it at once, as a user who closes the terminal.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }
}
