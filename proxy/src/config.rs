//! Flags and a configuration file → one checked configuration. Every default is here.

mod duration;
mod environment;
mod file;
mod glob;
mod listen_address;
mod memory_limit;
mod mistakes;
pub(crate) mod names;
mod section;
mod sources;
mod users;
mod warnings;

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleetcache_cache::cluster_config::ConnectionTiming;
use fleetcache_cache::informers::{CachePolicy, InformersConfig, Keeps, KindConfig};
use serde_json::Value;

use crate::args::ServeArgs;
use crate::authorization::AuthorizationSettings;
use crate::handler::ClusterSettings;
use crate::identity::Identity;
use crate::read_settings::{
    OnMissingInformer, ReadSettings, UnsetResourceVersion, WhenDisconnected,
};

pub use crate::audit::AuditTarget;
pub use duration::parse as parse_duration;
pub use environment::{Environment, NO_STATE_DIR, default_state_dir};
pub use listen_address::ListenAddress;
pub use memory_limit::MemoryLimit;
pub use mistakes::{Mistake, Mistakes};
pub use sources::{KubeconfigOrigin, KubeconfigSource, ManagementSource, SourcesConfig};
pub use users::{
    AuthenticationConfig, AuthorizationConfig, FleetReaders, ServingFiles, TlsConfig,
    TokenReviewConfig,
};

/// What a proxy is told, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration file, where there is one.
    pub file: Option<PathBuf>,
    /// Where HTTPS is served.
    pub listen: ListenAddress,
    /// Where `/livez`, `/readyz`, `/metrics` and `/why` are served.
    pub admin_listen: ListenAddress,
    /// Where the CA, the token and the kubeconfig are kept.
    pub state_dir: PathBuf,
    /// Where clusters come from.
    pub sources: SourcesConfig,
    /// The contexts that a flag names, for all sources together.
    pub contexts: Option<ContextFlag>,
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
    /// How HTTPS is served.
    pub tls: TlsConfig,
    /// How users are known.
    pub authentication: AuthenticationConfig,
    /// Who may read what is in memory.
    pub authorization: AuthorizationConfig,
    /// Where the audit log goes; none where there is none.
    pub audit: Option<AuditTarget>,
}

/// Contexts named by `--context`; each must be in some kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextFlag {
    /// The flag, and its variable where that is what named them.
    pub flag: String,
    /// The contexts.
    pub names: Vec<String>,
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
    /// Time without a successful probe after which its health counts as unknown.
    pub remote_connection_grace_period: Duration,
    /// What becomes of reads while it is not connected.
    pub when_disconnected: WhenDisconnected,
    /// As whom requests reach it.
    pub identity: Identity,
    /// As of [`AuthorizationConfig::settings`], where not as there.
    pub broad_questions: Option<bool>,
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
    /// See [`ClusterDefaults`].
    pub remote_connection_grace_period: Option<Duration>,
    /// See [`ClusterDefaults`].
    pub when_disconnected: Option<WhenDisconnected>,
    /// See [`ClusterDefaults`].
    pub identity: Option<Identity>,
    /// See [`ClusterDefaults`].
    pub broad_questions: Option<bool>,
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
    /// How often an informer is compared with its server; zero: never.
    pub self_check_interval: Duration,
    /// How new reads with resourceVersion unset are.
    pub unset_resource_version: UnsetResourceVersion,
    /// What becomes of reads whose informer has not synced.
    pub on_missing_informer: OnMissingInformer,
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
    /// How new its reads with resourceVersion unset are, where not as all others.
    pub unset_resource_version: Option<UnsetResourceVersion>,
    /// What is kept of its objects.
    pub keeps: Keeps,
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
            remote_connection_grace_period: timing.remote_connection_grace_period,
            when_disconnected: WhenDisconnected::default(),
            identity: Identity::Proxy,
            broad_questions: None,
        }
    }
}

impl ClusterDefaults {
    /// What `remoteConnectionGracePeriod` must last: so old may the last success of a cluster be that is well.
    fn shortest_grace(&self) -> Duration {
        self.probe_interval.saturating_add(self.probe_timeout)
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
            self_check_interval: Duration::from_secs(5 * 60),
            unset_resource_version: UnsetResourceVersion::default(),
            on_missing_informer: OnMissingInformer::default(),
        }
    }
}

