//! The recent changes of one kind, for any number of watchers.
//!
//! Changes are appended by the kind's reflector alone, in the order of their versions. A watcher holds nothing but its place
//! among them ([`crate::watcher`]), so what watchers cost does not grow with how slow they are: who is so slow that its place
//! is gone, has ended.
//!
//! ```text
//!      since                        through
//!        │  change  change  change     │
//!   ─────┴────┬───────┬───────┬────────┴───►  versions
//!             first           └ newest
//! ```
//! All changes between `since` and `through` are held. A **run** is what one list began: a relist may have skipped changes, and
//! a new epoch knows nothing of the old versions, so both begin another run, and watchers of the one before have ended.

use std::collections::{HashSet, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use slab::Slab;
use tokio::time::Instant;

use crate::bookmark::BookmarkForm;
use crate::envelope::Envelope;
use crate::floor::Floor;
use crate::form::Form;
use crate::informer::NotServable;
use crate::resource_version::ResourceVersion;
use crate::store::Change;

/// Bytes of changes that are held, whatever their age.
const MOST_BYTES: usize = 32 << 20;

/// Changes older than this are let go. A client that comes back later than this has to ask the server.
const MOST_AGE: Duration = Duration::from_secs(300);

/// The recent changes of one kind.
#[derive(Debug)]
pub(crate) struct History {
    floor: Arc<Floor>,
    /// Held for a few look-ups, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Counts the runs; none is under way where `envelope` is `None`.
    run: u64,
    epoch: u64,
    envelope: Option<Arc<Envelope>>,
    changes: VecDeque<Kept>,
    bytes: usize,
    /// How many changes of this run were let go: the number of the first that is held.
    gone: u64,
    since: ResourceVersion,
    through: ResourceVersion,
    /// Versions below it are of another run.
    expired_below: ResourceVersion,
    /// The highest version of former epochs.
    former: ResourceVersion,
    /// The version of the last change that not every selector can judge.
    unreadable: ResourceVersion,
    /// The forms in which a watch of this run has met an object that cannot be written.
    unwritable: HashSet<Discriminant<Form>>,
    /// Since when what the server does is not known.
    silent_since: Option<Instant>,
    bookmarks: Bookmarks,
    /// One for each watcher: who has found nothing since the last time that all were woken is to be woken. Under the same
    /// lock as the changes, as what an event costs a watcher is above all what has to be fetched into the processor's cache.
    watchers: Slab<Option<Waker>>,
}

#[derive(Debug)]
struct Kept {
    change: Arc<Change>,
    at: Instant,
    /// The kind was shown at its version before it came: whoever has that version may not know of it. Objects with a lease
    /// (Events) expire many at a version, and their changes need not arrive together.
    is_late: bool,
}

/// How the server writes bookmarks of the kind, as far as it has shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bookmarks {
    /// The plain one.
    pub(crate) plain: Option<Arc<BookmarkForm>>,
    /// The one that ends the initial events: a server without streaming lists has none.
    pub(crate) initial_events_end: Option<Arc<BookmarkForm>>,
}

/// Why no watch can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotWatchable {
    /// The informer cannot be read now.
    NotServable(NotServable),
    /// The version is from before another list or another epoch; versions from this one on are not.
    Expired(ResourceVersion),
    /// The changes after the version are not held any more.
    TooOld,
}

impl From<NotServable> for NotWatchable {
    fn from(why: NotServable) -> Self {
        Self::NotServable(why)
    }
}

/// Where a watcher stands.
#[derive(Debug)]
pub(crate) struct Place {
    run: u64,
    /// The number of the next change to take, in its run.
    next: u64,
    /// Its number among the watchers.
    watcher: usize,
}

/// Why a watcher has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Its run is.
    Run,
    /// Its next change was let go.
    TooSlow,
}

/// What a watcher finds at its place.
#[derive(Debug)]
pub(crate) enum Next {
    /// A change, and whether the kind was shown at its version before.
    Change(Arc<Change>, bool),
    /// None yet: it has been told of all up to this version, and the server is silent since then, if it is.
    None(ResourceVersion, Option<Instant>),
}

impl History {
    pub(crate) fn new(floor: Arc<Floor>) -> Self {
        Self {
            floor,
            state: Mutex::default(),
        }
    }

