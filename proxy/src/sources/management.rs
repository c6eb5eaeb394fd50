//! Objects of a management cluster that tell of clusters: Clusters of Cluster API with their Secrets, or Secrets alone.
//!
//! The management cluster is reached as any cluster is: one owner task connects and probes it, with all that makes a
//! connection robust. On each connection the objects are listed anew and watched. Only metadata is; a Secret's data is asked
//! for by its name, and only where its cluster is wanted.

mod client;
mod follow;
mod listed;
mod view;

use std::sync::Arc;

use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::cluster_config::{ConnectPolicy, ConnectionTiming, SourceKind};
use fleetcache_cache::eviction::Fleet;
use fleetcache_cache::informers::InformersConfig;
use fleetcache_cache::{kubeconfig, panics};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::follow::Follower;
use super::{Known, Source};
use crate::config::ManagementSource;

/// Where sources that are watched run.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Their tasks.
    pub tasks: TaskTracker,
    /// Ends them.
    pub stop: CancellationToken,
    /// Woken when one of them knows something else.
    pub news: Arc<Notify>,
}

/// The objects of one management cluster.
pub(super) struct Management {
    kind: SourceKind,
    config: ManagementSource,
    /// The management cluster, once its kubeconfig could be read.
    cluster: Arc<ClusterCache>,
    /// Why its kubeconfig cannot be read now.
    trouble: Option<String>,
    /// Why it is not connected, as it was looked at.
    unreached: Option<String>,
    /// Its kubeconfig has a credential, and its server is reached over plain http.
    withholds_credential: bool,
    known: Arc<Mutex<Known>>,
    surroundings: Surroundings,
    /// Ends all of it.
    _stop: DropGuard,
}

impl Management {
    /// Starts to follow. What is in the way is told later, and tried again.
    pub(super) fn start(
        kind: SourceKind,
        config: &ManagementSource,
        timing: ConnectionTiming,
        surroundings: &Surroundings,
    ) -> Self {
        let stop = surroundings.stop.child_token();
        let surroundings = Surroundings {
            stop: stop.clone(),
            ..surroundings.clone()
        };
        // Informers of its own, which nobody asks for: this is no cluster that clients read.
        let fleet = Fleet::start(InformersConfig::default(), &surroundings.tasks, &stop);
        let mut management = Self {
            kind,
            config: config.clone(),
            cluster: ClusterCache::start(Vec::new(), 1, &fleet, &stop),
            trouble: None,
            unreached: None,
            withholds_credential: false,
            known: Arc::default(),
            surroundings,
            _stop: stop.drop_guard(),
        };
        management.read_kubeconfig(timing);
        management
    }

    /// Whether it follows what the configuration says.
    pub(super) fn follows(&self, config: &ManagementSource) -> bool {
        self.config == *config
    }

    /// Reads the kubeconfig of the management cluster again. Where it cannot be used, the one before goes on.
    pub(super) fn read_kubeconfig(&mut self, timing: ConnectionTiming) {
        let key = key(self.kind);
        let context = self.config.context.as_deref();
        let mut cluster = match kubeconfig::from_file(&self.config.kubeconfig, context, key) {
            Ok(cluster) => cluster,
            Err(problem) => {
                self.trouble = Some(format!("{key}: {problem}"));
                return;
            }
        };
        self.trouble = None;
        self.withholds_credential = cluster.credential_withheld;
        cluster.timing = timing;
        // Whatever its credential is: nobody else asks for it.
        cluster.connect = ConnectPolicy::Always;
        if self.cluster.update(cluster.clone()) {
            return;
        }
        self.cluster.add(vec![cluster]);
        let Some(accessor) = self.cluster.get(key) else {
            return;
        };
        let (kind, config) = (self.kind, self.config.clone());
        let (known, news) = (Arc::clone(&self.known), Arc::clone(&self.surroundings.news));
        let stop = self.surroundings.stop.clone();
        self.surroundings.tasks.spawn(async move {
            // After a panic all is learnt anew; what was known holds until then.
            let follow = panics::run_again(key, || {
                let (config, known, news) = (config.clone(), Arc::clone(&known), Arc::clone(&news));
                Follower::new(kind, config, known, news).follow(&accessor)
            });
            stop.run_until_cancelled(Box::pin(follow)).await;
        });
    }
}

impl Source for Management {
    fn kind(&self) -> SourceKind {
        self.kind
    }

    /// It wakes who wants to know of its objects. Whether it can be reached is looked at.
    fn look(&mut self, _again: bool) -> bool {
        let key = key(self.kind);
        let status = self.cluster.get(key).map(|cluster| cluster.status());
        let why = status.and_then(|status| status.not_connected).map(|why| {
            let reason = why.reason.as_str();
            let message = why.message;
            format!("{key}: the management cluster is not connected: {message} ({reason})")
        });
        let before = std::mem::replace(&mut self.unreached, why);
        before != self.unreached
    }

    fn known(&self) -> Known {
        let mut known = self.known.lock().clone();
        known.troubles.extend(self.trouble.clone());
        known.unreached.clone_from(&self.unreached);
        known.notes.extend(self.withholds_credential.then(|| {
            let key = key(self.kind);
            format!("{key}: the management cluster is reached over plain http, so its credential is not sent")
        }));
        known
    }
}

/// The key of the configuration, by which the log calls the management cluster.
pub(super) fn key(kind: SourceKind) -> &'static str {
    match kind {
        SourceKind::Kubeconfig => "clusters.kubeconfigs",
        SourceKind::Directory => "clusters.directory",
        SourceKind::ClusterApi => "clusters.clusterAPI",
        SourceKind::Secret => "clusters.secrets",
    }
}
