//! Where clusters come from, live: sources that each tell what they know, and what is served of it.
//!
//! ```text
//!  kubeconfigs (files)   ─┐
//!  directory (files)     ─┤                          ┌─► ClusterCache, Limits
//!  clusterAPI (watched)  ─┼─► merge, in this order ─► reload
//!  secrets (watched)     ─┘                          └─► the kubeconfig for clients
//! ```
//! A source never waits for another, and what it cannot tell now leaves its clusters as they were.

mod directory;
mod kubeconfigs;
mod management;
mod merge;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use fleetcache_cache::cluster_config::{ClusterConfig, Rejection, RejectionReason, SourceKind};

use self::directory::Directory;
use self::kubeconfigs::Kubeconfigs;
use self::management::Management;
pub use self::management::Surroundings;
pub use self::merge::Entry;
use self::merge::{Merged, merge};
pub use self::report::{Entries, Reports, SourceReport};
use crate::clusters::{Found, Itself, Names};
use crate::config::Config;

/// A source of clusters.
trait Source: Send {
    /// What kind of source it is.
    fn kind(&self) -> SourceKind;

    /// Looks for news, on a thread that may wait for files; `again` at what seems to be as it was too. Whether there is any.
    fn look(&mut self, again: bool) -> bool;

    /// What it knows now.
    fn known(&self) -> Known;
}

/// What a source knows.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Its clusters; none while it has yet to learn which there are.
    clusters: Option<Vec<Candidate>>,
    /// What in it can be no cluster, one sentence each.
    rejected: Vec<String>,
    /// Why it cannot tell which clusters there are now, one sentence each.
    troubles: Vec<String>,
    /// Another reason for that, which the log has from elsewhere.
    unreached: Option<String>,
    /// What is worth a warning, and keeps nobody from anything.
    notes: Vec<String>,
}

/// A cluster that a source knows.
#[derive(Clone, Debug)]
struct Candidate {
    /// The name it would have.
    name: String,
    /// What it is called in messages: a context of a file, a file, an object.
    origin: String,
    /// Another one under the same name, of the same kind of source, is another cluster, of which nothing may be left.
    identity: String,
    /// How it is reached.
    cluster: Result<ClusterConfig, Unusable>,
}

/// Why a cluster cannot be reached as its source says now.
#[derive(Clone, Debug)]
struct Unusable {
    /// One sentence for operators, or none where a trouble of the source tells it.
    reason: Option<String>,
    /// The same for clients; none while it is not known.
    rejection: Option<Rejection>,
    /// What is served where it was not served before: a cluster that cannot be connected. Nothing where there is none.
    instead: Option<Box<ClusterConfig>>,
}

impl Unusable {
    /// What it says, which names no address and no credential, is for everybody.
    fn told(reason: RejectionReason, message: String) -> Self {
        Self {
            reason: Some(message.clone()),
            rejection: Some(Rejection { reason, message }),
            instead: None,
        }
    }
}

/// All sources of a configuration, in the order in which they take names.
pub struct Sources {
    kubeconfigs: Kubeconfigs,
    directory: Option<Directory>,
    cluster_api: Option<Management>,
    secrets: Option<Management>,
    /// Where those run that are watched; none before the start.
    surroundings: Option<Surroundings>,
    /// What was told of and is still so.
    told: BTreeSet<String>,
    reports: Arc<Reports>,
}

impl Sources {
    /// The sources of a configuration, with what its kubeconfig files gave.
    pub fn new(config: &Config, found: Found) -> Self {
        let mut sources = Self {
            kubeconfigs: Kubeconfigs::default(),
            directory: None,
            cluster_api: None,
            secrets: None,
            surroundings: None,
            told: BTreeSet::new(),
            reports: Arc::default(),
        };
        sources.configure(config, found);
        sources
    }

    /// Takes over another configuration. Sources that are as they were go on.
    pub fn configure(&mut self, config: &Config, found: Found) {
        self.kubeconfigs = Kubeconfigs::new(found);
        let path = config.sources.directory.as_deref();
        if self.directory.as_ref().map(Directory::path) != path {
            self.directory = path.map(Directory::new);
        }
        self.watch(config);
    }

    fn watch(&mut self, config: &Config) {
        let Some(surroundings) = &self.surroundings else {
            return;
        };
        let sources = &config.sources;
        for (kind, wanted, running) in [
            (
                SourceKind::ClusterApi,
                &sources.cluster_api,
                &mut self.cluster_api,
            ),
            (SourceKind::Secret, &sources.secrets, &mut self.secrets),
        ] {
            let timing = config.timing(management::key(kind));
            match (wanted, running.as_mut()) {
                (Some(wanted), Some(running)) if running.follows(wanted) => {
                    running.read_kubeconfig(timing);
                }
                _ => {
                    *running = wanted
                        .as_ref()
                        .map(|it| Management::start(kind, it, timing, surroundings));
                }
            }
        }
    }

