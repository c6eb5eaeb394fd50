//! A panic is a bug, and it stays with the task in which it happens.
//!
//! The process counts and logs each in its panic hook. What is left to do here is to keep the task's work from ending with
//! it: work that is to last as long as a cluster or the process is done anew after a pause, and what it had in hand is not
//! trusted any more. No lock of this crate is poisoned by a panic; whoever catches one says what makes good for a change
//! that was half made.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use crate::backoff::Backoff;

#[cfg(not(panic = "unwind"))]
compile_error!("a panic must not end the process: build with panic = \"unwind\"");

/// The pauses after panics in a row: a bug that comes back at once must not cost a core, nor its cluster a list a second.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What went well for so long begins with the first pause again.
const STEADY: Duration = Duration::from_secs(300);

/// Something panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it panicked")]
pub struct Panicked;

/// Does some work, and tells whether it panicked.
///
/// # Errors
/// It did. What it shared with others may be half changed.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let caught = AssertUnwindSafe(work).catch_unwind().await;
    caught.map_err(|_| Panicked)
}

/// Does some work to its end: anew after each panic, with a pause in between. `task` names it in the log.
pub async fn run_again<F: Future>(task: &'static str, mut work: impl FnMut() -> F) -> F::Output {
    let mut pauses = Pauses::default();
    loop {
        // The call itself may panic, not only what it returns.
        if let Ok(done) = caught(async { work().await }).await {
            return done;
        }
        let pause = pauses.next();
        tracing::error!(task, retry_in = ?pause, "a task panicked; it runs again");
        tokio::time::sleep(pause).await;
    }
}

/// The pauses after the panics of one task.
#[derive(Debug)]
pub(crate) struct Pauses {
    backoff: Backoff,
    /// When the last one was over.
    since: Instant,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            backoff: Backoff::new(PAUSES.0, PAUSES.1),
            since: Instant::now(),
        }
    }
}

impl Pauses {
    /// The pause to make now.
    pub(crate) fn next(&mut self) -> Duration {
        let now = Instant::now();
        if now.duration_since(self.since) >= STEADY {
            self.backoff.reset();
        }
        let pause = self.backoff.next_pause();
        self.since = now + pause;
        pause
    }
}

/// Panics that a test has planned, at places that the code under test comes by. A thread has its own plan, and each test
/// its own thread.
#[cfg(test)]
pub(crate) mod planned {
    use std::cell::RefCell;
    use std::collections::HashMap;

    thread_local! {
        static PLAN: RefCell<HashMap<&'static str, (u32, u32)>> = RefCell::default();
    }

    /// The next so many times that this thread comes by a place, it panics there.
    pub(crate) fn plan(place: &'static str, times: u32) {
        PLAN.with_borrow_mut(|plan| plan.insert(place, (times, 0)));
    }

    /// How often this thread has come by a place since it was planned.
    pub(crate) fn visits(place: &'static str) -> u32 {
        PLAN.with_borrow(|plan| plan.get(place).map_or(0, |(_, visits)| *visits))
    }

    /// A place.
    pub(crate) fn here(place: &'static str) {
        let panics = PLAN.with_borrow_mut(|plan| {
            let Some((left, visits)) = plan.get_mut(place) else {
                return false;
            };
            *visits += 1;
            let panics = *left > 0;
            *left = left.saturating_sub(1);
            panics
        });
        assert!(!panics, "planned at {place}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_is_done_anew_after_longer_and_longer_pauses() {
        let start = Instant::now();
        let mut begun = Vec::new();
        let done = run_again("test", || {
            begun.push(start.elapsed().as_secs_f64());
            let times = begun.len();
            // Once at the call, else later.
            assert_ne!(times, 3, "on purpose");
            async move {
                tokio::task::yield_now().await;
                assert!(times > 7, "on purpose");
                "done"
            }
        });
        assert_eq!(done.await, "done");
        let pauses = begun.windows(2).map(|two| two[1] - two[0]);
        for (pause, full) in pauses.zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0]) {
            assert!((full * 0.5..=full + 0.01).contains(&pause), "{begun:?}");
        }
        assert_eq!(begun.len(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_after_a_long_time_is_a_first_one() {
        let mut pauses = Pauses::default();
        for _ in 0..10 {
            pauses.next();
        }
        assert!(pauses.next() >= PAUSES.1 / 2);
        tokio::time::advance(PAUSES.1 + STEADY).await;
        assert!(pauses.next() <= PAUSES.0);
    }

    #[tokio::test]
    async fn a_call_that_panics_is_caught_too() {
        fn fails() -> std::future::Ready<()> {
            panic!("on purpose")
        }
        assert_eq!(caught(async { fails().await }).await, Err(Panicked));
        assert_eq!(caught(async { 7 }).await, Ok(7));
    }
}
