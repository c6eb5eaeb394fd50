//! Who has which name.

use std::collections::{BTreeMap, BTreeSet};

use fleetcache_cache::cluster_config::{ClusterConfig, Rejection, SourceKind};
use fleetcache_cache::credential::CredentialConfig;

use super::report::SourceReport;
use super::{Candidate, Known, Unusable};

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
    /// Warnings.
    pub(super) notes: BTreeSet<String>,
    /// What there is to say of each source.
    pub(super) reports: Vec<SourceReport>,
}

/// Merges what sources know. Who had a name and is still there keeps it: who goes on using a URL must not be led to another
/// cluster. Of all others the first gets it, in the order of the sources.
pub(super) fn merge(sources: Vec<(SourceKind, Known)>, before: &BTreeMap<String, Entry>) -> Merged {
    let mut merged = Merged::default();
    let mut others = Vec::new();
    for (kind, known) in sources {
        let mut report = SourceReport::of(kind, &known);
        merged.rejected.extend(known.troubles);
        merged.rejected.extend(known.rejected);
        merged.notes.extend(known.notes);
        let Some(candidates) = known.clusters else {
            // It will tell. Until then what it told before holds.
            for (name, entry) in before.iter().filter(|(_, entry)| entry.kind() == kind) {
                report.takes(entry);
                merged.clusters.insert(name.clone(), entry.clone());
            }
            merged.reports.push(report);
            continue;
        };
        for candidate in candidates {
            let holder = before.get(&candidate.name);
            match holder.filter(|it| it.kind() == kind && it.identity == candidate.identity) {
                Some(holder) => merged.keep(candidate, holder, &mut report),
                None => others.push((merged.reports.len(), candidate)),
            }
        }
        merged.reports.push(report);
    }
    for (source, candidate) in others {
        merged.take_in(source, candidate);
    }
    for (name, entry) in &merged.clusters {
        if entry.cluster.credential_withheld {
            merged.notes.insert(format!(
                "the server of the cluster {name:?} is reached over plain http, so its credential is not sent"
            ));
        }
    }
    merged
}

impl Merged {
    /// One that has its name already.
    fn keep(&mut self, candidate: Candidate, before: &Entry, report: &mut SourceReport) {
        let cluster = match candidate.cluster {
            Ok(cluster) => cluster,
            Err(Unusable {
                reason,
                rejection,
                instead,
            }) => {
                let stands_in = matches!(before.cluster.credential, CredentialConfig::Missing(_));
                match instead {
                    Some(instead) if stands_in => {
                        self.rejected.extend(reason);
                        ClusterConfig {
                            rejected: rejection,
                            ..*instead
                        }
                    }
                    instead => {
                        self.kept
                            .extend(reason.map(|it| (candidate.name.clone(), it)));
                        let mut kept = before.cluster.clone();
                        if let Some(instead) = instead {
                            kept.labels = instead.labels;
                        }
                        if let Some(Rejection { reason, message }) = rejection {
                            let message = format!("{message}; it is served as before");
                            kept.rejected = Some(Rejection { reason, message });
                        }
                        kept
                    }
                }
            }
        };
        let entry = Entry {
            identity: candidate.identity,
            cluster,
        };
        report.takes(&entry);
        self.clusters.insert(candidate.name, entry);
    }

    /// One that has no name yet, of the source with that report.
    fn take_in(&mut self, source: usize, candidate: Candidate) {
        let report = &mut self.reports[source];
        let taken = self.clusters.get(&candidate.name).map(|holder| {
            format!(
                "{}: another source has a cluster {:?} already, {} {}; it is served when that one goes, or under another name",
                candidate.origin,
                candidate.name,
                holder.kind().as_str(),
                holder.cluster.source.name,
            )
        });
        let cluster = match candidate.cluster {
            Ok(cluster) => Some(cluster),
            Err(Unusable {
                reason,
                rejection,
                instead,
            }) => {
                self.rejected.extend(reason);
                match (instead, rejection) {
                    (Some(instead), rejected) => Some(ClusterConfig {
                        rejected,
                        ..*instead
                    }),
                    (None, Some(rejection)) => {
                        report.not_served(rejection.message);
                        return;
                    }
                    (None, None) => None,
                }
            }
        };
        match (taken, cluster) {
            // Whatever is yet to be read of it: if that counted, the same would be told before and after.
            (Some(reason), _) => {
                report.not_served(reason.clone());
                self.rejected.insert(reason);
            }
            (None, None) => report.entries.pending += 1,
            (None, Some(cluster)) => {
                let entry = Entry {
                    identity: candidate.identity,
                    cluster,
                };
                report.takes(&entry);
                self.clusters.insert(candidate.name, entry);
            }
        }
    }
}

#[cfg(test)]
mod tests;
