//! A request's body on its way from the client, which may break on the client's side.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use fleetcache_cache::connection::empty_body;
use fleetcache_cache::upstream::RequestBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;

use crate::body::BoxError;

/// What is kept of a body until its answer comes, so that it can be sent again: nearly every object is smaller.
const MOST_KEPT: usize = 64 << 10;

/// Passes a client's body on and remembers whether it was the client that broke it: hyper reports both sides' failures
/// as one, and only the cluster's are a reason to suspect the cluster.
///
/// A request whose body is not whole is none to the cluster: less than the length that was announced arrives there, or chunks
/// without the last, and the connection ends. Every server of Kubernetes reads a body to its end before it acts.
#[derive(Debug)]
pub(crate) struct ClientBody {
    inner: Incoming,
    passed: Passed,
}

/// What has passed of a client's body.
#[derive(Clone, Debug)]
pub(crate) struct Passed(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The client broke it.
    failed: bool,
    /// All of it has passed. A client may say so by the length that it announced and never end its stream.
    is_whole: bool,
    /// Nothing more may pass.
    is_broken_off: bool,
    /// Copied: pieces as small and as many as a client likes would each cost more than they hold.
    kept: Vec<u8>,
    /// Not all of what has passed is kept.
    is_lost: bool,
}

impl Passed {
    /// Lets nothing more pass. False where all of it has passed already: the cluster may act on it.
    pub(super) fn break_off(&self) -> bool {
        let mut state = self.0.lock();
        state.is_broken_off = !state.is_whole;
        state.is_broken_off
    }

    /// Whether it was broken off: the cluster cannot have acted on it.
    pub(crate) fn is_broken_off(&self) -> bool {
        self.0.lock().is_broken_off
    }

    /// Whether the client broke its body.
    pub(super) fn failed(&self) -> bool {
        self.0.lock().failed
    }

    /// The same body again, where all of it has passed and was kept.
    pub(super) fn again(&self) -> Option<RequestBody> {
        let state = self.0.lock();
        if state.failed || state.is_lost || !state.is_whole {
            return None;
        }
        if state.kept.is_empty() {
            return Some(empty_body());
        }
        let body = Full::new(Bytes::from(state.kept.clone()));
        Some(body.map_err(|never| match never {}).boxed_unsync())
    }
}

impl State {
    fn keep(&mut self, frame: &Frame<Bytes>) {
        // Trailers are not kept.
        let piece = frame.data_ref().filter(|_| !self.is_lost);
        match piece {
            Some(piece) if self.kept.len() + piece.len() <= MOST_KEPT => {
                self.kept.extend_from_slice(piece);
            }
            _ => {
                self.is_lost = true;
                self.kept = Vec::new();
            }
        }
    }
}

impl ClientBody {
    pub(crate) fn new(inner: Incoming) -> Self {
        let state = State {
            is_whole: is_whole(&inner),
            ..State::default()
        };
        let passed = Passed(Arc::new(Mutex::new(state)));
        Self { inner, passed }
    }

    pub(crate) fn passed(&self) -> Passed {
        self.passed.clone()
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { inner, passed } = &mut *self;
        // Held meanwhile: a piece passes before it is broken off, or not at all.
        let mut state = passed.0.lock();
        if state.is_broken_off {
            return Poll::Ready(Some(Err(BrokenOff.into())));
        }
        let frame = ready!(Pin::new(&mut *inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                state.keep(frame);
                state.is_whole = is_whole(inner);
            }
            Some(Err(_)) => state.failed = true,
            None => state.is_whole = true,
        }
        Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Nothing more is to come, or nothing more that would count.
fn is_whole(body: &Incoming) -> bool {
    body.is_end_stream() || body.size_hint().exact() == Some(0)
}

/// The request ended before its body.
#[derive(Debug, thiserror::Error)]
#[error("the request was broken off")]
struct BrokenOff;

#[cfg(test)]
mod tests {
    use super::*;

    /// HTTP/2 has frames of no bytes at all, and no end to them.
    #[test]
    fn a_body_in_tiny_pieces_costs_what_it_holds() {
        let mut state = State::default();
        let pieces = [Bytes::new(), Bytes::from_static(b"x")];
        for piece in pieces.iter().cycle().take(2 * MOST_KEPT) {
            state.keep(&Frame::data(piece.clone()));
        }
        assert_eq!((state.kept.len(), state.is_lost), (MOST_KEPT, false));
        let held = state.kept.capacity() * size_of_val(&state.kept[0]);
        assert!(held <= 2 * MOST_KEPT, "{held}");
        state.keep(&Frame::data(pieces[1].clone()));
        assert_eq!((state.kept.capacity(), state.is_lost), (0, true));
    }
}
