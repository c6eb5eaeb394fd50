//! The body of a read's answer on its way to the client, read along.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::reading::Reader;
use crate::body::{Body, BoxError};

/// A body whose pieces are read before they pass.
pub(super) struct ReadBody {
    pub(super) body: Body,
    pub(super) reader: Reader,
}

impl HttpBody for ReadBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(piece) = frame.data_ref()
        {
            self.reader.read(piece);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
