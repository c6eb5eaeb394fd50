//! How often others get their turn while something works, for tests: a count, and no time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `work` beside a task that is always ready, on the test's own thread, and counts the turns of that task.
pub(crate) async fn turns_during<T>(work: impl Future<Output = T>) -> (T, usize) {
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let neighbour = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let done = work.await;
    neighbour.abort();
    (done, turns.load(Ordering::Relaxed))
}
