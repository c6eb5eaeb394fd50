//! How long something that waits may wait.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Fires once one wait has lasted too long. Waits come and go thousands of times in an answer, so that each costs a look at
/// the clock and no more: the timer is set once, and again when it rings too early.
#[derive(Debug, Default)]
pub(super) struct Patience {
    since: Option<(u64, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// Nobody waits.
    pub(super) fn done(&mut self) {
        self.since = None;
    }

    /// Something waits; with another number, it is another wait than before. Ready once this one has lasted for `limit`.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, number: u64, limit: Duration) -> Poll<()> {
        let now = Instant::now();
        let since = match self.since {
            Some((same, since)) if same == number => since,
            _ => {
                self.since = Some((number, now));
                now
            }
        };
        let end = since + limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        // It may have been set for a longer wait.
        if timer.deadline() > end {
            timer.as_mut().reset(end);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if now >= end {
                return Poll::Ready(());
            }
            timer.as_mut().reset(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_own_time() {
        let mut patience = Patience::default();
        let begun = Instant::now();
        // A timer that rings for a wait that is over is set again.
        for number in 0..5 {
            let wait = poll_fn(|cx| patience.poll(cx, number, LIMIT));
            let waited = tokio::time::timeout(LIMIT * 2 / 3, wait).await;
            assert!(waited.is_err(), "{number}");
        }
        patience.done();
        tokio::time::sleep(LIMIT * 3).await;
        let begun_again = Instant::now();
        assert!(begun_again - begun > LIMIT * 5);
        poll_fn(|cx| patience.poll(cx, 4, LIMIT)).await;
        assert_eq!(begun_again.elapsed(), LIMIT);
        // A shorter one does not wait for the longer one's timer.
        let mut patience = Patience::default();
        let mut long = Box::pin(poll_fn(|cx| patience.poll(cx, 0, LIMIT * 10)));
        assert!(futures_util::poll!(&mut long).is_pending());
        drop(long);
        let begun = Instant::now();
        poll_fn(|cx| patience.poll(cx, 1, LIMIT)).await;
        assert_eq!(begun.elapsed(), LIMIT);
    }
}
