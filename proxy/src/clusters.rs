//! From the configured sources to clusters: their names, their timings, and that none of them is this proxy.

use std::collections::HashSet;

use fleetcache_cache::cluster_config::ClusterConfig;
use fleetcache_cache::kubeconfig::{self, Loaded};

use crate::config::{Config, ListenAddress};

/// How to recognise this proxy among clusters.
#[derive(Debug)]
pub struct Itself<'a> {
    /// The address it listens on, with the port it got.
    pub listen: &'a ListenAddress,
    /// Its CA's certificate, PEM.
    pub ca_pem: &'a str,
}

/// A context leads back to this proxy, which would then serve itself.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "context {context:?} is this proxy itself (its server is {server}); leave it out by naming the others with --context, \
     or give another kubeconfig"
)]
pub struct ServesItself {
    /// The context.
    pub context: String,
    /// Its server.
    pub server: String,
}

/// Loads all clusters, each with the timings that hold for its name.
///
/// # Errors
/// One of them is this proxy.
pub fn load(config: &Config, itself: &Itself<'_>) -> Result<Loaded, ServesItself> {
    let mut all = Loaded::default();
    let mut taken = HashSet::new();
    for source in &config.kubeconfigs {
        // The timings follow from names that only the load finds.
        let timing = config.timing("");
        let loaded = kubeconfig::load(&source.paths, &source.contexts, &timing, source.connect);
        all.rejected.extend(loaded.rejected);
        for mut cluster in loaded.clusters {
            if itself.is(&cluster) {
                return Err(ServesItself {
                    context: cluster.context,
                    server: cluster.endpoint.server.to_string(),
                });
            }
            if !taken.insert(cluster.name.clone()) {
                all.rejected.push(format!(
                    "context {:?} of {}: another source has a cluster {:?} already; rename the context",
                    cluster.context,
                    source.paths.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(":"),
                    cluster.name,
                ));
                continue;
            }
            cluster.timing = config.timing(&cluster.name);
            all.clusters.push(cluster);
        }
    }
    Ok(all)
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
