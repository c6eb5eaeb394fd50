//! An owner against real sockets.

use crate::cluster_config::{ClusterConfig, ConnectPolicy, ConnectionTiming, EndpointConfig};
use crate::credential::CredentialConfig;

/// A cluster at `server`, anonymous.
pub(crate) fn config(server: &str) -> ClusterConfig {
    ClusterConfig {
        name: "c".to_owned(),
        context: "c".to_owned(),
        endpoint: EndpointConfig {
            server: server.parse().unwrap(),
            certificate_authority: None,
            insecure_skip_tls_verify: false,
            tls_server_name: None,
            proxy_url: None,
        },
        credential: CredentialConfig::Anonymous,
        timing: ConnectionTiming::default(),
        connect: ConnectPolicy::Always,
    }
}
