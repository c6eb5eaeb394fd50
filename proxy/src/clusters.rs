//! From the configured sources to clusters: their names, their timings, and that none of them is this proxy.

mod contexts;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use fleetcache_cache::cluster_config::ClusterConfig;
use fleetcache_cache::kubeconfig::{self, Loaded};

use self::contexts::Contexts;
use crate::config::{Config, KubeconfigOrigin, KubeconfigSource, ListenAddress};

/// How to recognise this proxy among clusters.
#[derive(Debug)]
pub struct Itself<'a> {
    /// The address it listens on, with the port it got.
    pub listen: &'a ListenAddress,
    /// Its CA's certificate, PEM.
    pub ca_pem: &'a str,
}

/// Why the clusters that were asked for cannot be served: a mistake in what was given.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClustersError {
    /// A context leads back to this proxy, which would then serve itself.
    #[error("context {context:?} of {} is this proxy itself (its server is {server}){advice}", path.display())]
    ServesItself {
        /// The context.
        context: String,
        /// The file that it is of.
        path: PathBuf,
        /// Its server.
        server: String,
        /// What to do, after what stands between it and the sentence.
        advice: &'static str,
    },
    /// A flag names a context that no file has.
    #[error("{flag}: no context {context:?}{known}{}", listed(unread))]
    UnknownContext {
        /// The flag, and its variable where that named it.
        flag: String,
        /// The context.
        context: String,
        /// Which there are, where they are few; begins with a semicolon.
        known: String,
        /// Files that could not be read.
        unread: Vec<String>,
    },
    /// There is nothing to serve.
    #[error(
        "no cluster to serve; name a kubeconfig with --kubeconfig, in $KUBECONFIG or at ~/.kube/config{}",
        listed(rejected)
    )]
    Nothing {
        /// Files and contexts that cannot be served, and why.
        rejected: Vec<String>,
    },
}

/// Contexts up to which a message lists them.
const FEW: usize = 20;

/// Loads all clusters, each with the timings that hold for its name.
///
/// # Errors
/// What was asked for cannot be served: one of the clusters is this proxy, there is none, or one that a flag names is
/// not there.
pub fn load(config: &Config, itself: &Itself<'_>) -> Result<Loaded, ClustersError> {
    let mut all = Loaded::default();
    let mut taken = HashSet::new();
    let found: Vec<_> = config
        .kubeconfigs
        .iter()
        .map(|it| Contexts::read(&it.paths))
        .collect();
    check_flag(config, &found)?;
    for (source, found) in config.kubeconfigs.iter().zip(found) {
        all.rejected.extend(found.unread());
        if found.is_empty() {
            all.rejected.extend(found.without_contexts());
            continue;
        }
        let mut wanted = source.contexts.clone();
        if config.contexts.is_some() && found.is_complete() {
            // A flag names contexts of all sources together.
            wanted.retain(|name| found.file_of(name).is_some());
            if wanted.is_empty() {
                continue;
            }
        }
        // The timings follow from names that only the load finds.
        let timing = config.timing("");
        let loaded = kubeconfig::load(found.files(), &wanted, &timing, source.connect);
        all.rejected.extend(loaded.rejected);
        for mut cluster in loaded.clusters {
            if itself.is(&cluster) {
                return Err(serves_itself(cluster, source, &found));
            }
            if !taken.insert(cluster.name.clone()) {
                all.rejected.push(format!(
                    "context {:?} of {}: another source has a cluster {:?} already; rename the context",
                    cluster.context,
                    found.file_of(&cluster.context).unwrap_or_else(|| Path::new("")).display(),
                    cluster.name,
                ));
                continue;
            }
            cluster.timing = config.timing(&cluster.name);
            all.clusters.push(cluster);
        }
    }
    if all.clusters.is_empty() {
        let rejected = all.rejected;
        return Err(ClustersError::Nothing { rejected });
    }
    Ok(all)
}

