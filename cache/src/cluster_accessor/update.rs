//! What a changed configuration does to an owner at work.

use std::sync::Arc;

use tracing::info;

use super::owner::{Owner, State};
use crate::backoff::Backoff;
use crate::cluster_config::{ClusterConfig, ConnectPolicy};
use crate::credential::{CredentialConfig, CredentialSource};

impl Owner {
    /// Takes over a changed configuration and tells how to go on.
    pub(super) fn updated(&mut self, config: Arc<ClusterConfig>, state: State) -> State {
        let before = std::mem::replace(&mut self.config, config);
        let now = &self.config;
        let same_connection = before.endpoint == now.endpoint
            && before.credential == now.credential
            && before.timing == now.timing
            && before.connect == now.connect;
        if same_connection {
            return state;
        }
        info!(cluster = now.name, "configuration of the cluster changed");
        if before.credential != now.credential {
            self.credentials = Arc::new(CredentialSource::new(now.credential.clone()));
        }
        // Any of them may lead to another cluster.
        let way = |config: &ClusterConfig| {
            let endpoint = &config.endpoint;
            let (proxy, name) = (&endpoint.proxy_url, &endpoint.tls_server_name);
            (endpoint.server.clone(), proxy.clone(), name.clone())
        };
        if way(&before) != way(now) {
            self.moved = true;
        }
        // Told anew: what was in the way may be another thing now, or the same one still.
        self.logged.clear();
        self.failures = 0;
        self.backoff = Backoff::new(now.timing.backoff_min, now.timing.backoff_max);
        let same_dial = before.endpoint == now.endpoint
            && before.timing.connect_timeout == now.timing.connect_timeout;
        let other_credential = before.credential != now.credential;
        let taken_away = matches!(now.credential, CredentialConfig::Missing(_));
        match state {
            // A credential that was taken away must not be used on: the next connect fails for want of one.
            State::Connected(_) | State::Connecting(_) if taken_away => State::Connecting(None),
            State::Connected(mut kept) if same_dial => {
                kept.reconfigure(&now.timing, other_credential);
                State::Connected(kept)
            }
            // The old connection serves until there is another.
            State::Connected(kept) => State::Connecting(Some(kept)),
            State::Connecting(kept) => State::Connecting(kept),
            State::Pending | State::Disconnected(_) => {
                if now.connect == ConnectPolicy::OnDemand && !self.connected_before {
                    self.publish_idle();
                    return State::Pending;
                }
                State::Connecting(None)
            }
        }
    }
}
