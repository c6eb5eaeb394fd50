//! The body of a live answer, and how it ends when its cluster goes away.
//!
//! ```text
//!            frame                      plain: error
//!          ┌───────┐   closed  ┌──────────────────────────► Ended
//!          ▼       │           │
//!          Flowing ┴───────────┤        watch: stays silent for the grace or until the cluster is back, ends cleanly
//!             │                └─────────────► Silent ────► Ended
//!             │ broken                           ▲
//!             ├─ plain: error ──────► Ended      │ closed
//!             └─ watch ─────────────► Broken ────┴────────► Ended (cleanly: the cluster is still there)
//! ```
//! A watch that ends makes its client watch again at once. While the cluster is down that would be a storm of requests
//! which all get a 503, so the stream stays open for a while. A plain answer never ends cleanly before it is complete:
//! half a list must not look like a list.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::upstream::Upstream;
use crate::body::BoxError;

/// How long a broken watch waits for the probe's verdict on its cluster: a killed apiserver is found out in about a
/// second (three probes, 250 ms apart). If it is still connected then, one server of several went away, and the client
/// should watch again soon.
const VERDICT: Duration = Duration::from_secs(2);

/// A live answer's body.
pub(super) struct AnswerBody<B, U> {
    state: State<B>,
    /// The connection: to a watch it is closed when another takes its place, to other answers when the cluster is lost.
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    replaced: Pin<Box<WaitForCancellationFutureOwned>>,
    upstream: Arc<U>,
    cluster: Box<str>,
    /// Of a watch: how long it stays silent once its cluster is disconnected.
    grace: Option<Duration>,
}

enum State<B> {
    /// Frames pass.
    Flowing(B),
    /// The watch broke; is the cluster still there?
    Broken(Pin<Box<Sleep>>),
    /// The cluster is disconnected.
    Silent(Pin<Box<Sleep>>),
    /// No more frames.
    Ended,
}

impl<B, U: Upstream> AnswerBody<B, U> {
    /// A body that ends with `upstream`; `grace` makes it a watch's.
    pub(super) fn new(cluster: &str, body: B, upstream: &Arc<U>, grace: Option<Duration>) -> Self {
        // A watch begins anew on the next connection; any other answer goes on where its cluster is still there.
        let closed = match grace {
            Some(_) => upstream.closed(),
            None => upstream.lost(),
        };
        Self {
            state: State::Flowing(body),
            closed: Box::pin(closed.clone().cancelled_owned()),
            replaced: Box::pin(upstream.replaced().clone().cancelled_owned()),
            upstream: Arc::clone(upstream),
            cluster: cluster.into(),
            grace,
        }
    }
}

impl<B, U> Body for AnswerBody<B, U>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
    U: Upstream,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Flowing(body) => {
                    // First, so that a stream with always one more frame ends too.
                    if this.closed.as_mut().poll(cx).is_ready() {
                        let Some(grace) = this.grace else {
                            this.state = State::Ended;
                            return Poll::Ready(Some(Err(Disconnected.into())));
                        };
                        this.state = State::Silent(Box::pin(sleep(grace)));
                        continue;
                    }
                    let frame = ready!(Pin::new(body).poll_frame(cx));
                    let Some(Err(error)) = frame else {
                        return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
                    };
                    let error = error.into();
                    tracing::debug!(cluster = &*this.cluster, error = &*error, "answer broke");
                    this.upstream.suspect();
                    if this.grace.is_none() {
                        this.state = State::Ended;
                        return Poll::Ready(Some(Err(error)));
                    }
                    this.state = State::Broken(Box::pin(sleep(VERDICT)));
                }
                State::Broken(verdict) => {
                    if this.closed.as_mut().poll(cx).is_ready() {
                        let grace = this.grace.unwrap_or_default();
                        this.state = State::Silent(Box::pin(sleep(grace)));
                        continue;
                    }
                    ready!(verdict.as_mut().poll(cx));
                    this.state = State::Ended;
                }
                State::Silent(grace) => {
                    // The cluster is back: its events wait for a client that watches again.
                    if this.replaced.as_mut().poll(cx).is_pending() {
                        ready!(grace.as_mut().poll(cx));
                    }
                    this.state = State::Ended;
                }
                State::Ended => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Flowing(body) => body.is_end_stream(),
            State::Broken(_) | State::Silent(_) => false,
            State::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Flowing(body) => body.size_hint(),
            State::Broken(_) | State::Silent(_) | State::Ended => SizeHint::default(),
        }
    }
}

/// The cluster was disconnected in the middle of an answer.
#[derive(Debug, thiserror::Error)]
#[error("the cluster was disconnected")]
struct Disconnected;

#[cfg(test)]
mod tests;
