//! The one task that connects, probes and disconnects a cluster.

use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, OptionFuture};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::NotConnectedReason;
use super::attempt::{self, Failure};
use super::health::{Health, Next, Probe};
use super::limit::ConnectLimit;
use super::view::{Trouble, View};
use crate::backoff::Backoff;
use crate::cluster_config::{ClusterConfig, ConnectPolicy};
use crate::connection::Connection;
use crate::credential::{Credential, CredentialError, CredentialSource};
use crate::documents::Documents;

/// Least time between two probes that requests ask for.
const MIN_PROBE_GAP: Duration = Duration::from_millis(250);

/// A credential that could not be renewed is good until the server says otherwise; the next try waits this long.
const RENEWAL_RETRY: Duration = Duration::from_secs(10);

/// Least time between two loads that requests ask for: an API behind an aggregator may answer 401 for reasons of its own.
const MIN_RELOAD_GAP: Duration = Duration::from_secs(10);

/// A new epoch sooner than this after the last connect is a sign of a loop: the reconnect then waits.
const STEADY: Duration = Duration::from_secs(10);

/// Where the owner stands.
///
/// ```text
///  Pending ──► Connecting ──► Connected ⇄ Degraded
///  (on demand:   ▲  │ ▲           │           │
///   first asked) │  │ └─ epoch ───┤───────────┤
///                │  ▼             ▼           ▼
///               Disconnected ◄────┴───────────┘
///   (backoff; a changed credential or, on demand, a request ends the wait)
///
///  any ──► Removed: the task ends
/// ```
/// A changed configuration cuts a step short; see `update.rs`.
///
/// Connected and Degraded are one state here, told apart by `Health`: both probe, both serve.
pub(super) enum State {
    /// Not tried yet.
    Pending,
    /// A connect is in flight.
    Connecting,
    /// A connection is published.
    Connected(Arc<Connection>),
    /// None; the next connect waits until then.
    Disconnected(Instant),
}

pub(super) struct Owner {
    pub(super) config: ClusterConfig,
    pub(super) connection: watch::Sender<Option<Arc<Connection>>>,
    pub(super) view: watch::Sender<View>,
    /// Emptied before anybody hears of another epoch.
    pub(super) documents: Arc<Documents>,
    demand: Arc<Notify>,
    limit: ConnectLimit,
    pub(super) credentials: Arc<CredentialSource>,
    /// The one that the connection speaks for, or the last one that failed.
    pub(super) credential: Credential,
    pub(super) backoff: Backoff,
    /// Connects that failed in a row.
    pub(super) failures: u32,
    pub(super) connected_before: bool,
    /// Of the last connection: fires when there is another.
    pub(super) replaced: CancellationToken,
    /// Of the last connection.
    pub(super) generation: u64,
    pub(super) epoch: u64,
    /// Of the cluster that this epoch is about, where known.
    pub(super) uid: Option<String>,
    /// The address has changed since the last connect.
    pub(super) moved: bool,
    /// The last trouble logged; the same one again is `debug`.
    pub(super) logged: Option<Trouble>,
}

impl Owner {
    pub(super) fn new(
        config: ClusterConfig,
        connection: watch::Sender<Option<Arc<Connection>>>,
        view: watch::Sender<View>,
        documents: Arc<Documents>,
        demand: Arc<Notify>,
        limit: ConnectLimit,
    ) -> Self {
        let timing = &config.timing;
        Self {
            credentials: Arc::new(CredentialSource::new(config.credential.clone())),
            credential: Credential::default(),
            backoff: Backoff::new(timing.backoff_min, timing.backoff_max),
            failures: 0,
            connected_before: false,
            replaced: CancellationToken::new(),
            generation: 0,
            epoch: 1,
            uid: None,
            moved: false,
            logged: None,
            config,
            connection,
            view,
            documents,
            demand,
            limit,
        }
    }

    pub(super) async fn run(
        mut self,
        mut updates: watch::Receiver<ClusterConfig>,
        removed: CancellationToken,
    ) {
        let live = Box::pin(self.live(&mut updates));
        removed.run_until_cancelled(live).await;
        let trouble = Trouble::new(
            NotConnectedReason::ClusterNotConnected,
            "the cluster was removed",
        );
        self.publish_disconnected(trouble, None);
        // Who waits for another connection waits in vain.
        self.replaced.cancel();
        debug!(cluster = self.config.name, "removed");
    }

