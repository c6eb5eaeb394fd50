//! One kind of one cluster in memory: what its reflector has published, and what a reader may have of it.
//!
//! How new a read is:
//! - *any*: whatever is held.
//! - *latest*: at or above the floor as it stood when the reader arrived; 200 ms are waited for it.
//! - *not older*: at or above a version; 200 ms are waited for it.
//! - *consistent*: at or above a version that the cluster told in answer to a question sent after the reader arrived. The
//!   question is one for all who wait (`questions.rs`); the informer is brought there by its own watch, or by what a second
//!   one attests (`reflector/attestation.rs`). Nobody waits longer than 3 s.
//! - *last known*: what was held when the cluster was lost, for whoever prefers that to an error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::InformerShard;
use crate::floor::Floor;
use crate::gvr::Gvr;
use crate::history::History;
use crate::resource_version::ResourceVersion;
use crate::store::Snapshot;

mod last_error;
mod pages;
mod publications;
mod questions;

pub use last_error::LastError;
use pages::Pages;
pub(crate) use questions::{Asked, Questions};

/// How long a read waits for a state that is new enough before it goes live.
const READ_WAIT: Duration = Duration::from_millis(200);

/// How long a consistent read waits: a bookmark takes up to 1.3 s, and a reader may have to wait for two.
const CONSISTENT_WAIT: Duration = Duration::from_secs(3);

/// Keeps one resource of one cluster in memory.
#[derive(Debug)]
pub struct Informer {
    /// What it keeps.
    pub gvr: Gvr,
    floor: Arc<Floor>,
    history: History,
    questions: Questions,
    pages: Pages,
    published: watch::Sender<Published>,
    started: Instant,
    /// Complete lists taken so far.
    lists: AtomicU64,
    /// Milliseconds after `started` of the last read.
    last_read: AtomicU64,
    /// Milliseconds after `started` at which the server was last heard on this informer's own stream.
    heard: AtomicU64,
    /// The HTTP/2 connection that the watch runs on, while it runs: ping answers on it count as heard.
    shard: ArcSwapOption<InformerShard>,
    /// The version at which a wait for the floor ran out: nobody waits again until it moves.
    waited_in_vain_at: AtomicU64,
    /// Held while it is copied, never across an await.
    last_error: Mutex<Option<LastError>>,
    stop: CancellationToken,
}

/// What a reflector has published.
#[derive(Clone, Debug, Default)]
struct Published {
    /// The connection generation for which the snapshot is known to be the cluster's; 0: for none.
    generation: u64,
    /// The epoch of the snapshot.
    epoch: u64,
    /// Whether the kind's objects are named within a namespace.
    namespaced: bool,
    snapshot: Option<Arc<Snapshot>>,
}

impl Published {
    fn held(&self, scope: Scope) -> Result<Arc<Snapshot>, NotServable> {
        let held = self.snapshot.as_ref().ok_or(NotServable::NotSynced)?;
        let fits = match (self.namespaced, scope.namespace, scope.name) {
            (true, namespace, name) => namespace || !name,
            (false, namespace, _) => !namespace,
        };
        if fits {
            Ok(Arc::clone(held))
        } else {
            Err(NotServable::OtherScope)
        }
    }
}

/// Why a read cannot be served by an informer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotServable {
    /// It has not synced, or not resumed on this connection yet.
    NotSynced,
    /// Something newer than what it holds is known.
    BelowFloor,
    /// It has not reached the version asked for.
    TooOld,
    /// Whether it is what the cluster holds now could not be found out in time.
    Unproven,
    /// A write's effect is not known yet.
    Unconfirmed,
    /// The request names a namespace for a cluster-scoped kind, or none for an object of a namespaced one.
    OtherScope,
    /// The state at that version is not held.
    NotHeld,
    /// The version is one of the cluster that was there before.
    FormerEpoch,
}

