//! Writes whose clients go away.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::Passed;

/// What is to be done of a write. Where its client goes away, which drops this, it goes on in a task of its own if all of the
/// write has passed to the cluster: what became of it is known when its answer comes, and whoever sends writes and hangs up
/// does not leave the proxy in doubt about each. It ends there and then if not all has passed: the cluster cannot act on it.
pub(crate) struct GoesOn<W, A>
where
    W: Future + Send + 'static,
    A: FnOnce(W::Output) + Send + 'static,
{
    /// None while it is polled, so that what panicked is not polled again, and at its end.
    work: Option<(Pin<Box<W>>, A)>,
    passed: Passed,
}

impl<W, A> GoesOn<W, A>
where
    W: Future + Send + 'static,
    A: FnOnce(W::Output) + Send + 'static,
{
    /// Work whose time is limited; `alone` gets what comes of it where its client is gone.
    pub(crate) fn new(passed: Passed, work: W, alone: A) -> Self {
        Self {
            work: Some((Box::pin(work), alone)),
            passed,
        }
    }
}

impl<W, A> Future for GoesOn<W, A>
where
    W: Future + Send + 'static,
    A: FnOnce(W::Output) + Send + Unpin + 'static,
{
    type Output = W::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<W::Output> {
        let Some((mut work, alone)) = self.work.take() else {
            return Poll::Pending;
        };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some((work, alone));
        }
        polled
    }
}

impl<W, A> Drop for GoesOn<W, A>
where
    W: Future + Send + 'static,
    A: FnOnce(W::Output) + Send + 'static,
{
    fn drop(&mut self) {
        let Some((work, alone)) = self.work.take() else {
            return;
        };
        if self.passed.break_off() {
            return;
        }
        // None where the process ends.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { alone(work.await) });
        }
    }
}
