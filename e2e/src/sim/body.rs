//! Response bodies, and the ways in which a fault breaks them.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::Frame;

use super::faults::BadBytes;

/// The body of any answer.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Filler of a huge object is sent in pieces of this size, and never held whole.
const FILLER: Bytes = Bytes::from_static(&[b'x'; 64 * 1024]);

/// An answer whose body is there already.
pub(super) fn full(
    code: u16,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let body = Full::new(body.into())
        .map_err(|never: Infallible| match never {})
        .boxed_unsync();
    respond(code, content_type, body)
}

/// How much of an answer comes before it is held up.
const FIRST_PIECES: usize = 10;

/// In HTTP/2 a reset overtakes what waits to be sent before it, so that this has to leave first.
const PAUSE_BEFORE_RESET: Duration = Duration::from_millis(20);

/// 200 with a JSON body.
pub(super) fn json(body: impl Into<Bytes>) -> Response<Body> {
    full(200, "application/json", body)
}

/// 200 with a JSON body that comes in pieces.
pub(super) fn streamed(
    chunks: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Response<Body> {
    let chunks = chunks.then(async |chunk| {
        if chunk.is_err() {
            tokio::time::sleep(PAUSE_BEFORE_RESET).await;
        }
        chunk
    });
    let body = StreamBody::new(chunks.map(|chunk| chunk.map(Frame::data)));
    respond(200, "application/json", body.boxed_unsync())
}

/// The same answer, of which only the first pieces come before it `goes_on`.
pub(super) fn held_up(
    response: Response<Body>,
    goes_on: Option<impl Future<Output = ()> + Send + 'static>,
) -> Response<Body> {
    let Some(goes_on) = goes_on else {
        return response;
    };
    response.map(|body| {
        let state = (BodyStream::new(body), Some(Box::pin(goes_on)), FIRST_PIECES);
        let frames = stream::unfold(state, |(mut frames, mut hold, left)| async move {
            if left == 0
                && let Some(goes_on) = hold.take()
            {
                goes_on.await;
            }
            let frame = frames.next().await?;
            Some((frame, (frames, hold, left.saturating_sub(1))))
        });
        StreamBody::new(frames).boxed_unsync()
    })
}

fn respond(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// `sound` as the fault sends it. What follows it depends on the fault: see [`BadBytes::ends`].
pub(super) fn broken(bad: BadBytes, sound: &[u8]) -> Vec<io::Result<Bytes>> {
    let half = || Bytes::copy_from_slice(&sound[..sound.len() / 2]);
    match bad {
        BadBytes::InvalidJson => vec![Ok(Bytes::from_static(b"{\"type\":nonsense]\n"))],
        BadBytes::Truncated => vec![Ok(half())],
        BadBytes::Reset => vec![Ok(half()), Err(io::ErrorKind::ConnectionReset.into())],
        BadBytes::Huge(size) => {
            let open = inside_metadata(sound);
            let mut pieces = vec![
                Ok(Bytes::copy_from_slice(&sound[..open])),
                Ok(Bytes::from_static(b"\"filler\":\"")),
            ];
            pieces.extend((0..size / FILLER.len()).map(|_| Ok(FILLER)));
            pieces.push(Ok(FILLER.slice(..size % FILLER.len())));
            let separator: &[u8] = if sound.get(open) == Some(&b'}') {
                b"\""
            } else {
                b"\","
            };
            pieces.push(Ok(Bytes::from_static(separator)));
            pieces.push(Ok(Bytes::copy_from_slice(&sound[open..])));
            pieces
        }
    }
}

/// Where the first object's metadata begins: the filler becomes one more field of it. Inside strings the quotes of
/// these keys would be escaped, so that they cannot be found there.
fn inside_metadata(sound: &[u8]) -> usize {
    let end_of = |key: &[u8], from: usize| {
        sound[from..]
            .windows(key.len())
            .position(|window| window == key)
            .map(|at| from + at + key.len())
    };
    let items = end_of(br#""items":["#, 0).unwrap_or_default();
    let metadata = br#""metadata":{"#;
    end_of(metadata, items)
        .or_else(|| end_of(metadata, 0))
        .unwrap_or_default()
}

impl BadBytes {
    /// Whether the stream is over after what [`broken`] made.
    pub(super) fn ends(self) -> bool {
        match self {
            Self::Truncated | Self::Reset => true,
            Self::InvalidJson | Self::Huge(_) => false,
        }
    }
}

/// A whole body, broken.
pub(super) fn broken_response(bad: BadBytes, sound: &[u8]) -> Response<Body> {
    streamed(stream::iter(broken(bad, sound)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: Vec<io::Result<Bytes>>) -> String {
        let pieces: Vec<Bytes> = pieces.into_iter().map(Result::unwrap).collect();
        String::from_utf8(pieces.concat()).unwrap()
    }

    #[test]
    fn a_huge_object_is_still_json() {
        for sound in [
            r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#,
            r#"{"metadata":{}}"#,
        ] {
            let huge = text(broken(BadBytes::Huge(100_000), sound.as_bytes()));
            assert!(huge.len() > 100_000);
            serde_json::from_str::<serde_json::Value>(&huge).unwrap();
        }
    }

    #[test]
    fn half_of_a_body_is_no_json() {
        let half = text(broken(BadBytes::Truncated, br#"{"metadata":{}}"#));
        serde_json::from_str::<serde_json::Value>(&half).unwrap_err();
    }
}
