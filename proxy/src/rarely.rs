//! A future that is seldom ready, beside one that is polled all the time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

/// Polls a future only where it was woken. To poll it each time that its task does something costs as much as a look at
/// memory that all connections share: a token's lock, a timer's entry.
pub struct Rarely<F>(FuturesUnordered<F>);

impl<F: Future> Rarely<F> {
    /// This one.
    pub fn new(future: F) -> Self {
        Self(std::iter::once(future).collect())
    }
}

impl<F: Future> Future for Rarely<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.0.poll_next_unpin(context) {
            Poll::Ready(Some(output)) => Poll::Ready(output),
            // Polled again after its end it is over for good.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::poll_fn;
    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn it_is_polled_when_it_is_woken_and_not_otherwise() {
        let (token, polls) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&polls);
        let mut cancelled = Box::pin(token.clone().cancelled_owned());
        let mut rarely = Rarely::new(poll_fn(move |context| {
            counted.fetch_add(1, Ordering::Relaxed);
            cancelled.as_mut().poll(context)
        }));
        for _ in 0..100 {
            let pending = futures_util::poll!(&mut rarely).is_pending();
            assert!(pending);
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        token.cancel();
        (&mut rarely).await;
        assert!(futures_util::poll!(&mut rarely).is_pending());
    }
}
