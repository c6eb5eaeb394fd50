//! What an owner tells everybody: the connection, the view of it, one log line per transition.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::ConnectionState;
use super::attempt::{Connected, Failure};
use super::health::{Health, Probe};
use super::keep::Kept;
use super::owner::Owner;
use super::progress::Progress;
use super::view::{Trouble, grace};
use crate::cluster_config::ConnectPolicy;
use crate::connection::Connection;
use crate::credential::CredentialError;
use crate::error_chain::error_chain;

/// Different troubles of one cluster that are logged while it is down: a thousand clusters must not flood the log.
const MOST_LOGGED: usize = 8;

impl Owner {
    /// A connect is in flight.
    pub(super) fn publish_connecting(&self, started: Instant) -> Progress {
        let grace = grace(&self.config, self.connected_before, self.failures);
        let is_first = self.failures == 0 && !self.connected_before;
        // It is for those who wait, from its first step to its last, and they know how long.
        let is_asked_for = is_first && self.config.connect == ConnectPolicy::OnDemand;
        let grace_in_line = if is_asked_for { grace } else { Duration::ZERO };
        self.view.change(|view| {
            // Only the first one is a state of its own: of a cluster that stays away each try would be news.
            if view.state == ConnectionState::Pending {
                view.state = ConnectionState::Connecting;
                view.trouble = Some(Trouble::starting());
            }
            view.next_attempt = None;
            view.grace = grace_in_line;
            view.grace_ends = is_asked_for.then(|| started + grace);
        });
        if let Some(plugin) = self.config.credential.plugin_name() {
            self.view.tell_step(Trouble::waiting_for_plugin(&plugin));
        }
        debug!(cluster = self.config.name, "connecting");
        Progress::new(&self.view, grace, grace_in_line)
    }

    /// Whether nobody dials it before somebody asks.
    pub(super) fn is_idle(&self) -> bool {
        self.config.connect == ConnectPolicy::OnDemand && !self.connected_before
    }

    /// Nobody asks, so nobody dials; whoever asks next may wait for it as for any connect.
    pub(super) fn publish_idle(&self) {
        let grace = grace(&self.config, self.connected_before, self.failures);
        self.view.change(|view| {
            view.next_attempt = None;
            view.grace = grace;
            view.grace_ends = None;
        });
    }

    /// A connect went well.
    pub(super) fn connected(&mut self, connected: Connected, started: Instant) -> Box<Kept> {
        let Connected {
            mut connection,
            credential,
            forbidden,
            uid,
        } = connected;
        let is_other = match (&self.uid, &uid) {
            (Some(before), Some(now)) => before != now,
            // On another way it may be any cluster, whatever its versions are.
            _ => {
                let before = self.last_endpoint.as_ref();
                before.is_some_and(|before| !before.is_same_way(&self.endpoint))
            }
        };
        self.last_endpoint = Some(Arc::clone(&self.endpoint));
        if is_other {
            self.epoch += 1;
            self.documents.adopt(self.epoch);
            warn!(
                cluster = self.config.name,
                epoch = self.epoch,
                "another cluster than before"
            );
        }
        // A uid that could not be read this time is still the one to compare with.
        self.uid = uid.or_else(|| self.uid.take());
        connection.set_kube_system_uid(self.uid.clone());
        self.generation += 1;
        (connection.generation, connection.epoch) = (self.generation, self.epoch);
        self.credential = credential;
        self.failures = 0;
        self.refreshing = false;
        self.connected_before = true;
        self.backoff.reset();
        self.logged.clear();
        let served = self.connection.borrow().clone();
        if let Some(before) = served.filter(|_| !is_other) {
            connection.take_over(&before);
        }
        let connection = Arc::new(connection);
        let epoch = self.epoch;
        self.view.change(|view| view.epoch = epoch);
        let before = self.connection.send_replace(Some(Arc::clone(&connection)));
        let was_connected = before.is_some();
        if let Some(before) = before {
            // Nothing that was asked of another cluster is answered any more.
            if is_other {
                before.close();
            } else {
                before.retire(&connection);
            }
        }
        std::mem::replace(&mut self.replaced, connection.replaced().clone()).cancel();
        let elapsed = started.elapsed();
        self.changes.connect_times.note(elapsed);
        self.view.change(|view| {
            view.state = ConnectionState::Connected;
            view.trouble = None;
            view.next_attempt = None;
            view.not_replaced = None;
            view.generation = connection.generation;
            view.probe_succeeded(forbidden);
            view.connects.succeeded += 1;
            view.connects.last_duration = Some(elapsed);
            if !was_connected {
                view.last_transition = SystemTime::now();
            }
            view.outcomes += 1;
        });
        info!(
            cluster = self.config.name,
            generation = self.generation,
            epoch = self.epoch,
            elapsed = seconds(elapsed),
            "connected"
        );
        let timing = &self.config.timing;
        Box::new(Kept::new(connection, timing, self.credential.refresh_at))
    }

