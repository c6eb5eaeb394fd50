//! All clusters by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::cluster_accessor::{ClusterAccessor, ConnectLimit};
use crate::cluster_config::ClusterConfig;
use crate::eviction::Fleet;

/// All clusters by name.
#[derive(Debug)]
pub struct ClusterCache {
    /// Read by every request, without a lock.
    clusters: ArcSwap<BTreeMap<String, Arc<ClusterAccessor>>>,
    /// Held while the map is replaced.
    changing: Mutex<()>,
    limit: ConnectLimit,
    fleet: Arc<Fleet>,
    shutdown: CancellationToken,
}

impl ClusterCache {
    /// Starts an owner task for each cluster; all end when `shutdown` fires. At most `max_connecting`
    /// connects are in DNS or TLS at once. Of two clusters with one name the first is kept.
    pub fn start(
        clusters: Vec<ClusterConfig>,
        max_connecting: usize,
        fleet: &Arc<Fleet>,
        shutdown: &CancellationToken,
    ) -> Arc<Self> {
        let cache = Arc::new(Self {
            clusters: ArcSwap::default(),
            changing: Mutex::new(()),
            limit: ConnectLimit::new(max_connecting),
            fleet: Arc::clone(fleet),
            shutdown: shutdown.clone(),
        });
        cache.add(clusters);
        cache
    }

    /// Adds clusters and returns the names that were there already.
    pub fn add(&self, clusters: Vec<ClusterConfig>) -> Vec<String> {
        let _changing = self.changing.lock();
        let mut map = BTreeMap::clone(&self.clusters.load());
        let mut taken = Vec::new();
        for cluster in clusters {
            if map.contains_key(&cluster.name) {
                taken.push(cluster.name);
                continue;
            }
            let name = cluster.name.clone();
            let (fleet, shutdown) = (&self.fleet, &self.shutdown);
            let accessor = ClusterAccessor::start(cluster, &self.limit, fleet, shutdown);
            map.insert(name, accessor);
        }
        self.clusters.store(Arc::new(map));
        taken
    }

    /// Removes a cluster: it is disconnected and forgotten, and its name is free at once. False where there was none.
    pub fn remove(&self, name: &str) -> bool {
        let _changing = self.changing.lock();
        let mut map = BTreeMap::clone(&self.clusters.load());
        let Some(removed) = map.remove(name) else {
            return false;
        };
        self.clusters.store(Arc::new(map));
        removed.remove();
        true
    }

    /// The cluster of that name.
    pub fn get(&self, name: &str) -> Option<Arc<ClusterAccessor>> {
        self.clusters.load().get(name).cloned()
    }

    /// All clusters, in the order of their names.
    pub fn all(&self) -> Vec<Arc<ClusterAccessor>> {
        self.clusters.load().values().cloned().collect()
    }
}
