//! What a changed configuration does to an owner at work.

use std::sync::Arc;

use tracing::info;

use super::keep::Kept;
use super::owner::{Owner, State};
use super::view::Trouble;
use crate::backoff::Backoff;
use crate::cluster_config::ClusterConfig;
use crate::credential::{CredentialConfig, CredentialSource};
use crate::upstream::endpoint::Endpoint;

impl Owner {
    /// Takes over a changed configuration and tells how to go on.
    pub(super) fn updated(&mut self, config: &Arc<ClusterConfig>, state: State) -> State {
        let before = std::mem::replace(&mut self.config, Arc::clone(config));
        let now = config;
        let same_connection = before.endpoint == now.endpoint
            && before.credential == now.credential
            && before.timing == now.timing
            && before.connect == now.connect;
        if same_connection {
            return state;
        }
        info!(cluster = now.name, "configuration of the cluster changed");
        let other_credential = before.credential != now.credential;
        if other_credential {
            self.credentials = Arc::new(CredentialSource::new(now.credential.clone()));
        }
        if before.endpoint != now.endpoint {
            self.endpoint = Endpoint::new(now.endpoint.clone());
        }
        // Told anew: what was in the way may be another thing now, or the same one still.
        self.logged.clear();
        self.failures = 0;
        self.backoff = Backoff::new(now.timing.backoff_min, now.timing.backoff_max);
        let connect_timeout = now.timing.connect_timeout;
        let same_attempt = before.endpoint == now.endpoint
            && !other_credential
            && before.timing.connect_timeout == connect_timeout
            && before.timing.probe_path == now.timing.probe_path;
        let taken_away = matches!(now.credential, CredentialConfig::Missing(_));
        let stays = |kept: &Kept| kept.connection.dials(&now.endpoint, connect_timeout);
        match state {
            // A credential that was taken away must not be used on: the next connect fails for want of one.
            State::Connected(_) | State::Connecting(..) if taken_away => self.connect(None),
            State::Connected(mut kept) if same_attempt => {
                kept.reconfigure(&now.timing);
                State::Connected(kept)
            }
            State::Connecting(attempt, mut kept) if same_attempt => {
                if let Some(kept) = &mut kept {
                    kept.reconfigure(&now.timing);
                }
                State::Connecting(attempt, kept)
            }
            // It is the right one, or is so again.
            State::Connected(mut kept) | State::Connecting(_, Some(mut kept))
                if !self.refreshing && stays(&kept) =>
            {
                kept.stays(&now.timing, other_credential);
                self.view.change(|view| {
                    view.next_attempt = None;
                    view.not_replaced = None;
                });
                State::Connected(kept)
            }
            // The old connection serves until there is another.
            State::Connected(kept) => self.connect(Some(kept)),
            // What a refresh began is a refresh still.
            State::Connecting(attempt, kept) => self.begin(kept, attempt.asked_for),
            State::Pending | State::Disconnected(_) => {
                if self.is_idle() {
                    self.publish_idle();
                    // What was in the way may be no more.
                    let trouble = Trouble::on_demand(&now.name);
                    self.view.change(|view| view.trouble = Some(trouble));
                    return State::Pending;
                }
                self.connect(None)
            }
        }
    }
}
