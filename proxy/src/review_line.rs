//! Whose turn it is to ask a cluster about users: a flood of strangers or of new users must not become a flood of questions,
//! and what can wait a moment need not do without an answer.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Who waits longer, in line and for the answer, does without.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The questions to one cluster that are under way, and the line behind them.
#[derive(Debug)]
pub(crate) struct ReviewLine {
    /// Of those that are asked at once.
    places: Semaphore,
    most: usize,
    most_of_one: usize,
    taken: Mutex<Taken>,
}

/// How many questions are under way or in line.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_asker: HashMap<String, usize>,
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
    /// So many questions at once; and so many with those in line behind them, of all askers and of one.
    pub(crate) fn new(at_once: usize, most: usize, most_of_one: usize) -> Self {
        Self {
            places: Semaphore::new(at_once),
            most,
            most_of_one,
            taken: Mutex::default(),
        }
    }

    /// What comes of a question that is put when its turn has come. Askers who cannot be told apart are one. `lost` fires
    /// when no answer comes any more.
    pub(crate) async fn ask<T>(
        &self,
        asker: &str,
        lost: &CancellationToken,
        question: impl Future<Output = T>,
    ) -> Result<T, NoTurn> {
        let _in_line = self.enter(asker).ok_or(NoTurn::TooMany)?;
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

    fn enter(&self, asker: &str) -> Option<InLine<'_>> {
        let mut taken = self.taken.lock();
        let of_one = taken.by_asker.get(asker).copied().unwrap_or_default();
        if taken.all >= self.most || of_one >= self.most_of_one {
            return None;
        }
        taken.all += 1;
        taken.by_asker.insert(asker.to_owned(), of_one + 1);
        Some(InLine {
            line: self,
            asker: asker.to_owned(),
        })
    }
}

/// A question's place in the line, until it has its answer.
struct InLine<'a> {
    line: &'a ReviewLine,
    asker: String,
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut taken = self.line.taken.lock();
        taken.all -= 1;
        if let Some(of_one) = taken.by_asker.get_mut(&self.asker) {
            *of_one -= 1;
            if *of_one == 0 {
                taken.by_asker.remove(&self.asker);
            }
        }
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

    #[tokio::test(start_paused = true)]
    async fn who_comes_waits_its_turn_and_nobody_takes_the_whole_line() {
        let line = ReviewLine::new(1, 4, 2);
        let never = CancellationToken::new();
        let (answer, question) = oneshot::channel();
        let mut first = pin!(line.ask("a", &never, question));
        assert!(poll!(first.as_mut()).is_pending());
        let mut second = pin!(line.ask("a", &never, ready("second")));
        assert!(poll!(second.as_mut()).is_pending(), "one at once");
        // The third of one asker; and the fifth of all.
        let too_many = Err(NoTurn::TooMany);
        assert_eq!(line.ask("a", &never, ready("third")).await, too_many);
        let mut other = pin!(line.ask("b", &never, ready("other")));
        assert!(poll!(other.as_mut()).is_pending());
        let mut another = pin!(line.ask("c", &never, ready("another")));
        assert!(poll!(another.as_mut()).is_pending());
        assert_eq!(line.ask("d", &never, ready("fifth")).await, too_many);
        answer.send("first").unwrap();
        assert_eq!(first.await, Ok(Ok("first")));
        assert_eq!(second.await, Ok("second"));
        assert_eq!(other.await, Ok("other"));
        assert_eq!(another.await, Ok("another"));
        let taken = line.taken.lock();
        assert_eq!((taken.all, taken.by_asker.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_what_does_not_come() {
        let line = ReviewLine::new(1, 4, 4);
        let (never, lost) = (CancellationToken::new(), CancellationToken::new());
        let began = Instant::now();
        let (one, two) = tokio::join!(
            line.ask("a", &never, pending::<()>()),
            // In line all the while.
            line.ask("a", &never, pending::<()>()),
        );
        assert_eq!((one, two), (Err(NoTurn::TooSlow), Err(NoTurn::TooSlow)));
        assert_eq!(began.elapsed(), PATIENCE);
        let mut asking = pin!(line.ask("a", &lost, pending::<()>()));
        assert!(poll!(asking.as_mut()).is_pending());
        lost.cancel();
        assert_eq!(asking.await, Err(NoTurn::Ended));
        assert_eq!(began.elapsed(), PATIENCE);
        // A caller that goes away leaves its place, too.
        {
            let mut asking = pin!(line.ask("a", &never, pending::<()>()));
            assert!(poll!(asking.as_mut()).is_pending());
        }
        assert_eq!(line.taken.lock().all, 0);
        assert_eq!(line.ask("a", &never, ready(())).await, Ok(()));
    }
}
