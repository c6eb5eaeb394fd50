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

/// What is kept of a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeps {
    /// The cells that a Table shows of each. Without, Tables of the kind go live.
    pub tables: bool,
    /// Who manages which field of them: `metadata.managedFields`.
    pub managed_fields: bool,
}

impl Default for Keeps {
    /// All of what the server says.
    fn default() -> Self {
        Self {
            tables: true,
            managed_fields: true,
        }
    }
}

/// What the configuration says about one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindConfig {
    /// Whether it is kept.
    pub policy: CachePolicy,
    /// What is kept of its objects.
    pub keeps: Keeps,
}

impl From<CachePolicy> for KindConfig {
    fn from(policy: CachePolicy) -> Self {
        Self {
            policy,
            keeps: Keeps::default(),
        }
    }
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
    /// Kinds of which it says something, by group and resource.
    pub resources: HashMap<(String, String), KindConfig>,
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
                    let kind = (group.to_owned(), resource.to_owned());
                    (kind, CachePolicy::Never.into())
                })
                .collect(),
        }
    }
}

impl InformersConfig {
    pub(crate) fn policy(&self, gvr: &Gvr) -> CachePolicy {
        self.of(gvr).policy
    }

    /// What is kept of a kind's objects.
    pub(crate) fn keeps(&self, gvr: &Gvr) -> Keeps {
        self.of(gvr).keeps
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
        let of_kind = self.resources.get(kind);
        of_kind.map_or(CachePolicy::OnDemand, |it| it.policy)
    }

    fn of(&self, gvr: &Gvr) -> KindConfig {
        let kind = (gvr.group.to_string(), gvr.resource.to_string());
        let of_kind = self.resources.get(&kind).copied();
        of_kind.unwrap_or_else(|| CachePolicy::OnDemand.into())
    }

    pub(super) fn always(&self) -> impl Iterator<Item = &(String, String)> {
        let always = self
            .resources
            .iter()
            .filter(|(_, of_kind)| of_kind.policy == CachePolicy::Always);
        always.map(|(kind, _)| kind)
    }
}
