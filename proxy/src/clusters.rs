//! From kubeconfig files to clusters: their names, their timings, and that none of them is this proxy.

mod check;
mod contexts;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use fleetcache_cache::cluster_config::ClusterConfig;
use fleetcache_cache::kubeconfig;

use self::contexts::Contexts;
use crate::config::{Config, KubeconfigOrigin, KubeconfigSource, ListenAddress};

pub use check::{Checked, check_file};

/// How to recognise this proxy among clusters.
#[derive(Debug)]
pub struct Itself<'a> {
    /// The address it listens on, with the port it got.
    pub listen: &'a ListenAddress,
    /// Its CA's certificate, PEM; empty where there is none yet.
    pub ca_pem: &'a str,
}

/// Why the clusters that were asked for cannot be served: a mistake in what was given.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClustersError {
    /// A context leads back to this proxy, which would then serve itself.
    #[error("context {context:?} of {} is this proxy itself (its server is {server}){advice}", path.display())]
    ServesItself {
        /// The context.
        context: String,
        /// The file that it is of.
        path: PathBuf,
        /// Its server.
        server: String,
        /// What to do, after what stands between it and the sentence.
        advice: &'static str,
    },
    /// A flag names a context that no file has.
    #[error("{flag}: no context {context:?}{known}{}", listed(unread))]
    UnknownContext {
        /// The flag, and its variable where that named it.
        flag: String,
        /// The context.
        context: String,
        /// Which there are, where they are few; begins with a semicolon.
        known: String,
        /// Files that could not be read.
        unread: Vec<String>,
    },
    /// There is nothing to serve.
    #[error(
        "no cluster to serve; name a kubeconfig with --kubeconfig, in $KUBECONFIG or at ~/.kube/config{}",
        listed(rejected)
    )]
    Nothing {
        /// Files and contexts that cannot be served, and why.
        rejected: Vec<String>,
    },
}

/// Where a cluster comes from: files that are read as one, and a context in them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The files.
    pub paths: Vec<PathBuf>,
    /// The context.
    pub context: String,
}

/// The names of clusters by where they come from.
pub type Names = HashMap<Origin, String>;

/// What the configured sources gave.
#[derive(Debug, Default)]
pub struct Found {
    /// The clusters that can be served, each with the timings that hold for its name.
    pub clusters: Vec<ClusterConfig>,
    /// The names of all contexts, of those that cannot be served now too.
    pub names: Names,
    /// Names of clusters that were served before, and of each the index of its source and its context, which is there but
    /// cannot be used now.
    pub spoilt: BTreeMap<String, (usize, String)>,
    /// What cannot be served.
    pub rejected: Vec<Rejected>,
}

/// What of a source cannot be served, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The index of the source.
    pub source: usize,
    /// What of it.
    pub subject: Subject,
    /// One sentence that names file, context and what to do.
    pub reason: String,
}

/// What of a source cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A file that cannot be read: what is in it is not known.
    File,
    /// All of it: there are no contexts.
    NoContexts,
    /// One context.
    Context(String),
}

/// Contexts or clusters up to which a message lists them.
pub(crate) const FEW: usize = 20;

/// Loads the clusters of all kubeconfig files for the start.
///
/// # Errors
/// What was asked for cannot be served: one of the clusters is this proxy, there is none, or one that a flag names is
/// not there.
pub fn load(config: &Config, itself: &Itself<'_>) -> Result<Found, ClustersError> {
    let sources = read(config);
    check_flag(config, &sources)?;
    find(config, itself, &Names::new(), &sources)?.not_nothing(config)
}

/// Loads them again; contexts that are still there keep their names.
///
/// # Errors
/// One of the clusters is this proxy, or there is none.
pub fn load_again(
    config: &Config,
    itself: &Itself<'_>,
    held: &Names,
) -> Result<Found, ClustersError> {
    find(config, itself, held, &read(config))?.not_nothing(config)
}

fn read(config: &Config) -> Vec<Contexts> {
    let sources = config.sources.kubeconfigs.iter();
    sources.map(|it| Contexts::read(&it.present())).collect()
}

