//! What waits to be written, and who waits for room.

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::event::Event;
use super::output::Output;

pub(super) struct Queue {
    state: Mutex<State>,
    /// There is something to do for the thread.
    work: Condvar,
    /// Whether requests that have not begun must wait.
    full: watch::Sender<bool>,
    /// Whether the thread has ended.
    ended: watch::Sender<bool>,
    room: usize,
}

#[derive(Default)]
struct State {
    events: Vec<Event>,
    /// Of all that is not written yet, also of what the thread has taken.
    bytes: usize,
    /// Requests that have begun and whose last line is yet to come.
    open: usize,
    output: Option<Output>,
    reopen: bool,
    closing: bool,
}

impl State {
    /// Whether there will be nothing more to do.
    fn is_over(&self) -> bool {
        self.closing && self.open == 0 && self.events.is_empty()
    }
}

/// What the thread has to do, in this order.
pub(super) struct Work {
    /// What is written to from now on, where that changes.
    pub(super) output: Option<Output>,
    /// Whether the file is opened again.
    pub(super) reopen: bool,
    pub(super) events: Vec<Event>,
}

impl Queue {
    pub(super) fn new(room: usize) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            full: watch::Sender::new(false),
            ended: watch::Sender::new(false),
            room,
        }
    }

    /// Lets a request begin, when there is room; `waits` is called once where there is none now.
    pub(super) async fn enter(&self, waits: impl FnOnce()) {
        if self.try_enter() {
            return;
        }
        waits();
        let mut full = self.full.subscribe();
        loop {
            // It ends with the sender, which is here.
            let _ = full.wait_for(|full| !full).await;
            if self.try_enter() {
                return;
            }
        }
    }

    fn try_enter(&self) -> bool {
        let mut state = self.state.lock();
        let enters = !*self.full.borrow();
        state.open += usize::from(enters);
        enters
    }

    /// Adds a line of a request that goes on.
    pub(super) fn push(&self, event: Event) {
        self.add(event, 0);
    }

    /// Adds the last line of a request.
    pub(super) fn leave(&self, event: Event) {
        self.add(event, 1);
    }

    fn add(&self, event: Event, ended: usize) {
        let mut state = self.state.lock();
        state.open -= ended;
        state.bytes += event.bytes();
        state.events.push(event);
        if state.bytes >= self.room {
            self.full.send_replace(true);
        }
        self.work.notify_one();
    }

    pub(super) fn write_to(&self, output: Output) {
        self.state.lock().output = Some(output);
        self.work.notify_one();
    }

    pub(super) fn reopen(&self) {
        self.state.lock().reopen = true;
        self.work.notify_one();
    }

    /// Nothing begins any more that is to be waited for.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.work.notify_one();
    }

    /// Waits for something to do; none when all is done.
    pub(super) fn take(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if !state.events.is_empty() || state.output.is_some() || state.reopen {
                return Some(Work {
                    output: state.output.take(),
                    reopen: std::mem::take(&mut state.reopen),
                    events: std::mem::take(&mut state.events),
                });
            }
            if state.is_over() {
                return None;
            }
            self.work.wait(&mut state);
        }
    }

    /// So much of what was taken is written, or lost.
    pub(super) fn done(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.bytes -= bytes;
        // Not at the first byte of room: all who wait would wake for one of them.
        if state.bytes <= self.room / 2 {
            self.full.send_if_modified(std::mem::take);
        }
    }

    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Waits until the thread has ended.
    pub(super) async fn ended(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// How many requests have not ended, and how many lines nobody has taken.
    pub(super) fn left(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.open, state.events.len())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use bytes::Bytes;
    use fleetcache_auth::UserInfo;
    use futures_util::poll;
    use jiff::Timestamp;

    use super::super::event::Stage;
    use super::super::record::{Facts, Known};
    use super::*;

    fn facts() -> Facts {
        Facts {
            audit_id: (*b"id").into(),
            method: http::Method::GET,
            target: "/".to_owned(),
            user_agent: None,
            source: None,
            received: Timestamp::now(),
            known: Default::default(),
        }
    }

    fn event_of(facts: Facts) -> Event {
        let stage = Stage::ResponseComplete;
        Event::new(Arc::new(facts), stage, None, Bytes::new())
    }

    /// Whatever a client chooses the length of.
    #[test]
    fn all_that_may_be_long_is_counted() {
        let long = "x".repeat(100_000);
        let user = UserInfo {
            groups: vec![long.clone()],
            ..UserInfo::default()
        };
        let of_user = facts();
        let user = Arc::new(user);
        let known = Known { user, by: "jwt" };
        assert!(of_user.known.set(known).is_ok());
        let method = http::Method::from_bytes(long.as_bytes()).unwrap();
        for facts in [
            of_user,
            Facts { method, ..facts() },
            Facts {
                target: long.clone(),
                ..facts()
            },
            Facts {
                audit_id: long.as_bytes().into(),
                ..facts()
            },
        ] {
            assert!(event_of(facts).bytes() >= long.len());
        }
    }

    #[tokio::test]
    async fn requests_wait_while_the_queue_is_full_and_those_under_way_do_not() {
        let queue = Queue::new(2000);
        let event = || event_of(facts());
        let waits = std::cell::Cell::new(0);
        for _ in 0..5 {
            queue.enter(|| waits.set(waits.get() + 1)).await;
        }
        assert_eq!(waits.get(), 0);
        (0..5).for_each(|_| queue.leave(event()));
        let mut entering = pin!(queue.enter(|| waits.set(waits.get() + 1)));
        assert!(poll!(entering.as_mut()).is_pending());
        let bytes = event().bytes();
        assert_eq!(queue.take().unwrap().events.len(), 5);
        assert!(
            poll!(entering.as_mut()).is_pending(),
            "taken is not written"
        );
        queue.done(4 * bytes);
        entering.await;
        assert_eq!(waits.get(), 1);
        queue.close();
        assert_eq!(queue.left(), (1, 0));
        assert!(!queue.state.lock().is_over(), "one is under way");
        queue.leave(event());
        assert_eq!(queue.take().unwrap().events.len(), 1);
        assert!(queue.state.lock().is_over());
        assert!(queue.take().is_none());
    }
}
