//! A body that is read along as it passes, without holding any of it back.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use hyper::body::{Frame, SizeHint};

use crate::body::{Body, BoxError};

/// Tells the whole body to its reader when its last piece has come.
pub(crate) struct Tee {
    body: Body,
    read: BytesMut,
    /// Bytes that are read at most.
    limit: usize,
    /// Dropped without a word where the body breaks, is too long, or nobody reads it to its end.
    complete: Option<Complete>,
}

type Complete = Box<dyn FnOnce(&[u8]) + Send>;

impl Tee {
    /// Tells a body of no more than `limit` bytes.
    pub(crate) fn new(
        body: Body,
        limit: usize,
        complete: impl FnOnce(&[u8]) + Send + 'static,
    ) -> Self {
        Self {
            body,
            read: BytesMut::new(),
            limit,
            complete: Some(Box::new(complete)),
        }
    }

    fn read_along(&mut self, piece: &Bytes) {
        if self.complete.is_none() {
            return;
        }
        if self.read.len() + piece.len() > self.limit {
            self.complete = None;
            self.read = BytesMut::new();
            return;
        }
        self.read.extend_from_slice(piece);
    }

    fn ended(&mut self) {
        if let Some(complete) = self.complete.take() {
            complete(&std::mem::take(&mut self.read));
        }
    }
}

impl hyper::body::Body for Tee {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(piece) = frame.data_ref() {
                    self.read_along(piece);
                }
                // A body of known length is not asked for what follows its last piece.
                if self.body.is_end_stream() {
                    self.ended();
                }
            }
            Some(Err(_)) => self.complete = None,
            None => self.ended(),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::stream;
    use http_body_util::{BodyExt as _, StreamBody};
    use parking_lot::Mutex;

    use super::*;
    use crate::body::full;

    const LIMIT: usize = 100;

    /// A body that takes note of what it was.
    fn tee(body: Body) -> (Tee, Arc<Mutex<Option<Vec<u8>>>>) {
        let told = Arc::new(Mutex::new(None));
        let tell = Arc::clone(&told);
        let tee = Tee::new(body, LIMIT, move |read| {
            *tell.lock() = Some(read.to_vec());
        });
        (tee, told)
    }

    fn pieces(pieces: Vec<Result<Bytes, BoxError>>) -> Body {
        let frames = pieces.into_iter().map(|piece| piece.map(Frame::data));
        StreamBody::new(stream::iter(frames)).boxed_unsync()
    }

    #[tokio::test]
    async fn every_piece_passes_at_once_and_the_whole_is_told_at_the_end() {
        let parts = ["ab", "cd"].map(|part| Ok(Bytes::from_static(part.as_bytes())));
        let (mut body, told) = tee(pieces(parts.into()));
        for part in ["ab", "cd"] {
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), part);
            assert_eq!(*told.lock(), None);
        }
        assert!(body.frame().await.is_none());
        assert_eq!(told.lock().as_deref(), Some(&b"abcd"[..]));
    }

    #[tokio::test]
    async fn a_body_of_known_length_ends_with_its_last_piece() {
        let (mut body, told) = tee(full("ab"));
        body.frame().await.unwrap().unwrap();
        assert_eq!(told.lock().as_deref(), Some(&b"ab"[..]));
    }

    #[tokio::test]
    async fn what_breaks_is_left_or_is_too_long_is_not_told() {
        let ok = || Ok(Bytes::from_static(b"ab"));
        let long = || Ok(Bytes::from(vec![b'x'; LIMIT]));
        for parts in [vec![ok(), Err("broken".into())], vec![long(), ok()]] {
            let (body, told) = tee(pieces(parts));
            let _ = body.collect().await;
            assert_eq!(*told.lock(), None);
        }
        let (mut body, told) = tee(pieces(vec![ok(), ok()]));
        body.frame().await.unwrap().unwrap();
        drop(body);
        assert_eq!(*told.lock(), None);
    }
}
