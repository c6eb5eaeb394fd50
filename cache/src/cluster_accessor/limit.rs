//! How many clusters connect at once.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds the connects in flight: a name that does not resolve holds a thread of the blocking pool, a handshake the CPU.
///
/// A permit does not cover the wait for a SYN's answer: see [`Turn`]. Clusters whose last attempt failed share half of the
/// permits: they wait for each other, never those last known good for them.
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

/// An attempt's turn to connect. An address that answers does so within a round trip; one that swallows packets gives its
/// permit back after a moment, and must have another before it goes on to TLS. So a thousand black holes hold up nobody.
#[derive(Debug)]
pub(crate) struct Turn {
    limit: ConnectLimit,
    failed_before: bool,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    permit: Option<ConnectPermit>,
    /// The server has answered: the permit is held to the end of the attempt.
    answered: bool,
}

/// How long an attempt holds its permit without an answer: longer than a packet takes to the other side of the earth, and
/// than a name server that is well.
const ANSWERED_WITHIN: Duration = Duration::from_millis(250);

impl Turn {
    /// Waits for a permit.
    pub(super) async fn take(limit: ConnectLimit, failed_before: bool) -> Arc<Self> {
        let permit = limit.acquire(failed_before).await;
        Arc::new(Self {
            limit,
            failed_before,
            held: Mutex::new(Held {
                permit: Some(permit),
                answered: false,
            }),
        })
    }

    /// Runs an attempt, which gives its permit back while it waits for an answer that does not come soon.
    pub(super) async fn while_waiting<T>(&self, attempt: impl Future<Output = T>) -> T {
        let mut attempt = pin!(attempt);
        tokio::select! {
            outcome = &mut attempt => return outcome,
            () = tokio::time::sleep(ANSWERED_WITHIN) => {}
        }
        self.give_back_unless_answered();
        attempt.await
    }

    /// The server has answered: TLS may begin when this returns.
    pub(crate) async fn answered(&self) {
        {
            let mut held = self.held.lock();
            held.answered = true;
            if held.permit.is_some() {
                return;
            }
        }
        let permit = self.limit.acquire(self.failed_before).await;
        self.held.lock().permit = Some(permit);
    }

    fn give_back_unless_answered(&self) {
        let mut held = self.held.lock();
        if !held.answered {
            held.permit = None;
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

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_an_answer_holds_nothing() {
        let limit = ConnectLimit::new(1);
        let hole = Turn::take(limit.clone(), false).await;
        let mut waiting = Box::pin(hole.while_waiting(std::future::pending::<()>()));
        assert!((&mut waiting).now_or_never().is_none());
        assert!(limit.acquire(false).now_or_never().is_none());
        tokio::time::advance(ANSWERED_WITHIN).await;
        assert!((&mut waiting).now_or_never().is_none());
        let other = Turn::take(limit.clone(), false).now_or_never().unwrap();
        // It answers after all: its turn comes when the other's is over.
        assert!(hole.answered().now_or_never().is_none());
        other.answered().now_or_never().unwrap();
        drop(other);
        hole.answered().now_or_never().unwrap();
        assert!(
            limit.acquire(false).now_or_never().is_none(),
            "it is held to the end"
        );
        drop(waiting);
        drop(hole);
        assert!(limit.acquire(false).now_or_never().is_some());
    }
}
