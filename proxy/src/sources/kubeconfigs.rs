//! Kubeconfig files, each context a cluster. They are read with the configuration.

use fleetcache_cache::cluster_config::SourceKind;

use super::{Candidate, Known, Source, Unusable};
use crate::clusters::{Found, Names};

/// What the files gave when they were last read.
#[derive(Debug, Default)]
pub(super) struct Kubeconfigs(Found);

impl Kubeconfigs {
    pub(super) fn new(found: Found) -> Self {
        Self(found)
    }

    pub(super) fn names(&self) -> &Names {
        &self.0.names
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
        let found = &self.0;
        // A context is the same wherever its file is moved.
        let usable = found.clusters.iter().map(|cluster| Candidate {
            name: cluster.name.clone(),
            origin: format!("context {:?} of {}", cluster.context, cluster.source.name),
            identity: cluster.context.clone(),
            cluster: Ok(cluster.clone()),
        });
        let spoilt = found.spoilt.iter().map(|(name, context)| Candidate {
            name: name.clone(),
            origin: format!("context {context:?}"),
            identity: context.clone(),
            cluster: Err(Unusable {
                reason: Some(format!("its context {context:?} cannot be used")),
                instead: None,
            }),
        });
        Known {
            clusters: Some(usable.chain(spoilt).collect()),
            troubles: found.rejected.iter().map(|it| it.reason.clone()).collect(),
        }
    }
}
