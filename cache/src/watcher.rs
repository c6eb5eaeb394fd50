//! One watch of one kind: the state it begins with, then the changes that it selects.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use tokio::time::Instant;

use crate::bookmark::BookmarkForm;
use crate::envelope::Envelope;
use crate::form::Form;
pub use crate::history::NotWatchable;
use crate::history::{Next, Place};
use crate::informer::{Informer, Scope};
use crate::resource_version::ResourceVersion;
use crate::selector::BoundSelector;
use crate::store::{InitialEvents, NotTellable, Snapshot};

/// Changes looked at in one go that the selector does not choose.
const STEP: usize = 256;

/// A watch. It holds its place among the informer's changes, and no change itself.
#[derive(Debug)]
pub struct Watcher {
    informer: Arc<Informer>,
    place: Place,
    envelope: Arc<Envelope>,
    form: Form,
    namespace: Option<String>,
    selector: BoundSelector,
    initial: Option<InitialEvents>,
    /// What tells the end of that state.
    initial_events_end: Option<Arc<BookmarkForm>>,
    /// Where it began: what it was asked to begin after, or the state that it told.
    begun: ResourceVersion,
    /// All up to this version was told, or need not be.
    told: ResourceVersion,
    /// The informer is complete through it, and so is what was told.
    through: ResourceVersion,
}

/// The watch has ended: what it would tell next is not known any more. Its client begins another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

/// What a watch has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Lines, newlines included, or frames; perhaps none, where many changes were looked at that are not selected.
    Lines(Bytes),
    /// Nothing now. The server is silent since then, if it is.
    Nothing {
        /// Since when it is not known what the server does.
        silent_since: Option<Instant>,
    },
}

impl Informer {
    /// Begins a watch of all changes above a version, or of those that are yet to come; and what is held at this moment or
    /// later.
    ///
    /// # Errors
    /// Why it cannot begin.
    pub fn watch(
        self: &Arc<Self>,
        generation: u64,
        scope: Scope,
        after: Option<ResourceVersion>,
    ) -> Result<(Watcher, Arc<Snapshot>), NotWatchable> {
        self.touch();
        let (place, envelope) = self.history().enter(after)?;
        let watcher = Watcher {
            informer: Arc::clone(self),
            place,
            envelope,
            form: Form::default(),
            namespace: None,
            selector: BoundSelector::default(),
            initial: None,
            initial_events_end: None,
            begun: after.unwrap_or_default(),
            told: after.unwrap_or_default(),
            through: ResourceVersion::default(),
        };
        let snapshot = self.current(generation, scope)?;
        Ok((watcher, snapshot))
    }

    /// Begins a watch of all changes above a version. Waits, 3 s at most, for an informer that has listed before and has yet
    /// to resume on this connection: if it is to another cluster, that would take a version of the one before for one that is
    /// yet to come, and its watch would stay mute; and who has listed the new cluster already must not be sent to list again
    /// and again.
    ///
    /// # Errors
    /// Why it cannot begin.
    pub async fn watch_after(
        self: &Arc<Self>,
        generation: u64,
        scope: Scope,
        version: ResourceVersion,
    ) -> Result<(Watcher, Arc<Snapshot>), NotWatchable> {
        if !self.is_readable_on(generation) {
            self.resumed(generation).await;
        }
        self.watch(generation, scope, Some(version))
    }

    /// Whether the server is known to stream lists as watches (KEP-3157).
    pub fn streams_lists(&self) -> bool {
        self.history().bookmarks().initial_events_end.is_some()
    }
}

impl Watcher {
    /// Of these objects only.
    #[must_use]
    pub fn of(mut self, namespace: Option<&str>, selector: BoundSelector) -> Self {
        self.namespace = namespace.map(str::to_owned);
        self.selector = selector;
        self
    }