    /// A complete list of this version begins another run.
    pub(crate) fn begin(&self, epoch: u64, at: ResourceVersion, envelope: Arc<Envelope>) {
        let mut state = self.state.lock();
        // The first list of all replaces nothing that anybody could have been told of.
        if state.run > 0 {
            state.expired_below = at;
        }
        state.run += 1;
        state.epoch = epoch;
        state.envelope = Some(envelope);
        let changes = std::mem::take(&mut state.changes);
        (state.bytes, state.gone) = (0, 0);
        (state.since, state.through) = (at, at);
        state.unreadable = ResourceVersion::default();
        state.unwritable.clear();
        state.silent_since = None;
        let waiting = state.take_waiting();
        drop(state);
        wake(waiting);
        drop(changes);
    }

    /// The epoch is over: its versions mean nothing to the next one.
    pub(crate) fn end_epoch(&self) {
        {
            let mut state = self.state.lock();
            if state.envelope.is_some() {
                state.former = state.former.max(state.through);
            }
            // The server may be of another version, and write them otherwise or not at all.
            state.bookmarks = Bookmarks::default();
        }
        self.end();
    }

    /// All watches end; nothing can be begun before the next list.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        if state.envelope.take().is_some() {
            state.run += 1;
            let changes = std::mem::take(&mut state.changes);
            state.bytes = 0;
            let waiting = state.take_waiting();
            drop(state);
            wake(waiting);
            drop(changes);
        }
    }

    /// All watches end; another may begin where they were.
    pub(crate) fn interrupt(&self, envelope: Arc<Envelope>) {
        let mut state = self.state.lock();
        state.run += 1;
        state.envelope = Some(envelope);
        let waiting = state.take_waiting();
        drop(state);
        wake(waiting);
    }

    /// Takes the changes up to a version. Whoever reads with resourceVersion unset must be able to see them already.
    pub(crate) fn append(
        &self,
        changes: impl ExactSizeIterator<Item = Change>,
        through: ResourceVersion,
    ) {
        let told = changes.len() > 0;
        let now = Instant::now();
        let mut state = self.state.lock();
        let shown = state.through;
        for change in changes {
            state.bytes += change.bytes();
            if !change.is_readable() {
                state.unreadable = change.resource_version();
            }
            state.changes.push_back(Kept {
                is_late: change.resource_version() <= shown,
                change: Arc::new(change),
                at: now,
            });
        }
        state.through = state.through.max(through);
        let gone = state.let_go(now);
        // Before any watcher can take them: nobody shall read what is older than what another was told.
        if let Some(newest) = state
            .changes
            .back()
            .filter(|_| told && !state.watchers.is_empty())
        {
            self.floor
                .raise(state.epoch, newest.change.resource_version());
        }
        let waiting = if told {
            state.take_waiting()
        } else {
            Vec::new()
        };
        drop(state);
        wake(waiting);
        drop(gone);
    }

    /// The server is not heard, or heard again.
    pub(crate) fn set_silent(&self, silent: bool) {
        let mut state = self.state.lock();
        if silent != state.silent_since.is_some() {
            state.silent_since = silent.then(Instant::now);
            let waiting = state.take_waiting();
            drop(state);
            wake(waiting);
        }
    }

    /// The server has shown how it writes a bookmark.
    pub(crate) fn learn_bookmark(&self, form: BookmarkForm, ends_initial_events: bool) {
        let mut state = self.state.lock();
        if ends_initial_events {
            let plain = form.plain().map(Arc::new);
            state.bookmarks.plain = plain.or_else(|| state.bookmarks.plain.take());
            state.bookmarks.initial_events_end = Some(Arc::new(form));
        } else {
            state.bookmarks.plain = Some(Arc::new(form));
        }
    }

    pub(crate) fn bookmarks(&self) -> Bookmarks {
        self.state.lock().bookmarks.clone()
    }

    /// Lets go of what is too old.
    pub(crate) fn trim(&self) {
        let gone = self.state.lock().let_go(Instant::now());
        drop(gone);
    }

    /// Memory of the changes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    pub(crate) fn watchers(&self) -> usize {
        self.state.lock().watchers.len()
    }

    /// A watcher begins with the changes above a version, or with those that are yet to come, and is counted until
    /// [`Self::leave`].
    pub(crate) fn enter(
        &self,
        after: Option<ResourceVersion>,
    ) -> Result<(Place, Arc<Envelope>), NotWatchable> {
        let mut state = self.state.lock();
        let Some(envelope) = state.envelope.clone() else {
            return Err(match after {
                // The server would take it for a version that is yet to come.
                Some(after) if after <= state.former => NotWatchable::Expired(state.former),
                _ => NotServable::NotSynced.into(),
            });
        };
        let held = state.changes.len();
        let at = match after {
            None => held,
            // A former epoch's: it tells nothing about this one, though it may be reached one day.
            Some(after) if after < state.expired_below || state.is_former(after) => {
                return Err(NotWatchable::Expired(state.expired_below));
            }
            Some(after) if after < state.since => return Err(NotWatchable::TooOld),
            Some(after) => state.changes.partition_point(|kept| !kept.is_after(after)),
        };
        if let Some(newest) = state.changes.back().filter(|_| at < held) {
            self.floor
                .raise(state.epoch, newest.change.resource_version());
        }
        let place = Place {
            watcher: state.watchers.insert(None),
            run: state.run,
            next: state.gone + at as u64,
        };
        Ok((place, envelope))
    }

    /// The version of the last change whose fields cannot be read.
    pub(crate) fn unreadable(&self) -> ResourceVersion {
        self.state.lock().unreadable
    }

    /// Whether a watch has met an object that cannot be written in such a form.
    pub(crate) fn is_unwritable(&self, form: Form) -> bool {
        self.state.lock().unwritable.contains(&discriminant(&form))
    }

    /// A watch has met one.
    pub(crate) fn set_unwritable(&self, form: Form) {
        self.state.lock().unwritable.insert(discriminant(&form));
    }

    /// Whether there has ever been a list.
    pub(crate) fn has_begun(&self) -> bool {
        self.state.lock().run > 0
    }

    /// The counterpart of [`Self::enter`].
    pub(crate) fn leave(&self, place: &Place) {
        let waker = self.state.lock().watchers.try_remove(place.watcher);
        drop(waker);
    }

    /// What a watcher finds next. Where that is nothing, it is woken when there may be more.
    pub(crate) fn next(&self, place: &mut Place, waker: &Waker) -> Result<Next, Over> {
        let mut state = self.state.lock();
        if place.run != state.run {
            return Err(Over::Run);
        }
        let at = place.next.checked_sub(state.gone).ok_or(Over::TooSlow)?;
        let at = usize::try_from(at).map_err(|_| Over::TooSlow)?;
        Ok(match state.changes.get(at) {
            Some(kept) => {
                place.next += 1;
                Next::Change(Arc::clone(&kept.change), kept.is_late)
            }
            None => {
                state.watchers[place.watcher]
                    .get_or_insert_with(|| waker.clone())
                    .clone_from(waker);
                Next::None(state.through, state.silent_since)
            }
        })
    }
}