    /// Never ends. A panic is a bug, but not one that may leave the cluster without an owner until the next start.
    async fn live(&mut self, updates: &mut watch::Receiver<ClusterConfig>) {
        let mut state = State::Pending;
        loop {
            let steps = AssertUnwindSafe(self.steps(state, updates)).catch_unwind();
            if steps.await.is_err() {
                error!(cluster = self.config.name, "the owner panicked");
            }
            let until = Instant::now() + self.backoff.next_pause();
            let trouble = Trouble::new(
                NotConnectedReason::ClusterNotConnected,
                "internal error; the connection is made anew",
            );
            self.publish_disconnected(trouble, Some(until));
            state = State::Disconnected(until);
        }
    }

    async fn steps(&mut self, mut state: State, updates: &mut watch::Receiver<ClusterConfig>) {
        loop {
            state = tokio::select! {
                next = Box::pin(self.step(&state)) => next,
                // A step cut short leaves nothing half done: what it publishes comes at its end.
                Ok(()) = updates.changed() => {
                    let config = updates.borrow_and_update().clone();
                    self.updated(config, state)
                }
            };
        }
    }

    async fn step(&mut self, state: &State) -> State {
        match state {
            State::Pending => self.pending().await,
            State::Connecting => self.connect().await,
            State::Connected(connection) => self.keep(connection).await,
            State::Disconnected(until) => self.rest(*until).await,
        }
    }

    async fn pending(&mut self) -> State {
        if self.config.connect == ConnectPolicy::OnDemand {
            self.demand.notified().await;
        }
        State::Connecting
    }

    async fn connect(&mut self) -> State {
        let started = Instant::now();
        self.publish_connecting(started);
        let outcome = attempt::connect(
            &self.config,
            &self.credentials,
            || self.publish_step(Trouble::starting()),
            &self.limit,
            self.failures > 0,
            self.generation + 1,
            self.epoch,
        );
        match Box::pin(outcome).await {
            Ok(connected) => State::Connected(self.connected(connected, started)),
            Err(failure) => self.connect_failed(failure, started),
        }
    }

    fn connect_failed(&mut self, failure: Failure, started: Instant) -> State {
        self.failures = self.failures.saturating_add(1);
        self.credential = failure.credential.clone().unwrap_or_default();
        let pause = self.backoff.next_pause();
        let until = Instant::now() + pause;
        self.log_trouble(&failure, Some(started.elapsed()), pause);
        self.publish_disconnected(failure.trouble, Some(until));
        self.view.send_modify(|view| {
            view.count_probe(false);
            view.outcomes += 1;
        });
        State::Disconnected(until)
    }