/// Whether a request names a namespace and an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// It names a namespace.
    pub namespace: bool,
    /// It names an object.
    pub name: bool,
}

impl Informer {
    pub(crate) fn new(gvr: Gvr, floor: Arc<Floor>, stop: CancellationToken) -> Self {
        Self {
            gvr,
            history: History::new(Arc::clone(&floor)),
            floor,
            questions: Questions::default(),
            pages: Pages::default(),
            published: watch::Sender::new(Published::default()),
            started: Instant::now(),
            lists: AtomicU64::new(0),
            last_read: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            shard: ArcSwapOption::empty(),
            waited_in_vain_at: AtomicU64::new(0),
            last_error: Mutex::default(),
            stop,
        }
    }

    /// What this informer holds, for a read with resourceVersion 0: any state the cluster has been in, once synced.
    ///
    /// # Errors
    /// Why it cannot serve.
    pub fn read_any(
        &self,
        (generation, epoch): (u64, u64),
        scope: Scope,
    ) -> Result<Arc<Snapshot>, NotServable> {
        self.touch();
        let snapshot = self.current(generation, scope)?;
        // Whoever reads another version of the resource next is told nothing older.
        self.floor.raise(epoch, snapshot.last_event);
        Ok(snapshot)
    }

    /// What this informer holds, for a read with resourceVersion unset: at or above the floor as it stands now. Waits
    /// up to 200 ms for it.
    ///
    /// # Errors
    /// Why it cannot serve.
    pub async fn read_latest(
        &self,
        connection: (u64, u64),
        scope: Scope,
    ) -> Result<Arc<Snapshot>, NotServable> {
        self.touch();
        let (generation, epoch) = connection;
        // Before the snapshot: see `Needed`.
        let needed = self.floor.needed().ok_or(NotServable::Unconfirmed)?;
        let snapshot = self.current(generation, scope)?;
        let snapshot = if needed.admits(&snapshot) {
            snapshot
        } else {
            let stands_at = snapshot.resource_version.get();
            if self.waited_in_vain_at.load(Ordering::Relaxed) == stands_at {
                return Err(NotServable::BelowFloor);
            }
            let reached = self.reach(generation, scope, |held| needed.admits(held));
            let Some(reached) = reached.await else {
                self.waited_in_vain_at.store(stands_at, Ordering::Relaxed);
                self.catch_up();
                return Err(NotServable::BelowFloor);
            };
            reached?
        };
        self.floor.raise(epoch, snapshot.last_event);
        Ok(snapshot)
    }

    /// What this informer holds, for a read that may not be older than a version. Waits up to 200 ms for it.
    ///
    /// # Errors
    /// Why it cannot serve.
    pub async fn read_not_older(
        &self,
        connection: (u64, u64),
        scope: Scope,
        than: ResourceVersion,
    ) -> Result<Arc<Snapshot>, NotServable> {
        self.touch();
        let (generation, epoch) = connection;
        let is_new = |held: &Snapshot| held.resource_version >= than;
        let mut snapshot = self.current(generation, scope)?;
        if !is_new(&snapshot) {
            let reached = self.reach(generation, scope, is_new).await;
            snapshot = reached.ok_or(NotServable::TooOld)??;
        }
        self.floor.raise(epoch, snapshot.last_event);
        Ok(snapshot)
    }

    /// What the cluster holds now, for a read that may miss nothing: the floor is in it, and so is every write that was
    /// answered to anybody before this call, past this proxy too. Waits up to 3 s for it.
    ///
    /// # Errors
    /// Why it cannot serve.
    pub async fn read_consistent(
        &self,
        connection: (u64, u64),
        scope: Scope,
    ) -> Result<Arc<Snapshot>, NotServable> {
        self.touch();
        let (generation, epoch) = connection;
        self.current(generation, scope)?;
        let reached = async {
            let newest = self.questions.newest(generation).await;
            let newest = newest.ok_or(NotServable::Unproven)?;
            self.until(generation, |held| held.resource_version >= newest)
                .await;
            self.current(generation, scope)
        };
        let snapshot = tokio::select! {
            snapshot = tokio::time::timeout(CONSISTENT_WAIT, reached) => {
                snapshot.map_err(|_| NotServable::Unproven)??
            }
            // What was asked on a connection that is no more is not answered.
            () = self.until(generation, |_| false) => return Err(NotServable::NotSynced),
            () = self.stop.cancelled() => return Err(NotServable::NotSynced),
        };
        self.floor.raise(epoch, snapshot.last_event);
        Ok(snapshot)
    }

