//! All clusters by name.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster_accessor::ClusterAccessor;
use crate::cluster_config::ClusterConfig;
use crate::eviction::Fleet;

/// All clusters by name.
#[derive(Debug)]
pub struct ClusterCache {}

impl ClusterCache {
    /// Starts an owner task for each cluster on `tasks`; all end when `shutdown` fires. At most `max_connecting`
    /// connects are in DNS or TLS at once.
    pub fn start(
        _clusters: Vec<ClusterConfig>,
        _max_connecting: usize,
        _fleet: &Arc<Fleet>,
        _tasks: &TaskTracker,
        _shutdown: &CancellationToken,
    ) -> Arc<Self> {
        unimplemented!("skeleton")
    }

    /// The cluster of that name.
    pub fn get(&self, _name: &str) -> Option<Arc<ClusterAccessor>> {
        unimplemented!("skeleton")
    }

    /// All clusters, in the order of their names.
    pub fn all(&self) -> Vec<Arc<ClusterAccessor>> {
        unimplemented!("skeleton")
    }
}
