//! The configuration and the kubeconfig files are read again, on SIGHUP and when their content has changed; and what they and
//! all other sources of clusters say is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::cluster_config::{ClusterConfig, SourceKind};
use fleetcache_cache::eviction::Fleet;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::audit::{self, Audit, Output};
use crate::clusters::{self, ClustersError, Found, Itself, Subject};
use crate::config::{Config, ListenAddress, Mistakes};
use crate::entrance::{Entrance, EntranceFiles, Made};
use crate::limits::Limits;
use crate::serving_kubeconfig::ServingKubeconfig;
use crate::sources::{Entry, Sources};
use crate::state_dir;

mod changes;
mod keys;
mod watched;

use changes::Changes;
pub use watched::Watched;

/// Time between two looks at the files. A change is taken once two looks have seen the same, so that a file which is being
/// written, or is away for a moment while another takes its place, is not.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How often files that change while they are read are read again at once.
const READINGS: usize = 5;

/// Reads the configuration, each time from the same flags.
pub type ReadConfig = Box<dyn Fn() -> Result<Config, Mistakes> + Send>;

/// How clients reach the proxy.
#[derive(Clone)]
pub struct Served {
    /// The address it listens on, with the port it got.
    pub listen: ListenAddress,
    /// Its URL.
    pub url: String,
    /// Its CA's certificate, PEM.
    pub ca_pem: String,
    /// The token that clients send.
    pub token: String,
    /// Where the kubeconfig for clients is written.
    pub kubeconfig: PathBuf,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut served = f.debug_struct("Served");
        served.field("url", &self.url).finish_non_exhaustive()
    }
}

impl Served {
    /// How to recognise this proxy among clusters.
    pub fn itself(&self) -> Itself<'_> {
        Itself {
            listen: &self.listen,
            ca_pem: &self.ca_pem,
        }
    }

    /// Writes the kubeconfig for clients.
    ///
    /// # Errors
    /// The file system said no; what was there is there still.
    pub fn write<'a>(
        &self,
        config: &Config,
        clusters: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), state_dir::StateDirError> {
        let (ca, token) = shown(config);
        let kubeconfig = ServingKubeconfig::new(
            &self.url,
            ca.then_some(&*self.ca_pem),
            token.then_some(&*self.token),
            clusters,
        );
        state_dir::write_private(&self.kubeconfig, kubeconfig.to_yaml().as_bytes())
    }
}

/// Whether the proxy's own CA is what clients need, and whether its own token is.
fn shown(config: &Config) -> (bool, bool) {
    (config.tls.serving.is_none(), config.counts_own_token())
}

/// What is in force, and what it can change.
pub struct Reloader {
    read_config: ReadConfig,
    served: Served,
    config: Config,
    sources: Sources,
    clusters: BTreeMap<String, Entry>,
    cache: Arc<ClusterCache>,
    fleet: Arc<Fleet>,
    limits: Arc<Limits>,
    entrance: Entrance,
    audit: Audit,
    /// What was warned of last.
    warnings: Vec<String>,
}

/// What runs, and is told of changes.
pub struct Running {
    /// The clusters.
    pub cache: Arc<ClusterCache>,
    /// Their informers.
    pub fleet: Arc<Fleet>,
    /// What requests to them are allowed.
    pub limits: Arc<Limits>,
    /// Where requests come in.
    pub entrance: Entrance,
    /// Who asked for what.
    pub audit: Audit,
    /// What the configuration was warned of at the start.
    pub warnings: Vec<String>,
}

/// What another configuration replaces, if that went well.
struct Replaced {
    entrance: Option<Made>,
    /// What the audit log is written to from now on, where that is something else than before.
    audit: Option<Option<Output>>,
    warnings: Vec<String>,
}

/// Why there is something to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wake {
    /// All is to be read again.
    Asked,
    /// A source that is watched knows something else.
    News,
    /// It is time to look at files.
    Tick,
}

/// Why nothing was changed.
enum Refused {
    /// Mistakes of the configuration.
    Mistakes(Mistakes),
    /// The clusters cannot be served.
    Clusters(ClustersError),
    /// Files that cannot be read: what is in them is not known.
    Unread(Vec<String>),
}

impl Reloader {
    /// With what is in force.
    pub fn new(
        read_config: ReadConfig,
        served: Served,
        config: Config,
        sources: Sources,
        clusters: BTreeMap<String, Entry>,
        running: Running,
    ) -> Self {
        let Running {
            cache,
            fleet,
            limits,
            entrance,
            audit,
            warnings,
        } = running;
        Self {
            read_config,
            served,
            config,
            sources,
            clusters,
            cache,
            fleet,
            limits,
            entrance,
            audit,
            warnings,
        }
    }

