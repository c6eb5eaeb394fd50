//! The state that a watch begins with, as the lines of its first events.

use std::ops::Bound;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::change::{EventType, write_event};
use super::{Element, Snapshot};
use crate::selector::BoundSelector;

/// Bytes made in one go.
const CHUNK_BYTES: usize = 64 << 10;

/// Objects looked at in one go.
const STEP: usize = 256;

/// The objects of a snapshot as ADDED events, in the order of a LIST, made as they are sent: a slow watcher holds the
/// snapshot and one chunk.
#[derive(Debug)]
pub struct InitialEvents {
    snapshot: Arc<Snapshot>,
    /// The key of the last object that was looked at.
    after: Option<Arc<str>>,
    done: bool,
}

impl InitialEvents {
    /// All of a snapshot.
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self {
            snapshot,
            after: None,
            done: false,
        }
    }

    /// The next lines of those that are selected: `None` after the last; none in it, where none was selected of those that
    /// are looked at in one go.
    pub fn next_chunk(
        &mut self,
        namespace: Option<&str>,
        selector: &BoundSelector,
    ) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let first = namespace.map(|namespace| format!("{namespace}/"));
        let from = match (&self.after, &first) {
            (Some(after), _) => Bound::Excluded(&**after),
            (None, Some(first)) => Bound::Included(&**first),
            (None, None) => Bound::Unbounded,
        };
        let mut chunk = BytesMut::new();
        let mut objects = self
            .snapshot
            .objects
            .range::<_, str>((from, Bound::Unbounded));
        let mut after = None;
        for _ in 0..STEP {
            let next = objects.next().map(|(_, element)| element);
            let in_namespace = |element: &&Arc<Element>| {
                namespace.is_none_or(|namespace| element.is_in(namespace))
            };
            let Some(element) = next.filter(in_namespace) else {
                self.done = true;
                break;
            };
            after = Some(&element.key);
            if selector.is_empty() || selector.matches(element) {
                let envelope = &self.snapshot.envelope;
                write_event(&mut chunk, envelope, EventType::Added, &element.item);
                if chunk.len() >= CHUNK_BYTES {
                    break;
                }
            }
        }
        let after = after.cloned();
        self.after = after.or_else(|| self.after.take());
        Some(chunk.freeze())
    }
}
