//! The `fleetcache` binary, started as a user would start it.

mod contexts;
mod listening;
mod metrics;
mod users;

use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::binaries;
use crate::client::Client;
use crate::kubeconfig::{Context, Credential};
use crate::kubectl::Kubectl;
use crate::least_privilege::CLIENT_TOKEN;
use crate::measure;
use crate::poll::{PATIENCE, wait_for};
use crate::process::{self, Process, Signal};
use contexts::read_contexts;
use listening::listening;
pub use metrics::Metrics;

/// A proxy that is told to end gets this long before it is killed and the test fails.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// Often enough to find a difference within any test, seldom enough to take little of its time.
const SELF_CHECK_INTERVAL: &str = "2s";

/// A configuration that says nothing.
const HEAD: &str = "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n";

/// How to start it. The default is what `fleetcache serve` does with no flag but free ports and a directory of its own.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The kubeconfigs to read clusters from.
    pub kubeconfigs: Vec<PathBuf>,
    /// The text of a configuration file.
    pub config: Option<String>,
    /// How often it compares its informers with their clusters, where `config` does not say. The product's own default is
    /// too long for any test: in all of them, a difference fails the test.
    pub self_check_interval: Option<String>,
    /// Further arguments of `serve`.
    pub args: Vec<String>,
    /// How many files it may open, where that is to be few.
    pub open_files: Option<u32>,
    /// Further environment variables, such as `RUST_LOG`.
    pub env: Vec<(String, String)>,
}

/// A running proxy. Dropping it ends it, and fails the test if it panicked anywhere or did not end cleanly.
pub struct Proxy {
    process: Process,
    url: String,
    admin: String,
    contexts: Vec<Context>,
    dir: TempDir,
    /// Files that it looks at while it runs.
    _kept: Option<TempDir>,
    expects_mismatches: bool,
    serving_ca: Option<String>,
    /// Clients are users, see [`crate::least_privilege`].
    has_users: bool,
}

impl Proxy {
    /// Starts a proxy for the clusters of these kubeconfigs.
    pub async fn for_kubeconfigs(kubeconfigs: &[PathBuf]) -> anyhow::Result<Self> {
        Self::start(Options {
            kubeconfigs: kubeconfigs.to_vec(),
            ..Options::default()
        })
        .await
    }

