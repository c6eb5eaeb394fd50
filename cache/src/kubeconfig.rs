//! Clusters from kubeconfigs: from files, each context a cluster, and from one file or one Secret, a cluster each.

mod endpoint;
mod exposed;
mod name;
mod proxy_env;
mod single;
#[cfg(test)]
mod tests;
mod untrusted;
mod user;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

pub use self::exposed::exposed;
pub use self::name::is_valid as is_cluster_name;
use self::proxy_env::ProxyEnv;
pub use self::single::{from_file, from_secret};
use crate::cluster_config::{
    ClusterConfig, ClusterSource, ConnectPolicy, ConnectionTiming, EndpointConfig, SourceKind,
};
use crate::credential::{ClientCertificate, CredentialConfig};
use crate::upstream::tls;
use kube::config::{Cluster, Context, Kubeconfig, KubeconfigError, NamedContext};

/// What a set of kubeconfig files gave: the clusters that can be used, and why the other contexts cannot.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Clusters that can be used.
    pub clusters: Vec<ClusterConfig>,
    /// Files and contexts that cannot.
    pub rejected: Vec<Rejected>,
}

/// Why a file or a context cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The context; none where it is about a whole file.
    pub context: Option<String>,
    /// One sentence that names file, context and what to do.
    pub reason: String,
}

/// Reads kubeconfig files, merged as kubectl merges them (the first file to name something wins), and makes one cluster of
/// each context, or of each of `contexts` where that is not empty. With `connect` none, contexts with an exec plugin
/// connect on demand and all others always.
///
/// `held` are names that contexts have already, by context: each keeps its own, whatever others come before it.
///
/// What cannot be used never stops the rest: it is told in [`Loaded::rejected`].
pub fn load(
    paths: &[PathBuf],
    contexts: &[String],
    timing: &ConnectionTiming,
    connect: Option<ConnectPolicy>,
    held: &HashMap<String, String>,
) -> Loaded {
    let proxy_env = ProxyEnv::from_env();
    load_with(paths, contexts, timing, connect, held, &proxy_env)
}

fn load_with(
    paths: &[PathBuf],
    contexts: &[String],
    timing: &ConnectionTiming,
    connect: Option<ConnectPolicy>,
    held: &HashMap<String, String>,
    proxy_env: &ProxyEnv,
) -> Loaded {
    let mut loaded = Loaded::default();
    let files = Files::read(paths, &mut loaded.rejected);
    let wanted = files.wanted(contexts, &mut loaded.rejected);
    let names = name::unique(wanted.iter().map(|context| context.name.as_str()), held);
    for (context, name) in wanted.into_iter().zip(names) {
        let file = files.file_of(&context.name);
        match files.cluster(context, proxy_env) {
            Ok((endpoint, credential)) => {
                let (credential, credential_withheld) =
                    without_on_plain_http(&endpoint, credential);
                loaded.clusters.push(ClusterConfig {
                    name,
                    context: context.name.clone(),
                    source: ClusterSource {
                        kind: SourceKind::Kubeconfig,
                        name: file.display().to_string(),
                    },
                    labels: BTreeMap::new(),
                    connect: connect.unwrap_or_else(|| ConnectPolicy::usual(&credential)),
                    endpoint,
                    credential,
                    timing: timing.clone(),
                    credential_withheld,
                    rejected: None,
                });
            }
            Err(problems) => {
                let rejected = problems.into_iter().map(|problem| Rejected {
                    reason: format!("{}: context {:?}: {problem}", file.display(), context.name),
                    context: Some(context.name.clone()),
                });
                loaded.rejected.extend(rejected);
            }
        }
    }
    loaded
}

/// The merged files.
struct Files {
    merged: Kubeconfig,
    /// The first file that names a context.
    file_of: HashMap<String, PathBuf>,
    paths: Vec<PathBuf>,
}

impl Files {
    fn read(paths: &[PathBuf], rejected: &mut Vec<Rejected>) -> Self {
        let mut files = Self {
            merged: Kubeconfig::default(),
            file_of: HashMap::new(),
            paths: paths.to_vec(),
        };
        for path in paths {
            let read = Kubeconfig::read_from(path).and_then(|next| {
                let names: Vec<_> = next.contexts.iter().map(|c| c.name.clone()).collect();
                // A merge that fails leaves what was merged before.
                Ok((files.merged.clone().merge(next)?, names))
            });
            match read {
                Ok((merged, names)) => {
                    files.merged = merged;
                    for name in names {
                        files.file_of.entry(name).or_insert_with(|| path.clone());
                    }
                }
                Err(error) => rejected.push(Rejected {
                    context: None,
                    reason: format!("{}: {}", path.display(), words(&error)),
                }),
            }
        }
        files
    }

    fn file_of(&self, context: &str) -> &Path {
        self.file_of
            .get(context)
            .map_or_else(|| Path::new(""), PathBuf::as_path)
    }

