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
use crate::holding::Holding;
use crate::informer::Informer;
use crate::reflector::Reflector;

mod always;
mod choice;
mod config;
mod confirm;
mod refusal;
mod report;
mod settings;
mod told_lists;

use choice::OfKind;
pub use config::{CachePolicy, InformersConfig, Keeps, KindConfig};
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
    /// None yet; a read that was allowed may start this one.
    NotStarted(Holding),
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
    refused: ClusterFacts<(Gvr, Holding), Refusal, Infallible>,
    /// Held for a few look-ups, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    informers: HashMap<Gvr, OfKind>,
    recent_gets: HashMap<(Gvr, Holding), VecDeque<Instant>>,
    /// Kinds that are always kept, by group and resource, of which it was told that the cluster does not serve them.
    told_unserved: HashSet<(String, String)>,
    /// Kinds that were refused last, oldest first: of those that are refused still it is told.
    lately_refused: VecDeque<(Gvr, Holding)>,
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

    /// What there is of a kind in an encoding.
    pub fn lookup(&self, gvr: &Gvr, holding: Holding) -> Lookup {
        if let Some(informer) = self.state.lock().get(gvr, holding) {
            return Lookup::Informer(Arc::clone(informer));
        }
        if self.fleet.config().policy(gvr) == CachePolicy::Never {
            return Lookup::Never;
        }
        match self.refused.get(&(gvr.clone(), holding)) {
            Some(refusal) => Lookup::Refused(refusal),
            None => Lookup::NotStarted(holding),
        }
    }

    /// A LIST or WATCH of a kind was allowed that its informer could have answered: starts it.
    pub fn note_list(self: &Arc<Self>, gvr: &Gvr, holding: Holding) {
        if matches!(self.lookup(gvr, holding), Lookup::NotStarted(_)) {
            self.start(gvr, holding);
        }
    }

    /// A GET of a kind was allowed that its informer could have answered: the third in a minute starts it.
    pub fn note_get(self: &Arc<Self>, gvr: &Gvr, holding: Holding) {
        if !matches!(self.lookup(gvr, holding), Lookup::NotStarted(_)) {
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
            let kind = (gvr.clone(), holding);
            let times = state.recent_gets.entry(kind).or_default();
            times.push_back(now);
            times.retain(|at| now.duration_since(*at) < GET_WINDOW);
            times.len() >= GETS_TO_START
        };
        if enough {
            self.start(gvr, holding);
        }
    }

    /// A read that its informer could answer is to wait for it: starts it, whether or not the kind is known to exist.
    pub fn demand(self: &Arc<Self>, gvr: &Gvr, holding: Holding) {
        // Any name may come in a request: what turned out not to exist is refused for a while, and has its bound. So has
        // what is not known to exist yet, where the server is slow to say so or cannot.
        let full = {
            let state = self.state.lock();
            let unknown = state
                .all()
                .filter(|informer| informer.resource_version().is_none());
            unknown.count() >= MOST_UNKNOWN
        };
        if !full && matches!(self.lookup(gvr, holding), Lookup::NotStarted(_)) {
            self.start(gvr, holding);
        }
    }

    /// Starts the informer of a kind unless it runs.
    fn start(self: &Arc<Self>, gvr: &Gvr, holding: Holding) {
        if !self.fleet.has_room() {
            self.refuse(gvr, holding, Refusal::MemoryLimit);
            return;
        }
        let informer = {
            let mut state = self.state.lock();
            if state.get(gvr, holding).is_some() {
                return;
            }
            let kind = (gvr.clone(), holding);
            state.recent_gets.remove(&kind);
            self.refused.forget(&kind);
            let sibling = state.of_storage(&gvr.storage());
            let floor = sibling.map_or_else(Arc::default, |sibling| Arc::clone(sibling.floor()));
            // Read under the lock: what a change of the configuration finds here is what was started before it.
            let keeps = self.fleet.config().keeps(gvr);
            let informer = Informer::new(gvr.clone(), floor, self.removed.child_token());
            let informer = Arc::new(informer.holding(holding).keeping(keeps));
            let of_kind = state.informers.entry(gvr.clone()).or_default();
            *of_kind.place(holding) = Some(Arc::clone(&informer));
            informer
        };
        let encoding = holding.as_str();
        tracing::info!(cluster = self.cluster, gvr = %gvr, encoding, "informer started");
        let informers = Arc::clone(self);
        let reflector = Reflector::new(Arc::clone(&informer), Arc::clone(&self.settings));
        let span = tracing::info_span!("informer", cluster = self.cluster, gvr = %gvr, encoding);
        let run = async move {
            let refusal = reflector.run(informers.connections.clone()).await;
            informers.forget(&informer);
            if let Some(refusal) = refusal {
                informers.refuse(&informer.gvr, holding, refusal);
            }
            // Who waits for it looks again, and finds the refusal.
            informer.stopped().cancel();
        };
        self.fleet.tasks().spawn(run.instrument(span));
    }

    /// The kind stays live for a while, in an encoding.
    pub(crate) fn refuse(&self, gvr: &Gvr, holding: Holding, refusal: Refusal) {
        let is_unserved = refusal == Refusal::NotListable && holding == Holding::Objects;
        if is_unserved && self.fleet.config().policy(gvr) == CachePolicy::Always {
            self.tell_unserved(&gvr.group, &gvr.resource);
        }
        let until = Instant::now() + REFUSED_FOR;
        let kind = (gvr.clone(), holding);
        self.refused.put(kind.clone(), refusal, Some(until));
        // That is no news: such kinds are read in JSON.
        if refusal != Refusal::NoProtobuf {
            self.state.lock().note_refused(kind);
        }
    }

    /// Removes an informer that has ended, unless another has taken its place.
    fn forget(&self, informer: &Arc<Informer>) {
        let mut state = self.state.lock();
        let Some(of_kind) = state.informers.get_mut(&informer.gvr) else {
            return;
        };
        of_kind
            .place(informer.holding)
            .take_if(|known| Arc::ptr_eq(known, informer));
        if of_kind.is_empty() {
            state.informers.remove(&informer.gvr);
        }
    }

    /// Stops an informer: it is gone from the look-up at once, its task ends by itself.
    pub(crate) fn stop(&self, informer: &Arc<Informer>, reason: &str) {
        let encoding = informer.holding.as_str();
        tracing::info!(cluster = self.cluster, gvr = %informer.gvr, encoding, reason, "informer stopped");
        self.forget(informer);
        informer.stopped().cancel();
    }

    /// Complete lists that its informers have taken since the cluster was added.
    pub fn lists(&self) -> u64 {
        self.settings.lists()
    }

    /// All informers, in no order.
    pub fn all(&self) -> Vec<Arc<Informer>> {
        self.state.lock().all().cloned().collect()
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
            .all()
            .filter(of_storage)
            .any(|informer| informer.holds(key))
    }

    fn of_storage(&self, storage: &Storage) -> Option<Arc<Informer>> {
        self.state.lock().of_storage(storage)
    }

    /// What is kept of a kind's objects, as the configuration says now.
    pub fn keeps(&self, gvr: &Gvr) -> Keeps {
        self.fleet.config().keeps(gvr)
    }

    /// The configuration changed: kinds that are always kept now start, what was refused may be tried again, and informers of
    /// which something else is to be kept stop.
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
        for informer in self.all() {
            let gvr = &informer.gvr;
            if informer.keeps == now.keeps(gvr) {
                continue;
            }
            self.stop(&informer, "configuration");
            // Any other starts again when it is read.
            if now.policy_of_informer(&informer) == CachePolicy::Always {
                self.start(gvr, informer.holding);
            }
        }
    }
}

impl State {
    fn get(&self, gvr: &Gvr, holding: Holding) -> Option<&Arc<Informer>> {
        self.informers.get(gvr)?.get(holding)
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Informer>> {
        self.informers.values().flat_map(OfKind::all)
    }

    fn of_storage(&self, storage: &Storage) -> Option<Arc<Informer>> {
        let mut informers = self.all();
        // The resource alone tells most kinds apart, without building a storage for each.
        let found = informers.find(|known| {
            known.gvr.resource == storage.resource && known.gvr.storage() == *storage
        });
        found.cloned()
    }
}

#[cfg(test)]
mod tests;
