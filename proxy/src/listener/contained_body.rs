//! The body of an answer that panics half-way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use fleetcache_cache::panics::Panicked;
use http::{HeaderValue, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::stream;
use crate::body::{Body, BoxError};
use crate::status::AUDIT_ID;

/// Bytes of a request's id that a line of the log has; kube-apiserver's logs have as many.
const AUDIT_ID_BYTES: usize = 64;

/// A body that breaks off where it panics: over HTTP/1.1 its connection ends before the answer does, over HTTP/2 its stream
/// is reset and the others go on.
pub(super) struct ContainedBody {
    /// None once it has panicked.
    body: Option<Body>,
    /// For the log. A copy: a slice would keep all that a connection has read in memory for as long as a watch.
    audit_id: Option<Box<[u8]>>,
}

impl ContainedBody {
    /// An answer with such a body.
    pub(super) fn of(answer: Response<Body>) -> Response<Self> {
        let (parts, body) = answer.into_parts();
        let audit_id = parts.headers.get(AUDIT_ID).map(HeaderValue::as_bytes);
        let audit_id = audit_id.map(|id| id[..id.len().min(AUDIT_ID_BYTES)].into());
        let body = Some(body);
        stream::gave();
        Response::from_parts(parts, Self { body, audit_id })
    }
}

impl HttpBody for ContainedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        stream::asked();
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(body).poll_frame(context)));
        let polled = polled.unwrap_or_else(|_| {
            let audit_id = this.audit_id.as_deref();
            tracing::error!(
                audit_id = audit_id
                    .and_then(|id| std::str::from_utf8(id).ok())
                    .unwrap_or_default(),
                "answer panicked half-way, it is broken off"
            );
            this.body = None;
            Poll::Ready(Some(Err(Panicked.into())))
        });
        if polled.is_ready() {
            stream::gave();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or_else(SizeHint::default, Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::empty;

    #[test]
    fn a_body_keeps_nothing_of_its_answers_head() {
        let head = Bytes::from("x".repeat(100_000));
        let id = HeaderValue::from_maybe_shared(head.slice(..99_000)).unwrap();
        let mut answer = Response::new(empty());
        answer.headers_mut().insert(AUDIT_ID, id);
        let (parts, body) = ContainedBody::of(answer).into_parts();
        assert!(!head.is_unique());
        drop(parts);
        assert!(head.is_unique());
        assert_eq!(body.audit_id.map(|id| id.len()), Some(AUDIT_ID_BYTES));
    }
}
