//! Clusters from kubeconfig files.

use crate::cluster_config::ClusterConfig;

/// What a set of kubeconfig files gave: the clusters that can be used, and why the other contexts cannot.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Clusters that can be used.
    pub clusters: Vec<ClusterConfig>,
    /// Contexts that cannot: one sentence each that names file, context and what to do.
    pub rejected: Vec<String>,
}
