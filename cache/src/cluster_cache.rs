//! All clusters by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::cluster_accessor::{Changes, ClusterAccessor, ConnectLimit, ConnectTimeTotals};
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
    changes: Arc<Changes>,
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
            changes: Arc::default(),
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
        let (mut added, mut taken) = (Vec::new(), Vec::new());
        for cluster in clusters {
            if map.contains_key(&cluster.name) {
                taken.push(cluster.name);
                continue;
            }
            let name = cluster.name.clone();
            let (fleet, shutdown) = (&self.fleet, &self.shutdown);
            let accessor =
                ClusterAccessor::start(cluster, &self.limit, &self.changes, fleet, shutdown);
            added.push(name.clone());
            map.insert(name, accessor);
        }
        self.clusters.store(Arc::new(map));
        // Whoever is told of one finds it.
        for name in added {
            self.changes.note(&name);
        }
        taken
    }

    /// Tells a cluster what is configured for it now; its connection and what it holds in memory stay as far as they can.
    /// False where there is none of that name.
    pub fn update(&self, cluster: ClusterConfig) -> bool {
        let found = self.get(&cluster.name);
        if let Some(accessor) = &found {
            accessor.update(cluster);
        }
        found.is_some()
    }

    /// From now on, at most so many connects are in DNS or TLS at once.
    pub fn set_max_connecting(&self, max_connecting: usize) {
        self.limit.set(max_connecting);
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
        self.changes.note(name);
        true
    }

    /// Waits for news of clusters: the names of those that came or went, whose configuration changed, or whose state,
    /// reason or count of failures moved since the last call. For one caller.
    pub async fn changed(&self) -> BTreeSet<String> {
        self.changes.taken().await
    }

    /// How long connects took, of all clusters since the start.
    pub fn connect_times(&self) -> ConnectTimeTotals {
        self.changes.connect_times.totals()
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

#[cfg(test)]
mod tests {
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::cluster_accessor::tests::config;
    use crate::informers::InformersConfig;
    use crate::upstream::fake::within;

    fn named(name: &str) -> ClusterConfig {
        let mut config = config("https://127.0.0.1:1");
        config.name = name.to_owned();
        config
    }

    struct Running {
        cache: Arc<ClusterCache>,
        tasks: TaskTracker,
        shutdown: CancellationToken,
        /// What runs without any cluster.
        tasks_before: usize,
    }

    fn start(clusters: Vec<ClusterConfig>) -> Running {
        let tasks = TaskTracker::new();
        let shutdown = CancellationToken::new();
        let fleet = Fleet::start(InformersConfig::default(), &tasks, &shutdown);
        let tasks_before = tasks.len();
        Running {
            cache: ClusterCache::start(clusters, 8, &fleet, &shutdown),
            tasks,
            shutdown,
            tasks_before,
        }
    }

    #[tokio::test]
    async fn clusters_come_and_go_by_name() {
        let cache = start(vec![named("b"), named("a")]).cache;
        let names: Vec<_> = cache.all().iter().map(|c| c.name().to_owned()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(cache.get("c").is_none());
        assert_eq!(cache.add(vec![named("b"), named("c")]), ["b"]);
        let first = cache.get("c").unwrap();
        assert!(cache.update(named("c")) && !cache.update(named("d")));
        assert!(cache.remove("c") && !cache.remove("c"));
        assert!(cache.get("c").is_none());
        assert!(cache.add(vec![named("c")]).is_empty());
        assert!(!Arc::ptr_eq(&first, &cache.get("c").unwrap()));
    }

    #[tokio::test]
    async fn a_name_that_comes_and_goes_a_thousand_times_leaves_no_task() {
        let running = start(Vec::new());
        for _ in 0..1000 {
            assert!(running.cache.add(vec![named("a")]).is_empty());
            tokio::task::yield_now().await;
            assert!(running.cache.remove("a"));
        }
        within(async {
            while running.tasks.len() > running.tasks_before {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(running.cache.all().is_empty());
    }

    #[tokio::test]
    async fn all_owners_end_at_shutdown() {
        let running = start(vec![named("a"), named("b")]);
        running.shutdown.cancel();
        running.tasks.close();
        within(running.tasks.wait()).await;
    }
}
