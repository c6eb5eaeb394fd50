//! How many clusters connect at once.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds the connects in flight: a name that does not resolve holds a thread of the blocking pool, a handshake the CPU.
///
/// A permit covers the whole attempt, so an address that swallows packets holds one for its connect timeout. Clusters
/// whose last attempt failed therefore share half of the permits: they wait for each other, never those last known good
/// for them.
#[derive(Clone, Debug)]
pub(crate) struct ConnectLimit(Arc<ArcSwap<Permits>>);

#[derive(Debug)]
struct Permits {
    all: Arc<Semaphore>,
    failed_before: Arc<Semaphore>,
}

/// The right to connect, given back on drop.
#[derive(Debug)]
pub(super) struct ConnectPermit {
    _all: Option<OwnedSemaphorePermit>,
    _failed_before: Option<OwnedSemaphorePermit>,
}

impl ConnectLimit {
    pub(crate) fn new(at_once: usize) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Permits::new(at_once))))
    }

    /// Another bound from now on; connects in flight end under the one they began with.
    pub(crate) fn set(&self, at_once: usize) {
        self.0.store(Arc::new(Permits::new(at_once)));
    }

    pub(super) async fn acquire(&self, failed_before: bool) -> ConnectPermit {
        // Neither is ever closed; without a permit the limit would only not be kept.
        let permits = self.0.load_full();
        let failed_before = if failed_before {
            Arc::clone(&permits.failed_before)
                .acquire_owned()
                .await
                .ok()
        } else {
            None
        };
        ConnectPermit {
            _failed_before: failed_before,
            _all: Arc::clone(&permits.all).acquire_owned().await.ok(),
        }
    }
}

impl Permits {
    fn new(at_once: usize) -> Self {
        let at_once = at_once.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Semaphore::new(at_once)),
            failed_before: Arc::new(Semaphore::new(at_once.div_ceil(2))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn failed_clusters_leave_half_to_the_good_ones() {
        let limit = ConnectLimit::new(4);
        let _one = limit.acquire(true).await;
        let two = limit.acquire(true).await;
        assert!(limit.acquire(true).now_or_never().is_none());
        let _three = limit.acquire(false).await;
        let _four = limit.acquire(false).await;
        assert!(limit.acquire(false).now_or_never().is_none());
        drop(two);
        assert!(limit.acquire(true).now_or_never().is_some());
        limit.set(5);
        let _five = limit.acquire(false).now_or_never().unwrap();
    }
}
