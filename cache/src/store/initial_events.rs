//! The state that a watch begins with, as the lines or frames of its first events.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::change::{EventType, write_event};
use super::{CHUNK_BYTES, STEP, Snapshot};
use crate::form::{Form, Unwritable};
use crate::key_range::KeyRange;
use crate::selector::BoundSelector;

/// The objects of a snapshot as ADDED events, in the order of a LIST, made as they are sent: a slow watcher holds the
/// snapshot and one chunk.
#[derive(Debug)]
pub struct InitialEvents {
    snapshot: Arc<Snapshot>,
    /// The keys that are yet to be looked at; `None` after the last.
    keys: Option<KeyRange>,
    form: Form,
}

impl InitialEvents {
    /// Those of a namespace, or all.
    pub fn new(snapshot: Arc<Snapshot>, form: Form, namespace: Option<&str>) -> Self {
        Self {
            snapshot,
            keys: Some(KeyRange::of_namespace(namespace)),
            form,
        }
    }

    /// The form of what is to come: what comes after the first event may have less to say.
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// The next lines of those that are selected: `None` after the last; none in it, where none was selected of those that
    /// are looked at in one go.
    ///
    /// # Errors
    /// The form has no words for one of them.
    pub fn next_chunk(&mut self, selector: &BoundSelector) -> Result<Option<Bytes>, Unwritable> {
        let Some(keys) = self.keys.take() else {
            return Ok(None);
        };
        let mut chunk = BytesMut::new();
        let mut last = None;
        for (looked_at, element) in self.snapshot.between(&keys).enumerate() {
            if looked_at == STEP || chunk.len() >= CHUNK_BYTES {
                let after = last.map(|last| format!("{last}\0"));
                self.keys = after.map(|after| keys.starting_at(after));
                break;
            }
            last = Some(&element.key);
            if selector.is_empty() || selector.matches(element) {
                let envelope = &self.snapshot.envelope;
                write_event(&mut chunk, envelope, self.form, EventType::Added, element)?;
                self.form = self.form.after_first_event();
            }
        }
        Ok(Some(chunk.freeze()))
    }
}
