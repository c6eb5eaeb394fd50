//! The one task that connects, probes and disconnects a cluster.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::attempt::{self, Attempt, Failure};
use super::health::Probe;
use super::keep::Kept;
use super::limit::ConnectLimit;
use super::view::{Trouble, View};
use super::{Changes, NotConnectedReason};
use crate::backoff::Backoff;
use crate::cluster_config::{ClusterConfig, ConnectPolicy};
use crate::connection::Connection;
use crate::credential::{Credential, CredentialSource};
use crate::documents::Documents;
use crate::panics::caught;

/// A server that answers 5xx to a connect is about to start or to end: either is seen soon, at little cost.
const STARTING_PAUSE: Duration = Duration::from_secs(5);

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
/// A changed configuration cuts a step short; see `update.rs`. So does a refresh.
///
/// Connected and Degraded are one state here, told apart by `Health`: both probe, both serve. A connection that is to be
/// replaced (another address or CA, a refresh) serves until there is another: see [`Kept::replace_at`].
pub(super) enum State {
    /// Not tried yet.
    Pending,
    /// A connect is in flight; what is kept, if anything, is to be replaced.
    Connecting(Option<Box<Kept>>),
    /// A connection is published.
    Connected(Box<Kept>),
    /// None; the next connect waits until then.
    Disconnected(Instant),
}

/// What others ask of an owner.
pub(super) struct Asked {
    /// A request wants a cluster that connects on demand.
    pub(super) demand: Arc<Notify>,
    /// An operator wants a fresh start.
    pub(super) refresh: Arc<Notify>,
}

pub(super) struct Owner {
    pub(super) config: Arc<ClusterConfig>,
    pub(super) connection: watch::Sender<Option<Arc<Connection>>>,
    pub(super) view: watch::Sender<View>,
    /// Emptied before anybody hears of another epoch.
    pub(super) documents: Arc<Documents>,
    asked: Asked,
    limit: ConnectLimit,
    pub(super) changes: Arc<Changes>,
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
    /// The next connection is a fresh start: its informers list anew.
    pub(super) refreshing: bool,
    /// The connect before was begun because the server gave a sign. One that then stays silent again gets its pause.
    answered: bool,
    /// The troubles logged since it was last connected; one of them again is `debug`.
    pub(super) logged: Vec<Trouble>,
}

