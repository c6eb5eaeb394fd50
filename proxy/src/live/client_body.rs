//! A request's body on its way from the client, which may break on the client's side.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::body::BoxError;

/// Passes a client's body on and remembers whether it was the client that broke it: hyper reports both sides' failures
/// as one, and only the cluster's are a reason to suspect the cluster.
#[derive(Debug)]
pub(super) struct ClientBody {
    inner: Incoming,
    failed: ClientFailed,
}

/// Whether the client broke its body.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientFailed(Arc<AtomicBool>);

impl ClientFailed {
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl ClientBody {
    pub(super) fn new(inner: Incoming) -> (Self, ClientFailed) {
        let failed = ClientFailed::default();
        let body = Self {
            inner,
            failed: failed.clone(),
        };
        (body, failed)
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Err(_))) = frame {
            self.failed.0.store(true, Ordering::Relaxed);
        }
        frame.map_err(BoxError::from)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
