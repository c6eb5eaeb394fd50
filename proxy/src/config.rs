//! Flags and a configuration file → one checked configuration. Every default is here.

mod duration;
mod file;
mod glob;
mod listen_address;
mod memory_limit;
mod section;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleetcache_cache::cluster_config::{ConnectPolicy, ConnectionTiming};
use fleetcache_cache::informers::{CachePolicy, InformersConfig};

use crate::args::ServeArgs;
use crate::handler::ClusterSettings;

pub use listen_address::ListenAddress;
pub use memory_limit::MemoryLimit;
pub use section::{Mistake, Mistakes};

/// Reads a variable of the environment; a parameter so that tests need not change the process's.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What a proxy is told, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where HTTPS is served.
    pub listen: ListenAddress,
    /// Where `/livez`, `/readyz` and `/metrics` are served.
    pub admin_listen: ListenAddress,
    /// Where the CA, the token and the kubeconfig are kept.
    pub state_dir: PathBuf,
    /// Where clusters come from, in the order in which they take names.
    pub kubeconfigs: Vec<KubeconfigSource>,
    /// What holds for every cluster.
    pub defaults: ClusterDefaults,
    /// What holds for some, in order: the last one that says something wins.
    pub overrides: Vec<ClusterOverride>,
    /// How connections are made.
    pub connections: ConnectionsConfig,
    /// How much is kept in memory.
    pub cache: CacheConfig,
    /// Which resources are kept in memory, where not by default.
    pub resources: Vec<ResourceRule>,
}

/// Kubeconfig files that are read as one, as kubectl reads a list in `$KUBECONFIG`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigSource {
    /// The files.
    pub paths: Vec<PathBuf>,
    /// The contexts to serve; all where empty.
    pub contexts: Vec<String>,
    /// When their clusters are connected; where none is given, contexts with an exec plugin on demand and all others
    /// always.
    pub connect: Option<ConnectPolicy>,
}

/// What holds for a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDefaults {
    /// Path of the probe.
    pub probe_path: String,
    /// Time between two probes.
    pub probe_interval: Duration,
    /// Time a probe may take.
    pub probe_timeout: Duration,
    /// Failed probes in a row that disconnect.
    pub probe_failure_threshold: u32,
    /// Time one connect may take.
    pub connect_timeout: Duration,
    /// Time until response headers of a live request.
    pub request_timeout: Duration,
    /// Requests in flight, watches, exec and logs apart.
    pub max_in_flight: usize,
    /// Time open watches stay silent after a disconnect.
    pub watch_disconnect_grace: Duration,
}

/// The same keys for the clusters whose name matches; None leaves what held before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterOverride {
    /// Glob on the cluster's name: `*` any text, `?` any character.
    pub cluster: String,
    /// See [`ClusterDefaults`].
    pub probe_path: Option<String>,
    /// See [`ClusterDefaults`].
    pub probe_interval: Option<Duration>,
    /// See [`ClusterDefaults`].
    pub probe_timeout: Option<Duration>,
    /// See [`ClusterDefaults`].
    pub probe_failure_threshold: Option<u32>,
    /// See [`ClusterDefaults`].
    pub connect_timeout: Option<Duration>,
    /// See [`ClusterDefaults`].
    pub request_timeout: Option<Duration>,
    /// See [`ClusterDefaults`].
    pub max_in_flight: Option<usize>,
    /// See [`ClusterDefaults`].
    pub watch_disconnect_grace: Option<Duration>,
}

/// How connections are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionsConfig {
    /// Connects that are in DNS or TLS at once.
    pub max_concurrent: usize,
    /// First pause after a failed connect.
    pub backoff_min: Duration,
    /// Longest pause between connects.
    pub backoff_max: Duration,
}

/// How much is kept in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Memory at which informers are stopped, the least recently read first.
    pub memory_limit: MemoryLimit,
    /// Time without a read and without an open watch after which an informer stops.
    pub idle_timeout: Duration,
    /// Objects of one resource above which it stays live.
    pub max_objects_per_kind: u64,
}