    /// Starts to watch what is to be watched. Nothing waits for it: what it finds comes as news.
    pub fn start(&mut self, config: &Config, surroundings: Surroundings) {
        self.surroundings = Some(surroundings);
        self.watch(config);
    }

    /// What is told of them, now and later.
    pub fn reports(&self) -> Arc<Reports> {
        Arc::clone(&self.reports)
    }

    /// The kubeconfig files could not be read again: what they gave before holds.
    pub fn kubeconfigs_refused(&mut self, why: String) {
        self.kubeconfigs.refused(why);
    }

    /// The names of contexts.
    pub fn names(&self) -> &Names {
        self.kubeconfigs.names()
    }

    fn in_order(&mut self) -> impl Iterator<Item = &mut dyn Source> {
        let kubeconfigs: &mut dyn Source = &mut self.kubeconfigs;
        let directory = self.directory.as_mut().map(|it| it as &mut dyn Source);
        let cluster_api = self.cluster_api.as_mut().map(|it| it as &mut dyn Source);
        let secrets = self.secrets.as_mut().map(|it| it as &mut dyn Source);
        let others = [directory, cluster_api, secrets];
        std::iter::once(kubeconfigs).chain(others.into_iter().flatten())
    }

    /// Looks for news; `again` at what seems to be as it was too. Whether there is any.
    pub fn look(&mut self, again: bool) -> bool {
        let mut news = false;
        for source in self.in_order() {
            news |= source.look(again);
        }
        news
    }

    /// What is to be served now, by name, where `before` was until now. What cannot be is told of once.
    pub fn clusters(
        &mut self,
        config: &Config,
        itself: &Itself<'_>,
        before: &BTreeMap<String, Entry>,
    ) -> BTreeMap<String, Entry> {
        let known = self
            .in_order()
            .map(|source| (source.kind(), without_itself(source.known(), itself)))
            .collect();
        let Merged {
            mut clusters,
            rejected,
            kept,
            notes,
            reports,
        } = merge(known, before);
        for (name, entry) in &mut clusters {
            entry.cluster.timing = config.timing(name);
        }
        let told = std::mem::take(&mut self.told);
        for reason in rejected {
            if !told.contains(&reason) {
                tracing::warn!(reason, "not served");
            }
            self.told.insert(reason);
        }
        for (cluster, reason) in kept {
            if !told.contains(&reason) {
                tracing::warn!(cluster, reason, "cannot be used; it is served as before");
            }
            self.told.insert(reason);
        }
        for note in notes {
            if !told.contains(&note) {
                tracing::warn!("{note}");
            }
            self.told.insert(note);
        }
        let is_configured = |report: &SourceReport| {
            report.source != SourceKind::Kubeconfig.as_str()
                || !config.sources.kubeconfigs.is_empty()
        };
        let reports = reports.into_iter().filter(is_configured);
        self.reports.replace(reports.collect());
        clusters
    }
}

/// What a look into a directory finds.
#[derive(Debug)]
pub struct Looked {
    /// The clusters that can be served; none where the directory cannot be read.
    pub clusters: Option<Vec<ClusterConfig>>,
    /// What is wrong with it or in it, one sentence each.
    pub troubles: Vec<String>,
}

/// Looks once at a directory of kubeconfigs.
pub fn look_into(path: &Path, itself: &Itself<'_>) -> Looked {
    let mut directory = Directory::new(path);
    directory.look(true);
    let known = without_itself(directory.known(), itself);
    let mut troubles = [known.troubles, known.rejected].concat();
    let clusters = known.clusters.map(|candidates| {
        let mut usable = Vec::new();
        for candidate in candidates {
            match candidate.cluster {
                Ok(cluster) => usable.push(cluster),
                Err(unusable) => troubles.extend(unusable.reason),
            }
        }
        usable
    });
    Looked { clusters, troubles }
}

/// A cluster that is this proxy cannot be used: it would serve itself. Of kubeconfigs none is left by now.
fn without_itself(mut known: Known, itself: &Itself<'_>) -> Known {
    for candidate in known.clusters.iter_mut().flatten() {
        if let Ok(cluster) = &candidate.cluster
            && itself.is(cluster)
        {
            let reason = format!(
                "{}: it is this proxy itself; name the cluster's own server",
                candidate.origin
            );
            candidate.cluster = Err(Unusable::told(RejectionReason::Invalid, reason));
        }
    }
    known
}