impl Kept {
    /// The lowest version from which a watch may begin once this is let go. One that came late may be unknown to whoever has
    /// its own version.
    fn begins_after(&self) -> ResourceVersion {
        let at = self.change.resource_version();
        match self.is_late {
            true => ResourceVersion::from_number(at.get() + 1),
            false => at,
        }
    }

    /// Whether somebody who knows the kind as it was shown at a version may not know of it.
    fn is_after(&self, version: ResourceVersion) -> bool {
        let at = self.change.resource_version();
        at > version || (at == version && self.is_late)
    }
}

fn wake(waiting: Vec<Waker>) {
    for waker in waiting {
        waker.wake();
    }
}

impl State {
    fn take_waiting(&mut self) -> Vec<Waker> {
        let waiting = self.watchers.iter_mut();
        waiting.filter_map(|(_, waker)| waker.take()).collect()
    }

    fn is_former(&self, version: ResourceVersion) -> bool {
        version > self.through && version <= self.former
    }

    /// Takes out what is too old or too much, to be dropped where nobody waits.
    fn let_go(&mut self, now: Instant) -> Vec<Kept> {
        let mut gone = Vec::new();
        while let Some(first) = self.changes.front()
            && (self.bytes > MOST_BYTES || now.duration_since(first.at) > MOST_AGE)
        {
            self.bytes -= first.change.bytes();
            self.since = first.begins_after();
            self.gone += 1;
            gone.extend(self.changes.pop_front());
        }
        gone
    }
}

#[cfg(test)]
mod tests;
