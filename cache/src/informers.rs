//! Which informers one cluster runs: started by the reads that they could have answered, stopped when nobody reads.

use std::collections::{HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::connection::Connection;
use crate::eviction::Fleet;
use crate::facts::ClusterFacts;
use crate::floor::Floor;
use crate::gvr::{Gvr, Storage};
use crate::informer::Informer;
use crate::reflector::Reflector;

mod always;
mod config;
mod confirm;
mod refusal;
mod report;
mod settings;
mod told_lists;

pub use config::{CachePolicy, InformersConfig};
pub use refusal::Refusal;
pub(crate) use refusal::{Refused, none_refused};
pub use report::{InformerReport, InformerState};
pub(crate) use settings::Settings;

/// GETs of a kind within [`GET_WINDOW`] that start its informer.
const GETS_TO_START: usize = 3;

/// See [`GETS_TO_START`].
const GET_WINDOW: Duration = Duration::from_secs(60);

/// Kinds of a cluster that are not known to be cacheable yet; while there are so many, a read alone starts no informer.
const MOST_UNKNOWN: usize = 1000;

/// Time for which a kind that cannot be cached is not tried again.
const REFUSED_FOR: Duration = Duration::from_secs(60);

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
        self.settings.lists()
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
            .set_max_objects_per_kind(now.max_objects_per_kind);
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
mod tests;