    /// Waits for the time of the next connect.
    async fn rest(&mut self, until: Instant) -> State {
        let reason = self.view.borrow().trouble.as_ref().map(|t| t.reason);
        let about_credential = matches!(
            reason,
            Some(NotConnectedReason::CredentialInvalid | NotConnectedReason::CredentialMissing)
        );
        if about_credential && self.credentials.is_in_files() {
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.credentials.another_in_files(&self.credential) => {
                    info!(cluster = self.config.name, "credential changed");
                    self.logged = None;
                    return State::Connecting;
                }
            }
        } else {
            sleep_until(until).await;
        }
        if self.config.connect == ConnectPolicy::OnDemand && !self.connected_before {
            self.publish_idle();
            self.demand.notified().await;
        }
        State::Connecting
    }

    /// Probes until the connection ends.
    async fn keep(&mut self, connection: &Arc<Connection>) -> State {
        let opened = Instant::now();
        let mut health = Health::new(self.config.timing.probe_failure_threshold);
        let mut probe_at = Instant::now() + self.interval();
        let mut last_probe = Instant::now();
        let mut probing: Option<BoxFuture<'static, Probe>> = None;
        let mut loading: Option<BoxFuture<'static, Result<Credential, CredentialError>>> = None;
        let mut probe_after_load = false;
        // A request was answered 401: the next probe asks about the credential too.
        let mut doubted = false;
        let mut told = false;
        let mut last_reload: Option<Instant> = None;
        let mut load_at = self.credential.refresh_at;
        loop {
            tokio::select! {
                raised = connection.signals().raised() => {
                    if raised.epoch_ended() {
                        return self.epoch_ended(opened);
                    }
                    if raised.silent() {
                        // A probe in flight may hang on the old connections too.
                        health.silent();
                        self.dial_anew(connection);
                        probing = None;
                        probe_at = Instant::now();
                    }
                    if raised.suspect() || raised.credential_rejected() {
                        probe_at = probe_at.min(last_probe + MIN_PROBE_GAP);
                    }
                    let reloaded = last_reload.is_some_and(|at| at.elapsed() < MIN_RELOAD_GAP);
                    if raised.credential_rejected() && !probe_after_load && !reloaded {
                        // A probe in flight would still speak for the credential from before.
                        probing = None;
                        health.rejected();
                        doubted = true;
                        probe_after_load = true;
                        last_reload = Some(Instant::now());
                        loading = Some(self.load(true));
                    }
                }
                () = sleep_until(probe_at), if probing.is_none() && !probe_after_load => {
                    probing = Some(self.probe(connection, doubted));
                }
                Some(probe) = OptionFuture::from(probing.as_mut()) => {
                    probing = None;
                    last_probe = Instant::now();
                    if matches!(probe, Probe::Reachable) && std::mem::take(&mut doubted) {
                        self.log_accepted(std::mem::replace(&mut told, true));
                    }
                    let next = health.record(&probe);
                    self.probed(&probe, &health, connection);
                    match next {
                        Next::Interval => probe_at = last_probe + self.interval(),
                        Next::After(pause) => probe_at = last_probe + pause,
                        Next::ReloadCredential => {
                            probe_after_load = true;
                            last_reload = Some(Instant::now());
                            loading = Some(self.load(true));
                        }
                        Next::Disconnect => return self.lost(probe),
                    }
                }
                Some(loaded) = OptionFuture::from(loading.as_mut()) => {
                    loading = None;
                    load_at = self.loaded(loaded, connection);
                    if probe_after_load {
                        probe_after_load = false;
                        probe_at = Instant::now();
                    }
                }
                () = at(load_at), if loading.is_none() => {
                    load_at = None;
                    loading = Some(self.load(false));
                }
            }
        }
    }

    fn probe(&self, connection: &Arc<Connection>, doubted: bool) -> BoxFuture<'static, Probe> {
        let connection = Arc::clone(connection);
        let path = self.config.timing.probe_path.clone();
        let limit = self.config.timing.probe_timeout;
        async move {
            if doubted {
                attempt::probe_credential(&connection, &path, limit).await.0
            } else {
                attempt::probe(&connection, &path, limit).await
            }
        }
        .boxed()
    }

    fn load(&self, rejected: bool) -> BoxFuture<'static, Result<Credential, CredentialError>> {
        let credentials = Arc::clone(&self.credentials);
        async move { credentials.load(rejected).await }.boxed()
    }

    /// Uses a loaded credential and tells when to load the next one.
    fn loaded(
        &mut self,
        loaded: Result<Credential, CredentialError>,
        connection: &Connection,
    ) -> Option<Instant> {
        let fresh = match loaded {
            Ok(fresh) => fresh,
            Err(error) => {
                warn!(
                    cluster = self.config.name,
                    why = %error,
                    error = error.detail(),
                    "credential not renewed"
                );
                return Some(Instant::now() + RENEWAL_RETRY);
            }
        };
        if !fresh.same(&self.credential) {
            if let Err(error) = connection.rotate(&self.credential, &fresh) {
                warn!(cluster = self.config.name, error, "credential not usable");
                return Some(Instant::now() + RENEWAL_RETRY);
            }
            info!(cluster = self.config.name, "credential rotated");
        }
        let next = fresh.refresh_at;
        self.credential = fresh;
        next
    }

    fn lost(&mut self, probe: Probe) -> State {
        let pause = self.backoff.next_pause();
        let until = Instant::now() + pause;
        let failure = Failure::from_probe(probe, &self.config.endpoint);
        self.log_trouble(&failure, None, pause);
        self.publish_disconnected(failure.trouble, Some(until));
        State::Disconnected(until)
    }

    fn epoch_ended(&mut self, opened: Instant) -> State {
        self.epoch += 1;
        self.documents.adopt(self.epoch);
        // The next connect learns whose epoch this is.
        self.uid = None;
        let until = if opened.elapsed() < STEADY {
            Instant::now() + self.backoff.next_pause()
        } else {
            Instant::now()
        };
        warn!(
            cluster = self.config.name,
            epoch = self.epoch,
            "its state went back or it is another cluster: a new epoch starts"
        );
        let trouble = Trouble::new(
            NotConnectedReason::ClusterNotConnected,
            "the cluster was replaced or restored; it is being read anew",
        );
        self.publish_disconnected(trouble, Some(until));
        State::Disconnected(until)
    }

    /// Up to a tenth shorter than configured, so that clusters which connected together drift apart.
    fn interval(&self) -> Duration {
        let interval = self.config.timing.probe_interval;
        interval.mul_f64(rand::random_range(0.9..=1.0))
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}