fn find(
    config: &Config,
    itself: &Itself<'_>,
    held: &Names,
    sources: &[Contexts],
) -> Result<Found, ClustersError> {
    let mut all = Found::default();
    let kubeconfigs = &config.sources.kubeconfigs;
    let wanted: Vec<_> = kubeconfigs
        .iter()
        .zip(sources)
        .map(|(source, contexts)| wanted(config, source, contexts))
        .collect();
    // Who has each name: first those that have it already and are still there.
    let mut taken: HashMap<String, Origin> = HashMap::new();
    for ((source, contexts), wanted) in kubeconfigs.iter().zip(sources).zip(&wanted) {
        for context in contexts.names() {
            let origin = source.origin_of(context);
            let is_wanted = wanted
                .iter()
                .any(|it| it.is_empty() || it.iter().any(|it| it == context));
            if let Some(name) = held.get(&origin).filter(|_| is_wanted) {
                taken.insert(name.clone(), origin);
            }
        }
    }
    for (index, (source, contexts)) in kubeconfigs.iter().zip(sources).enumerate() {
        let mut reject = |subject, reason| {
            all.rejected.push(Rejected {
                source: index,
                subject,
                reason,
            });
        };
        for reason in contexts.unread() {
            reject(Subject::File, reason);
        }
        if contexts.is_empty() {
            for reason in contexts.without_contexts() {
                reject(Subject::NoContexts, reason);
            }
            continue;
        }
        let Some(wanted) = &wanted[index] else {
            continue;
        };
        let held: HashMap<_, _> = contexts
            .names()
            .filter_map(|context| {
                let name = held.get(&source.origin_of(context))?;
                Some((context.to_owned(), name.clone()))
            })
            .collect();
        // The timings follow from names that only the load finds.
        let timing = config.timing("");
        let loaded = kubeconfig::load(contexts.files(), wanted, &timing, source.connect, &held);
        for rejected in loaded.rejected {
            let subject = match rejected.context {
                Some(context) => {
                    if let Some(name) = held.get(&context)
                        && contexts.file_of(&context).is_some()
                    {
                        all.spoilt.insert(name.clone(), (index, context.clone()));
                        all.names.insert(source.origin_of(&context), name.clone());
                    }
                    Subject::Context(context)
                }
                None => Subject::File,
            };
            reject(subject, rejected.reason);
        }
        for mut cluster in loaded.clusters {
            if itself.is(&cluster) {
                return Err(serves_itself(cluster, source, contexts));
            }
            if contexts.is_fleet(&cluster.context, &cluster.endpoint.server) {
                let file = contexts.file_of(&cluster.context);
                reject(
                    Subject::Context(cluster.context.clone()),
                    format!(
                        "context {:?} of {} is the fleet of another fleetcache and no cluster{}",
                        cluster.context,
                        file.unwrap_or_else(|| Path::new("")).display(),
                        advice(source.origin),
                    ),
                );
                continue;
            }
            let origin = source.origin_of(&cluster.context);
            let holder = taken.entry(cluster.name.clone());
            if *holder.or_insert_with(|| origin.clone()) != origin {
                let file = contexts.file_of(&cluster.context);
                reject(
                    Subject::Context(cluster.context.clone()),
                    format!(
                        "context {:?} of {}: another source has a cluster {:?} already; rename the context",
                        cluster.context,
                        file.unwrap_or_else(|| Path::new("")).display(),
                        cluster.name,
                    ),
                );
                continue;
            }
            if all.names.insert(origin, cluster.name.clone()).is_some() {
                let file = contexts.file_of(&cluster.context);
                reject(
                    Subject::Context(cluster.context.clone()),
                    format!(
                        "context {:?} of {}: another source names it already; leave it out in one of them",
                        cluster.context,
                        file.unwrap_or_else(|| Path::new("")).display(),
                    ),
                );
                continue;
            }
            cluster.timing = config.timing(&cluster.name);
            all.clusters.push(cluster);
        }
    }
    Ok(all)
}

