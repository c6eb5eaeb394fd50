//! Below what no reader may see a storage: the newest state that anybody was told of through this proxy.
//!
//! A read with resourceVersion unset is served from a snapshot only if the snapshot is complete through the floor and
//! holds nothing that is known to be gone. So a writer sees its writes, and nobody goes back in time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::resource_version::ResourceVersion;
use crate::store::Snapshot;
use crate::told_list::PendingList;

/// How long an uid is remembered whose DELETED event came: the answer to the DELETE may come after it.
const DELETED_REMEMBERED: Duration = Duration::from_secs(300);

/// How long an uid known to be deleted is kept without its event. An informer that has not moved for so long has lost
/// its connection and has resumed or relisted since.
const GONE_REMEMBERED: Duration = Duration::from_secs(1800);

/// Lists that wait to be found in an informer; who tells more of them at a time raises the floor.
const PENDING_LISTS: usize = 64;

/// The floor of one storage.
#[derive(Debug, Default)]
pub struct Floor {
    /// Held for a few look-ups, never across an await.
    state: Mutex<FloorState>,
}

#[derive(Debug, Default)]
struct FloorState {
    epoch: u64,
    resource_version: ResourceVersion,
    /// Writes whose effect is not known yet: reads go live until a resourceVersion taken afterwards is in the floor.
    unconfirmed: usize,
    /// Somebody asks for that version, and goes on until there is nothing unconfirmed.
    confirming: bool,
    /// Objects known to be deleted whose DELETED event has not come, by uid. Shared with the readers that arrived
    /// meanwhile: an event that comes after a reader's arrival must not hide from it what it needs.
    gone: Arc<HashMap<String, Gone>>,
    /// Somebody will ask for a version that tells of those.
    checking_gone: bool,
    /// Deletions whose event came, oldest first.
    deleted: VecDeque<Deleted>,
    /// Lists that were told and are not known to be shown by an informer.
    lists: Vec<Arc<PendingList>>,
}

#[derive(Debug)]
struct Deleted {
    uid: String,
    at: ResourceVersion,
    since: Instant,
}

impl FloorState {
    /// Forgets what is too old, and what no reader can see any more since all need a version that knows better.
    fn forget_gone(&mut self, is_old: impl Fn(&Gone) -> bool) {
        let needed = self.resource_version;
        let is_settled = |gone: &Gone| gone.checked_at.is_some_and(|at| at <= needed);
        if self
            .gone
            .values()
            .any(|gone| is_settled(gone) || is_old(gone))
        {
            Arc::make_mut(&mut self.gone).retain(|_, gone| !is_settled(gone) && !is_old(gone));
        }
    }
}

#[derive(Clone, Debug)]
struct Gone {
    key: String,
    since: Instant,
    /// A version taken live after the answer: a snapshot complete through it knows better.
    checked_at: Option<ResourceVersion>,
}

impl Gone {
    /// Whether a snapshot shows the object though it is known to be gone.
    fn is_shown_by(&self, uid: &str, snapshot: &Snapshot) -> bool {
        self.checked_at
            .is_none_or(|checked_at| snapshot.resource_version < checked_at)
            && snapshot
                .get(&self.key)
                .is_some_and(|element| &*element.uid == uid)
    }
}

/// What a reader needs, as it stood when the reader arrived. Taken before the snapshot it is compared with: events are
/// published first and leave the floor afterwards.
#[derive(Clone, Debug)]
pub struct Needed {
    resource_version: ResourceVersion,
    gone: Arc<HashMap<String, Gone>>,
    lists: Vec<Arc<PendingList>>,
}

impl Needed {
    /// Whether a snapshot shows all that this reader may already know of.
    pub fn admits(&self, snapshot: &Snapshot) -> bool {
        snapshot.resource_version >= self.resource_version
            && !self
                .gone
                .iter()
                .any(|(uid, gone)| gone.is_shown_by(uid, snapshot))
            && self
                .lists
                .iter()
                .all(|list| snapshot.resource_version >= list.shown_at())
    }
}

impl Floor {
    /// Something of this version was told to somebody.
    pub fn raise(&self, epoch: u64, to: ResourceVersion) {
        if let Some(mut state) = self.in_epoch(epoch) {
            state.resource_version = state.resource_version.max(to);
        }
    }

    /// A list was told that no informer is known to show. False where it is not kept: the epoch is over, or there are too
    /// many.
    pub(crate) fn told_list(&self, epoch: u64, list: &Arc<PendingList>) -> bool {
        let Some(mut state) = self.in_epoch(epoch) else {
            return false;
        };
        if state.lists.len() == PENDING_LISTS {
            return false;
        }
        state.lists.push(Arc::clone(list));
        true
    }

    /// Every snapshot of this version shows a list. Those who wait for it already wait for no more.
    pub(crate) fn list_shown(&self, epoch: u64, list: &Arc<PendingList>, at: ResourceVersion) {
        if let Some(mut state) = self.in_epoch(epoch) {
            state.resource_version = state.resource_version.max(at);
            list.is_shown_at(at);
            state.lists.retain(|known| !Arc::ptr_eq(known, list));
        }
    }

