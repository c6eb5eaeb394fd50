//! How many credential plugins run at once.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Plugins that run at once in the process: each is an interpreter of some hundred megabytes as often as not, and a fleet
/// whose tokens end together would start a thousand.
pub(super) const AT_ONCE: usize = 4;

/// How long a plugin waits for its place, which is not counted as its own time.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

pub(super) static PLACES: Places = Places::new();

/// The places of the plugins that run. Those of clusters whose last run failed share half of them: plugins that hang wait for
/// each other, and hold up the others' at their first run at most.
pub(super) struct Places {
    all: Semaphore,
    failed_before: Semaphore,
}

/// One place, given back on drop.
pub(super) struct Place<'a> {
    _all: SemaphorePermit<'a>,
    _failed_before: Option<SemaphorePermit<'a>>,
}

impl Places {
    const fn new() -> Self {
        Self {
            all: Semaphore::const_new(AT_ONCE),
            failed_before: Semaphore::const_new(AT_ONCE / 2),
        }
    }

    /// Waits for a place, first come, first served; none where that takes too long.
    pub(super) async fn take(&self, failed_before: bool) -> Option<Place<'_>> {
        let place = async {
            // Neither is ever closed.
            let among_failed = match failed_before {
                true => Some(self.failed_before.acquire().await.ok()?),
                false => None,
            };
            Some(Place {
                _all: self.all.acquire().await.ok()?,
                _failed_before: among_failed,
            })
        };
        timeout(PATIENCE, place).await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test(start_paused = true)]
    async fn plugins_that_failed_leave_half_to_the_others() {
        let places = Places::new();
        let _one = places.take(true).await;
        let two = places.take(true).await;
        assert!(places.take(true).now_or_never().is_none());
        let three = places.take(false).await;
        let _four = places.take(false).await;
        assert!(places.take(false).now_or_never().is_none());
        drop(two);
        assert!(places.take(true).now_or_never().is_some());
        drop(three);
        let _again = places.take(true).now_or_never().unwrap().unwrap();
        let _other = places.take(false).now_or_never().unwrap().unwrap();
        // The clock is paused and stands where nobody has to wait: it goes on by the patience and no more.
        let before = tokio::time::Instant::now();
        assert!(places.take(false).await.is_none());
        assert_eq!(before.elapsed(), PATIENCE);
    }
}
