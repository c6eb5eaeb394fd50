//! What the readers of an informer ask its reflector: what is newest, and to catch up.
//!
//! One question to the cluster serves all who wait. A reader draws a ticket; the reflector notes the last ticket drawn and
//! *then* sends its question. So whatever was true when a reader with that ticket or an earlier one arrived is in the
//! answer, and who comes while a question is on its way is served by the next one.

use tokio::sync::watch;

use crate::resource_version::ResourceVersion;

/// The questions of one informer.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    asked: watch::Sender<Asked>,
    answered: watch::Sender<Answered>,
}

/// What has been asked so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The last ticket drawn.
    pub(crate) ticket: u64,
    /// How often somebody has found the informer below its floor.
    pub(crate) catch_ups: u64,
}

/// The last answer.
#[derive(Clone, Copy, Debug, Default)]
struct Answered {
    /// The last ticket it is for.
    ticket: u64,
    /// The connection it came from.
    generation: u64,
    /// The newest version of the kind; `None` where it could not be had, or cannot be reached.
    newest: Option<ResourceVersion>,
}

impl Questions {
    /// The newest version of the kind, by a question sent after this call; `None` where it could not be had on this
    /// connection. Waits until the reflector answers: the caller bounds it.
    pub(super) async fn newest(&self, generation: u64) -> Option<ResourceVersion> {
        let mut answered = self.answered.subscribe();
        let mut ticket = 0;
        self.asked.send_modify(|asked| {
            asked.ticket += 1;
            ticket = asked.ticket;
        });
        // An answer to a later ticket is as good: it is newer.
        let answer = answered.wait_for(|answer| answer.ticket >= ticket).await;
        let answer = *answer.ok()?;
        answer.newest.filter(|_| answer.generation == generation)
    }

    /// Somebody has found the informer below its floor.
    pub(super) fn catch_up(&self) {
        self.asked.send_modify(|asked| asked.catch_ups += 1);
    }

    /// For the reflector: tells what is asked, and when more is.
    pub(crate) fn asked(&self) -> watch::Receiver<Asked> {
        self.asked.subscribe()
    }

    /// The last ticket that was answered.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.borrow().ticket
    }

    /// Answers all tickets up to this one. A later answer is never overtaken by an earlier one: only the reflector
    /// answers, one question after the other.
    pub(crate) fn answer(&self, ticket: u64, generation: u64, newest: Option<ResourceVersion>) {
        self.answered.send_replace(Answered {
            ticket,
            generation,
            newest,
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn rv(number: u64) -> Option<ResourceVersion> {
        Some(ResourceVersion::from_number(number))
    }

    #[test]
    fn who_comes_while_a_question_is_asked_is_served_by_the_next() {
        let questions = Questions::default();
        let asked = questions.asked();
        let mut first = Box::pin(questions.newest(1));
        let mut second = Box::pin(questions.newest(1));
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        // The question is sent now.
        let sent_for = asked.borrow().ticket;
        let mut late = Box::pin(questions.newest(1));
        assert!((&mut late).now_or_never().is_none());
        questions.answer(sent_for, 1, rv(7));
        assert_eq!(first.now_or_never(), Some(rv(7)));
        assert_eq!(second.now_or_never(), Some(rv(7)));
        assert!((&mut late).now_or_never().is_none(), "7 may be too old");
        assert!(asked.borrow().ticket > questions.answered());
        questions.answer(asked.borrow().ticket, 1, rv(8));
        assert_eq!(late.now_or_never(), Some(rv(8)));
    }

    #[test]
    fn an_answer_of_another_connection_is_none() {
        let questions = Questions::default();
        let mut waits = Box::pin(questions.newest(1));
        assert!((&mut waits).now_or_never().is_none());
        questions.answer(1, 2, rv(7));
        assert_eq!(waits.now_or_never(), Some(None));
    }
}
