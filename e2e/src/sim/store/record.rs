//! A record of everything that happened to a store, for tests that hold against it what clients are told.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Inner, State, Store};
use crate::sim::history::Event;
use crate::sim::object::Object;
use crate::sim::resource::Resource;

/// What happened, in order and without a gap. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Vec<Entry>>>);

/// One entry of a record.
#[derive(Clone, Debug)]
pub enum Entry {
    /// From here on the store holds this data: the record began, or the data was replaced by another's.
    Began {
        /// The newest revision of the data.
        revision: u64,
        /// All objects, each with the plural name of its kind.
        objects: Vec<(&'static str, Arc<Object>)>,
    },
    /// One object changed.
    Changed(Change),
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The plural name of its kind.
    pub plural: &'static str,
    /// The revision of the change.
    pub revision: u64,
    /// The object after the change; of a removed one the last state, at the revision of its removal.
    pub object: Arc<Object>,
    /// The object before the change.
    pub previous: Option<Arc<Object>>,
    /// Whether the object is gone.
    pub removed: bool,
}

impl Record {
    /// The entries after the first `count`.
    pub fn after(&self, count: usize) -> Vec<Entry> {
        self.0.lock()[count..].to_vec()
    }

    fn push(&self, entry: Entry) {
        self.0.lock().push(entry);
    }
}

impl Store {
    /// Records what happens from now on; of what was before the present data is kept. Later calls give the same record.
    pub fn record(&self) -> Record {
        let state = self.lock();
        let record = self.inner.record.get_or_init(|| {
            let record = Record::default();
            record.push(state.began());
            record
        });
        record.clone()
    }
}

impl Inner {
    /// The caller holds the state's lock, so that entries are in the order of revisions, and there before any watch is woken.
    pub(super) fn recorded(&self, resource: &Resource, event: &Event) {
        if let Some(record) = self.record.get() {
            record.push(Entry::Changed(Change {
                plural: resource.plural,
                revision: event.revision,
                object: event.object.clone(),
                previous: event.previous.clone(),
                removed: event.removed,
            }));
        }
    }

    /// As above.
    pub(super) fn replaced(&self, state: &State) {
        if let Some(record) = self.record.get() {
            record.push(state.began());
        }
    }
}

impl State {
    fn began(&self) -> Entry {
        let kinds = self.kinds.iter();
        let objects = kinds.flat_map(|(plural, kind)| {
            let objects = kind.objects.values();
            objects.map(|object| (*plural, object.clone()))
        });
        Entry::Began {
            revision: self.position.revision,
            objects: objects.collect(),
        }
    }
}
