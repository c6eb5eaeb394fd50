//! The one task that connects, probes and disconnects a cluster.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::attempt::{self, Attempt, Connected, Failure};
use super::health::Probe;
use super::keep::Kept;
use super::limit::ConnectLimit;
use super::rest::Rest;
use super::view::{SharedView, Trouble};
use super::{Changes, NotConnectedReason};
use crate::backoff::Backoff;
use crate::cluster_config::{ClusterConfig, ConnectPolicy};
use crate::connection::Connection;
use crate::credential::{Credential, CredentialSource};
use crate::documents::Documents;
use crate::panics::caught;
use crate::upstream::endpoint::Endpoint;

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
/// A changed configuration cuts a step short; see `update.rs`. So does a refresh. What a step waits for is in its state, so
/// that one which is cut short for nothing goes on where it was.
///
/// Connected and Degraded are one state here, told apart by `Health`: both probe, both serve. A connection that is to be
/// replaced (another address or CA, a refresh) serves until there is another, and is probed as any other meanwhile: it may
/// be lost before.
pub(super) enum State {
    /// Not tried yet.
    Pending,
    /// A connect is in flight; what is kept, if anything, is to be replaced.
    Connecting(InFlight, Option<Box<Kept>>),
    /// A connection is published.
    Connected(Box<Kept>),
    /// None; the next connect waits for its time.
    Disconnected(Rest),
}

impl State {
    /// The connection that is published, if there is one.
    fn kept(self) -> Option<Box<Kept>> {
        match self {
            Self::Connecting(_, kept) => kept,
            Self::Connected(kept) => Some(kept),
            Self::Pending | Self::Disconnected(_) => None,
        }
    }

    /// Whether an operator's attempt is in flight.
    fn is_refreshing(&self) -> bool {
        matches!(self, Self::Connecting(attempt, _) if attempt.asked_for)
    }
}

/// An attempt to connect. It borrows nothing of the owner, who looks after the old connection beside it.
pub(super) struct InFlight {
    started: Instant,
    /// An operator has asked for it.
    pub(super) asked_for: bool,
    outcome: BoxFuture<'static, Result<Connected, Failure>>,
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
    /// Where `config` says, for all attempts.
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) connection: watch::Sender<Option<Arc<Connection>>>,
    pub(super) view: Arc<SharedView>,
    /// Emptied before anybody hears of another epoch.
    pub(super) documents: Arc<Documents>,
    pub(super) asked: Asked,
    pub(super) limit: ConnectLimit,
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
    /// Where the last connection leads.
    pub(super) last_endpoint: Option<Arc<Endpoint>>,
    /// The next connection is a fresh start: its informers list anew.
    pub(super) refreshing: bool,
    /// The connect before was begun because the server gave a sign. One that then stays silent again gets its pause.
    pub(super) answered: bool,
    /// The troubles logged since it was last connected; one of them again is `debug`.
    pub(super) logged: Vec<Trouble>,
}

