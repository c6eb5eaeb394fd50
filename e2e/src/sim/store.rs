//! The objects of a simulated cluster: one ordered map a kind, one revision counter for all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::defaults;
use super::history::{Event, History};
use super::lifecycle::{self, Change, DeleteOptions, Part, Plan};
use super::object::Object;
use super::resource::{RESOURCES, Resource};
use super::status::Status;

mod page;
mod record;

pub(super) use page::{Page, PageRequest};
pub use record::{Change as Changed, Entry, Record};

/// The namespaces that every new cluster has.
const FIRST_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];

/// A handle on the objects of one cluster. Clones share them, and so may two servers.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Held for one read or one write, never across an await.
    state: Mutex<State>,
    /// The newest position, for those who wait for a revision or for events.
    position: watch::Sender<Position>,
    history_limit: usize,
    /// Filled under the state's lock, if somebody wants it.
    record: OnceLock<Record>,
}

#[derive(Clone, Debug)]
struct State {
    position: Position,
    kinds: BTreeMap<&'static str, Kind>,
}

#[derive(Clone, Debug)]
struct Kind {
    objects: BTreeMap<String, Arc<Object>>,
    history: History,
}

/// How far the store is: a revision, within a generation that ends when the data is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) generation: u64,
    pub(super) revision: u64,
}

/// A copy of the data to go back to, like a backup of etcd.
#[derive(Clone, Debug)]
pub struct Checkpoint(State);

/// What a write did.
#[derive(Debug)]
pub(super) struct Written {
    /// The state that the answer shows.
    pub(super) object: Arc<Object>,
    /// Whether the object is gone.
    pub(super) removed: bool,
}

/// Why a watch cannot go on from its revision.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Events after it are forgotten; the oldest revision to resume from is given.
    Expired(u64),
    /// The data was replaced.
    Replaced,
}