    /// Reads again when asked to, and when files are not what they were when `watched` was made, and applies what sources
    /// tell, until `stop` fires.
    pub async fn run(
        mut self,
        mut watched: Watched,
        asked: Arc<Notify>,
        news: Arc<Notify>,
        stop: CancellationToken,
    ) {
        let mut ticks = tokio::time::interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let wake = tokio::select! {
                () = stop.cancelled() => return,
                () = asked.notified() => Wake::Asked,
                () = news.notified() => Wake::News,
                _ = ticks.tick() => Wake::Tick,
            };
            // Files may be anywhere, and slow; nobody waits for them but this task.
            let look = tokio::task::spawn_blocking(move || {
                // What a panic leaves half applied is still a difference at the next look.
                let looked = catch_unwind(AssertUnwindSafe(|| self.woken(wake, &mut watched)));
                if looked.is_err() {
                    tracing::error!("changes were not applied: a panic");
                }
                (self, watched)
            });
            match look.await {
                Ok((reloader, seen)) => (self, watched) = (reloader, seen),
                Err(error) => {
                    tracing::error!(%error, "configuration is not read again any more");
                    return;
                }
            }
        }
    }

    fn woken(&mut self, wake: Wake, watched: &mut Watched) {
        let asked = wake == Wake::Asked;
        if asked {
            // Whatever becomes of the configuration: somebody has renamed the file.
            self.audit.reopen();
        }
        if wake == Wake::News {
            self.apply(self.config.clone(), None, changes::TOLD);
        } else if watched.look(&self.config, asked) {
            self.reload(asked);
            watched.attempted(&self.config);
        } else if self.sources.look(false) {
            self.apply(self.config.clone(), None, changes::TOLD);
        }
    }

    /// Reads all files and applies what has changed, or nothing; `again` those of a directory too that seem to be as they
    /// were.
    fn reload(&mut self, again: bool) {
        let read = self.read();
        self.sources.reports().refused(read.is_err());
        match read {
            Ok((config, found, replaced)) => {
                if let Some(output) = replaced.audit
                    && let Err(error) = self.audit.write_to(output)
                {
                    tracing::error!(%error, "audit log not written: no thread");
                }
                self.sources.configure(&config, found);
                self.sources.look(again);
                self.apply(config, replaced.entrance, changes::RELOADED);
                warn(&replaced.warnings, &self.warnings);
                self.warnings = replaced.warnings;
            }
            Err(refused) => {
                if let Some(why) = refused.of_kubeconfigs() {
                    self.sources.kubeconfigs_refused(why);
                }
                refused.log();
                self.sources.look(again);
                self.apply(self.config.clone(), None, changes::TOLD);
            }
        }
    }

    /// Reads all files. Some are read more than once on the way: one that changes meanwhile would be understood as two
    /// states at once, and leave out a cluster that is in both.
    fn read(&self) -> Result<(Config, Found, Replaced), Refused> {
        for _ in 0..READINGS {
            let config = (self.read_config)().map_err(Refused::Mistakes)?;
            let before = watched::contents(&config);
            let found = self.load(&config);
            let mut warnings = config.warnings();
            let files = EntranceFiles::read(&config, &mut warnings);
            if watched::contents(&config) == before {
                let found = found?;
                let files = files.map_err(Refused::Mistakes)?;
                let entrance = self.entrance(&config, files).map_err(Refused::Mistakes)?;
                let audit = self.audit_output(&config).map_err(Refused::Mistakes)?;
                let replaced = Replaced {
                    entrance,
                    audit,
                    warnings,
                };
                return Ok((config, found, replaced));
            }
        }
        let moving = "the files change whenever they are read".to_owned();
        Err(Refused::Unread(vec![moving]))
    }

    /// Judged by the address in force: another one that the configuration names now needs a restart.
    fn entrance(&self, config: &Config, files: EntranceFiles) -> Result<Option<Made>, Mistakes> {
        if let Some(problem) = config.authentication.disabled_there(&self.config.listen) {
            return Err(config.mistake("authentication.disabled", problem));
        }
        self.entrance.prepare(config, files)
    }

    fn audit_output(&self, config: &Config) -> Result<Option<Option<Output>>, Mistakes> {
        if config.audit == self.config.audit {
            return Ok(None);
        }
        audit::check(config)?;
        let output = config.audit.as_ref().map(Output::open).transpose();
        let output = output.map_err(|error| {
            let problem = format!("it cannot be opened: {error}");
            config.mistake("audit.path", problem)
        })?;
        Ok(Some(output))
    }

    fn load(&self, config: &Config) -> Result<Found, Refused> {
        let itself = self.served.itself();
        let found = clusters::load_again(config, &itself, self.sources.names())
            .map_err(Refused::Clusters)?;
        let unread = found
            .rejected
            .iter()
            .filter(|it| it.subject == Subject::File);
        let unread: Vec<_> = unread.map(|it| it.reason.clone()).collect();
        if unread.is_empty() {
            Ok(found)
        } else {
            Err(Refused::Unread(unread))
        }
    }

    /// Applies a configuration and what the sources know, under that headline in the log.
    fn apply(&mut self, mut config: Config, entrance: Option<Made>, headline: &str) {
        let itself = self.served.itself();
        let now = self.sources.clusters(&config, &itself, &self.clusters);
        let mut changes = Changes::of(&self.config, &config, &self.clusters, &now);
        if let Some(made) = &entrance {
            changes.files = self.entrance.changed_files(made);
        }
        for (key, before, now) in changes.needs_restart() {
            tracing::warn!(key, in_force = before, configured = now, "needs a restart");
        }
        config.listen = self.config.listen.clone();
        config.admin_listen = self.config.admin_listen.clone();
        config.state_dir = self.config.state_dir.clone();

        // Nobody must find a cluster without its limits.
        let names: BTreeSet<_> = now.keys().chain(self.clusters.keys()).collect();
        let settings = |name: &String| (name.clone(), config.settings(name));
        self.limits.set(names.into_iter().map(settings));
        for name in changes.removed.iter().chain(&changes.replaced) {
            self.cache.remove(name);
        }
        for name in changes.updated.iter().chain(&changes.judged) {
            self.cache.update(now[name].cluster.clone());
        }
        let added = changes.added.iter().chain(&changes.replaced);
        self.cache
            .add(added.map(|name| now[name].cluster.clone()).collect());
        self.limits.set(now.keys().map(settings));
        self.limits.set_fleet_readers(config.fleet_readers());
        if let Some(entrance) = entrance {
            self.entrance.replace(entrance);
        }
        if self.config.informers() != config.informers() {
            self.fleet.reconfigure(config.informers());
        }
        let max_connecting = config.connections.max_concurrent;
        if self.config.connections.max_concurrent != max_connecting {
            self.cache.set_max_connecting(max_connecting);
        }
        for name in &changes.added {
            log_name(&now[name].cluster);
        }
        let shows_more = shown(&self.config) != shown(&config);
        if shows_more || !changes.added.is_empty() || !changes.removed.is_empty() {
            // Written whole or not at all; what is served does not depend on it.
            let names = now.keys().map(String::as_str);
            if let Err(error) = self.served.write(&config, names) {
                let error = anyhow::Error::from(error);
                tracing::error!(error = format!("{error:#}"), "kubeconfig not written");
            }
        }
        (self.config, self.clusters) = (config, now);
        changes.log(headline, self.clusters.len());
    }
}

