//! Kubeconfig files, each context a cluster. They are read with the configuration.

use std::collections::BTreeMap;

use fleetcache_cache::cluster_config::{RejectionReason, SourceKind};

use super::{Candidate, Known, Source, Unusable};
use crate::clusters::{Found, Names, Subject};

/// What the files gave when they were last read.
#[derive(Debug, Default)]
pub(super) struct Kubeconfigs {
    found: Found,
    /// Why what is in them now is not what holds.
    refused: Option<String>,
}

impl Kubeconfigs {
    pub(super) fn new(found: Found) -> Self {
        Self {
            found,
            refused: None,
        }
    }

    /// They could not be read again.
    pub(super) fn refused(&mut self, why: String) {
        self.refused = Some(why);
    }

    pub(super) fn names(&self) -> &Names {
        &self.found.names
    }
}

impl Source for Kubeconfigs {
    fn kind(&self) -> SourceKind {
        SourceKind::Kubeconfig
    }

    fn look(&mut self, _again: bool) -> bool {
        false
    }

    fn known(&self) -> Known {
        let found = &self.found;
        // A context is the same wherever its file is moved.
        let usable = found.clusters.iter().map(|cluster| Candidate {
            name: cluster.name.clone(),
            origin: format!("context {:?} of {}", cluster.context, cluster.source.name),
            identity: cluster.context.clone(),
            cluster: Ok(cluster.clone()),
        });
        let mut contexts = BTreeMap::<_, Vec<&str>>::new();
        let mut troubles = Vec::new();
        for rejected in &found.rejected {
            match &rejected.subject {
                Subject::File | Subject::NoContexts => troubles.push(rejected.reason.clone()),
                Subject::Context(context) => contexts
                    .entry((rejected.source, context))
                    .or_default()
                    .push(&rejected.reason),
            }
        }
        let spoilt = found.spoilt.iter().map(|(name, origin)| {
            let (_, context) = origin;
            let why = contexts.remove(&(origin.0, context)).unwrap_or_default();
            Candidate {
                name: name.clone(),
                origin: format!("context {context:?}"),
                identity: context.clone(),
                cluster: Err(Unusable::told(RejectionReason::Invalid, why.join("; "))),
            }
        });
        let clusters = usable.chain(spoilt).collect();
        Known {
            clusters: Some(clusters),
            rejected: contexts.into_values().map(|why| why.join("; ")).collect(),
            troubles,
            unreached: self.refused.clone(),
            ..Known::default()
        }
    }
}
