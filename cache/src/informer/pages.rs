//! Snapshots that are kept because somebody has had a page of them and may want the next one.
//!
//! A page tells its reader the version of the whole list, and the pages after it are of that version too. The snapshots that
//! they are made from are kept for some minutes after the last page, as the server keeps its history, but no more of them
//! than the limits below allow: the oldest go first, and the server is asked to go on with their pages.
//!
//! What snapshots hold beyond the newest one is what was replaced since, so the store counts that. A relist may have brought
//! other bytes at equal versions: snapshots from before it are of another store and no longer served.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Informer, NotServable, Scope};
use crate::resource_version::ResourceVersion;
use crate::store::Snapshot;

/// Time that a snapshot is kept after a page of it was read. An apiserver keeps its history for five to ten minutes.
const KEPT_FOR: Duration = Duration::from_secs(5 * 60);

/// Bytes that the kept snapshots of an informer may hold beyond its newest one.
const MOST_BYTES: u64 = 64 << 20;

/// Snapshots that are kept of one informer: each has nodes of the map to itself, which are not counted in bytes.
const MOST_SNAPSHOTS: usize = 64;

/// Time after a new epoch in which tokens of the former one are told: an apiserver forgets versions after ten minutes at
/// most, and a client that waited longer would have been told so by the former cluster.
const FORMER_EPOCH_TOLD: Duration = Duration::from_secs(10 * 60);

/// The kept snapshots of one informer.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// Held for a few comparisons.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order of their versions.
    kept: VecDeque<Kept>,
    /// The newest version of an epoch that is over, and since when it is.
    former: Option<(ResourceVersion, Instant)>,
}

#[derive(Debug)]
struct Kept {
    snapshot: Arc<Snapshot>,
    used: Instant,
}

impl Informer {
    /// What the kind held at a version, for a read of exactly that one: a page after the first, for example. What was told to
    /// anybody since does not count, and the floor is not raised above what is shown.
    ///
    /// # Errors
    /// [`NotServable::FormerEpoch`] for a version of the cluster that was there before, which this one must not be asked
    /// for; else that the state is not held, or may not be shown now.
    pub fn read_exact(
        &self,
        (generation, epoch): (u64, u64),
        scope: Scope,
        version: ResourceVersion,
    ) -> Result<Arc<Snapshot>, NotServable> {
        self.touch();
        let current = self.current(generation, scope);
        let held = current.as_ref().ok().and_then(|current| {
            // Of a kind that may have been removed only the server may show a page.
            let shown = !current.may_be_removed();
            shown.then(|| self.pages.at(version, current)).flatten()
        });
        if let Some(snapshot) = held {
            self.floor.raise(epoch, snapshot.last_event);
            return Ok(snapshot);
        }
        let is_former = self.pages.is_former(version) || {
            // The reflector has not come to the new epoch yet.
            let published = self.published.borrow();
            let snapshot = published.snapshot.as_ref();
            published.epoch < epoch && snapshot.is_some_and(|held| held.resource_version >= version)
        };
        if is_former {
            return Err(NotServable::FormerEpoch);
        }
        current?;
        Err(NotServable::NotHeld)
    }

    /// What the kind held at a version in an epoch, though the cluster is not connected now.
    ///
    /// # Errors
    /// That is not held.
    pub fn read_exact_last_known(
        &self,
        epoch: u64,
        scope: Scope,
        version: ResourceVersion,
    ) -> Result<Arc<Snapshot>, NotServable> {
        let current = self.read_last_known(epoch, scope)?;
        self.pages.at(version, &current).ok_or(NotServable::NotHeld)
    }

    /// Keeps a snapshot for the next page of it.
    pub fn keep_for_pages(&self, snapshot: &Arc<Snapshot>) {
        if let Some(newest) = self.newest() {
            self.pages.keep(snapshot, &newest);
        }
    }

    /// Lets go of the snapshots whose pages nobody has read for long, and of those that hold too much.
    pub(crate) fn trim_pages(&self) {
        match self.newest() {
            Some(newest) => self.pages.trim(&newest),
            None => self.pages.clear(),
        }
    }