    /// Publishes what a probe told.
    pub(super) fn probed(&self, probe: &Probe, health: &Health, connection: &Connection) {
        let trouble = probe.trouble();
        if trouble.is_some() {
            debug!(
                cluster = self.config.name,
                reason = probe.describe(),
                "probe failed"
            );
        }
        let dial_anew = match probe {
            Probe::Reachable | Probe::Forbidden | Probe::Unauthorized => false,
            Probe::NotKubernetes | Probe::WantsTls | Probe::TimedOut | Probe::Failed(_) => true,
            Probe::ServerError(_) => health.is_degraded(),
        };
        if dial_anew {
            self.dial_anew(connection);
        }
        let state = if health.is_degraded() {
            ConnectionState::Degraded
        } else {
            ConnectionState::Connected
        };
        let mut before = state;
        self.view.change(|view| {
            before = std::mem::replace(&mut view.state, state);
            match trouble {
                None => view.probe_succeeded(matches!(probe, Probe::Forbidden)),
                Some(trouble) => view.probe_failed(trouble),
            }
        });
        if before != state {
            match state {
                ConnectionState::Degraded => info!(
                    cluster = self.config.name,
                    reason = probe.describe(),
                    "degraded"
                ),
                ConnectionState::Pending
                | ConnectionState::Connecting
                | ConnectionState::Connected
                | ConnectionState::Disconnected => {
                    info!(cluster = self.config.name, "recovered");
                }
            }
        }
    }

    /// The next probe, and every request, dials: the old connections may lead to an instance that is gone while the
    /// address is fine.
    pub(super) fn dial_anew(&self, connection: &Connection) {
        if let Err(error) = connection.redial(false) {
            warn!(cluster = self.config.name, error, "cannot dial anew");
        }
    }

    /// The reason first, then the end of the connection: whoever finds none finds its reason.
    pub(super) fn publish_disconnected(&self, trouble: Trouble, until: Option<Instant>) {
        let lost = self.connection.borrow().is_some();
        self.view.change(|view| {
            view.epoch = self.epoch;
            if lost {
                let now = SystemTime::now();
                view.lost_at = Some(now);
                view.last_transition = now;
                view.disconnects += 1;
            }
            view.state = ConnectionState::Disconnected;
            view.trouble = Some(trouble);
            view.next_attempt = until;
            view.not_replaced = None;
            view.grace = Duration::ZERO;
            view.grace_ends = None;
        });
        if let Some(connection) = self.connection.send_replace(None) {
            connection.close();
        }
    }

    /// A request was answered 401, but what needs the credential as well was not: an API behind the aggregator may have
    /// reasons of its own. Told once a connection.
    pub(super) fn log_accepted(&self, told: bool) {
        let cluster = &self.config.name;
        if told {
            debug!(cluster, "request unauthorized, credential accepted");
        } else {
            warn!(cluster, "request unauthorized, credential accepted");
        }
    }

    /// The same trouble again is not told again: a login that has ended may wait for a person for days.
    pub(super) fn log_not_renewed(&self, error: &CredentialError, retry_in: Duration) {
        let cluster = &self.config.name;
        let (detail, retry_in) = (error.detail(), seconds(retry_in));
        if self.credentials.failed_as_before() {
            debug!(cluster, why = %error, error = detail, retry_in, "credential still not renewed");
        } else {
            warn!(cluster, why = %error, error = detail, retry_in, "credential not renewed");
        }
    }

    pub(super) fn log_trouble(
        &mut self,
        failure: &Failure,
        elapsed: Option<Duration>,
        pause: Duration,
    ) {
        let trouble = &failure.trouble;
        let error = failure.error.as_ref().map(|error| error_chain(&**error));
        // A cluster that stays down for the same reason is told of once, also where two of them take turns, as of two servers
        // behind one address. One that always finds another reason is told of a few times.
        if self.logged.contains(trouble) || self.logged.len() == MOST_LOGGED {
            debug!(
                cluster = self.config.name,
                reason = trouble.reason.as_str(),
                failures = self.failures,
                retry_in = seconds(pause),
                "still disconnected"
            );
            return;
        }
        match elapsed {
            _ if failure.refused => warn!(
                cluster = self.config.name,
                reason = trouble.reason.as_str(),
                why = trouble.message,
                renew = self
                    .config
                    .credential
                    .origin(&self.config.context, &self.config.source),
                hint = trouble.hint,
                retry_in = seconds(pause),
                "credential refused"
            ),
            Some(elapsed) => warn!(
                cluster = self.config.name,
                reason = trouble.reason.as_str(),
                why = trouble.message,
                error,
                hint = trouble.hint,
                elapsed = seconds(elapsed),
                retry_in = seconds(pause),
                "connect failed"
            ),
            None => warn!(
                cluster = self.config.name,
                reason = trouble.reason.as_str(),
                why = trouble.message,
                error,
                hint = trouble.hint,
                retry_in = seconds(pause),
                "disconnected"
            ),
        }
        self.logged.push(trouble.clone());
    }
}

/// To the millisecond: more digits are noise to whoever reads them.
fn seconds(duration: Duration) -> String {
    format!("{:.3}s", duration.as_secs_f64())
}