    /// An object is known to be deleted, though the answer told no version. True where the caller must see to it that
    /// [`Self::gone_checked`] is told in a while.
    pub fn gone(&self, epoch: u64, key: &str, uid: &str) -> bool {
        let Some(mut state) = self.in_epoch(epoch) else {
            return false;
        };
        if let Some(deleted) = state.deleted.iter().find(|deleted| deleted.uid == uid) {
            // The informer of another version may not have got that far.
            state.resource_version = state.resource_version.max(deleted.at);
            return false;
        }
        let now = Instant::now();
        let entry = Gone {
            key: key.to_owned(),
            since: now,
            checked_at: None,
        };
        state.forget_gone(|gone| now.duration_since(gone.since) >= GONE_REMEMBERED);
        Arc::make_mut(&mut state.gone).insert(uid.to_owned(), entry);
        !std::mem::replace(&mut state.checking_gone, true)
    }

    /// A DELETED event of this version came. It takes the place of the uid, also for readers of another version of the
    /// resource, whose informer may not have got that far.
    pub fn deleted(&self, epoch: u64, uid: &str, at: ResourceVersion) {
        let Some(mut state) = self.in_epoch(epoch) else {
            return;
        };
        if state.gone.contains_key(uid) {
            Arc::make_mut(&mut state.gone).remove(uid);
            state.resource_version = state.resource_version.max(at);
        }
        let now = Instant::now();
        while state
            .deleted
            .front()
            .is_some_and(|deleted| now.duration_since(deleted.since) > DELETED_REMEMBERED)
        {
            state.deleted.pop_front();
        }
        let uid = uid.to_owned();
        let since = now;
        state.deleted.push_back(Deleted { uid, at, since });
    }

    /// The newest version that was told to anybody.
    pub fn told(&self, epoch: u64) -> ResourceVersion {
        self.in_epoch(epoch)
            .map_or_else(ResourceVersion::default, |state| state.resource_version)
    }

    /// The version at which a snapshot is below for nobody: the newest that was told, and those taken to check deletions.
    pub fn goal(&self, epoch: u64) -> ResourceVersion {
        let Some(state) = self.in_epoch(epoch) else {
            return ResourceVersion::default();
        };
        let checked = state.gone.values().filter_map(|gone| gone.checked_at);
        checked.fold(state.resource_version, ResourceVersion::max)
    }

    /// Whether a deletion still waits for its event, unchecked. Where none does, checking ends.
    pub fn has_gone_to_check(&self, epoch: u64) -> bool {
        let Some(mut state) = self.in_epoch(epoch) else {
            return false;
        };
        let mut gone = state.gone.values();
        state.checking_gone = gone.any(|gone| gone.checked_at.is_none());
        state.checking_gone
    }

    /// A version taken live at `asked` or later: what holds an object at that version which was known to be gone before
    /// is right, and the deletion was none (a dry run asked for in the request's body).
    pub fn gone_checked(&self, epoch: u64, asked: Instant, at: ResourceVersion) {
        if let Some(mut state) = self.in_epoch(epoch) {
            for gone in Arc::make_mut(&mut state.gone).values_mut() {
                if gone.since <= asked && gone.checked_at.is_none() {
                    gone.checked_at = Some(at);
                }
            }
            state.forget_gone(|_| false);
        }
    }

    /// A whole list of this version replaced what was held. What it does not hold may be gone, or not made yet: only a
    /// version taken after the deletion tells.
    pub fn replaced(&self, epoch: u64, at: ResourceVersion) {
        if let Some(mut state) = self.in_epoch(epoch) {
            state.resource_version = state.resource_version.max(at);
            state.forget_gone(|_| false);
        }
    }

    /// A write's effect is unknown until [`Self::confirmed`]. True where the caller must see to that.
    pub fn unconfirmed(&self, epoch: u64) -> bool {
        let Some(mut state) = self.in_epoch(epoch) else {
            return false;
        };
        state.unconfirmed += 1;
        !std::mem::replace(&mut state.confirming, true)
    }

    /// How many writes a version taken from now on confirms. Where there is none, confirming ends.
    pub fn to_confirm(&self, epoch: u64) -> Option<usize> {
        let mut state = self.in_epoch(epoch)?;
        state.confirming = state.unconfirmed > 0;
        state.confirming.then_some(state.unconfirmed)
    }

    /// A version taken live after these writes: they are in it.
    pub fn confirmed(&self, epoch: u64, writes: usize, at: ResourceVersion) {
        if let Some(mut state) = self.in_epoch(epoch) {
            state.unconfirmed = state.unconfirmed.saturating_sub(writes);
            state.resource_version = state.resource_version.max(at);
        }
    }

    /// What a reader who arrives now needs; `None` while a write's effect is not known yet.
    pub fn needed(&self) -> Option<Needed> {
        let state = self.state.lock();
        (state.unconfirmed == 0).then(|| Needed {
            resource_version: state.resource_version,
            gone: Arc::clone(&state.gone),
            lists: state.lists.clone(),
        })
    }

    /// The state, if `epoch` is not over; a newer epoch starts with an empty floor.
    fn in_epoch(&self, epoch: u64) -> Option<parking_lot::MutexGuard<'_, FloorState>> {
        let mut state = self.state.lock();
        if epoch > state.epoch {
            *state = FloorState {
                epoch,
                ..FloorState::default()
            };
        }
        (epoch == state.epoch).then_some(state)
    }
}

#[cfg(test)]
mod tests;
