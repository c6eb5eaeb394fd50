//! Which informers one cluster runs: started by the reads that they could have answered, stopped when nobody reads.

use std::collections::{HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::connection::Connection;
use crate::eviction::Fleet;
use crate::facts::{ClusterFacts, Facts};
use crate::floor::Floor;
use crate::gvr::{Gvr, Storage};
use crate::informer::Informer;
use crate::reflector::Reflector;
use crate::self_checks::SelfChecks;

mod always;
mod config;
mod confirm;
mod report;
mod told_lists;

pub use config::{CachePolicy, InformersConfig};
pub use report::{InformerReport, InformerState};

/// GETs of a kind within [`GET_WINDOW`] that start its informer.
const GETS_TO_START: usize = 3;

/// See [`GETS_TO_START`].
const GET_WINDOW: Duration = Duration::from_secs(60);

/// Kinds of a cluster that are not known to be cacheable yet; while there are so many, a read alone starts no informer.
const MOST_UNKNOWN: usize = 1000;

/// Second watches of a cluster that are open at once: what a connection of 80 informers has left of its 100 streams is for
/// short questions too.
const SECOND_WATCHES: usize = 10;

/// Time for which a kind that cannot be cached is not tried again.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// What the names of refused kinds may take, of all clusters together. Names come from requests. The least recently asked
/// for are forgotten first: to forget one costs no more than to try it again.
const REFUSED_BYTES: u64 = 16 << 20;

/// Kinds that are not kept in memory, for a while.
pub(crate) type Refused = Facts<Gvr, Refusal, Infallible>;

/// None refused yet, in any cluster.
pub(crate) fn none_refused() -> Arc<Refused> {
    Facts::new(REFUSED_BYTES, |gvr, _| {
        let names = gvr.group.len() + gvr.version.len() + gvr.resource.len();
        u32::try_from(names + 256).unwrap_or(u32::MAX)
    })
}

/// What all reflectors of a cluster share.
#[derive(Debug)]
pub(crate) struct Settings {
    max_objects_per_kind: AtomicU64,
    /// The server refuses streaming lists, or ignores what asks for them: lists are paged.
    pages: AtomicBool,
    second_watches: Semaphore,
    self_checks: Arc<SelfChecks>,
    self_check_turn: Semaphore,
    /// Complete lists of all kinds.
    lists: AtomicU64,
}

impl Settings {
    pub(crate) fn new(fleet: &Fleet) -> Self {
        Self {
            max_objects_per_kind: AtomicU64::new(fleet.config().max_objects_per_kind),
            pages: AtomicBool::new(false),
            second_watches: Semaphore::new(SECOND_WATCHES),
            self_checks: Arc::clone(fleet.self_checks()),
            self_check_turn: Semaphore::new(1),
            lists: AtomicU64::new(0),
        }
    }

    /// An informer has listed its kind to the end.
    pub(crate) fn count_list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn max_objects_per_kind(&self) -> u64 {
        self.max_objects_per_kind.load(Ordering::Relaxed)
    }

    pub(crate) fn pages_lists(&self) -> bool {
        self.pages.load(Ordering::Relaxed)
    }

    pub(crate) fn page_lists(&self) {
        self.pages.store(true, Ordering::Relaxed);
    }

    /// Places for the second watches of informers that catch up.
    pub(crate) fn second_watches(&self) -> &Semaphore {
        &self.second_watches
    }

    /// What the self-checks of all clusters share.
    pub(crate) fn self_checks(&self) -> &SelfChecks {
        &self.self_checks
    }

    /// The place of the one informer that is checked.
    pub(crate) fn self_check_turn(&self) -> &Semaphore {
        &self.self_check_turn
    }
}

/// Why a kind is not kept in memory, where trying again at once would not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The credential may not list or watch it.
    Forbidden,
    /// It is not served, or not with list and watch.
    NotListable,
    /// It has more objects than `maxObjectsPerKind`.
    TooManyObjects,
    /// The memory limit is reached.
    MemoryLimit,
    /// Its lists are written in a form that would not be given back byte for byte.
    UnknownForm,
}

impl Refusal {
    /// The reason as written in logs and headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::NotListable => "not-listable",
            Self::TooManyObjects => "too-many-objects",
            Self::MemoryLimit => "memory-limit",
            Self::UnknownForm => "unknown-form",
        }
    }
}

/// What there is of a kind.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// Its informer, synced or not.
    Informer(Arc<Informer>),
    /// None yet; a read that was allowed may start it.
    NotStarted,
    /// The configuration says `never`.
    Never,
    /// It was tried, and stays live for a while.
    Refused(Refusal),
}