/// Whether a file can be read only once, and a reader may wait for it for ever.
pub(crate) fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|it| it.file_type().is_fifo())
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
        let said_admin = file.admin_listen.is_some();
        let mut address = |flag: &str, text: &Option<String>| {
            let text = text.as_deref()?;
            let parsed = text.parse::<ListenAddress>();
            parsed
                .map_err(|problem| mistakes.add(environment::blame(flag, text, env), problem))
                .ok()
        };
        let listen = address("--listen", &args.listen).or(file.listen);
        let admin_listen = address("--admin-listen", &args.admin_listen).or(file.admin_listen);
        let listen = listen.unwrap_or_else(ListenAddress::listen);
        let admin_listen = admin_listen.unwrap_or_else(ListenAddress::admin_listen);
        if mistakes.0.is_empty() && listen.overlaps(&admin_listen) {
            // Whoever wrote one of them, the other may be a default.
            let path = match (&args.admin_listen, &args.listen, &args.config) {
                (Some(text), _, _) => environment::blame("--admin-listen", text, env),
                (None, Some(text), _) => environment::blame("--listen", text, env),
                (None, None, Some(file)) => {
                    let key = if said_admin { "adminListen" } else { "listen" };
                    format!("{}: {key}", file.display())
                }
                (None, None, None) => "--admin-listen".to_owned(),
            };
            mistakes.add(path, listen_address::overlap(&admin_listen, &listen));
        }
        if let Some(problem) = file.authentication.disabled_there(&listen) {
            let file = args.config.as_deref().unwrap_or_else(|| Path::new(""));
            mistakes.add(
                format!("{}: authentication.disabled", file.display()),
                problem,
            );
        }
        let state_dir = args.state_dir.clone().or(file.state_dir);
        let state_dir = state_dir.or_else(|| default_state_dir(env));
        if state_dir.is_none() {
            mistakes.add("--state-dir", NO_STATE_DIR);
        }
        let Some(state_dir) = state_dir.filter(|_| mistakes.0.is_empty()) else {
            return Err(mistakes);
        };
        let mut sources = file.sources;
        let kubeconfigs = &mut sources.kubeconfigs;
        // A variable that is set to nothing gives one empty value.
        let mut given = args.kubeconfig.clone();
        given.retain(|path| !path.as_os_str().is_empty());
        let mut contexts = args.context.clone();
        contexts.retain(|name| !name.is_empty());
        if !given.is_empty() {
            *kubeconfigs = vec![KubeconfigSource::new(given, KubeconfigOrigin::Flag)];
        } else if kubeconfigs.is_empty() && (!sources.is_live() || !contexts.is_empty()) {
            // A context that is named is one of somebody's kubeconfig.
            sources.kubeconfigs = vec![environment::default_kubeconfigs(env)];
        }
        if !contexts.is_empty() {
            for source in &mut sources.kubeconfigs {
                source.contexts.clone_from(&contexts);
            }
        }
        let contexts = (!contexts.is_empty()).then(|| ContextFlag {
            flag: environment::blame("--context", &contexts.join(","), env),
            names: contexts,
        });
        Ok(Self {
            file: args.config.clone(),
            listen,
            admin_listen,
            state_dir,
            sources,
            contexts,
            defaults: file.defaults,
            overrides: file.overrides,
            connections: file.connections,
            cache: file.cache,
            resources: file.resources,
            tls: file.tls,
            authentication: file.authentication,
            authorization: file.authorization,
            audit: file.audit,
        })
    }

    /// The files that it comes from and names: also the kubeconfigs that clusters come from, those of the clusters that tell
    /// of clusters, and those by which users are known.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let sources = &self.sources;
        let kubeconfigs = sources.kubeconfigs.iter().flat_map(|it| &it.paths);
        let management = sources.cluster_api.iter().chain(&sources.secrets);
        let management = management.map(|it| &it.kubeconfig);
        let files = self.file.iter().chain(kubeconfigs).chain(management);
        let files = files.map(PathBuf::as_path);
        let users = self.tls.files().chain(self.authentication.files());
        files.chain(users)
    }

    /// Whether the proxy's own token counts: only where users are not known otherwise, and somebody must be known.
    pub fn counts_own_token(&self) -> bool {
        let known_by = users::authenticators(&self.tls, &self.authentication);
        known_by.is_empty() && !self.authentication.disabled
    }

    /// A mistake at one of the file's keys.
    pub(crate) fn mistake(&self, key: &str, problem: String) -> Mistakes {
        let file = self.file.as_deref().unwrap_or_else(|| Path::new(""));
        Mistakes::one(&format!("{}: {key}", file.display()), problem)
    }

    /// What holds for the cluster of that name.
    pub fn cluster(&self, name: &str) -> ClusterDefaults {
        let mut it = self.defaults.clone();
        for over in self.overrides.iter().filter(|over| over.matches(name)) {
            over.apply(&mut it);
        }
        it
    }

    /// The timings of the connection to the cluster of that name.
    pub fn timing(&self, name: &str) -> ConnectionTiming {
        let it = self.cluster(name);
        // Two overrides may be right by themselves, and together too short for a name that both match.
        let grace = it.remote_connection_grace_period.max(it.shortest_grace());
        ConnectionTiming {
            probe_path: it.probe_path,
            probe_interval: it.probe_interval,
            probe_timeout: it.probe_timeout,
            probe_failure_threshold: it.probe_failure_threshold,
            connect_timeout: it.connect_timeout,
            backoff_min: self.connections.backoff_min,
            backoff_max: self.connections.backoff_max,
            remote_connection_grace_period: grace,
        }
    }

    /// What all informers are told.
    pub fn informers(&self) -> InformersConfig {
        let mut resources = InformersConfig::default().resources;
        for rule in &self.resources {
            let key = (rule.group.clone(), rule.resource.clone());
            let of_kind = KindConfig {
                policy: rule.cache,
                keeps: rule.keeps,
            };
            resources.insert(key, of_kind);
        }
        InformersConfig {
            idle_timeout: self.cache.idle_timeout,
            max_objects_per_kind: self.cache.max_objects_per_kind,
            memory_limit: self.cache.memory_limit.bytes(),
            self_check_interval: self.cache.self_check_interval,
            resources,
        }
    }

    /// Who may read of the fleet.
    pub fn fleet_readers(&self) -> FleetReaders {
        self.authorization.fleet_readers.clone().unwrap_or_default()
    }

    /// What the data path is told about the cluster of that name.
    pub fn settings(&self, name: &str) -> ClusterSettings {
        let (it, everywhere) = (self.cluster(name), self.authorization.settings);
        ClusterSettings {
            request_timeout: it.request_timeout,
            watch_disconnect_grace: it.watch_disconnect_grace,
            max_in_flight: it.max_in_flight,
            reads: self.reads(it.when_disconnected),
            identity: it.identity,
            authorization: AuthorizationSettings {
                broad_questions: it.broad_questions.unwrap_or(everywhere.broad_questions),
                ..everywhere
            },
        }
    }

    fn reads(&self, when_disconnected: WhenDisconnected) -> ReadSettings {
        let rules = self.resources.iter().filter_map(|rule| {
            let unset = rule.unset_resource_version?;
            Some((rule.group.clone(), rule.resource.clone(), unset))
        });
        ReadSettings {
            unset_resource_version: self.cache.unset_resource_version,
            of_resources: rules.collect(),
            on_missing_informer: self.cache.on_missing_informer,
            when_disconnected,
        }
    }
}

/// The JSON Schema (2020-12) of a configuration file.
pub fn schema() -> Value {
    file::schema()
}

impl ClusterOverride {
    /// Whether it holds for the cluster of that name.
    pub fn matches(&self, name: &str) -> bool {
        glob::matches(&self.cluster, name)
    }

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
        set(
            &mut it.remote_connection_grace_period,
            self.remote_connection_grace_period.as_ref(),
        );
        set(&mut it.when_disconnected, self.when_disconnected.as_ref());
        set(&mut it.identity, self.identity.as_ref());
        if self.broad_questions.is_some() {
            it.broad_questions = self.broad_questions;
        }
    }
}

#[cfg(test)]
mod tests;