/// What is kept in memory of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRule {
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource's plural name.
    pub resource: String,
    /// When it is kept.
    pub cache: CachePolicy,
}

impl Default for ClusterDefaults {
    fn default() -> Self {
        let timing = ConnectionTiming::default();
        Self {
            probe_path: timing.probe_path,
            probe_interval: timing.probe_interval,
            probe_timeout: timing.probe_timeout,
            probe_failure_threshold: timing.probe_failure_threshold,
            connect_timeout: timing.connect_timeout,
            request_timeout: Duration::from_secs(60),
            max_in_flight: 400,
            watch_disconnect_grace: Duration::from_secs(60),
        }
    }
}

impl Default for ConnectionsConfig {
    fn default() -> Self {
        let timing = ConnectionTiming::default();
        Self {
            max_concurrent: 64,
            backoff_min: timing.backoff_min,
            backoff_max: timing.backoff_max,
        }
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            memory_limit: MemoryLimit::Percent(70),
            idle_timeout: Duration::from_secs(30 * 60),
            max_objects_per_kind: 100_000,
        }
    }
}

impl Config {
    /// The configuration of `fleetcache serve`: the file's, with the flags over it and the defaults below it.
    ///
    /// # Errors
    /// Every mistake of the file and of the flags.
    pub fn from_args(args: &ServeArgs, env: Environment<'_>) -> Result<Self, Mistakes> {
        let mut mistakes = Mistakes::default();
        let file = match &args.config {
            Some(path) => file::read(path).unwrap_or_else(|mut found| {
                mistakes.0.append(&mut found.0);
                file::FileConfig::default()
            }),
            None => file::FileConfig::default(),
        };
        let mut address = |flag: &str, text: &Option<String>| match text.as_deref()?.parse() {
            Ok(address) => Some(address),
            Err(problem) => {
                mistakes.add(flag, problem as String);
                None
            }
        };
        let listen = address("--listen", &args.listen).or(file.listen);
        let admin_listen = address("--admin-listen", &args.admin_listen).or(file.admin_listen);
        let state_dir = args.state_dir.clone().or(file.state_dir);
        let state_dir = state_dir.or_else(|| default_state_dir(env));
        if state_dir.is_none() {
            mistakes.add("--state-dir", NO_STATE_DIR);
        }
        let Some(state_dir) = state_dir.filter(|_| mistakes.0.is_empty()) else {
            return Err(mistakes);
        };
        let mut kubeconfigs = file.kubeconfigs;
        if !args.kubeconfig.is_empty() {
            kubeconfigs = vec![KubeconfigSource::of(args.kubeconfig.clone())];
        } else if kubeconfigs.is_empty() {
            kubeconfigs = vec![KubeconfigSource::of(default_kubeconfigs(env))];
        }
        if !args.context.is_empty() {
            for source in &mut kubeconfigs {
                source.contexts.clone_from(&args.context);
            }
        }
        Ok(Self {
            listen: listen.unwrap_or_else(|| ListenAddress {
                host: "127.0.0.1".to_owned(),
                port: 8443,
            }),
            admin_listen: admin_listen.unwrap_or_else(|| ListenAddress {
                host: "127.0.0.1".to_owned(),
                port: 8081,
            }),
            state_dir,
            kubeconfigs,
            defaults: file.defaults,
            overrides: file.overrides,
            connections: file.connections,
            cache: file.cache,
            resources: file.resources,
        })
    }

    /// What holds for the cluster of that name.
    pub fn cluster(&self, name: &str) -> ClusterDefaults {
        let mut it = self.defaults.clone();
        for over in self
            .overrides
            .iter()
            .filter(|over| glob::matches(&over.cluster, name))
        {
            over.apply(&mut it);
        }
        it
    }