impl Store {
    /// A store with the first namespaces, which remembers `history_limit` events of each kind.
    pub fn new(history_limit: usize) -> Self {
        let state = State::empty(history_limit);
        let (position, _) = watch::channel(state.position);
        let store = Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                position,
                history_limit,
                record: OnceLock::new(),
            }),
        };
        for name in FIRST_NAMESPACES {
            let namespace = json!({"metadata": {"name": name}});
            store
                .create("namespaces", namespace)
                .expect("a new store has no namespaces yet");
        }
        store
    }

    /// Creates an object. Its namespace comes from its metadata; a uid and a creation time given there are kept.
    ///
    /// # Errors
    /// As the API: unknown kinds, names taken or missing.
    pub fn create(&self, plural: &str, object: Value) -> Result<Arc<Object>, Status> {
        let resource = known(plural)?;
        let namespace = text(&object, "namespace");
        let object = lifecycle::complete(resource, &namespace, object, &defaults::now())?;
        let name = text(&object, "name");
        let written = self.write(
            resource,
            &namespace,
            &name,
            false,
            |current| match current {
                Some(_) => Err(Status::already_exists(resource, &name)),
                None => Ok(Plan {
                    changes: vec![Change::Put(object)],
                    answer: None,
                }),
            },
        )?;
        Ok(written.object)
    }

    /// Replaces an object, `status` included. A resourceVersion in it must be the current one.
    ///
    /// # Errors
    /// As the API: unknown kinds or names, conflicts.
    pub fn update(&self, plural: &str, object: Value) -> Result<Arc<Object>, Status> {
        let resource = known(plural)?;
        let (namespace, name) = (text(&object, "namespace"), text(&object, "name"));
        let written = self.write(resource, &namespace, &name, false, |current| {
            let current = current.ok_or_else(|| Status::not_found(resource, &name))?;
            lifecycle::update(resource, current, object, Part::Whole)
        })?;
        Ok(written.object)
    }

    /// Changes an object in place.
    ///
    /// # Errors
    /// As the API: unknown kinds or names.
    pub fn modify(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> Result<Arc<Object>, Status> {
        let resource = known(plural)?;
        let written = self.write(resource, namespace, name, false, |current| {
            let current = current.ok_or_else(|| Status::not_found(resource, name))?;
            let mut object = current.value();
            change(&mut object);
            lifecycle::update(resource, current, object, Part::Whole)
        })?;
        Ok(written.object)
    }

    /// Deletes an object as a DELETE would: finalizers hold it. Returns its last state.
    ///
    /// # Errors
    /// As the API: unknown kinds or names.
    pub fn delete(&self, plural: &str, namespace: &str, name: &str) -> Result<Arc<Object>, Status> {
        let resource = known(plural)?;
        let written = self.write(resource, namespace, name, false, |current| {
            let current = current.ok_or_else(|| Status::not_found(resource, name))?;
            lifecycle::delete(
                resource,
                current,
                &DeleteOptions::default(),
                &defaults::now(),
            )
        })?;
        Ok(written.object)
    }

    /// The object, if it exists.
    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let resource = Resource::named(plural)?;
        self.lock()
            .kind(resource)
            .objects
            .get(&super::object::key(namespace, name))
            .cloned()
    }

    /// How many objects of a kind there are.
    pub fn len(&self, plural: &str) -> usize {
        Resource::named(plural).map_or(0, |resource| self.lock().kind(resource).objects.len())
    }

    /// Whether there is no object of a kind.
    pub fn is_empty(&self, plural: &str) -> bool {
        self.len(plural) == 0
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.lock().position.revision
    }

    /// Forgets all history: lists and watches at older revisions are expired from now on.
    pub fn compact(&self) {
        let mut state = self.lock();
        let revision = state.position.revision;
        for kind in state.kinds.values_mut() {
            kind.history.compact(revision);
        }
    }

    /// Remembers the present data.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint(self.lock().clone())
    }

    /// Goes back to `checkpoint`: revisions go backwards, uids stay. Open watches end.
    pub fn restore(&self, checkpoint: &Checkpoint) {
        let mut restored = checkpoint.0.clone();
        let revision = restored.position.revision;
        for kind in restored.kinds.values_mut() {
            kind.history = History::new(self.inner.history_limit, revision);
        }
        self.replace(restored);
    }

    /// Starts over as a rebuilt cluster of the same name: no objects, new uids, revisions from the beginning.
    pub fn rebuild(&self) {
        let fresh = Self::new(self.inner.history_limit);
        self.replace(fresh.checkpoint().0);
    }

    /// Runs one write: `plan` sees the current object and says what to do, all under the lock.
    pub(super) fn write(
        &self,
        resource: &'static Resource,
        namespace: &str,
        name: &str,
        dry_run: bool,
        plan: impl FnOnce(Option<&Object>) -> Result<Plan, Status>,
    ) -> Result<Written, Status> {
        let key = super::object::key(namespace, name);
        let mut state = self.lock();
        let current = state.kind(resource).objects.get(&key).cloned();
        let plan = plan(current.as_deref())?;
        let removed = matches!(plan.changes.last(), Some(Change::Remove(_)));
        let answer = plan
            .answer
            .map(|value| Arc::new(Object::unversioned(resource, value)));
        let mut last = current;
        for change in plan.changes {
            last = Some(if dry_run {
                preview(resource, change)
            } else {
                let event = state.commit(resource, &key, change);
                self.inner.recorded(resource, &event);
                event.object
            });
        }
        self.inner.position.send_replace(state.position);
        let object = answer
            .or(last)
            .ok_or_else(|| Status::not_found(resource, name))?;
        Ok(Written { object, removed })
    }

    /// Up to `limit` events of a kind after `revision`, and the newest revision if these are all.
    pub(super) fn events_after(
        &self,
        resource: &Resource,
        from: Position,
        limit: usize,
    ) -> Result<(Vec<Event>, u64), Lost> {
        let state = self.lock();
        if state.position.generation != from.generation {
            return Err(Lost::Replaced);
        }
        let history = &state.kind(resource).history;
        let events = history
            .after(from.revision)
            .ok_or_else(|| Lost::Expired(history.oldest()))?;
        let events: Vec<Event> = events.take(limit).cloned().collect();
        let complete_to = match events.last() {
            Some(last) if events.len() == limit => last.revision,
            _ => state.position.revision.max(from.revision),
        };
        Ok((events, complete_to))
    }

    /// What there is in a namespace, by resource and name.
    pub(super) fn names_in(&self, namespace: &str) -> Vec<(&'static str, String)> {
        let state = self.lock();
        let namespaced = RESOURCES.iter().filter(|resource| resource.namespaced);
        let objects = namespaced.flat_map(|resource| {
            let objects = state.kind(resource).objects.values();
            objects.map(|object| (resource.plural, object))
        });
        objects
            .filter(|(_, object)| object.namespace == namespace)
            .map(|(plural, object)| (plural, object.name.clone()))
            .collect()
    }

    /// The current position.
    pub(super) fn position(&self) -> Position {
        self.lock().position
    }

    /// Follows the position.
    pub(super) fn positions(&self) -> watch::Receiver<Position> {
        self.inner.position.subscribe()
    }

    fn replace(&self, mut with: State) {
        let mut state = self.lock();
        with.position.generation = state.position.generation + 1;
        *state = with;
        self.inner.replaced(&state);
        self.inner.position.send_replace(state.position);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }
}

impl State {
    fn empty(history_limit: usize) -> Self {
        let kind = || Kind {
            objects: BTreeMap::new(),
            history: History::new(history_limit, 0),
        };
        let kinds = RESOURCES
            .iter()
            .map(|resource| (resource.plural, kind()))
            .collect();
        Self {
            position: Position::default(),
            kinds,
        }
    }

    fn kind(&self, resource: &Resource) -> &Kind {
        self.kinds
            .get(resource.plural)
            .expect("every resource has its kind from the start")
    }

    /// Gives `change` the next revision, and makes it the newest event.
    fn commit(&mut self, resource: &Resource, key: &str, change: Change) -> Event {
        self.position.revision += 1;
        let revision = self.position.revision;
        let kind = self
            .kinds
            .get_mut(resource.plural)
            .expect("every resource has its kind from the start");
        let previous = kind.objects.get(key).cloned();
        let (object, removed) = match change {
            Change::Put(value) => (Arc::new(Object::new(resource, value, revision)), false),
            Change::Remove(value) => (Arc::new(Object::new(resource, value, revision)), true),
        };
        if removed {
            kind.objects.remove(key);
        } else {
            kind.objects.insert(key.to_owned(), object.clone());
        }
        let event = Event {
            revision,
            object,
            previous,
            removed,
        };
        kind.history.push(event.clone());
        event
    }
}

fn preview(resource: &Resource, change: Change) -> Arc<Object> {
    let (Change::Put(value) | Change::Remove(value)) = change;
    Arc::new(Object::unversioned(resource, value))
}

fn known(plural: &str) -> Result<&'static Resource, Status> {
    Resource::named(plural).ok_or_else(Status::no_such_resource)
}

fn text(object: &Value, field: &str) -> String {
    let text = object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