/// The informers of one cluster. They outlive a connection: each waits for the next one and resumes.
#[derive(Debug)]
pub struct Informers {
    cluster: String,
    fleet: Arc<Fleet>,
    settings: Arc<Settings>,
    connections: watch::Receiver<Option<Arc<Connection>>>,
    removed: CancellationToken,
    refused: ClusterFacts<Gvr, Refusal, Infallible>,
    /// Held for a few look-ups, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    informers: HashMap<Gvr, Arc<Informer>>,
    recent_gets: HashMap<Gvr, VecDeque<Instant>>,
    /// Kinds that are always kept, by group and resource, of which it was told that the cluster does not serve them.
    told_unserved: HashSet<(String, String)>,
    /// Kinds that were refused last, oldest first: of those that are refused still it is told.
    lately_refused: VecDeque<Gvr>,
}

impl Informers {
    /// None running yet; `connections` tells when the cluster is connected, `removed` when it is gone for good.
    pub fn new(
        cluster: &str,
        fleet: &Arc<Fleet>,
        connections: watch::Receiver<Option<Arc<Connection>>>,
        removed: &CancellationToken,
    ) -> Arc<Self> {
        let informers = Arc::new(Self {
            cluster: cluster.to_owned(),
            fleet: Arc::clone(fleet),
            settings: Arc::new(Settings::new(fleet)),
            connections,
            removed: removed.child_token(),
            refused: fleet.refused().of_cluster(),
            state: Mutex::default(),
        });
        fleet.enroll(&informers);
        informers.warm(fleet.config().always().cloned().collect());
        informers
    }

    /// What there is of a kind.
    pub fn lookup(&self, gvr: &Gvr) -> Lookup {
        if let Some(informer) = self.state.lock().informers.get(gvr) {
            return Lookup::Informer(Arc::clone(informer));
        }
        if self.fleet.config().policy(gvr) == CachePolicy::Never {
            return Lookup::Never;
        }
        match self.refused.get(gvr) {
            Some(refusal) => Lookup::Refused(refusal),
            None => Lookup::NotStarted,
        }
    }

    /// A LIST or WATCH of a kind was allowed that its informer could have answered: starts it.
    pub fn note_list(self: &Arc<Self>, gvr: &Gvr) {
        if matches!(self.lookup(gvr), Lookup::NotStarted) {
            self.start(gvr);
        }
    }

    /// A GET of a kind was allowed that its informer could have answered: the third in a minute starts it.
    pub fn note_get(self: &Arc<Self>, gvr: &Gvr) {
        if !matches!(self.lookup(gvr), Lookup::NotStarted) {
            return;
        }
        let now = Instant::now();
        let enough = {
            let mut state = self.state.lock();
            // Names come from requests: only those of kinds that were answered 2xx get here, and only recent ones stay.
            state.recent_gets.retain(|_, times| {
                times
                    .back()
                    .is_some_and(|last| now.duration_since(*last) < GET_WINDOW)
            });
            let times = state.recent_gets.entry(gvr.clone()).or_default();
            times.push_back(now);
            times.retain(|at| now.duration_since(*at) < GET_WINDOW);
            times.len() >= GETS_TO_START
        };
        if enough {
            self.start(gvr);
        }
    }

    /// A read that its informer could answer is to wait for it: starts it, whether or not the kind is known to exist.
    pub fn demand(self: &Arc<Self>, gvr: &Gvr) {
        // Any name may come in a request: what turned out not to exist is refused for a while, and has its bound. So has
        // what is not known to exist yet, where the server is slow to say so or cannot.
        let full = {
            let state = self.state.lock();
            let informers = state.informers.values();
            let unknown = informers.filter(|informer| informer.resource_version().is_none());
            unknown.count() >= MOST_UNKNOWN
        };
        if !full && matches!(self.lookup(gvr), Lookup::NotStarted) {
            self.start(gvr);
        }
    }

