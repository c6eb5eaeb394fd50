//! What the configuration says about informers.

use std::collections::HashMap;
use std::time::Duration;

use crate::gvr::Gvr;
use crate::holding::Holding;
use crate::informer::Informer;

/// Whether a kind is kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// From its first LIST, or the third GET in a minute.
    OnDemand,
    /// From the connect on.
    Always,
    /// Never.
    Never,
}

/// What the configuration says about informers, for all clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InformersConfig {
    /// An informer that nobody reads for so long stops.
    pub idle_timeout: Duration,
    /// A kind with more objects stays live.
    pub max_objects_per_kind: u64,
    /// Bytes of objects that all clusters together may hold.
    pub memory_limit: u64,
    /// How often an informer is compared with its server; zero: never.
    pub self_check_interval: Duration,
    /// Kinds with a policy of their own, by group and resource.
    pub resources: HashMap<(String, String), CachePolicy>,
}

impl Default for InformersConfig {
    fn default() -> Self {
        let never = [
            ("", "secrets"),
            ("", "events"),
            ("events.k8s.io", "events"),
            ("coordination.k8s.io", "leases"),
        ];
        Self {
            idle_timeout: Duration::from_secs(30 * 60),
            max_objects_per_kind: 100_000,
            memory_limit: u64::MAX,
            self_check_interval: Duration::from_secs(5 * 60),
            resources: never
                .into_iter()
                .map(|(group, resource)| {
                    ((group.to_owned(), resource.to_owned()), CachePolicy::Never)
                })
                .collect(),
        }
    }
}

impl InformersConfig {
    pub(crate) fn policy(&self, gvr: &Gvr) -> CachePolicy {
        self.policy_of(&(gvr.group.to_string(), gvr.resource.to_string()))
    }

    /// Of an informer that runs: what is always kept is kept in JSON, and in protobuf while somebody reads it so.
    pub(crate) fn policy_of_informer(&self, informer: &Informer) -> CachePolicy {
        match (self.policy(&informer.gvr), informer.holding) {
            (CachePolicy::Always, Holding::Protobuf) => CachePolicy::OnDemand,
            (policy, _) => policy,
        }
    }

    /// Of a group and a resource.
    pub(super) fn policy_of(&self, kind: &(String, String)) -> CachePolicy {
        let policy = self.resources.get(kind).copied();
        policy.unwrap_or(CachePolicy::OnDemand)
    }

    pub(super) fn always(&self) -> impl Iterator<Item = &(String, String)> {
        let always = self
            .resources
            .iter()
            .filter(|(_, policy)| **policy == CachePolicy::Always);
        always.map(|(kind, _)| kind)
    }
}