    /// Its objects written so.
    #[must_use]
    pub fn written_as(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Whether its selector can judge all that there is to tell. Else it would end in the middle, and whoever begins it
    /// again would meet the same change.
    pub fn is_judged(&self) -> bool {
        !self.selector.reads_values() || self.begun >= self.informer.history().unreadable()
    }

    /// Whether its form is likely to have words for all that there is to tell: one that had none for an object has ended, and
    /// whoever begins it again would meet the same object.
    pub fn is_writable(&self) -> bool {
        let end = self.initial_events_end.as_ref();
        self.envelope.writes(self.form)
            && !self.informer.history().is_unwritable(self.form)
            && end.is_none_or(|end| end.at(self.begun, self.form, &self.envelope).is_some())
    }

    /// From what a snapshot holds on, which is not older than the watch.
    #[must_use]
    pub fn after(mut self, snapshot: &Snapshot) -> Self {
        self.begun = snapshot.resource_version;
        self.told = self.begun;
        self
    }

    /// First what a snapshot holds of the objects that it is of, which is not older than the watch; and its end, told by a bookmark where the server
    /// writes such.
    #[must_use]
    pub fn beginning_with(mut self, snapshot: Arc<Snapshot>, tell_end: bool) -> Self {
        self.begun = snapshot.resource_version;
        self.told = self.begun;
        self.initial = Some(InitialEvents::new(
            snapshot,
            self.form,
            self.namespace.as_deref(),
        ));
        let form = self.informer.history().bookmarks().initial_events_end;
        self.initial_events_end = form.filter(|_| tell_end);
        self
    }

    /// What there is to tell now. Where that is nothing, `waker` is woken when there may be more.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, waker: &Waker) -> Result<Told, Ended> {
        if let Some(initial) = &mut self.initial {
            let lines = initial.next_chunk(&self.selector);
            self.form = initial.form();
            if let Some(lines) = lines.map_err(|why| self.end(why.into()))? {
                return Ok(Told::Lines(lines));
            }
            self.initial = None;
        }
        if let Some(end) = self.initial_events_end.take() {
            let line = end.at(self.begun, self.form, &self.envelope);
            return Ok(Told::Lines(self.first(line.unwrap_or_default())));
        }
        for _ in 0..STEP {
            let next = self.informer.history().next(&mut self.place, waker);
            let (change, is_late) = match next.map_err(|_| Ended)? {
                Next::Change(change, is_late) => (change, is_late),
                Next::None(through, silent_since) => {
                    self.through = through;
                    return Ok(Told::Nothing { silent_since });
                }
            };
            let at = change.resource_version();
            // Told by the state that it began with, unless that was shown before the change came. Rather is an object gone
            // twice than never.
            if at < self.begun || (at == self.begun && !is_late) {
                continue;
            }
            let (form, namespace) = (self.form, self.namespace.as_deref());
            let line = change.line(&self.envelope, form, namespace, &self.selector);
            if let Some(line) = line.map_err(|why| self.end(why))? {
                self.told = at;
                return Ok(Told::Lines(self.first(line)));
            }
        }
        Ok(Told::Lines(Bytes::new()))
    }

    /// Lines that may be the first.
    fn first(&mut self, lines: Bytes) -> Bytes {
        if !lines.is_empty() {
            self.form = self.form.after_first_event();
        }
        lines
    }

    fn end(&self, why: NotTellable) -> Ended {
        if why == NotTellable::Unwritable {
            self.informer.history().set_unwritable(self.form);
        }
        Ended
    }

    /// A bookmark, where there was anything since the watch began. Only after all was told that there was to tell. As the
    /// server's, it may say what an event or another bookmark has said: clients wait for the one before the end.
    pub fn bookmark(&mut self) -> Option<Bytes> {
        if self.through <= self.begun || self.through < self.told {
            return None;
        }
        let form = self.informer.history().bookmarks().plain?;
        self.told = self.through;
        let line = form.at(self.through, self.form, &self.envelope)?;
        Some(self.first(line))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.informer.touch();
        self.informer.history().leave(&self.place);
    }
}

#[cfg(test)]
mod tests;