    /// Starts the informer of a kind unless it runs.
    fn start(self: &Arc<Self>, gvr: &Gvr) {
        if !self.fleet.has_room() {
            self.refuse(gvr, Refusal::MemoryLimit);
            return;
        }
        let informer = {
            let mut state = self.state.lock();
            if state.informers.contains_key(gvr) {
                return;
            }
            state.recent_gets.remove(gvr);
            self.refused.forget(gvr);
            let sibling = state.of_storage(&gvr.storage());
            let floor = sibling.map_or_else(Arc::default, |sibling| Arc::clone(sibling.floor()));
            let informer = Arc::new(Informer::new(
                gvr.clone(),
                floor,
                self.removed.child_token(),
            ));
            state.informers.insert(gvr.clone(), Arc::clone(&informer));
            informer
        };
        tracing::info!(cluster = self.cluster, gvr = %gvr, "informer started");
        let informers = Arc::clone(self);
        let reflector = Reflector::new(Arc::clone(&informer), Arc::clone(&self.settings));
        let span = tracing::info_span!("informer", cluster = self.cluster, gvr = %gvr);
        let run = async move {
            let refusal = reflector.run(informers.connections.clone()).await;
            informers.forget(&informer);
            if let Some(refusal) = refusal {
                informers.refuse(&informer.gvr, refusal);
            }
            // Who waits for it looks again, and finds the refusal.
            informer.stopped().cancel();
        };
        self.fleet.tasks().spawn(run.instrument(span));
    }

    /// The kind stays live for a while.
    pub(crate) fn refuse(&self, gvr: &Gvr, refusal: Refusal) {
        if refusal == Refusal::NotListable && self.fleet.config().policy(gvr) == CachePolicy::Always
        {
            self.tell_unserved(&gvr.group, &gvr.resource);
        }
        let until = Instant::now() + REFUSED_FOR;
        self.refused.put(gvr.clone(), refusal, Some(until));
        self.state.lock().note_refused(gvr);
    }

    /// Removes an informer that has ended, unless another has taken its place.
    fn forget(&self, informer: &Arc<Informer>) {
        let mut state = self.state.lock();
        if state
            .informers
            .get(&informer.gvr)
            .is_some_and(|known| Arc::ptr_eq(known, informer))
        {
            state.informers.remove(&informer.gvr);
        }
    }

    /// Stops an informer: it is gone from the look-up at once, its task ends by itself.
    pub(crate) fn stop(&self, informer: &Arc<Informer>, reason: &str) {
        tracing::info!(cluster = self.cluster, gvr = %informer.gvr, reason, "informer stopped");
        self.forget(informer);
        informer.stopped().cancel();
    }

    /// Complete lists that its informers have taken since the cluster was added.
    pub fn lists(&self) -> u64 {
        self.settings.lists.load(Ordering::Relaxed)
    }

    /// All informers, in no order.
    pub fn all(&self) -> Vec<Arc<Informer>> {
        self.state.lock().informers.values().cloned().collect()
    }

    /// The floor of a storage, if an informer of it starts or runs.
    pub fn floor(&self, storage: &Storage) -> Option<Arc<Floor>> {
        self.of_storage(storage)
            .map(|informer| Arc::clone(informer.floor()))
    }

    /// Whether an informer of a storage holds an object of that key, readable or not.
    pub fn holds(&self, storage: &Storage, key: &str) -> bool {
        let of_storage = |informer: &&Arc<Informer>| informer.gvr.storage() == *storage;
        let state = self.state.lock();
        state
            .informers
            .values()
            .filter(of_storage)
            .any(|informer| informer.holds(key))
    }

    fn of_storage(&self, storage: &Storage) -> Option<Arc<Informer>> {
        self.state.lock().of_storage(storage)
    }

    /// The configuration changed: kinds that are always kept now start, and what was refused may be tried again.
    pub(crate) fn reconfigured(self: &Arc<Self>, before: &InformersConfig, now: &InformersConfig) {
        self.settings
            .max_objects_per_kind
            .store(now.max_objects_per_kind, Ordering::Relaxed);
        if before != now {
            self.refused.flush();
            let mut state = self.state.lock();
            let is_always = |kind: &(String, String)| now.policy_of(kind) == CachePolicy::Always;
            state.told_unserved.retain(is_always);
        }
        let is_new = |kind: &&(String, String)| before.policy_of(kind) != CachePolicy::Always;
        self.warm(now.always().filter(is_new).cloned().collect());
    }
}