    /// What this informer held last in an epoch, though the cluster is not connected now. It may be older than what was
    /// told since, and raises no floor.
    ///
    /// # Errors
    /// It has never synced in this epoch, or the request's scope is another.
    pub fn read_last_known(&self, epoch: u64, scope: Scope) -> Result<Arc<Snapshot>, NotServable> {
        self.touch();
        let published = self.published.borrow();
        if published.epoch != epoch {
            return Err(NotServable::NotSynced);
        }
        published.held(scope)
    }

    /// Waits until this informer may be read on a connection. False where it has stopped before: its kind may have turned
    /// out to be one that is not kept.
    pub async fn synced(&self, generation: u64) -> bool {
        let mut published = self.published.subscribe();
        tokio::select! {
            _ = published.wait_for(|now| now.generation == generation && now.snapshot.is_some()) => true,
            () = self.stop.cancelled() => false,
        }
    }

    /// Waits until this informer, which has listed before, may be read on a connection. Not for long: 3 s at most.
    pub(crate) async fn resumed(&self, generation: u64) {
        if self.history.has_begun() {
            // In time or not: who asks next finds out.
            let _ = tokio::time::timeout(CONSISTENT_WAIT, self.synced(generation)).await;
        }
    }

    /// Somebody found it below its floor: its reflector tries once to bring it there.
    pub(crate) fn catch_up(&self) {
        self.questions.catch_up();
    }

    /// Waits for a snapshot that is admitted, or for the connection to end; `None` where neither came in time.
    async fn reach(
        &self,
        generation: u64,
        scope: Scope,
        admits: impl Fn(&Snapshot) -> bool,
    ) -> Option<Result<Arc<Snapshot>, NotServable>> {
        let reached = self.until(generation, admits);
        tokio::time::timeout(READ_WAIT, reached).await.ok()?;
        Some(self.current(generation, scope))
    }

    /// Waits for a snapshot that is admitted, or for the connection to end.
    async fn until(&self, generation: u64, admits: impl Fn(&Snapshot) -> bool) {
        let mut published = self.published.subscribe();
        let reached = published.wait_for(|now| {
            now.generation != generation || now.snapshot.as_ref().is_some_and(|held| admits(held))
        });
        // Never an error: the sender is in `self`.
        let _ = reached.await;
    }

    pub(crate) fn current(
        &self,
        generation: u64,
        scope: Scope,
    ) -> Result<Arc<Snapshot>, NotServable> {
        let published = self.published.borrow();
        if published.generation != generation {
            return Err(NotServable::NotSynced);
        }
        published.held(scope)
    }

    /// Seconds since the server was last heard on this informer's connection.
    pub fn age(&self) -> Duration {
        let own = self
            .started
            .elapsed()
            .saturating_sub(Duration::from_millis(self.heard.load(Ordering::Relaxed)));
        match self.shard.load().as_ref() {
            Some(shard) => own.min(shard.heard_ago()),
            None => own,
        }
    }

    /// Whether readers on that connection generation may have what it holds, as far as its own state goes.
    pub fn is_readable_on(&self, generation: u64) -> bool {
        let published = self.published.borrow();
        published.generation == generation && published.snapshot.is_some()
    }