impl Owner {
    pub(super) fn new(
        config: Arc<ClusterConfig>,
        connection: watch::Sender<Option<Arc<Connection>>>,
        view: SharedView,
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
            last_endpoint: None,
            refreshing: false,
            answered: false,
            logged: Vec::new(),
            endpoint: Endpoint::new(config.endpoint.clone()),
            config,
            connection,
            view: Arc::new(view),
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
            state = self.disconnected(trouble, until);
        }
    }

    async fn steps(&mut self, mut state: State, updates: &mut watch::Receiver<Arc<ClusterConfig>>) {
        let refresh = Arc::clone(&self.asked.refresh);
        loop {
            // A step cut short leaves nothing half done: what it publishes comes at its end.
            let next = tokio::select! {
                next = Box::pin(self.step(&mut state)) => next,
                Ok(()) = updates.changed() => {
                    let config = Arc::clone(&updates.borrow_and_update());
                    state = self.updated(&config, state);
                    continue;
                }
                () = refresh.notified() => {
                    // One that is under way is for all who ask meanwhile: who asks in a loop would never get any.
                    if state.is_refreshing() {
                        continue;
                    }
                    info!(cluster = self.config.name, "refresh asked for");
                    self.refreshing = true;
                    // Who asks in vain must not put off the tries that come by themselves.
                    self.backoff.reset();
                    state = self.begin(state.kept(), true);
                    continue;
                }
            };
            state = self.after(next, state);
        }
    }

    async fn step(&mut self, state: &mut State) -> Next {
        match state {
            State::Pending => self.pending().await,
            State::Connecting(attempt, None) => {
                Next::Attempted(Box::new((&mut attempt.outcome).await))
            }
            State::Connecting(attempt, Some(kept)) => tokio::select! {
                outcome = &mut attempt.outcome => Next::Attempted(Box::new(outcome)),
                next = self.keep(kept) => next,
            },
            State::Connected(kept) => self.keep(kept).await,
            State::Disconnected(rest) => self.rest(rest).await,
        }
    }

    async fn pending(&mut self) -> Next {
        if self.config.connect == ConnectPolicy::OnDemand {
            self.asked.demand.notified().await;
        }
        Next::Connect
    }

    fn after(&mut self, next: Next, state: State) -> State {
        match (next, state) {
            (Next::Connect, state) => self.connect(state.kept()),
            (Next::Attempted(outcome), State::Connecting(attempt, kept)) => match *outcome {
                Ok(connected) => State::Connected(self.connected(connected, attempt.started)),
                Err(failure) => self.connect_failed(failure, &attempt, kept),
            },
            (Next::Lost(probe), State::Connecting(attempt, _)) => {
                self.lost_meanwhile(probe);
                State::Connecting(attempt, None)
            }
            (Next::Lost(probe), _) => self.lost(probe),
            // An attempt in flight may have asked the cluster that was there before.
            (Next::EpochEnded(opened), _) => self.epoch_ended(opened),
            // There is none but while connecting.
            (Next::Attempted(_), state) => state,
        }
    }

    /// Begins to connect; what is kept serves meanwhile.
    pub(super) fn connect(&mut self, kept: Option<Box<Kept>>) -> State {
        self.begin(kept, false)
    }

    pub(super) fn begin(&mut self, mut kept: Option<Box<Kept>>, asked_for: bool) -> State {
        if let Some(kept) = &mut kept {
            kept.is_being_replaced();
        }
        let started = Instant::now();
        let attempt = Attempt {
            progress: self.publish_connecting(started),
            config: Arc::clone(&self.config),
            endpoint: Arc::clone(&self.endpoint),
            credentials: Arc::clone(&self.credentials),
            limit: self.limit.clone(),
            // Somebody waits for what an operator has asked for.
            failed_before: self.failures > 0 && !asked_for,
            refresh: self.refreshing,
            may_be_told_more: self.uid.is_some() || !self.connected_before,
        };
        let attempt = InFlight {
            started,
            asked_for,
            outcome: attempt::connect(attempt).boxed(),
        };
        State::Connecting(attempt, kept)
    }

    fn connect_failed(
        &mut self,
        failure: Failure,
        attempt: &InFlight,
        kept: Option<Box<Kept>>,
    ) -> State {
        let started = attempt.started;
        self.failures = self.failures.saturating_add(1);
        let mut pause = self.backoff.next_pause();
        if failure.trouble.reason == NotConnectedReason::ServerError {
            pause = pause.min(STARTING_PAUSE.mul_f64(rand::random_range(0.5..=1.0)));
        }
        let until = Instant::now() + pause;
        self.log_trouble(&failure, Some(started.elapsed()), pause);
        self.changes.connect_times.note(started.elapsed());
        let trouble = failure.trouble;
        let state = match kept {
            // It stays, and the next attempt to replace it comes then.
            Some(mut kept) => {
                kept.is_replaced_at(until);
                if attempt.asked_for {
                    // Who asked is told whether this one works.
                    kept.is_probed_now();
                }
                self.view.change(|view| {
                    view.next_attempt = Some(until);
                    view.not_replaced = Some(trouble);
                });
                State::Connected(kept)
            }
            None => {
                self.credential = failure.credential.unwrap_or_default();
                let state = self.disconnected(trouble.clone(), until);
                self.view.change(|view| view.probe_failed(trouble));
                state
            }
        };
        self.view.change(|view| {
            view.connects.failed += 1;
            view.connects.last_duration = Some(started.elapsed());
            view.outcomes += 1;
        });
        state
    }

    fn lost(&mut self, probe: Probe) -> State {
        let pause = self.backoff.next_pause();
        let until = Instant::now() + pause;
        let failure = Failure::from_probe(probe, &self.config.endpoint);
        self.log_trouble(&failure, None, pause);
        self.disconnected(failure.trouble, until)
    }

    /// What was to be replaced is lost before it could be; the attempt goes on.
    fn lost_meanwhile(&mut self, probe: Probe) {
        let failure = Failure::from_probe(probe, &self.config.endpoint);
        self.log_trouble(&failure, None, Duration::ZERO);
        self.publish_disconnected(failure.trouble, None);
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
            NotConnectedReason::ClusterReplaced,
            "the cluster was replaced or restored; it is being read anew",
        );
        self.disconnected(trouble, until)
    }
}

/// How a step has ended.
pub(super) enum Next {
    /// Connect now.
    Connect,
    /// The attempt in flight has ended.
    Attempted(Box<Result<Connected, Failure>>),
    /// The last probe says that the connection is lost.
    Lost(Probe),
    /// Another cluster is behind the connection, which was opened then.
    EpochEnded(Instant),
}
