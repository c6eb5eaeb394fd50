//! What all reflectors of a cluster share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Semaphore;

use crate::eviction::Fleet;
use crate::self_checks::SelfChecks;

/// Second watches of a cluster that are open at once: what a connection of 80 informers has left of its 100 streams is for
/// short questions too.
const SECOND_WATCHES: usize = 10;

/// What all reflectors of a cluster share.
#[derive(Debug)]
pub(crate) struct Settings {
    max_objects_per_kind: AtomicU64,
    /// The server refuses streaming lists, or ignores what asks for them: lists are paged.
    pages: AtomicBool,
    second_watches: Semaphore,
    self_checks: Arc<SelfChecks>,
    self_check_turn: Semaphore,
    /// Complete lists of all kinds.
    lists: AtomicU64,
}

impl Settings {
    pub(crate) fn new(fleet: &Fleet) -> Self {
        Self {
            max_objects_per_kind: AtomicU64::new(fleet.config().max_objects_per_kind),
            pages: AtomicBool::new(false),
            second_watches: Semaphore::new(SECOND_WATCHES),
            self_checks: Arc::clone(fleet.self_checks()),
            self_check_turn: Semaphore::new(1),
            lists: AtomicU64::new(0),
        }
    }

    /// An informer has listed its kind to the end.
    pub(crate) fn count_list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that was so.
    pub(super) fn lists(&self) -> u64 {
        self.lists.load(Ordering::Relaxed)
    }

    pub(super) fn set_max_objects_per_kind(&self, most: u64) {
        self.max_objects_per_kind.store(most, Ordering::Relaxed);
    }

    pub(crate) fn max_objects_per_kind(&self) -> u64 {
        self.max_objects_per_kind.load(Ordering::Relaxed)
    }

    pub(crate) fn pages_lists(&self) -> bool {
        self.pages.load(Ordering::Relaxed)
    }

    pub(crate) fn page_lists(&self) {
        self.pages.store(true, Ordering::Relaxed);
    }

    /// Places for the second watches of informers that catch up.
    pub(crate) fn second_watches(&self) -> &Semaphore {
        &self.second_watches
    }

    /// What the self-checks of all clusters share.
    pub(crate) fn self_checks(&self) -> &SelfChecks {
        &self.self_checks
    }

    /// The place of the one informer that is checked.
    pub(crate) fn self_check_turn(&self) -> &Semaphore {
        &self.self_check_turn
    }
}
