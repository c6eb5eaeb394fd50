//! One cluster's state machine and its owner task.

mod attempt;
mod changes;
mod connect_times;
mod health;
mod hint;
mod keep;
mod limit;
mod owner;
mod progress;
mod publish;
mod reason;
mod rest;
mod rights;
#[cfg(test)]
pub(crate) mod tests;
mod update;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use jiff::SignedDuration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use self::changes::Changes;
pub use self::connect_times::ConnectTimeTotals;
pub(crate) use self::limit::{ConnectLimit, Turn};
use self::owner::{Asked, Owner};
pub use self::reason::NotConnectedReason;
use self::rights::Rights;
pub use self::rights::{May, Right};
use self::view::{SharedView, View};
use crate::cluster_config::ClusterConfig;
use crate::connection::{Connection, next_connection};
use crate::documents::{Documents, keep_fetched};
use crate::eviction::Fleet;
use crate::informers::Informers;

/// Requests that may wait for one cluster's connect at once. They hold nothing but themselves; the bound keeps a burst of
/// them from waking all at once.
const MAX_WAITERS: usize = 64;

/// Counts the accessors of this process.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// Where a cluster's connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Not tried yet.
    Pending,
    /// The first connect is in flight. That another try is under way is no state: of a cluster that stays away each would be
    /// one.
    Connecting,
    /// Reachable.
    Connected,
    /// Reachable, but answers 5xx to the probe: dialled anew, still served.
    Degraded,
    /// Not reachable; the next connect waits for its time, or is in flight.
    Disconnected,
}

impl ConnectionState {
    /// The state as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Connecting => "Connecting",
            Self::Connected => "Connected",
            Self::Degraded => "Degraded",
            Self::Disconnected => "Disconnected",
        }
    }
}

/// Why a cluster is not connected, in words that a client may see: never an address or a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotConnected {
    /// One of the machine-readable reasons.
    pub reason: NotConnectedReason,
    /// What happened, such as `connection refused`.
    pub message: String,
    /// Time to the next connect, where one is planned.
    pub next_attempt: Option<Duration>,
}

/// A connection that has ended, for readers of what it left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The epoch that counts: nothing of an older one may be shown.
    pub epoch: u64,
    /// When it ended.
    pub at: SystemTime,
}

/// What is known of a cluster's health, for metrics and status.
#[derive(Clone, Debug)]
pub struct ClusterStatus {
    /// Where its connection stands.
    pub state: ConnectionState,
    /// Why it is not connected, if it is not.
    pub not_connected: Option<NotConnected>,
    /// What may help, where it is not connected or the last probe failed: no address, no credential.
    pub hint: Option<&'static str>,
    /// Whether the last probe succeeded.
    pub last_probe_ok: bool,
    /// Why the last probe failed, where it did; while the cluster is connected too.
    pub probe_failure: Option<ProbeFailure>,
    /// Why another address, another CA or a refresh has not replaced the connection that serves, where it should have.
    pub not_replaced: Option<ProbeFailure>,
    /// Whether the last probe was answered 403: the cluster is there, the credential may not ask for the probe's path.
    pub probe_forbidden: bool,
    /// Probes that succeeded, since the start; a connect counts as one.
    pub probes_ok: u64,
    /// Probes that failed, since the start.
    pub probes_failed: u64,
    /// Failed probes in a row.
    pub consecutive_failures: u32,
    /// When the last probe ended.
    pub last_probe: Option<SystemTime>,
    /// When the last probe that succeeded ended.
    pub last_probe_success: Option<SystemTime>,
    /// When the proxy took the cluster in.
    pub added: SystemTime,
    /// When it last became connected, or ceased to be; `added` where it never was.
    pub last_transition: SystemTime,
    /// When the next connect is tried, where one is planned.
    pub next_attempt: Option<SystemTime>,
    /// How connects have ended.
    pub connects: Connects,
    /// Connections that were lost.
    pub disconnects: u64,
    /// Counts the connections of this cluster; 0 where there was none.
    pub generation: u64,
    /// Counts the clusters that were behind its name.
    pub epoch: u64,
}

impl ClusterStatus {
    /// Why it is not as it should be: not connected, degraded, or served over a connection that is to be replaced and cannot.
    pub fn trouble(&self) -> Option<(NotConnectedReason, &str)> {
        if let Some(why) = &self.not_connected {
            return Some((why.reason, &why.message));
        }
        let degraded = self.state == ConnectionState::Degraded;
        let degraded = self.probe_failure.as_ref().filter(|_| degraded);
        let trouble = degraded.or(self.not_replaced.as_ref());
        trouble.map(|why| (why.reason, why.message.as_str()))
    }
}

/// Why a probe or an attempt failed, in words that a client may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeFailure {
    /// The reason.
    pub reason: NotConnectedReason,
    /// What happened.
    pub message: String,
}

/// How connects have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connects {
    /// Those that went well.
    pub succeeded: u64,
    /// Those that failed.
    pub failed: u64,
    /// How long the last one took.
    pub last_duration: Option<Duration>,
}

/// One cluster: its connection if there is one, its informers and its documents.
///
/// The owner task connects, probes and disconnects; all others only read what it publishes.
#[derive(Debug)]
pub struct ClusterAccessor {
    instance: u64,
    name: String,
    context: String,
    changes: Arc<Changes>,
    connection: watch::Receiver<Option<Arc<Connection>>>,
    view: watch::Receiver<View>,
    /// Wakes the owner of a cluster that connects on demand.
    demand: Arc<Notify>,
    waiters: Semaphore,
    informers: Arc<Informers>,
    documents: Arc<Documents>,
    /// What the owner is told to do differently.
    updates: watch::Sender<Arc<ClusterConfig>>,
    refresh: Arc<Notify>,
    rights: Rights,
    removed: CancellationToken,
}

