//! What the self-checks of all informers share: how often they are due, how much they may ask of clusters, what they found.
//!
//! One check is described in `reflector/self_check.rs`. Here is what keeps a thousand clusters' checks from being a load:
//! a rate, and no place that is held while a server answers, since one that is slow would then hold up all others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// Objects of which the whole fleet is asked in a second: a percent or two of a core here, by what reading their metadata
/// takes, and much less at any one server.
const OBJECTS_PER_SECOND: u32 = 2000;

/// What a question costs, however few objects it is about, in objects.
const QUESTION: u32 = 50;

/// A question that could not be sent within this time is not waited for: an informer whose watch ends meanwhile would have
/// taken its turn for nothing.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The self-checks of all informers.
#[derive(Debug)]
pub(crate) struct SelfChecks {
    /// Zero: there are none.
    interval: watch::Sender<Duration>,
    /// When the next question may be sent. Held for a moment, never across an await.
    next: Mutex<Instant>,
    equal: AtomicU64,
    skipped: AtomicU64,
    mismatches: AtomicU64,
}

/// What self-checks have found since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SelfCheckTotals {
    /// Checks that found an informer to hold what its cluster holds.
    pub equal: u64,
    /// Checks that found nothing out: the server could not answer for the version, or not at all.
    pub skipped: u64,
    /// Checks that found an informer to hold something else than its cluster: each is a bug, of the proxy or of the server.
    pub mismatches: u64,
}

impl SelfChecks {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval: watch::Sender::new(interval),
            next: Mutex::new(Instant::now()),
            equal: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            mismatches: AtomicU64::new(0),
        }
    }

    /// How often an informer is checked, and whether that has changed.
    pub(crate) fn interval(&self) -> watch::Receiver<Duration> {
        self.interval.subscribe()
    }

    pub(crate) fn set_interval(&self, interval: Duration) {
        self.interval.send_if_modified(|known| {
            let before = std::mem::replace(known, interval);
            before != interval
        });
    }

    /// When a question about so many objects may be sent; `None` where others have used up what may be asked for now.
    pub(crate) fn reserve(&self, objects: usize) -> Option<Instant> {
        let objects = u32::try_from(objects).unwrap_or(u32::MAX);
        let takes = Duration::from_secs(1) * objects.saturating_add(QUESTION) / OBJECTS_PER_SECOND;
        let now = Instant::now();
        let mut next = self.next.lock();
        let at = now.max(*next);
        if at - now > LONGEST_WAIT {
            return None;
        }
        *next = at + takes;
        Some(at)
    }

    pub(crate) fn count_equal(&self) {
        self.equal.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_mismatch(&self) {
        self.mismatches.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> SelfCheckTotals {
        SelfCheckTotals {
            equal: self.equal.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
            mismatches: self.mismatches.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_thousand_informers_are_asked_about_one_after_the_other() {
        let checks = SelfChecks::new(Duration::from_secs(300));
        let start = Instant::now();
        let mut asked = 0;
        while let Some(at) = checks.reserve(450) {
            // A quarter of a second for 500.
            assert_eq!(at - start, Duration::from_millis(250) * asked);
            asked += 1;
        }
        assert_eq!(asked, 41, "what fits into ten seconds and begins at once");
        tokio::time::advance(Duration::from_secs(1)).await;
        for more in [true, true, true, true, false] {
            assert_eq!(checks.reserve(450).is_some(), more);
        }
        // What was not used is not saved up.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(checks.reserve(1), Some(Instant::now()));
        assert!(checks.reserve(1).unwrap() > Instant::now());
    }
}
