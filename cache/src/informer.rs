//! One kind of one cluster in memory, in one encoding: what its reflector has published, and what is known of it. `informer/reads.rs` is what a
//! reader may have of that.

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
use crate::holding::Holding;
use crate::informers::Keeps;
use crate::resource_version::ResourceVersion;
use crate::store::Snapshot;

mod last_error;
mod pages;
mod publications;
mod questions;
mod reads;

pub use last_error::LastError;
use pages::Pages;
pub(crate) use questions::{Asked, Questions};
pub use reads::{NotServable, Scope};

/// Keeps one resource of one cluster in memory.
#[derive(Debug)]
pub struct Informer {
    /// What it keeps.
    pub gvr: Gvr,
    /// In which encoding.
    pub holding: Holding,
    /// What of it.
    pub(crate) keeps: Keeps,
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

impl Informer {
    pub(crate) fn new(gvr: Gvr, floor: Arc<Floor>, stop: CancellationToken) -> Self {
        Self {
            gvr,
            holding: Holding::default(),
            keeps: Keeps::default(),
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

    /// The same informer, of objects in an encoding.
    pub(crate) fn holding(self, holding: Holding) -> Self {
        Self { holding, ..self }
    }

    /// The same informer, which keeps no more than that.
    pub(crate) fn keeping(self, keeps: Keeps) -> Self {
        Self { keeps, ..self }
    }

    /// Whether its kind is a custom resource, once it has listed.
    pub(crate) fn is_unstructured(&self) -> Option<bool> {
        let published = self.published.borrow();
        let snapshot = published.snapshot.as_ref();
        snapshot.map(|snapshot| snapshot.is_unstructured())
    }

    /// Somebody found it below its floor: its reflector tries once to bring it there.
    pub(crate) fn catch_up(&self) {
        self.questions.catch_up();
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