/// Tells what a configuration says that may not be meant, but for what was told before.
pub fn warn(warnings: &[String], before: &[String]) {
    for warning in warnings.iter().filter(|it| !before.contains(it)) {
        tracing::warn!(warning, "the configuration may not say what is meant");
    }
}

/// Tells where a name is not the context's own.
pub fn log_name(cluster: &ClusterConfig) {
    if cluster.source.kind == SourceKind::Kubeconfig && cluster.name != cluster.context {
        tracing::info!(
            context = cluster.context,
            cluster = cluster.name,
            "context served under another name"
        );
    }
}

impl Refused {
    /// What is wrong with the kubeconfig files; none where that is not known.
    fn of_kubeconfigs(&self) -> Option<String> {
        match self {
            Self::Mistakes(_) => None,
            Self::Clusters(error) => Some(error.to_string()),
            Self::Unread(reasons) => Some(reasons.join("; ")),
        }
    }

    fn log(&self) {
        match self {
            Self::Mistakes(mistakes) => {
                for mistake in &mistakes.0 {
                    tracing::error!(path = mistake.path, problem = mistake.problem, "mistake");
                }
            }
            Self::Clusters(error) => tracing::error!(problem = %error, "mistake"),
            Self::Unread(reasons) => {
                for problem in reasons {
                    tracing::error!(problem, "mistake");
                }
            }
        }
        tracing::error!("configuration not reloaded: what was in force before is in force still");
    }
}

#[cfg(test)]
mod tests;
