//! Who has which name.

use std::collections::{BTreeMap, BTreeSet};

use fleetcache_cache::cluster_config::{ClusterConfig, SourceKind};
use fleetcache_cache::credential::CredentialConfig;

use super::{Candidate, Known};

/// A cluster that is served.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Within its kind of source: what it is, whatever it is called. See [`Entry::is_same`].
    identity: String,
    /// How it is reached.
    pub cluster: ClusterConfig,
}

impl Entry {
    /// Whether it is the same cluster, as far as its source tells.
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity == other.identity && self.kind() == other.kind()
    }

    fn kind(&self) -> SourceKind {
        self.cluster.source.kind
    }
}

/// What is served, and what is not.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) clusters: BTreeMap<String, Entry>,
    /// Why the others are not: one sentence each.
    pub(super) rejected: BTreeSet<String>,
    /// Clusters that are served as before, and why.
    pub(super) kept: BTreeMap<String, String>,
}

/// Merges what sources know. Who had a name and is still there keeps it: who goes on using a URL must not be led to another
/// cluster. Of all others the first gets it, in the order of the sources.
pub(super) fn merge(sources: Vec<(SourceKind, Known)>, before: &BTreeMap<String, Entry>) -> Merged {
    let mut merged = Merged::default();
    let mut others = Vec::new();
    for (kind, known) in sources {
        merged.rejected.extend(known.troubles);
        let Some(candidates) = known.clusters else {
            // It will tell. Until then what it told before holds.
            let told = before.iter().filter(|(_, entry)| entry.kind() == kind);
            let told = told.map(|(name, entry)| (name.clone(), entry.clone()));
            merged.clusters.extend(told);
            continue;
        };
        for candidate in candidates {
            let holder = before.get(&candidate.name);
            match holder.filter(|it| it.kind() == kind && it.identity == candidate.identity) {
                Some(holder) => merged.keep(candidate, holder),
                None => others.push(candidate),
            }
        }
    }
    for candidate in others {
        merged.take_in(candidate);
    }
    merged
}

impl Merged {
    /// One that has its name already.
    fn keep(&mut self, candidate: Candidate, before: &Entry) {
        let cluster = match candidate.cluster {
            Ok(cluster) => cluster,
            Err(unusable) => {
                let stands_in = matches!(before.cluster.credential, CredentialConfig::Missing(_));
                let mut kept = before.cluster.clone();
                match unusable.instead {
                    Some(instead) if stands_in => {
                        self.rejected.extend(unusable.reason);
                        kept = *instead;
                    }
                    instead => {
                        if let Some(instead) = instead {
                            kept.labels = instead.labels;
                        }
                        let reason = unusable.reason.map(|it| (candidate.name.clone(), it));
                        self.kept.extend(reason);
                    }
                }
                kept
            }
        };
        let entry = Entry {
            identity: candidate.identity,
            cluster,
        };
        self.clusters.insert(candidate.name, entry);
    }

    /// One that has no name yet.
    fn take_in(&mut self, candidate: Candidate) {
        let cluster = match candidate.cluster {
            Ok(cluster) => Some(cluster),
            Err(unusable) => {
                self.rejected.extend(unusable.reason);
                unusable.instead.map(|it| *it)
            }
        };
        let Some(cluster) = cluster else {
            return;
        };
        if let Some(holder) = self.clusters.get(&candidate.name) {
            self.rejected.insert(format!(
                "{}: another source has a cluster {:?} already, {} {}; it is served when that one goes, or under another name",
                candidate.origin,
                candidate.name,
                holder.kind().as_str(),
                holder.cluster.source.name,
            ));
            return;
        }
        let entry = Entry {
            identity: candidate.identity,
            cluster,
        };
        self.clusters.insert(candidate.name, entry);
    }
}

#[cfg(test)]
mod tests;
