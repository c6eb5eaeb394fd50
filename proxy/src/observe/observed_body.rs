//! An answer's body on its way to the client, read along.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Frame, SizeHint};

use crate::body::{Body, BoxError};

/// An answer that is longer is not read; its object is larger than a server takes.
const READ_BYTES: usize = 16 << 20;

/// A body that keeps its last piece back until what it tells has been told.
pub(super) struct ObservedBody {
    body: Body,
    read: BytesMut,
    held: Option<Bytes>,
    /// They come after the last piece.
    trailers: Option<Frame<Bytes>>,
    ended: bool,
    /// Told the whole body at its end; dropped without a word where there is none.
    complete: Option<Complete>,
}

type Complete = Box<dyn FnOnce(&[u8]) + Send>;

impl ObservedBody {
    /// A body that is told to `complete` when it has ended whole.
    pub(super) fn new(body: Body, complete: impl FnOnce(&[u8]) + Send + 'static) -> Self {
        Self {
            body,
            read: BytesMut::new(),
            held: None,
            trailers: None,
            ended: false,
            complete: Some(Box::new(complete)),
        }
    }

    /// Takes a piece and gives the one before it.
    fn exchange(&mut self, piece: Bytes) -> Option<Bytes> {
        if self.read.len() <= READ_BYTES {
            self.read.extend_from_slice(&piece);
        }
        self.held.replace(piece)
    }
}

impl hyper::body::Body for ObservedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while !self.ended {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => {
                        if let Some(before) = self.exchange(piece) {
                            return Poll::Ready(Some(Ok(Frame::data(before))));
                        }
                    }
                    Err(trailers) => self.trailers = Some(trailers),
                },
                // Dropping the observation leaves a write unconfirmed.
                Poll::Ready(Some(Err(error))) => {
                    self.complete = None;
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => {
                    self.ended = true;
                    let read = std::mem::take(&mut self.read);
                    if let Some(complete) = self.complete.take() {
                        complete(&read);
                    }
                }
            }
        }
        let last = self.held.take().map(Frame::data);
        Poll::Ready(last.or_else(|| self.trailers.take()).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.held.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.as_ref().map_or(0, |held| held.len() as u64);
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + held);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use futures_util::stream;
    use http::HeaderMap;
    use http_body_util::{BodyExt as _, StreamBody};
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn the_last_piece_comes_after_what_it_tells_and_before_the_trailers() {
        let frames = [
            Frame::data(Bytes::from_static(b"ab")),
            Frame::data(Bytes::from_static(b"cd")),
            Frame::trailers(HeaderMap::new()),
        ];
        let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)))
            .map_err(|never| match never {})
            .boxed_unsync();
        let told = Arc::new(Mutex::new(String::new()));
        let tell = Arc::clone(&told);
        let mut body = ObservedBody::new(body, move |read| {
            tell.lock().push_str(&String::from_utf8_lossy(read));
        });
        let mut passed = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data();
            passed.push((piece.unwrap_or_default(), told.lock().clone()));
        }
        let expected = [("ab", ""), ("cd", "abcd"), ("", "abcd")];
        assert_eq!(
            passed,
            expected.map(|(piece, told)| (Bytes::from_static(piece.as_bytes()), told.to_owned()))
        );
    }
}