/// Each context that a flag names is in some file. Where no file has any, or one is damaged, that tells more.
fn check_flag(config: &Config, found: &[Contexts]) -> Result<(), ClustersError> {
    let Some(asked) = &config.contexts else {
        return Ok(());
    };
    if found.iter().all(Contexts::is_empty) || !found.iter().all(Contexts::is_complete) {
        return Ok(());
    }
    let is_known = |name: &&String| found.iter().any(|it| it.file_of(name).is_some());
    let Some(unknown) = asked.names.iter().find(|name| !is_known(name)) else {
        return Ok(());
    };
    let known: Vec<_> = found.iter().flat_map(Contexts::names).collect();
    Err(ClustersError::UnknownContext {
        flag: asked.flag.clone(),
        context: unknown.clone(),
        known: if known.len() <= FEW {
            format!("; there are: {}", known.join(", "))
        } else {
            format!("; there are {} others", known.len())
        },
        unread: found.iter().flat_map(Contexts::unread).collect(),
    })
}

fn serves_itself(
    cluster: ClusterConfig,
    source: &KubeconfigSource,
    found: &Contexts,
) -> ClustersError {
    let path = found
        .file_of(&cluster.context)
        .unwrap_or_else(|| Path::new(""));
    ClustersError::ServesItself {
        path: path.to_owned(),
        context: cluster.context,
        server: cluster.endpoint.server.to_string(),
        advice: match source.origin {
            KubeconfigOrigin::Variable => {
                ". $KUBECONFIG names the kubeconfig that fleetcache wrote for its clients; unset it or name yours with \
                 --kubeconfig"
            }
            KubeconfigOrigin::Flag | KubeconfigOrigin::File | KubeconfigOrigin::Home => {
                "; leave it out by naming the others with --context, or give another kubeconfig"
            }
        },
    }
}

/// Reasons in parentheses; nothing where there are none.
fn listed(rejected: &[String]) -> String {
    if rejected.is_empty() {
        return String::new();
    }
    format!(" (not served: {})", rejected.join("; "))
}

impl Itself<'_> {
    /// Whether a cluster is this proxy: a server below `/clusters/` at the proxy's own address, or trusted by the proxy's
    /// own CA, whatever the address was when its kubeconfig was written.
    fn is(&self, cluster: &ClusterConfig) -> bool {
        let endpoint = &cluster.endpoint;
        if !endpoint.server.path().starts_with("/clusters/") {
            return false;
        }
        let port = endpoint.server.port_u16().unwrap_or(443);
        let host = endpoint.server.host().unwrap_or_default();
        let ca = endpoint
            .certificate_authority
            .as_deref()
            .unwrap_or_default();
        self.listen.is_reached_by(host, port) || ca.trim_ascii() == self.ca_pem.trim().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use fleetcache_cache::cluster_config::{ConnectPolicy, ConnectionTiming, EndpointConfig};
    use fleetcache_cache::credential::CredentialConfig;

    use super::*;

    #[test]
    fn the_proxy_recognises_itself() {
        let listen: ListenAddress = "0.0.0.0:8443".parse().unwrap();
        let itself = Itself {
            listen: &listen,
            ca_pem: "MINE\n",
        };
        let check = |server: &str, ca: &str, expect: bool| {
            let cluster = ClusterConfig {
                name: "a".to_owned(),
                context: "a".to_owned(),
                endpoint: EndpointConfig {
                    server: server.parse().unwrap(),
                    certificate_authority: Some(ca.as_bytes().to_owned()),
                    insecure_skip_tls_verify: false,
                    tls_server_name: None,
                    proxy_url: None,
                },
                credential: CredentialConfig::Anonymous,
                timing: ConnectionTiming::default(),
                connect: ConnectPolicy::Always,
            };
            assert_eq!(itself.is(&cluster), expect, "{server} {ca}");
        };
        check("https://127.0.0.1:8443/clusters/a", "OTHER", true);
        check("https://localhost:8443/clusters/a", "OTHER", true);
        check("https://127.0.0.1:8443", "OTHER", false);
        check("https://127.0.0.1:9443/clusters/a", "OTHER", false);
        check("https://127.0.0.1:9443/clusters/a", "MINE", true);
        check("https://proxy.example/clusters/a", "OTHER", false);
    }
}