    /// The version that what it holds is complete through, readable or not.
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        let published = self.published.borrow();
        let snapshot = published.snapshot.as_ref();
        snapshot.map(|snapshot| snapshot.resource_version)
    }

    /// Objects held, readable or not, and the bytes of them, of their recent changes and of what is kept for pages.
    pub fn size(&self) -> (usize, usize) {
        let (objects, bytes) = self.newest().map_or((0, 0), |newest| {
            let kept = usize::try_from(self.pages.bytes(&newest)).unwrap_or(usize::MAX);
            (newest.len(), newest.bytes() + kept)
        });
        (objects, bytes + self.history.bytes())
    }

    /// Whether an object of that key is held, readable or not.
    pub(crate) fn holds(&self, key: &str) -> bool {
        let published = self.published.borrow();
        published
            .snapshot
            .as_ref()
            .is_some_and(|snapshot| snapshot.get(key).is_some())
    }

    /// Time since the last read, or since the start; none while a watch is open.
    pub fn idle_for(&self) -> Duration {
        if self.history.watchers() > 0 {
            return Duration::ZERO;
        }
        let last = Duration::from_millis(self.last_read.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(last)
    }

    /// How often it has listed its kind to the end.
    pub fn lists(&self) -> u64 {
        self.lists.load(Ordering::Relaxed)
    }

    /// One more complete list.
    pub(crate) fn count_list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it has not been stopped.
    pub fn runs(&self) -> bool {
        !self.stop.is_cancelled()
    }

    /// Fires when it is stopped.
    pub(crate) fn stopped(&self) -> &CancellationToken {
        &self.stop
    }

    /// The floor of its storage.
    pub(crate) fn floor(&self) -> &Arc<Floor> {
        &self.floor
    }

    /// Its recent changes.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// What its readers ask.
    pub(crate) fn questions(&self) -> &Questions {
        &self.questions
    }

    /// Publishes what readers on a connection's generation and epoch may have.
    pub(crate) fn publish(
        &self,
        (generation, epoch): (u64, u64),
        namespaced: bool,
        snapshot: Arc<Snapshot>,
    ) {
        self.published.send_replace(Published {
            generation,
            epoch,
            namespaced,
            snapshot: Some(snapshot),
        });
        self.history.set_silent(false);
    }

    /// Keeps what is held, but for no reader, until the next publish.
    pub(crate) fn suspend(&self) {
        // The age goes on from what was heard on the connection, answers to pings included.
        if let Some(shard) = self.shard.load_full() {
            self.heard_at(Instant::now().checked_sub(shard.heard_ago()));
            self.shard.store(None);
        }
        self.published
            .send_if_modified(|published| std::mem::take(&mut published.generation) != 0);
        self.history.set_silent(true);
    }

    /// Drops what is held: the epoch is over.
    pub(crate) fn clear(&self) {
        self.shard.store(None);
        if let Some(last) = self.published.send_replace(Published::default()).snapshot {
            self.pages.epoch_ended(&last);
        }
        self.history.end_epoch();
    }

    /// Drops what is held: the informer is over. Its versions are still the cluster's, and who has one asks the cluster.
    pub(crate) fn close(&self) {
        self.shard.store(None);
        self.published.send_replace(Published::default());
        self.pages.clear();
        self.history.end();
    }

    /// The server was heard on this informer's stream.
    pub(crate) fn hear(&self) {
        self.heard_at(Some(Instant::now()));
    }

    fn heard_at(&self, at: Option<Instant>) {
        let since_start = at.map(|at| at.saturating_duration_since(self.started));
        let millis = since_start.unwrap_or_default().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.heard.fetch_max(millis, Ordering::Relaxed);
    }

    /// The watch runs on this connection now.
    pub(crate) fn watching_on(&self, shard: Arc<InformerShard>) {
        self.shard.store(Some(shard));
    }

    pub(crate) fn touch(&self) {
        let now = self.started.elapsed().as_millis();
        self.last_read
            .store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
