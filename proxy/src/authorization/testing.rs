//! Clusters that are not there, for tests of what is known of them.

use std::collections::BTreeMap;

use fleetcache_cache::cluster_config::{
    ClusterConfig, ClusterSource, ConnectPolicy, ConnectionTiming, EndpointConfig, SourceKind,
};
use fleetcache_cache::credential::CredentialConfig;

/// A cluster that nobody asks for, so it is not dialled.
pub(crate) fn idle(name: &str) -> ClusterConfig {
    ClusterConfig {
        name: name.to_owned(),
        context: name.to_owned(),
        source: ClusterSource {
            kind: SourceKind::Kubeconfig,
            name: "kubeconfig".to_owned(),
        },
        labels: BTreeMap::new(),
        endpoint: EndpointConfig {
            server: "https://127.0.0.1:1".parse().unwrap(),
            certificate_authority: None,
            insecure_skip_tls_verify: false,
            tls_server_name: None,
            proxy_url: None,
            refuse_link_local: false,
        },
        credential: CredentialConfig::Anonymous,
        timing: ConnectionTiming::default(),
        connect: ConnectPolicy::OnDemand,
        credential_withheld: false,
        rejected: None,
    }
}