impl Owner {
    pub(super) fn new(
        config: Arc<ClusterConfig>,
        connection: watch::Sender<Option<Arc<Connection>>>,
        view: watch::Sender<View>,
        documents: Arc<Documents>,
        asked: Asked,
        limit: ConnectLimit,
        changes: Arc<Changes>,
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
            refreshing: false,
            answered: false,
            logged: Vec::new(),
            config,
            connection,
            view,
            documents,
            asked,
            limit,
            changes,
        }
    }

    pub(super) async fn run(
        mut self,
        mut updates: watch::Receiver<Arc<ClusterConfig>>,
        removed: CancellationToken,
    ) {
        let live = Box::pin(self.live(&mut updates));
        removed.run_until_cancelled(live).await;
        let trouble = Trouble::new(
            NotConnectedReason::ClusterRemoved,
            "the cluster was removed",
        );
        self.publish_disconnected(trouble, None);
        // Who waits for another connection waits in vain.
        self.replaced.cancel();
        debug!(cluster = self.config.name, "removed");
    }

    /// Never ends. A panic is a bug, but not one that may leave the cluster without an owner until the next start.
    async fn live(&mut self, updates: &mut watch::Receiver<Arc<ClusterConfig>>) {
        let mut state = State::Pending;
        loop {
            if caught(self.steps(state, updates)).await.is_err() {
                error!(cluster = self.config.name, "the owner panicked");
            }
            let until = Instant::now() + self.backoff.next_pause();
            let trouble = Trouble::new(
                NotConnectedReason::InternalError,
                "internal error; the connection is made anew",
            );
            self.publish_disconnected(trouble, Some(until));
            state = State::Disconnected(until);
        }
    }

    async fn steps(&mut self, mut state: State, updates: &mut watch::Receiver<Arc<ClusterConfig>>) {
        let refresh = Arc::clone(&self.asked.refresh);
        loop {
            // A step cut short leaves nothing half done: what it publishes comes at its end.
            let next = tokio::select! {
                next = Box::pin(self.step(&mut state)) => Some(next),
                Ok(()) = updates.changed() => None,
                () = refresh.notified() => {
                    info!(cluster = self.config.name, "refresh asked for");
                    self.refreshing = true;
                    Some(Next::Connect)
                }
            };
            state = match next {
                Some(next) => next.after(state),
                None => {
                    let config = Arc::clone(&updates.borrow_and_update());
                    self.updated(config, state)
                }
            };
        }
    }

    async fn step(&mut self, state: &mut State) -> Next {
        match state {
            State::Pending => self.pending().await,
            State::Connecting(kept) => self.connect(kept.is_some()).await,
            State::Connected(kept) => self.keep(kept).await,
            State::Disconnected(until) => self.rest(*until).await,
        }
    }

    async fn pending(&mut self) -> Next {
        if self.config.connect == ConnectPolicy::OnDemand {
            self.asked.demand.notified().await;
        }
        Next::Connect
    }

    /// `replacing`: there is a connection that serves meanwhile.
    async fn connect(&mut self, replacing: bool) -> Next {
        let started = Instant::now();
        self.publish_connecting(started);
        let attempt = Attempt {
            limit: self.limit.clone(),
            failed_before: self.failures > 0,
            generation: self.generation + 1,
            epoch: self.epoch,
            refresh: self.refreshing,
        };
        let outcome = attempt::connect(&self.config, &self.credentials, attempt, || {
            self.publish_step(Trouble::starting());
        });
        match Box::pin(outcome).await {
            Ok(connected) => Next::Connected(self.connected(connected, started)),
            Err(failure) => self.connect_failed(failure, started, replacing),
        }
    }

    fn connect_failed(&mut self, failure: Failure, started: Instant, replacing: bool) -> Next {
        self.failures = self.failures.saturating_add(1);
        let mut pause = self.backoff.next_pause();
        if failure.trouble.reason == NotConnectedReason::ServerError {
            pause = pause.min(STARTING_PAUSE.mul_f64(rand::random_range(0.5..=1.0)));
        }
        let until = Instant::now() + pause;
        self.log_trouble(&failure, Some(started.elapsed()), pause);
        self.changes.connect_times.note(started.elapsed());
        if !replacing {
            self.credential = failure.credential.clone().unwrap_or_default();
            self.publish_disconnected(failure.trouble.clone(), Some(until));
        }
        self.publish(|view| {
            view.connects.failed += 1;
            view.connects.last_duration = Some(started.elapsed());
            view.outcomes += 1;
            if replacing {
                view.next_attempt = Some(until);
            } else {
                view.probe_failed(failure.trouble);
            }
        });
        if replacing {
            Next::KeepUntil(until)
        } else {
            Next::Disconnected(until)
        }
    }

    /// Waits for the time of the next connect.
    async fn rest(&mut self, until: Instant) -> Next {
        let reason = self.view.borrow().trouble.as_ref().map(|t| t.reason);
        // A server that shakes hands and says nothing more would be asked without a pause.
        let listens = reason.is_some_and(NotConnectedReason::is_silence)
            && !std::mem::take(&mut self.answered);
        let about_credential = reason.is_some_and(NotConnectedReason::is_about_credential);
        tokio::select! {
            () = sleep_until(until) => {}
            () = self.credentials.another_in_files(&self.credential),
                if about_credential && self.credentials.is_in_files() =>
            {
                info!(cluster = self.config.name, "credential changed");
                self.logged.clear();
                return Next::Connect;
            }
            () = attempt::answered(&self.config, until), if listens => {
                self.answered = true;
                debug!(cluster = self.config.name, "the server answers");
                return Next::Connect;
            }
        }
        if self.config.connect == ConnectPolicy::OnDemand && !self.connected_before {
            self.publish_idle();
            self.asked.demand.notified().await;
        }
        Next::Connect
    }

    pub(super) fn lost(&mut self, probe: Probe) -> Next {
        let pause = self.backoff.next_pause();
        let until = Instant::now() + pause;
        let failure = Failure::from_probe(probe, &self.config.endpoint);
        self.log_trouble(&failure, None, pause);
        self.publish_disconnected(failure.trouble, Some(until));
        Next::Disconnected(until)
    }

    pub(super) fn epoch_ended(&mut self, opened: Instant) -> Next {
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
            NotConnectedReason::ClusterReplaced,
            "the cluster was replaced or restored; it is being read anew",
        );
        self.publish_disconnected(trouble, Some(until));
        Next::Disconnected(until)
    }
}

/// How to go on after a step.
pub(super) enum Next {
    /// Connect now.
    Connect,
    /// Connected.
    Connected(Box<Kept>),
    /// There is none; connect then.
    Disconnected(Instant),
    /// The attempt to replace what is kept has failed: it stays, and the next attempt comes then.
    KeepUntil(Instant),
}

impl Next {
    fn after(self, state: State) -> State {
        match (self, state) {
            (Self::Connect, State::Connected(kept)) => State::Connecting(Some(kept)),
            (Self::Connect, State::Connecting(kept)) => State::Connecting(kept),
            (Self::Connect, State::Pending | State::Disconnected(_)) => State::Connecting(None),
            (Self::Connected(kept), _) => State::Connected(kept),
            (Self::KeepUntil(until), State::Connecting(Some(mut kept))) => {
                kept.replace_at = Some(until);
                State::Connected(kept)
            }
            (Self::Disconnected(until) | Self::KeepUntil(until), _) => State::Disconnected(until),
        }
    }
}