    /// Starts the proxy and returns when it says that it listens.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("fleetcache-proxy-")
            .tempdir()?;
        process::remove_at_exit(dir.path());
        let binary = binaries::fleetcache().await?;
        let mut command = match options.open_files {
            None => Command::new(binary),
            Some(limit) => {
                let mut shell = Command::new("sh");
                let limited = format!("ulimit -n {limit} && exec \"$0\" \"$@\"");
                shell.arg("-c").arg(limited).arg(binary);
                shell
            }
        };
        command
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--admin-listen",
                "127.0.0.1:0",
                "--state-dir",
            ])
            .arg(dir.path());
        let has_users = users::are_meant(&options);
        // A test that brings a file of its own says in it what it wants.
        if !options.args.iter().any(|arg| arg == "--config") {
            let path = dir.path().join("fleetcache.yaml");
            let interval = options.self_check_interval.as_deref();
            let mut config = with_self_check(
                options.config.as_deref().unwrap_or(HEAD),
                interval.unwrap_or(SELF_CHECK_INTERVAL),
            );
            if has_users {
                config += &users::authentication(dir.path())?;
            }
            std::fs::write(&path, config)?;
            command.arg("--config").arg(path);
        }
        for kubeconfig in &options.kubeconfigs {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        command.args(&options.args);
        // Neither the kubeconfig nor the proxy settings of whoever runs the tests.
        command
            .env_clear()
            .env("HOME", dir.path())
            .env("FLEETCACHE_LOG_FORMAT", "json")
            .env("RUST_BACKTRACE", "1");
        command.envs(options.env.iter().map(|(name, value)| (name, value)));

        let mut process =
            Process::spawn("fleetcache", command, &dir.path().join("fleetcache.log"))?;
        let outcome = wait_for("fleetcache to listen", PATIENCE, || {
            let ended = process
                .exited()
                .map(|status| format!("fleetcache ended with {status}\n{}", process.log_tail()));
            let found = listening(&process.log());
            async move {
                match (found, ended) {
                    (Some(found), _) => Ok(Ok(found)),
                    (None, Some(ended)) => Ok(Err(ended)),
                    (None, None) => Err("it has not said so"),
                }
            }
        });
        let (url, admin) = match outcome.await {
            Ok(Ok((proxy_addr, admin_addr))) => (format!("https://{proxy_addr}"), admin_addr),
            Ok(Err(ended)) => anyhow::bail!(ended),
            Err(error) => return Err(error.context(process.log_tail())),
        };
        let mut proxy = Self {
            process,
            url,
            admin,
            contexts: Vec::new(),
            dir,
            _kept: None,
            expects_mismatches: false,
            serving_ca: None,
            has_users,
        };
        proxy.contexts = read_contexts(&proxy.kubeconfig()).await?;
        Ok(proxy)
    }

    /// The URL of the proxy itself.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The kubeconfig the proxy wrote, with one context per cluster. Where clients are users, as it is now and with their
    /// credential, as users put it in.
    pub fn kubeconfig(&self) -> PathBuf {
        let written = self.dir.path().join("kubeconfig");
        if self.has_users {
            users::with_credential(&written)
        } else {
            written
        }
    }

    /// The endpoint of one cluster, as the generated kubeconfig has it.
    pub fn context(&self, cluster: &str) -> anyhow::Result<Context> {
        let names: Vec<&str> = self
            .contexts
            .iter()
            .map(|context| context.name.as_str())
            .collect();
        let found = self.contexts.iter().find(|context| context.name == cluster);
        Ok(found
            .with_context(|| format!("the proxy's kubeconfig has {names:?} and not '{cluster}'"))?
            .clone())
    }

    /// The endpoint of the proxy itself, outside of any cluster; there need be none.
    pub fn root(&self) -> anyhow::Result<Context> {
        let read = |name: &str| {
            let path = self.dir.path().join(name);
            std::fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        Ok(Context {
            name: "root".to_owned(),
            server: self.url.clone(),
            ca_pem: match &self.serving_ca {
                Some(ca_pem) => ca_pem.clone(),
                None => read("ca.crt")?,
            },
            credential: Credential::Token(if self.has_users {
                CLIENT_TOKEN.to_owned()
            } else {
                read("token")?.trim().to_owned()
            }),
        })
    }

    /// The endpoint of a cluster that need not be there, or not yet.
    pub fn endpoint(&self, cluster: &str) -> anyhow::Result<Context> {
        let mut endpoint = self.root()?;
        endpoint.server = format!("{}/clusters/{cluster}", self.url);
        Ok(endpoint)
    }

    /// A client of one cluster through the proxy, on a connection of its own.
    pub fn client(&self, cluster: &str) -> anyhow::Result<Client> {
        Client::new(&self.context(cluster)?)
    }

    /// kubectl on one cluster through the proxy.
    pub async fn kubectl(&self, cluster: &str) -> anyhow::Result<Kubectl> {
        self.context(cluster)?;
        Kubectl::new(&self.kubeconfig(), cluster).await
    }

    /// The metrics as they are now.
    pub fn metrics(&self) -> anyhow::Result<Metrics> {
        Metrics::scrape(&self.admin)
    }

    /// The status code of a path on the admin listener.
    pub fn admin_status(&self, path: &str) -> anyhow::Result<u16> {
        Ok(metrics::get(&self.admin, path)?.0)
    }

    /// What the proxy would do with a GET of a cluster's path, as the admin listener tells it.
    pub fn why(&self, cluster: &str, path: &str) -> anyhow::Result<Value> {
        let path = path.replace('%', "%25").replace('&', "%26");
        let path = format!("/why?target=/clusters/{cluster}{path}");
        let (status, body) = metrics::get(&self.admin, &path)?;
        anyhow::ensure!(status == 200, "{path}: {status} {body}");
        Ok(serde_json::from_str(&body)?)
    }

    /// What there is to say of a source of clusters, by its kind, as the admin listener tells it.
    pub fn source(&self, kind: &str) -> anyhow::Result<Value> {
        let (status, body) = metrics::get(&self.admin, "/sources")?;
        anyhow::ensure!(status == 200, "{status} {body}");
        let sources: Vec<Value> = serde_json::from_str(&body)?;
        let mut sources = sources.into_iter();
        sources
            .find(|it| it["source"] == kind)
            .with_context(|| format!("no source {kind} in {body}"))
    }

    /// A page of the admin listener.
    pub fn admin_page(&self, path: &str) -> anyhow::Result<String> {
        Ok(metrics::get(&self.admin, path)?.1)
    }

    /// It serves another certificate than its own: clients trust this.
    pub fn trust(&mut self, ca_pem: String) {
        self.serving_ca = Some(ca_pem);
    }

    /// The address of the admin listener.
    pub fn admin(&self) -> &str {
        &self.admin
    }

    /// The process id, for `/proc`.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Everything it has logged.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The end of the log, for messages.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        measure::resident_bytes(self.id())
    }

    /// How many descriptors it has open.
    pub fn open_files(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(format!("/proc/{}/fd", self.id()))?.count())
    }

    /// Sends a signal, for a proxy that is to miss what happens meanwhile.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Asks it to end, as a service manager does, and returns how it did.
    pub async fn stop(mut self) -> anyhow::Result<ExitStatus> {
        let status = self.process.terminate(STOP_PATIENCE).await?;
        Ok(status)
    }

    /// Keeps files that it was started with until it has ended: it looks at them all the while.
    #[must_use]
    pub fn keeping(mut self, files: TempDir) -> Self {
        self._kept = Some(files);
        self
    }

    /// The test makes a cluster tell it something wrong: that it holds it is not its fault.
    pub fn expect_mismatches(&mut self) {
        self.expects_mismatches = true;
    }

    /// What must have happened never: panics, and differences between memory and a cluster.
    fn bugs(&self) -> anyhow::Result<[f64; 2]> {
        let metrics = self.metrics()?;
        let count = |name: &str| {
            metrics
                .get(name)
                .with_context(|| format!("no metric {name}"))
        };
        Ok([
            count("fleetcache_panics_total")?,
            count("fleetcache_cache_mismatch_total")?,
        ])
    }

    fn end(&mut self) -> anyhow::Result<()> {
        if self.process.exited().is_some() {
            return Ok(());
        }
        let bugs = self.bugs();
        self.process.signal(Signal::Terminate);
        let deadline = Instant::now() + STOP_PATIENCE;
        let status = loop {
            match self.process.exited() {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    anyhow::bail!("fleetcache did not end within {STOP_PATIENCE:?} of SIGTERM")
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        ensure!(
            status.success(),
            "fleetcache ended with {status} on SIGTERM"
        );
        let [panics, mismatches] = bugs?;
        ensure!(panics == 0.0, "fleetcache panicked {panics} times");
        let differing = self
            .log()
            .lines()
            .find(|line| line.contains("memory differs from the cluster"))
            .unwrap_or_default()
            .to_owned();
        ensure!(
            mismatches == 0.0 || self.expects_mismatches,
            "memory differed from a cluster {mismatches} times; first: {differing}"
        );
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let failed_already = std::thread::panicking();
        if let Err(error) = self.end()
            && !failed_already
        {
            panic!("{error:#}\n{}", self.log_tail());
        }
    }
}

/// A configuration with an interval of self-checks, unless it has one. Its `cache` is written in one line, as in all tests.
fn with_self_check(config: &str, interval: &str) -> String {
    const FLOW: &str = "\ncache: {";
    let key = format!("selfCheckInterval: {interval}");
    if config.contains("selfCheckInterval") {
        config.to_owned()
    } else if config.contains(FLOW) {
        config.replace(FLOW, &format!("{FLOW} {key},"))
    } else {
        format!("{}\ncache: {{ {key} }}\n", config.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_has_its_self_checks() {
        for (config, expected) in [
            ("kind: C\n", "kind: C\ncache: { selfCheckInterval: 2s }\n"),
            (
                "kind: C\ncache: { idleTimeout: 1s }",
                "kind: C\ncache: { selfCheckInterval: 2s, idleTimeout: 1s }",
            ),
            (
                "cache: { selfCheckInterval: 0s }",
                "cache: { selfCheckInterval: 0s }",
            ),
        ] {
            assert_eq!(with_self_check(config, "2s"), expected);
        }
    }
}
