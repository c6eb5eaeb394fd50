//! Whose turn it is to ask a cluster about users: a flood of strangers or of new users must not become a flood of questions,
//! and what can wait a moment need not do without an answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::shares::{Holder, Shares};

/// Who waits longer, in line and for the answer, does without.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The questions to one cluster that are under way, and the line behind them.
#[derive(Debug)]
pub(crate) struct ReviewLine {
    /// Of those that are asked at once.
    places: Semaphore,
    most: usize,
    /// Of all that are under way or in line.
    taken: Arc<Shares>,
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoTurn {
    /// Too many questions are before it, or too many of the same asker.
    #[error("too many questions under way")]
    TooMany,
    /// No answer came in time.
    #[error("no answer in time")]
    TooSlow,
    /// The connection went.
    #[error("the question ended without an answer")]
    Ended,
}

impl ReviewLine {
    /// So many questions at once, and so many with those in line behind them; of one asker half of these.
    pub(crate) fn new(at_once: usize, most: usize) -> Self {
        Self {
            places: Semaphore::new(at_once),
            most,
            taken: Arc::default(),
        }
    }

    /// What comes of a question that is put when its turn has come. Askers who cannot be told apart are none. `lost` fires
    /// when no answer comes any more.
    pub(crate) async fn ask<T>(
        &self,
        asker: Option<Holder>,
        lost: &CancellationToken,
        question: impl Future<Output = T>,
    ) -> Result<T, NoTurn> {
        let in_line = self.taken.take(self.most, asker);
        let _in_line = in_line.map_err(|_| NoTurn::TooMany)?;
        let answer = async {
            // Never closed.
            let place = self.places.acquire().await;
            let _place = place.map_err(|_| NoTurn::Ended)?;
            Ok(question.await)
        };
        let answer = timeout(PATIENCE, lost.run_until_cancelled(answer)).await;
        let answer = answer.map_err(|_| NoTurn::TooSlow)?;
        answer.unwrap_or(Err(NoTurn::Ended))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;

    use futures_util::poll;
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;

    fn named(name: &str) -> Option<Holder> {
        Some(Holder::User {
            name: name.to_owned(),
            named_by: None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_waits_its_turn_and_nobody_takes_the_whole_line() {
        let line = ReviewLine::new(1, 4);
        let never = CancellationToken::new();
        let (answer, question) = oneshot::channel();
        let mut first = pin!(line.ask(named("a"), &never, question));
        assert!(poll!(first.as_mut()).is_pending());
        let mut second = pin!(line.ask(named("a"), &never, ready("second")));
        assert!(poll!(second.as_mut()).is_pending(), "one at once");
        // The third of one asker; and the fifth of all.
        let too_many = Err(NoTurn::TooMany);
        assert_eq!(line.ask(named("a"), &never, ready("third")).await, too_many);
        let mut other = pin!(line.ask(named("b"), &never, ready("other")));
        assert!(poll!(other.as_mut()).is_pending());
        let mut another = pin!(line.ask(named("c"), &never, ready("another")));
        assert!(poll!(another.as_mut()).is_pending());
        assert_eq!(line.ask(named("d"), &never, ready("fifth")).await, too_many);
        answer.send("first").unwrap();
        assert_eq!(first.await, Ok(Ok("first")));
        assert_eq!(second.await, Ok("second"));
        assert_eq!(other.await, Ok("other"));
        assert_eq!(another.await, Ok("another"));
        assert_eq!(line.taken.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_what_does_not_come() {
        let line = ReviewLine::new(1, 4);
        let (never, lost) = (CancellationToken::new(), CancellationToken::new());
        let began = Instant::now();
        let (one, two) = tokio::join!(
            line.ask(None, &never, pending::<()>()),
            // In line all the while.
            line.ask(None, &never, pending::<()>()),
        );
        assert_eq!((one, two), (Err(NoTurn::TooSlow), Err(NoTurn::TooSlow)));
        assert_eq!(began.elapsed(), PATIENCE);
        let mut asking = pin!(line.ask(None, &lost, pending::<()>()));
        assert!(poll!(asking.as_mut()).is_pending());
        lost.cancel();
        assert_eq!(asking.await, Err(NoTurn::Ended));
        assert_eq!(began.elapsed(), PATIENCE);
        // A caller that goes away leaves its place, too.
        {
            let mut asking = pin!(line.ask(None, &never, pending::<()>()));
            assert!(poll!(asking.as_mut()).is_pending());
        }
        assert_eq!(line.taken.count(), 0);
        assert_eq!(line.ask(None, &never, ready(())).await, Ok(()));
    }
}