/// The contexts to serve of a source; all where empty. None where a flag names only contexts of others.
fn wanted(config: &Config, source: &KubeconfigSource, contexts: &Contexts) -> Option<Vec<String>> {
    let mut wanted = source.contexts.clone();
    if config.contexts.is_some() && contexts.is_complete() {
        // A flag names contexts of all sources together.
        wanted.retain(|name| contexts.file_of(name).is_some());
        if wanted.is_empty() {
            return None;
        }
    }
    Some(wanted)
}

impl Found {
    /// Sources that are watched may give clusters at any time; kubeconfig files alone must give one now.
    fn not_nothing(self, config: &Config) -> Result<Self, ClustersError> {
        if self.clusters.is_empty() && !config.sources.is_live() {
            let rejected = self.rejected.into_iter().map(|it| it.reason).collect();
            return Err(ClustersError::Nothing { rejected });
        }
        Ok(self)
    }
}

impl KubeconfigSource {
    fn origin_of(&self, context: &str) -> Origin {
        Origin {
            paths: self.paths.clone(),
            context: context.to_owned(),
        }
    }
}

/// Each context that a flag names is in some file. Where no file has any, or one is damaged, that tells more.
fn check_flag(config: &Config, found: &[Contexts]) -> Result<(), ClustersError> {
    let Some(asked) = &config.contexts else {
        return Ok(());
    };
    if found.iter().all(Contexts::is_empty) || !found.iter().all(Contexts::is_complete) {
        return Ok(());
    }
    let is_known = |name: &&String| found.iter().any(|it| it.file_of(name).is_some());
    let Some(unknown) = asked.names.iter().find(|name| !is_known(name)) else {
        return Ok(());
    };
    let known: Vec<_> = found.iter().flat_map(Contexts::names).collect();
    Err(ClustersError::UnknownContext {
        flag: asked.flag.clone(),
        context: unknown.clone(),
        known: if known.len() <= FEW {
            format!("; there are: {}", known.join(", "))
        } else {
            format!("; there are {} others", known.len())
        },
        unread: found.iter().flat_map(Contexts::unread).collect(),
    })
}

fn serves_itself(
    cluster: ClusterConfig,
    source: &KubeconfigSource,
    found: &Contexts,
) -> ClustersError {
    let path = found
        .file_of(&cluster.context)
        .unwrap_or_else(|| Path::new(""));
    ClustersError::ServesItself {
        path: path.to_owned(),
        context: cluster.context,
        server: cluster.endpoint.server.to_string(),
        advice: advice(source.origin),
    }
}

/// What to do about a context of a kubeconfig that a proxy wrote, after what stands between it and the sentence.
fn advice(origin: KubeconfigOrigin) -> &'static str {
    match origin {
        KubeconfigOrigin::Variable => {
            ". $KUBECONFIG names the kubeconfig that fleetcache wrote for its clients; unset it or name yours with \
             --kubeconfig"
        }
        KubeconfigOrigin::Flag | KubeconfigOrigin::File | KubeconfigOrigin::Home => {
            "; leave it out by naming the others with --context, or give another kubeconfig"
        }
    }
}

/// Reasons in parentheses; nothing where there are none.
fn listed(rejected: &[String]) -> String {
    if rejected.is_empty() {
        return String::new();
    }
    format!(" (not served: {})", rejected.join("; "))
}

impl Itself<'_> {
    /// Whether a cluster is this proxy: a server below `/clusters/` at the proxy's own address, or trusted by the proxy's
    /// own CA, whatever the address was when its kubeconfig was written.
    pub(crate) fn is(&self, cluster: &ClusterConfig) -> bool {
        let endpoint = &cluster.endpoint;
        if !endpoint.server.path().starts_with("/clusters/") {
            return false;
        }
        let port = endpoint.server.port_u16().unwrap_or(443);
        let host = endpoint.server.host().unwrap_or_default();
        let ca = endpoint
            .certificate_authority
            .as_deref()
            .unwrap_or_default();
        let own_ca = self.ca_pem.trim().as_bytes();
        self.listen.is_reached_by(host, port) || (!own_ca.is_empty() && ca.trim_ascii() == own_ca)
    }
}

#[cfg(test)]
mod tests;
