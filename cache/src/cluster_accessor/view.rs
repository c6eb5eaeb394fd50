//! What the owner publishes of a cluster.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::Instant;

use super::{
    Changes, ClusterStatus, ConnectionState, Connects, NotConnected, NotConnectedReason,
    ProbeFailure,
};
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
    /// For whoever runs the cluster or the proxy: what may help.
    pub(super) hint: &'static str,
}

impl Trouble {
    pub(super) fn new(reason: NotConnectedReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            hint: reason.hint(),
        }
    }

    pub(super) fn starting() -> Self {
        Self::new(
            NotConnectedReason::ClusterStarting,
            "it is being connected for the first time",
        )
    }

    /// Nobody has asked for a cluster that connects on demand.
    pub(super) fn on_demand(name: &str) -> Self {
        Self::new(
            NotConnectedReason::OnDemand,
            format!("it connects at the first request, or by: fleetcache refresh {name}"),
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
    /// Why the connection that serves could not be replaced, where it is to be.
    pub(super) not_replaced: Option<Trouble>,
    /// How long a request may wait.
    pub(super) grace: Duration,
    /// Until when, at most: who comes late to a first connect on demand waits for what is left of it.
    pub(super) grace_ends: Option<Instant>,
    /// Connects that have ended, well or not.
    pub(super) outcomes: u64,
    /// Why the last probe failed, where it did.
    pub(super) probe_failure: Option<Trouble>,
    pub(super) probe_forbidden: bool,
    pub(super) probes_ok: u64,
    pub(super) probes_failed: u64,
    pub(super) consecutive_failures: u32,
    pub(super) last_probe: Option<SystemTime>,
    pub(super) last_probe_success: Option<SystemTime>,
    pub(super) added: SystemTime,
    pub(super) last_transition: SystemTime,
    pub(super) connects: Connects,
    pub(super) disconnects: u64,
    pub(super) generation: u64,
}

/// What of a view is news to whoever follows the cluster: all else changes with every probe.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct News {
    state: ConnectionState,
    trouble: Option<Trouble>,
    not_replaced: Option<Trouble>,
    probe_failure: Option<Trouble>,
    probe_forbidden: bool,
    consecutive_failures: u32,
    generation: u64,
}

impl View {
    /// Not tried yet.
    pub(super) fn pending(config: &ClusterConfig) -> Self {
        let now = SystemTime::now();
        Self {
            state: ConnectionState::Pending,
            epoch: 1,
            lost_at: None,
            trouble: Some(match config.connect {
                ConnectPolicy::Always => Trouble::starting(),
                ConnectPolicy::OnDemand => Trouble::on_demand(&config.name),
            }),
            next_attempt: None,
            not_replaced: None,
            grace: first_grace(config),
            grace_ends: None,
            outcomes: 0,
            probe_failure: None,
            probe_forbidden: false,
            probes_ok: 0,
            probes_failed: 0,
            consecutive_failures: 0,
            last_probe: None,
            last_probe_success: None,
            added: now,
            last_transition: now,
            connects: Connects::default(),
            disconnects: 0,
            generation: 0,
        }
    }

    /// How long a request that comes now may wait.
    pub(super) fn wait(&self) -> Duration {
        let left = |ends: Instant| ends.saturating_duration_since(Instant::now());
        self.grace_ends
            .map_or(self.grace, |ends| self.grace.min(left(ends)))
    }

    /// What is news of it.
    pub(super) fn news(&self) -> News {
        News {
            state: self.state,
            trouble: self.trouble.clone(),
            not_replaced: self.not_replaced.clone(),
            probe_failure: self.probe_failure.clone(),
            probe_forbidden: self.probe_forbidden,
            consecutive_failures: self.consecutive_failures,
            generation: self.generation,
        }
    }

    /// A probe was answered; a connect that went well counts as one.
    pub(super) fn probe_succeeded(&mut self, forbidden: bool) {
        let now = SystemTime::now();
        self.last_probe = Some(now);
        self.last_probe_success = Some(now);
        self.probe_failure = None;
        self.probe_forbidden = forbidden;
        self.probes_ok += 1;
        self.consecutive_failures = 0;
    }

    /// A probe failed; a connect that failed counts as one.
    pub(super) fn probe_failed(&mut self, why: Trouble) {
        self.last_probe = Some(SystemTime::now());
        self.probe_failure = Some(why);
        self.probe_forbidden = false;
        self.probes_failed += 1;
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
    }

    /// Why there is no connection.
    pub(super) fn not_connected(&self) -> NotConnected {
        // Between the publishing of a connection's end and of its reason nobody gets here: the reason comes first.
        let trouble = self.trouble.clone().unwrap_or_else(|| {
            Trouble::new(
                NotConnectedReason::ConnectionBroken,
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
        let troubles = [&self.trouble, &self.not_replaced, &self.probe_failure];
        let trouble = troubles.into_iter().flatten().next();
        ClusterStatus {
            state: self.state,
            not_connected: (!connected).then(|| self.not_connected()),
            hint: trouble.map(|trouble| trouble.hint),
            last_probe_ok: self.last_probe.is_some() && self.probe_failure.is_none(),
            probe_failure: self.probe_failure.as_ref().map(|why| ProbeFailure {
                reason: why.reason,
                message: why.message.clone(),
            }),
            not_replaced: self.not_replaced.as_ref().map(|why| ProbeFailure {
                reason: why.reason,
                message: format!(
                    "another connection cannot be made, and the one from before is kept: {}",
                    why.message
                ),
            }),
            probe_forbidden: self.probe_forbidden,
            probes_ok: self.probes_ok,
            probes_failed: self.probes_failed,
            consecutive_failures: self.consecutive_failures,
            last_probe: self.last_probe,
            last_probe_success: self.last_probe_success,
            added: self.added,
            last_transition: self.last_transition,
            next_attempt: self
                .next_attempt
                .map(|at| SystemTime::now() + at.saturating_duration_since(Instant::now())),
            connects: self.connects,
            disconnects: self.disconnects,
            generation: self.generation,
            epoch: self.epoch,
        }
    }
}

/// A cluster's view, in the hands of those who change it.
pub(super) struct SharedView {
    name: String,
    view: watch::Sender<View>,
    changes: Arc<Changes>,
}

impl SharedView {
    pub(super) fn new(name: &str, view: watch::Sender<View>, changes: &Arc<Changes>) -> Self {
        Self {
            name: name.to_owned(),
            view,
            changes: Arc::clone(changes),
        }
    }

    /// Changes it, and tells who follows the cluster where that is news.
    pub(super) fn change(&self, change: impl FnOnce(&mut View)) {
        let mut is_news = false;
        self.view.send_modify(|view| {
            let before = view.news();
            change(view);
            is_news = view.news() != before;
        });
        if is_news {
            self.changes.note(&self.name);
        }
    }

    /// What the first connect does now; a later one goes on to tell why the one before failed.
    pub(super) fn tell_step(&self, step: Trouble) {
        self.change(|view| {
            let trouble = view.trouble.as_ref();
            if trouble.is_some_and(|trouble| trouble.reason == step.reason) {
                view.trouble = Some(step);
            }
        });
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
