//! What is sent of what was written: in pieces, indented for people, compressed where it is long.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use crate::body::{Body, full};
use crate::gzip::{self, Compressed};
use crate::indent::Indented;
use crate::writing::Written;

/// Bytes of a body that are made in one go, with their way through TLS less than a millisecond of a worker thread.
pub(crate) const TURN_BYTES: usize = 256 << 10;

/// A body as it is sent.
pub(crate) struct Sent {
    pub(crate) body: Body,
    /// Its length, where it is known.
    pub(crate) length: Option<u64>,
    pub(crate) is_compressed: bool,
}

/// Sends what is written in these chunks, of this length if it is known, as it is asked for.
pub(crate) fn send(
    chunks: impl Iterator<Item = Bytes> + Send + 'static,
    length: Option<u64>,
    written: Written,
) -> Sent {
    match written.pretty {
        true => perhaps_compressed(Indented::new(chunks), None, written.gzip),
        false => perhaps_compressed(chunks, length, written.gzip),
    }
}

fn perhaps_compressed(
    mut chunks: impl Iterator<Item = Bytes> + Send + 'static,
    length: Option<u64>,
    gzip: bool,
) -> Sent {
    let plain = |(body, length)| Sent {
        body,
        length,
        is_compressed: false,
    };
    if !gzip || length.is_some_and(|length| length <= gzip::THRESHOLD) {
        return plain(in_pieces(chunks, length));
    }
    let (mut begin, mut begun) = (Vec::new(), 0);
    while begun <= gzip::THRESHOLD {
        let Some(chunk) = chunks.next() else {
            return plain(whole(begin.concat()));
        };
        begun += chunk.len() as u64;
        begin.push(chunk);
    }
    let compressed = Compressed::new(begin.into_iter().chain(chunks));
    Sent {
        // A piece is made from many times as much, or is none yet: each takes a turn.
        body: pieces_of_turns(compressed, 0),
        length: None,
        is_compressed: true,
    }
}

/// A body and its length.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> (Body, Option<u64>) {
    let bytes = bytes.into();
    let length = bytes.len() as u64;
    (full(bytes), Some(length))
}

/// A body indented, and its length where it is short: to know it of a long one it would have to be indented twice.
pub(crate) fn indented(
    chunks: impl Iterator<Item = Bytes> + Send + 'static,
) -> (Body, Option<u64>) {
    in_pieces(Indented::new(chunks), None)
}

/// A body of these chunks, in one piece if it is one, and its length if it is known.
fn in_pieces(
    mut chunks: impl Iterator<Item = Bytes> + Send + 'static,
    length: Option<u64>,
) -> (Body, Option<u64>) {
    let first = chunks.next().unwrap_or_default();
    match chunks.next() {
        None => whole(first),
        Some(second) => (pieces([first, second].into_iter().chain(chunks)), length),
    }
}

/// A body of pieces that are made as they are sent: a slow reader holds one of them and what the others are made from. For a
/// fast one they are made without a pause, so that others get their turn in between.
pub(crate) fn pieces(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Body {
    pieces_of_turns(pieces, TURN_BYTES)
}

fn pieces_of_turns(
    pieces: impl Iterator<Item = Bytes> + Send + 'static,
    turn_bytes: usize,
) -> Body {
    let frames = stream::unfold(
        (pieces, 0),
        move |(mut pieces, mut since_turn)| async move {
            loop {
                if since_turn >= turn_bytes {
                    since_turn = 0;
                    tokio::task::yield_now().await;
                }
                let piece = pieces.next()?;
                since_turn += piece.len();
                if !piece.is_empty() {
                    let frame = Ok::<_, Infallible>(Frame::data(piece));
                    return Some((frame, (pieces, since_turn)));
                }
            }
        },
    );
    StreamBody::new(frames)
        .map_err(|never| match never {})
        .boxed_unsync()
}
