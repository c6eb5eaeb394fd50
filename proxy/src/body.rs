//! The body of an answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

pub use fleetcache_cache::upstream::BoxError;

/// The body of an answer: whole, or a stream.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body with which something is dropped.
pub fn holding(body: Body, held: impl Send + Unpin + 'static) -> Body {
    Holding { body, _held: held }.boxed_unsync()
}

struct Holding<H> {
    body: Body,
    _held: H,
}

impl<H: Unpin> HttpBody for Holding<H> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body of known bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body of no bytes.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}
