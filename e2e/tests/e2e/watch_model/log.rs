//! The reference: all that ever happened in the simulated cluster, by epoch and kind, with every state in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleetcache_e2e::sim::{Changed, Entry, Object, Record};

use super::kinds::{KINDS, Kind};

/// All objects of a kind, in the server's order.
pub(super) type State = BTreeMap<String, Arc<Object>>;

/// What has been read of the record so far.
pub(super) struct Log {
    record: Record,
    read: usize,
    epochs: Vec<Epoch>,
}

/// The data between two replacements.
pub(super) struct Epoch {
    /// The revision that it began with.
    pub(super) base: u64,
    /// The newest revision, of any kind.
    pub(super) newest: u64,
    kinds: BTreeMap<&'static str, History>,
}

/// One kind in one epoch.
#[derive(Default)]
pub(super) struct History {
    pub(super) events: Vec<Changed>,
    /// One more than events: the state before the first, and after each.
    pub(super) states: Vec<Arc<State>>,
}

pub(super) fn key(object: &Object) -> String {
    format!("{}/{}", object.namespace, object.name)
}

impl Log {
    pub(super) fn new(record: Record) -> Self {
        let mut log = Self {
            record,
            read: 0,
            epochs: Vec::new(),
        };
        log.catch_up();
        log
    }

    /// Reads what was recorded meanwhile. Whatever a client was told is in the record before it is told.
    pub(super) fn catch_up(&mut self) {
        let entries = self.record.after(self.read);
        self.read += entries.len();
        for entry in entries {
            match entry {
                Entry::Began { revision, objects } => {
                    self.epochs.push(Epoch::begin(revision, objects));
                }
                Entry::Changed(change) => {
                    let epoch = self.epochs.last_mut().expect("a record begins with data");
                    epoch.newest = change.revision;
                    if let Some(history) = epoch.kinds.get_mut(change.plural) {
                        history.push(change);
                    }
                }
            }
        }
    }

    /// The present epoch begins with what there is now: nobody was there before.
    pub(super) fn rebase(&mut self) {
        let epoch = self.epochs.last_mut().expect("a record begins with data");
        epoch.base = epoch.newest;
    }

    /// The index of the present epoch.
    pub(super) fn current(&self) -> usize {
        self.epochs.len() - 1
    }

    pub(super) fn epoch(&self, epoch: usize) -> &Epoch {
        &self.epochs[epoch]
    }

    pub(super) fn history(&self, epoch: usize, kind: &Kind) -> &History {
        &self.epochs[epoch].kinds[kind.plural]
    }

    /// The newest state of a kind.
    pub(super) fn newest(&self, kind: &Kind) -> &Arc<State> {
        let history = self.history(self.current(), kind);
        history.states.last().expect("there is always one more")
    }

    /// What was recorded, for the end of a run.
    pub(super) fn summary(&self) -> String {
        let events = |epoch: &Epoch| epoch.kinds.values().map(|kind| kind.events.len()).sum();
        let events: Vec<usize> = self.epochs.iter().map(events).collect();
        format!("events of each epoch: {events:?}")
    }
}

impl Epoch {
    fn begin(revision: u64, objects: Vec<(&'static str, Arc<Object>)>) -> Self {
        let mut kinds: BTreeMap<&'static str, State> = KINDS
            .iter()
            .map(|kind| (kind.plural, State::new()))
            .collect();
        for (plural, object) in objects {
            if let Some(state) = kinds.get_mut(plural) {
                state.insert(key(&object), object);
            }
        }
        let kinds = kinds.into_iter().map(|(plural, state)| {
            let history = History {
                events: Vec::new(),
                states: vec![Arc::new(state)],
            };
            (plural, history)
        });
        Self {
            base: revision,
            newest: revision,
            kinds: kinds.collect(),
        }
    }
}

impl History {
    /// The number of events up to `revision`, which is the index of the state at it.
    pub(super) fn index_at(&self, revision: u64) -> usize {
        self.events
            .partition_point(|event| event.revision <= revision)
    }

    fn push(&mut self, change: Changed) {
        let mut state = State::clone(self.states.last().expect("there is always one more"));
        let key = key(&change.object);
        if change.removed {
            state.remove(&key);
        } else {
            state.insert(key, change.object.clone());
        }
        self.events.push(change);
        self.states.push(Arc::new(state));
    }
}