    /// The contexts to use, each once.
    fn wanted(&self, contexts: &[String], rejected: &mut Vec<Rejected>) -> Vec<&NamedContext> {
        let mut seen = BTreeSet::new();
        if contexts.is_empty() {
            let all = self.merged.contexts.iter();
            return all.filter(|context| seen.insert(&context.name)).collect();
        }
        let mut wanted = Vec::new();
        for name in contexts {
            match self
                .merged
                .contexts
                .iter()
                .find(|context| context.name == *name)
            {
                Some(context) if seen.insert(&context.name) => wanted.push(context),
                Some(_) => {}
                None => {
                    let paths: Vec<_> =
                        self.paths.iter().map(|p| p.display().to_string()).collect();
                    let known: Vec<_> = self.merged.contexts.iter().map(|c| &c.name).collect();
                    rejected.push(Rejected {
                        context: Some(name.clone()),
                        reason: format!(
                            "context {name:?} is not in {}; name one of {known:?}",
                            paths.join(", ")
                        ),
                    });
                }
            }
        }
        wanted
    }

    /// Where a context's cluster is, and as whom.
    fn cluster(
        &self,
        context: &NamedContext,
        proxy_env: &ProxyEnv,
    ) -> Result<(EndpointConfig, CredentialConfig), Vec<String>> {
        let Some(context) = &context.context else {
            return Err(vec!["it is empty; give it a cluster and a user".to_owned()]);
        };
        let mut problems = Vec::new();
        let cluster = self.named_cluster(context, &mut problems);
        let user = self.named_user(context, &mut problems);
        let endpoint = cluster.map(|cluster| endpoint::endpoint(cluster, proxy_env, &mut problems));
        let credential = user.map(|user| {
            let user_name = context.user.as_deref().unwrap_or_default();
            user::credential(user_name, user, cluster, &mut problems)
        });
        match (endpoint.flatten(), credential.flatten()) {
            (Some(endpoint), credential) if problems.is_empty() => {
                let credential = credential.unwrap_or(CredentialConfig::Anonymous);
                match check(&endpoint, &credential) {
                    Ok(()) => Ok((endpoint, credential)),
                    Err(problem) => Err(vec![problem]),
                }
            }
            _ => Err(problems),
        }
    }

    fn named_cluster(&self, context: &Context, problems: &mut Vec<String>) -> Option<&Cluster> {
        let name = &context.cluster;
        let found = self
            .merged
            .clusters
            .iter()
            .find(|cluster| cluster.name == *name);
        let found = found.and_then(|named| named.cluster.as_ref());
        if found.is_none() {
            problems.push(format!(
                "cluster {name:?} is not defined; add it under clusters"
            ));
        }
        found
    }

    fn named_user(
        &self,
        context: &Context,
        problems: &mut Vec<String>,
    ) -> Option<&kube::config::AuthInfo> {
        let name = context.user.as_deref().filter(|name| !name.is_empty())?;
        let found = self
            .merged
            .auth_infos
            .iter()
            .find(|user| user.name == *name);
        if found.is_none() {
            problems.push(format!("user {name:?} is not defined; add it under users"));
        }
        found.and_then(|named| named.auth_info.as_ref())
    }
}

/// What connecting would find out: better told at the start.
fn check(endpoint: &EndpointConfig, credential: &CredentialConfig) -> Result<(), String> {
    let certificate = match credential {
        CredentialConfig::ClientCertificate { certificate, key } => {
            Some(ClientCertificate::new(certificate.clone(), key.clone()))
        }
        CredentialConfig::Both { certificate, .. } => {
            return check(endpoint, certificate);
        }
        CredentialConfig::Anonymous
        | CredentialConfig::Missing(_)
        | CredentialConfig::ClientCertificateFiles { .. }
        | CredentialConfig::Token(_)
        | CredentialConfig::TokenFile(_)
        | CredentialConfig::Basic { .. }
        | CredentialConfig::Exec(_) => None,
    };
    tls::of_endpoint(endpoint)
        .and_then(|tls| tls::client_config(&tls, certificate.as_ref(), tls::ALPN_LIVE))
        .map(drop)
        .map_err(|error| error.to_string())
}

/// As client-go: over plain http no credential is sent. Whether there is one that is not.
fn without_on_plain_http(
    endpoint: &EndpointConfig,
    credential: CredentialConfig,
) -> (CredentialConfig, bool) {
    if endpoint.is_tls() || matches!(credential, CredentialConfig::Anonymous) {
        return (credential, false);
    }
    (CredentialConfig::Anonymous, true)
}

/// Why a file cannot be used. The YAML parser's own message quotes the text around the mistake, which may be a secret:
/// only the place is told.
fn words(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => {
            format!("it cannot be read: {error}; check the path and its permissions")
        }
        KubeconfigError::Parse(error) => match error.location() {
            Some(place) => format!(
                "it is not a kubeconfig: line {}, column {} cannot be read; check it with kubectl config view",
                place.line(),
                place.column()
            ),
            None => "it is not a kubeconfig; check it with kubectl config view".to_owned(),
        },
        KubeconfigError::KindMismatch | KubeconfigError::ApiVersionMismatch => {
            "its kind or apiVersion differs from the files before it; kubeconfigs have kind Config and apiVersion v1"
                .to_owned()
        }
        other => other.to_string(),
    }
}
