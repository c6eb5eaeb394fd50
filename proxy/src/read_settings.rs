//! What the configuration says about reads.

use fleetcache_cache::gvr::Gvr;

/// How new the answer to a read is whose resourceVersion is unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnsetResourceVersion {
    /// From memory, at or above the floor.
    #[default]
    Cached,
    /// From memory, where it was made sure that it is what the cluster holds now.
    Consistent,
    /// From the cluster.
    Live,
}

/// What becomes of a read whose informer is not there, or not synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingInformer {
    /// It goes to the cluster.
    #[default]
    Live,
    /// It waits for the informer.
    Wait,
    /// It is an error until the informer has synced.
    Fail,
}

/// What becomes of a read whose cluster is not connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenDisconnected {
    /// It is an error.
    #[default]
    Fail,
    /// It is answered with what was known last, and says so.
    Stale,
}

/// What the configuration says about the reads of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSettings {
    /// Where no resource says otherwise.
    pub unset_resource_version: UnsetResourceVersion,
    /// By group and resource; of several for one, the last counts.
    pub of_resources: Vec<(String, String, UnsetResourceVersion)>,
    /// Without an informer.
    pub on_missing_informer: OnMissingInformer,
    /// Without a cluster.
    pub when_disconnected: WhenDisconnected,
}

impl ReadSettings {
    /// How new the answer to a read of this kind is whose resourceVersion is unset.
    pub fn unset_resource_version(&self, gvr: &Gvr) -> UnsetResourceVersion {
        let mut rules = self.of_resources.iter().rev();
        let rule =
            rules.find(|(group, resource, _)| *group == *gvr.group && *resource == *gvr.resource);
        rule.map_or(self.unset_resource_version, |(_, _, unset)| *unset)
    }
}