impl State {
    fn of_storage(&self, storage: &Storage) -> Option<Arc<Informer>> {
        let mut informers = self.informers.values();
        // The resource alone tells most kinds apart, without building a storage for each.
        let found = informers.find(|known| {
            known.gvr.resource == storage.resource && known.gvr.storage() == *storage
        });
        found.cloned()
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::key_range::KeyRange;
    use crate::panics::planned;
    use crate::resource_version::ResourceVersion;
    use crate::selector::Selector;
    use crate::told_list::{Pairs, ToldList};

    #[tokio::test]
    async fn reads_that_wait_start_no_more_kinds_than_may_be_unknown() {
        let stop = CancellationToken::new();
        let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &stop);
        // Without a connection nothing becomes known of any.
        let (_connections, connected) = watch::channel(None);
        let informers = Informers::new("a", &fleet, connected, &stop);
        for at in 0..MOST_UNKNOWN + 10 {
            informers.demand(&Gvr::new("ex.io", "v1", &format!("things{at}")));
        }
        assert_eq!(informers.all().len(), MOST_UNKNOWN);
        stop.cancel();
    }

    #[tokio::test]
    async fn all_versions_and_views_of_a_storage_have_one_floor() {
        let (stop, mut config) = (CancellationToken::new(), InformersConfig::default());
        config.resources.clear();
        let fleet = Fleet::start(config, &TaskTracker::new(), &stop);
        let (_connections, connected) = watch::channel(None);
        let informers = Informers::new("a", &fleet, connected, &stop);
        let floor = |gvr: &Gvr| {
            informers.note_list(gvr);
            let Lookup::Informer(informer) = informers.lookup(gvr) else {
                panic!("no informer of {gvr}");
            };
            Arc::clone(informer.floor())
        };
        for (one, other, expected) in [
            (("ex.io", "v1", "things"), ("ex.io", "v2", "things"), true),
            (
                ("", "v1", "events"),
                ("events.k8s.io", "v1", "events"),
                true,
            ),
            (("ex.io", "v1", "things"), ("ex.org", "v1", "things"), false),
            (("ex.io", "v1", "things"), ("ex.io", "v1", "widgets"), false),
        ] {
            let (one, other) = (
                Gvr::new(one.0, one.1, one.2),
                Gvr::new(other.0, other.1, other.2),
            );
            let shared = Arc::ptr_eq(&floor(&one), &floor(&other));
            assert_eq!(shared, expected, "{one} {other}");
        }
        stop.cancel();
    }

    /// A cluster without a connection, in which nothing becomes known.
    fn unconnected(config: InformersConfig) -> (Arc<Informers>, CancellationToken) {
        let stop = CancellationToken::new();
        let fleet = Fleet::start(config, &TaskTracker::new(), &stop);
        let (connections, connected) = watch::channel(None);
        // For as long as the test lasts.
        std::mem::forget(connections);
        (Informers::new("a", &fleet, connected, &stop), stop)
    }

    async fn visited(place: &'static str, times: u32) {
        let visited = async {
            while planned::visits(place) < times {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let minute = Duration::from_secs(60);
        tokio::time::timeout(minute, visited).await.expect(place);
    }

    #[tokio::test(start_paused = true)]
    async fn kinds_that_are_always_kept_are_started_after_a_panic() {
        planned::plan("always", 1);
        let mut config = InformersConfig::default();
        let pods = (String::new(), "pods".to_owned());
        config.resources.insert(pods, CachePolicy::Always);
        let (_informers, _stop) = unconnected(config);
        visited("always", 2).await;
    }

    #[tokio::test(start_paused = true)]
    async fn writes_are_confirmed_and_deletions_checked_after_a_panic() {
        let (informers, _stop) = unconnected(InformersConfig::default());
        let gvr = Gvr::new("", "v1", "pods");
        informers.note_list(&gvr);
        planned::plan("confirm", 1);
        informers.unconfirmed(&gvr.storage(), 1);
        visited("confirm", 2).await;
        planned::plan("confirm", 1);
        informers.gone(&gvr.storage(), 1, "n/a", "uid");
        visited("confirm", 2).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_for_which_nobody_can_look_is_believed_as_it_was_told() {
        let (informers, _stop) = unconnected(InformersConfig::default());
        let gvr = Gvr::new("", "v1", "pods");
        informers.note_list(&gvr);
        let floor = informers.floor(&gvr.storage()).unwrap();
        planned::plan("told list", 1);
        let version = ResourceVersion::from_number(9);
        let list = ToldList {
            keys: KeyRange::of_namespace(None),
            selector: Selector::default(),
            pairs: Pairs::default(),
            resource_version: version,
        };
        informers.told_list(&floor, (1, 1), list);
        visited("told list", 1).await;
        let settled = async {
            while floor.told(1) < version {
                tokio::task::yield_now().await;
            }
        };
        let second = Duration::from_secs(1);
        tokio::time::timeout(second, settled).await.unwrap();
    }
}
