//! Where clusters come from.

use std::path::PathBuf;

use fleetcache_cache::cluster_config::ConnectPolicy;

/// Where clusters come from, in the order in which they take names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcesConfig {
    /// Kubeconfig files, each context a cluster.
    pub kubeconfigs: Vec<KubeconfigSource>,
    /// A directory of kubeconfigs, each file a cluster.
    pub directory: Option<PathBuf>,
    /// The Clusters of a Cluster API management cluster.
    pub cluster_api: Option<ManagementSource>,
    /// Secrets that hold a kubeconfig each.
    pub secrets: Option<ManagementSource>,
}

/// Objects of a cluster that tell of clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementSource {
    /// The kubeconfig of the cluster that holds them.
    pub kubeconfig: PathBuf,
    /// The context in it; the current one where none is named.
    pub context: Option<String>,
    /// Their namespaces; all where empty.
    pub namespaces: Vec<String>,
    /// Which of them: a label selector. All where none is given.
    pub label_selector: Option<String>,
}

impl SourcesConfig {
    /// Whether clusters may come later than with the configuration and the kubeconfig files.
    pub fn is_live(&self) -> bool {
        self.directory.is_some() || self.cluster_api.is_some() || self.secrets.is_some()
    }
}

/// Kubeconfig files that are read as one, as kubectl reads a list in `$KUBECONFIG`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeconfigSource {
    /// The files, those of `$KUBECONFIG` whether they exist or not.
    pub paths: Vec<PathBuf>,
    /// The contexts to serve; all where empty.
    pub contexts: Vec<String>,
    /// When their clusters are connected; where none is given, contexts with an exec plugin on demand and all others
    /// always.
    pub connect: Option<ConnectPolicy>,
    /// Who named them.
    pub origin: KubeconfigOrigin,
}

/// Who named kubeconfig files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeconfigOrigin {
    /// The flag `--kubeconfig`, or its variable.
    Flag,
    /// The configuration file.
    File,
    /// `$KUBECONFIG`.
    Variable,
    /// Nobody: it is `~/.kube/config`.
    Home,
}

impl KubeconfigSource {
    pub(super) fn new(paths: Vec<PathBuf>, origin: KubeconfigOrigin) -> Self {
        Self {
            paths,
            contexts: Vec::new(),
            connect: None,
            origin,
        }
    }

    /// The files to read. Of a list in `$KUBECONFIG`, files that do not exist are left out, as kubectl does; a single file
    /// that does not exist is an error when it is read.
    pub fn present(&self) -> Vec<PathBuf> {
        if self.origin == KubeconfigOrigin::Variable {
            let existing = self.paths.iter().filter(|path| path.exists());
            let existing: Vec<_> = existing.cloned().collect();
            if !existing.is_empty() {
                return existing;
            }
        }
        self.paths.clone()
    }
}