impl ClusterAccessor {
    /// Starts the owner task; it ends when the cluster is removed or `shutdown` fires.
    pub(crate) fn start(
        config: ClusterConfig,
        limit: &ConnectLimit,
        changes: &Arc<Changes>,
        fleet: &Arc<Fleet>,
        shutdown: &CancellationToken,
    ) -> Arc<Self> {
        let config = Arc::new(config);
        let (connection_tx, connection) = watch::channel(None);
        let (view_tx, view) = watch::channel(View::pending(&config));
        let demand = Arc::new(Notify::new());
        let removed = shutdown.child_token();
        let documents = Arc::new(Documents::new(fleet.bodies()));
        let fetching = keep_fetched(
            Arc::clone(&documents),
            config.name.clone(),
            connection.clone(),
        );
        let (updates, updates_rx) = watch::channel(Arc::clone(&config));
        let refresh = Arc::new(Notify::new());
        let accessor = Arc::new(Self {
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
            name: config.name.clone(),
            context: config.context.clone(),
            informers: Informers::new(&config.name, fleet, connection.clone(), &removed),
            documents: Arc::clone(&documents),
            connection,
            view,
            demand: Arc::clone(&demand),
            waiters: Semaphore::new(MAX_WAITERS),
            changes: Arc::clone(changes),
            updates,
            refresh: Arc::clone(&refresh),
            rights: Rights::default(),
            removed: removed.clone(),
        });
        let owner = Owner::new(
            config,
            connection_tx,
            SharedView::new(&accessor.name, view_tx, changes),
            documents,
            Asked { demand, refresh },
            limit.clone(),
            Arc::clone(changes),
        );
        let stopped = removed.clone();
        fleet.tasks().spawn(async move {
            stopped.run_until_cancelled(fetching).await;
        });
        fleet.tasks().spawn(owner.run(updates_rx, removed));
        accessor
    }

    /// Tells apart clusters that were served under one name, one after the other.
    pub fn instance(&self) -> u64 {
        self.instance
    }

    /// The name in `/clusters/<name>`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the kubeconfig context it came from.
    pub fn context(&self) -> &str {
        &self.context
    }

    /// The connection. Never dials: where a connect is in flight, and has its turn, it may wait for its outcome, 40 ms at most. Where the
    /// cluster connects on demand, its first connect may be waited for until the connect timeout has passed since that
    /// connect began, and 10 s more for a credential plugin.
    ///
    /// # Errors
    /// Why the cluster is not connected.
    pub async fn connected(&self) -> Result<Arc<Connection>, NotConnected> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let mut view = self.view.clone();
        let (grace, outcomes) = {
            let view = view.borrow();
            (view.wait(), view.outcomes)
        };
        // After the look at `outcomes`: the outcome of what this wakes is a later one.
        self.demand.notify_one();
        if grace > Duration::ZERO
            && let Ok(_waiting) = self.waiters.try_acquire()
        {
            let outcome = view.wait_for(|view| view.outcomes != outcomes);
            // Out of time or removed: what stands now is the answer.
            let _ = tokio::time::timeout(grace, outcome).await;
        }
        self.current()
            .ok_or_else(|| self.view.borrow().not_connected())
    }

    /// The connection, or the next where there is none now; `None` once the cluster is removed. For who lives as long as the
    /// cluster, not for requests.
    pub async fn next_connection(&self) -> Option<Arc<Connection>> {
        next_connection(&mut self.connection.clone()).await
    }

    /// The end of the last connection; `None` where there has been none.
    pub fn lost(&self) -> Option<Lost> {
        let view = self.view.borrow();
        let epoch = view.epoch;
        view.lost_at.map(|at| Lost { epoch, at })
    }

    /// Its informers.
    pub fn informers(&self) -> &Arc<Informers> {
        &self.informers
    }

    /// How far its clock is ahead of this process's, while it is connected.
    pub fn clock_offset(&self) -> Option<SignedDuration> {
        self.current()?.clock_offset()
    }

    /// What its server says about itself.
    pub fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Its health.
    pub fn status(&self) -> ClusterStatus {
        self.view.borrow().status()
    }

    /// Fires when it is removed, and when the process ends.
    pub fn removed(&self) -> &CancellationToken {
        &self.removed
    }

    /// What is configured for it now.
    pub fn config(&self) -> Arc<ClusterConfig> {
        self.updates.borrow().clone()
    }

    /// Asks for a fresh start: the credential is loaded again, a new connection is made before the old one is let go, and
    /// each informer lists anew. Clients notice nothing where all is as it was.
    pub fn refresh(&self) {
        self.refresh.notify_one();
    }

    /// What is configured for it changed. Another credential or other times are used in place; to another address, or
    /// with another CA, it is connected anew before the old connection is let go.
    pub(crate) fn update(&self, config: ClusterConfig) {
        self.updates.send_replace(Arc::new(config));
        self.changes.note(&self.name);
    }

    /// Somebody else than its owner has news of it.
    pub fn has_news(&self) {
        self.changes.note(&self.name);
    }

    /// Disconnects it for good.
    pub(crate) fn remove(&self) {
        self.removed.cancel();
    }

    /// The connection, if there is one now. Wakes nobody.
    pub fn current(&self) -> Option<Arc<Connection>> {
        self.connection.borrow().clone()
    }
}
