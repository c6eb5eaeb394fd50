//! Streams that end when the process drains.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::body::{Body, BoxError};
use crate::rarely::Rarely;

/// A body that ends, cleanly, when `draining` fires: a watch or a log would hold the process for hours. A client of
/// either knows such an end and asks again.
pub fn until(draining: &CancellationToken, body: Body) -> Body {
    Draining {
        body,
        draining: Rarely::new(draining.clone().cancelled_owned()),
    }
    .boxed_unsync()
}

struct Draining {
    body: Body,
    draining: Rarely<WaitForCancellationFutureOwned>,
}

impl HttpBody for Draining {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_pending() && Pin::new(&mut self.draining).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;

    use super::*;

    #[tokio::test]
    async fn a_silent_stream_ends_when_the_process_drains() {
        let (frames, stream) =
            tokio::sync::mpsc::unbounded_channel::<Result<Frame<Bytes>, BoxError>>();
        let stream = futures_util::stream::unfold(stream, |mut stream| async {
            stream.recv().await.map(|frame| (frame, stream))
        });
        let draining = CancellationToken::new();
        let mut body = until(&draining, StreamBody::new(stream).boxed_unsync());
        frames.send(Ok(Frame::data("event".into()))).unwrap();
        draining.cancel();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, "event");
        assert!(body.frame().await.is_none());
    }
}