    pub(super) fn newest(&self) -> Option<Arc<Snapshot>> {
        self.published.borrow().snapshot.clone()
    }
}

impl Pages {
    fn keep(&self, snapshot: &Arc<Snapshot>, newest: &Snapshot) {
        let used = Instant::now();
        let mut state = self.state.lock();
        let at = state
            .kept
            .partition_point(|kept| kept.snapshot.last_event < snapshot.last_event);
        match state.kept.get_mut(at) {
            // The same state, then or later; the later one is the state at more versions.
            Some(kept)
                if kept.snapshot.is_of_same_store(snapshot)
                    && kept.snapshot.last_event == snapshot.last_event =>
            {
                if kept.snapshot.resource_version < snapshot.resource_version {
                    kept.snapshot = Arc::clone(snapshot);
                }
                kept.used = used;
            }
            _ => {
                let snapshot = Arc::clone(snapshot);
                state.kept.insert(at, Kept { snapshot, used });
            }
        }
        state.trim(newest);
    }

    /// The snapshot that is the state at a version: `newest`, or one that is kept.
    fn at(&self, version: ResourceVersion, newest: &Arc<Snapshot>) -> Option<Arc<Snapshot>> {
        if newest.is_state_at(version) {
            return Some(Arc::clone(newest));
        }
        let now = Instant::now();
        let mut state = self.state.lock();
        let kept = state.kept.iter_mut().find(|kept| {
            kept.snapshot.is_of_same_store(newest)
                && kept.snapshot.is_state_at(version)
                && now.duration_since(kept.used) <= KEPT_FOR
        })?;
        kept.used = now;
        Some(Arc::clone(&kept.snapshot))
    }

    fn trim(&self, newest: &Snapshot) {
        self.state.lock().trim(newest);
    }

    /// Bytes held beyond the newest snapshot, at most.
    pub(super) fn bytes(&self, newest: &Snapshot) -> u64 {
        self.state.lock().bytes(newest)
    }

    /// The epoch is over, or the informer: no page is continued.
    pub(super) fn clear(&self) {
        retire(std::mem::take(&mut self.state.lock().kept));
    }

    /// The epoch is over whose last state this was.
    pub(super) fn epoch_ended(&self, last: &Snapshot) {
        self.clear();
        let mut state = self.state.lock();
        let before = state.former.map_or(last.resource_version, |(at, _)| at);
        state.former = Some((before.max(last.resource_version), Instant::now()));
    }

    fn is_former(&self, version: ResourceVersion) -> bool {
        let state = self.state.lock();
        state
            .former
            .is_some_and(|(newest, since)| version <= newest && since.elapsed() < FORMER_EPOCH_TOLD)
    }
}

impl State {
    fn trim(&mut self, newest: &Snapshot) {
        let now = Instant::now();
        let (kept, mut gone): (VecDeque<Kept>, VecDeque<Kept>) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition(|kept| {
                kept.snapshot.is_of_same_store(newest) && now.duration_since(kept.used) <= KEPT_FOR
            });
        self.kept = kept;
        while self.kept.len() > MOST_SNAPSHOTS || self.bytes(newest) > MOST_BYTES {
            gone.extend(self.kept.pop_front());
        }
        retire(gone);
    }

    fn bytes(&self, newest: &Snapshot) -> u64 {
        let kept = self.kept.iter().map(|kept| &*kept.snapshot);
        let later = kept.clone().skip(1).chain([newest]);
        kept.zip(later)
            .map(|(kept, later)| match kept.is_of_same_store(later) {
                true => kept.bytes_beyond(later),
                false => kept.bytes() as u64,
            })
            .sum()
    }
}

/// Drops snapshots on a thread of its own kind: they may be the last to hold many objects.
fn retire(gone: VecDeque<Kept>) {
    if !gone.is_empty() {
        drop(tokio::task::spawn_blocking(move || drop(gone)));
    }
}

#[cfg(test)]
mod tests;