    /// The timings of the connection to the cluster of that name.
    pub fn timing(&self, name: &str) -> ConnectionTiming {
        let it = self.cluster(name);
        ConnectionTiming {
            probe_path: it.probe_path,
            probe_interval: it.probe_interval,
            probe_timeout: it.probe_timeout,
            probe_failure_threshold: it.probe_failure_threshold,
            connect_timeout: it.connect_timeout,
            backoff_min: self.connections.backoff_min,
            backoff_max: self.connections.backoff_max,
        }
    }

    /// What all informers are told.
    pub fn informers(&self) -> InformersConfig {
        let mut resources = InformersConfig::default().resources;
        for rule in &self.resources {
            let key = (rule.group.clone(), rule.resource.clone());
            resources.insert(key, rule.cache);
        }
        InformersConfig {
            idle_timeout: self.cache.idle_timeout,
            max_objects_per_kind: self.cache.max_objects_per_kind,
            memory_limit: self.cache.memory_limit.bytes(),
            resources,
        }
    }

    /// What the data path is told about the cluster of that name.
    pub fn settings(&self, name: &str) -> ClusterSettings {
        let it = self.cluster(name);
        ClusterSettings {
            request_timeout: it.request_timeout,
            watch_disconnect_grace: it.watch_disconnect_grace,
            max_in_flight: it.max_in_flight,
        }
    }
}

/// Lists every mistake of a configuration file.
///
/// # Errors
/// The mistakes.
pub fn check_file(path: &Path) -> Result<(), Mistakes> {
    file::read(path).map(|_| ())
}

/// What to do where there is no default state directory.
pub const NO_STATE_DIR: &str = "neither XDG_STATE_HOME nor HOME is set; name a directory";

/// `$XDG_STATE_HOME/fleetcache`, else `~/.local/state/fleetcache`.
pub fn default_state_dir(env: Environment<'_>) -> Option<PathBuf> {
    let xdg = non_empty(env, "XDG_STATE_HOME").map(PathBuf::from);
    // The XDG specification: a relative path is invalid and to be ignored.
    let base = xdg.filter(|path| path.is_absolute()).or_else(|| {
        let home = non_empty(env, "HOME")?;
        Some(Path::new(&home).join(".local/state"))
    })?;
    Some(base.join("fleetcache"))
}

/// `$KUBECONFIG`, else `~/.kube/config`. Of a list, files that do not exist are left out, as kubectl does; a single file
/// that does not exist is an error when it is read.
fn default_kubeconfigs(env: Environment<'_>) -> Vec<PathBuf> {
    if let Some(list) = non_empty(env, "KUBECONFIG") {
        let all: Vec<_> = std::env::split_paths(&list)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        let existing: Vec<_> = all.iter().filter(|path| path.exists()).cloned().collect();
        return if existing.is_empty() { all } else { existing };
    }
    let home = non_empty(env, "HOME");
    home.map(|home| Path::new(&home).join(".kube/config"))
        .into_iter()
        .collect()
}

fn non_empty(env: Environment<'_>, name: &str) -> Option<OsString> {
    env(name).filter(|value| !value.is_empty())
}

impl KubeconfigSource {
    fn of(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            contexts: Vec::new(),
            connect: None,
        }
    }
}

impl ClusterOverride {
    fn apply(&self, it: &mut ClusterDefaults) {
        fn set<T: Clone>(to: &mut T, from: Option<&T>) {
            if let Some(from) = from {
                to.clone_from(from);
            }
        }
        set(&mut it.probe_path, self.probe_path.as_ref());
        set(&mut it.probe_interval, self.probe_interval.as_ref());
        set(&mut it.probe_timeout, self.probe_timeout.as_ref());
        set(
            &mut it.probe_failure_threshold,
            self.probe_failure_threshold.as_ref(),
        );
        set(&mut it.connect_timeout, self.connect_timeout.as_ref());
        set(&mut it.request_timeout, self.request_timeout.as_ref());
        set(&mut it.max_in_flight, self.max_in_flight.as_ref());
        set(
            &mut it.watch_disconnect_grace,
            self.watch_disconnect_grace.as_ref(),
        );
    }
}

#[cfg(test)]
mod tests;
