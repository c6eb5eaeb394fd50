//! What operators are told of the sources: in metrics, and in words.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use fleetcache_cache::cluster_config::SourceKind;
use fleetcache_cache::credential::CredentialConfig;
use parking_lot::Mutex;
use serde::Serialize;

use super::management::key;
use super::{Entry, Known};

/// What there is to say of one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceReport {
    /// As in `spec.source.kind` of a ClusterConnection.
    pub source: &'static str,
    /// Whether it can tell which clusters there are now.
    pub up: bool,
    /// Why not, in sentences; empty where it can.
    pub message: String,
    /// How many of its entries stand where.
    #[serde(flatten)]
    pub entries: Entries,
    /// Why those are not served that are not, or not as the source says: a sentence each.
    pub rejected: BTreeSet<String>,
}

/// What became of the entries of a source: contexts, files, objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entries {
    /// Clusters, as the source says.
    pub accepted: u64,
    /// Clusters as they were before: what the source says now cannot be used.
    pub served_as_before: u64,
    /// No clusters, or clusters without a credential: they cannot be used, or have the name of another.
    pub not_served: u64,
    /// What the source says of them is yet to be read.
    pub pending: u64,
}

impl Entries {
    /// Each state as written in metrics, with the number of entries.
    pub fn by_state(&self) -> [(&'static str, u64); 4] {
        [
            ("Accepted", self.accepted),
            ("ServedAsBefore", self.served_as_before),
            ("NotServed", self.not_served),
            ("Pending", self.pending),
        ]
    }
}

impl SourceReport {
    /// Of a source without its clusters.
    pub(super) fn of(kind: SourceKind, known: &Known) -> Self {
        let mut message: Vec<_> = known.troubles.iter().chain(&known.unreached).collect();
        let silent = format!(
            "{}: it has not told yet which clusters there are",
            key(kind)
        );
        if known.clusters.is_none() && message.is_empty() {
            message.push(&silent);
        }
        let sentences: Vec<_> = message.into_iter().map(String::as_str).collect();
        Self {
            source: kind.as_str(),
            up: sentences.is_empty(),
            message: sentences.join("; "),
            entries: Entries {
                not_served: known.rejected.len() as u64,
                ..Entries::default()
            },
            rejected: known.rejected.iter().cloned().collect(),
        }
    }

    /// A cluster of it is there.
    pub(super) fn takes(&mut self, entry: &Entry) {
        let cluster = &entry.cluster;
        let has_credential = !matches!(cluster.credential, CredentialConfig::Missing(_));
        match &cluster.rejected {
            None => self.entries.accepted += 1,
            Some(rejection) if has_credential => {
                self.entries.served_as_before += 1;
                self.rejected.insert(rejection.message.clone());
            }
            Some(rejection) => self.not_served(rejection.message.clone()),
        }
    }

    pub(super) fn not_served(&mut self, why: String) {
        self.entries.not_served += 1;
        self.rejected.insert(why);
    }
}

/// The last report of each source that is configured, and of the configuration itself.
#[derive(Debug, Default)]
pub struct Reports {
    // Held for a copy.
    last: Mutex<Vec<SourceReport>>,
    is_refused: AtomicBool,
}

impl Reports {
    /// In the order in which sources take names.
    pub fn all(&self) -> Vec<SourceReport> {
        self.last.lock().clone()
    }

    /// Whether the configuration, with all files that it names, is what was in force before, since there is a mistake in what
    /// it is now.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Notes whether the configuration that was read last was refused.
    pub(crate) fn refused(&self, is_refused: bool) {
        self.is_refused.store(is_refused, Ordering::Relaxed);
    }

    pub(super) fn replace(&self, reports: Vec<SourceReport>) {
        *self.last.lock() = reports;
    }
}
