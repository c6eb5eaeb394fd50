//! What the owner publishes of a cluster.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::{ClusterStatus, ConnectionState, NotConnected, NotConnectedReason};
use crate::cluster_config::{ClusterConfig, ConnectPolicy};
use crate::credential::CredentialSource;

/// How long a request may wait for the outcome of a connect in flight, after no failure.
const GRACE: Duration = Duration::from_millis(40);

/// Why a cluster is not connected, without the time of the next try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) reason: NotConnectedReason,
    /// For clients: no address, no credential.
    pub(super) message: String,
}

impl Trouble {
    pub(super) fn new(reason: NotConnectedReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    pub(super) fn starting() -> Self {
        Self::new(
            NotConnectedReason::ClusterStarting,
            "it is being connected for the first time",
        )
    }

    /// The first connect stands at its first step, which may take longest.
    pub(super) fn waiting_for_plugin(name: &str) -> Self {
        Self::new(
            NotConnectedReason::ClusterStarting,
            format!("waiting for the credential plugin {name:?}"),
        )
    }
}

/// A snapshot of a cluster's state for requests, status and metrics.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) state: ConnectionState,
    /// The epoch that the last connection was about, or the next one will be: what is known of an older one is over.
    pub(super) epoch: u64,
    /// When the last connection ended.
    pub(super) lost_at: Option<SystemTime>,
    /// Why it is not connected; also while the next connect is in flight.
    pub(super) trouble: Option<Trouble>,
    pub(super) next_attempt: Option<Instant>,
    /// How long a request may wait.
    pub(super) grace: Duration,
    /// Until when, at most: who comes late to a first connect on demand waits for what is left of it.
    pub(super) grace_ends: Option<Instant>,
    /// Connects that have ended, well or not.
    pub(super) outcomes: u64,
    pub(super) last_probe_ok: bool,
    pub(super) probes_ok: u64,
    pub(super) probes_failed: u64,
    pub(super) consecutive_failures: u32,
}

impl View {
    /// Not tried yet.
    pub(super) fn pending(config: &ClusterConfig) -> Self {
        Self {
            state: ConnectionState::Pending,
            epoch: 1,
            lost_at: None,
            trouble: Some(Trouble::starting()),
            next_attempt: None,
            grace: first_grace(config),
            grace_ends: None,
            outcomes: 0,
            last_probe_ok: false,
            probes_ok: 0,
            probes_failed: 0,
            consecutive_failures: 0,
        }
    }

    /// How long a request that comes now may wait.
    pub(super) fn wait(&self) -> Duration {
        let left = |ends: Instant| ends.saturating_duration_since(Instant::now());
        self.grace_ends
            .map_or(self.grace, |ends| self.grace.min(left(ends)))
    }

    /// Counts a probe; a connect counts as one.
    pub(super) fn count_probe(&mut self, ok: bool) {
        self.last_probe_ok = ok;
        if ok {
            self.probes_ok += 1;
            self.consecutive_failures = 0;
        } else {
            self.probes_failed += 1;
            self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        }
    }

    /// Why there is no connection.
    pub(super) fn not_connected(&self) -> NotConnected {
        // Between the publishing of a connection's end and of its reason nobody gets here: the reason comes first.
        let trouble = self.trouble.clone().unwrap_or_else(|| {
            Trouble::new(
                NotConnectedReason::ClusterNotConnected,
                "the connection was lost",
            )
        });
        let now = Instant::now();
        NotConnected {
            reason: trouble.reason,
            message: trouble.message,
            next_attempt: self
                .next_attempt
                .map(|at| at.saturating_duration_since(now)),
        }
    }

    pub(super) fn status(&self) -> ClusterStatus {
        let connected = matches!(
            self.state,
            ConnectionState::Connected | ConnectionState::Degraded
        );
        ClusterStatus {
            state: self.state,
            not_connected: (!connected).then(|| self.not_connected()),
            last_probe_ok: self.last_probe_ok,
            probes_ok: self.probes_ok,
            probes_failed: self.probes_failed,
            consecutive_failures: self.consecutive_failures,
        }
    }
}

/// The wait before the first connect has ended.
fn first_grace(config: &ClusterConfig) -> Duration {
    match config.connect {
        ConnectPolicy::Always => GRACE,
        ConnectPolicy::OnDemand => {
            let plugin = CredentialSource::usual_time(&config.credential);
            config.timing.connect_timeout + plugin
        }
    }
}

/// The wait for a connect after so many failures in a row: a cluster that is down costs its callers nothing soon.
pub(super) fn grace(config: &ClusterConfig, connected_before: bool, failures: u32) -> Duration {
    if failures == 0 && !connected_before {
        return first_grace(config);
    }
    match GRACE.as_millis().checked_shr(failures) {
        Some(millis) => Duration::from_millis(u64::try_from(millis).unwrap_or(0)),
        None => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_accessor::tests::config;

    #[test]
    fn grace_halves_with_each_failure_to_zero() {
        let config = config("https://127.0.0.1:1");
        let millis: Vec<_> = (0..8)
            .map(|failures| grace(&config, true, failures).as_millis())
            .collect();
        assert_eq!(millis, [40, 20, 10, 5, 2, 1, 0, 0]);
        assert_eq!(grace(&config, true, u32::MAX), Duration::ZERO);
    }

    #[test]
    fn on_demand_waits_for_the_whole_first_connect() {
        let mut config = config("https://127.0.0.1:1");
        config.connect = ConnectPolicy::OnDemand;
        assert_eq!(grace(&config, false, 0), config.timing.connect_timeout);
        assert_eq!(grace(&config, false, 1), Duration::from_millis(20));
        assert_eq!(grace(&config, true, 0), GRACE);
    }
}
