//! What happened to one kind lately: watches resume from it, and lists at an older revision are computed with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::object::Object;

/// One change of one object.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// The revision of the change.
    pub(super) revision: u64,
    /// The object after the change; of a removed one the last state, at the revision of its removal.
    pub(super) object: Arc<Object>,
    /// The object before the change.
    pub(super) previous: Option<Arc<Object>>,
    /// Whether the object is gone.
    pub(super) removed: bool,
}

/// The newest events of a kind, oldest first.
#[derive(Clone, Debug)]
pub(super) struct History {
    events: VecDeque<Event>,
    limit: usize,
    /// Every event after this revision is still here.
    complete_after: u64,
}

impl History {
    pub(super) fn new(limit: usize, revision: u64) -> Self {
        Self {
            events: VecDeque::new(),
            limit,
            complete_after: revision,
        }
    }

    pub(super) fn push(&mut self, event: Event) {
        self.events.push_back(event);
        while self.events.len() > self.limit {
            let dropped = self
                .events
                .pop_front()
                .expect("it holds more than its limit");
            self.complete_after = dropped.revision;
        }
    }

    /// Forgets everything up to `revision`.
    pub(super) fn compact(&mut self, revision: u64) {
        self.events.retain(|event| event.revision > revision);
        self.complete_after = self.complete_after.max(revision);
    }

    /// The oldest revision that can be resumed from.
    pub(super) fn oldest(&self) -> u64 {
        self.complete_after
    }

    /// The events after `revision`, or `None` if some of them are forgotten.
    pub(super) fn after(&self, revision: u64) -> Option<impl DoubleEndedIterator<Item = &Event>> {
        let start = self
            .events
            .partition_point(|event| event.revision <= revision);
        (revision >= self.complete_after).then(|| self.events.range(start..))
    }

    /// The objects as they stood at `revision`: `current` with every later event undone.
    pub(super) fn rewind(
        &self,
        current: &BTreeMap<String, Arc<Object>>,
        revision: u64,
    ) -> Option<BTreeMap<String, Arc<Object>>> {
        let mut objects = current.clone();
        for event in self.after(revision)?.rev() {
            match &event.previous {
                Some(previous) => objects.insert(previous.key(), previous.clone()),
                None => objects.remove(&event.object.key()),
            };
        }
        Some(objects)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::resource::Resource;

    fn object(name: &str, revision: u64) -> Arc<Object> {
        let value = json!({"metadata": {"name": name}});
        Arc::new(Object::new(
            Resource::named("nodes").unwrap(),
            value,
            revision,
        ))
    }

    fn event(revision: u64, name: &str, previous: Option<u64>, removed: bool) -> Event {
        let previous = previous.map(|revision| object(name, revision));
        Event {
            revision,
            object: object(name, revision),
            previous,
            removed,
        }
    }

    #[test]
    fn what_is_forgotten_is_expired() {
        let mut history = History::new(2, 10);
        for revision in 11..=14 {
            history.push(event(revision, "a", None, false));
        }
        assert!(history.after(11).is_none());
        let revisions: Vec<u64> = history
            .after(12)
            .unwrap()
            .map(|event| event.revision)
            .collect();
        assert_eq!(revisions, [13, 14]);
        assert_eq!(history.after(99).unwrap().count(), 0);
        history.compact(13);
        assert_eq!(history.oldest(), 13);
        assert_eq!(history.after(13).unwrap().count(), 1);
    }

    #[test]
    fn an_older_state_is_the_newest_with_the_later_events_undone() {
        let mut history = History::new(10, 0);
        history.push(event(1, "a", None, false));
        history.push(event(2, "b", None, false));
        history.push(event(3, "a", Some(1), false));
        history.push(event(4, "b", Some(2), true));
        let current = BTreeMap::from([("a".to_owned(), object("a", 3))]);
        let at = |revision| {
            let objects = history.rewind(&current, revision).unwrap();
            objects
                .values()
                .map(|object| (object.name.clone(), object.revision))
                .collect::<Vec<_>>()
        };
        assert_eq!(at(4), [("a".to_owned(), 3)]);
        assert_eq!(at(3), [("a".to_owned(), 3), ("b".to_owned(), 2)]);
        assert_eq!(at(2), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert_eq!(at(1), [("a".to_owned(), 1)]);
    }
}
