//! Answers that are read whole: no longer than what they may hold, and inflated where they come compressed.

use std::io::{self, Write as _};
use std::time::Duration;

use bytes::Bytes;
use flate2::write::GzDecoder;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::Body;

use super::ReflectorError;

/// What an answer that is read whole may be compressed with. A server compresses what is longer than 128 KiB, and no watch.
pub(super) const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// Longest silence inside an answer.
const SILENCE: Duration = Duration::from_secs(60);

/// Bytes that are inflated in one go: less than a millisecond of a worker thread.
const STEP: usize = 256 << 10;

/// A body of no more than `limit` bytes, as they are when they are inflated; `headers` are those of its answer.
pub(super) async fn read<B>(
    headers: &HeaderMap,
    mut body: B,
    limit: usize,
) -> Result<Bytes, ReflectorError>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    let mut taken = match headers.get(CONTENT_ENCODING) {
        Some(encoding) if encoding == GZIP => Taken::Gzip(Box::new(GzDecoder::new(Vec::new()))),
        _ => Taken::Plain(Vec::new()),
    };
    while let Some(frame) = tokio::time::timeout(SILENCE, body.frame())
        .await
        .map_err(|_| ReflectorError::TimedOut)?
    {
        if let Ok(data) = frame.map_err(ReflectorError::Broken)?.into_data() {
            taken.take(&data, limit).await?;
        }
    }
    let bytes = taken.end()?;
    within(limit, bytes.len())?;
    Ok(bytes.into())
}

/// What has come of a body.
enum Taken {
    Plain(Vec<u8>),
    Gzip(Box<GzDecoder<Vec<u8>>>),
}

impl Taken {
    async fn take(&mut self, mut data: &[u8], limit: usize) -> Result<(), ReflectorError> {
        let decoder = match self {
            Self::Plain(bytes) => {
                bytes.extend_from_slice(data);
                return within(limit, bytes.len());
            }
            Self::Gzip(decoder) => decoder,
        };
        let mut turn_at = decoder.get_ref().len() + STEP;
        while !data.is_empty() {
            // It inflates 32 KiB at most, however much they would become together.
            let taken = decoder.write(data).map_err(ReflectorError::BadGzip)?;
            if taken == 0 {
                let behind = io::Error::new(io::ErrorKind::InvalidData, "bytes behind its end");
                return Err(ReflectorError::BadGzip(behind));
            }
            data = &data[taken..];
            let inflated = decoder.get_ref().len();
            within(limit, inflated)?;
            if inflated >= turn_at {
                turn_at = inflated + STEP;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    fn end(self) -> Result<Vec<u8>, ReflectorError> {
        match self {
            Self::Plain(bytes) => Ok(bytes),
            Self::Gzip(decoder) => decoder.finish().map_err(ReflectorError::BadGzip),
        }
    }
}

fn within(limit: usize, length: usize) -> Result<(), ReflectorError> {
    match length > limit {
        true => Err(ReflectorError::TooLong(limit)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use futures_util::{FutureExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use proptest::prelude::*;

    use super::*;
    use crate::informers::Refusal;
    use crate::turns::turns_during;

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    /// A body that comes in pieces of a length.
    async fn read_of(
        encoding: &'static str,
        body: &[u8],
        piece: usize,
        limit: usize,
    ) -> Result<Bytes, ReflectorError> {
        let headers = [(CONTENT_ENCODING, HeaderValue::from_static(encoding))];
        let pieces: Vec<_> = body
            .chunks(piece)
            .map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        let body = StreamBody::new(stream::iter(pieces));
        read(&headers.into_iter().collect(), body, limit).await
    }

    #[tokio::test]
    async fn no_answer_is_read_beyond_its_limit() {
        for (length, whole) in [(9, true), (10, true), (11, false)] {
            let plain = vec![b'x'; length];
            for (encoding, body) in [("identity", plain.clone()), ("gzip", gzip(&plain))] {
                match read_of(encoding, &body, 1000, 10).await {
                    Ok(bytes) => assert_eq!((bytes.len(), whole), (length, true)),
                    Err(error) => {
                        assert!(!whole && matches!(error, ReflectorError::TooLong(10)));
                        assert_eq!(error.refusal(), Some(Refusal::TooManyObjects));
                    }
                }
            }
        }
    }

    #[tokio::test]
    async fn what_would_inflate_to_gigabytes_is_given_up_early() {
        // Only the first piece is looked at, and its beginning inflated.
        let bomb = Bytes::from(gzip(&vec![0; 64 << 20]));
        assert!(bomb.len() < 128 << 10);
        let headers = [(CONTENT_ENCODING, GZIP)].into_iter().collect();
        let pieces = (0..500).map(|_| Ok(Frame::data(bomb.clone())));
        let mut body = StreamBody::new(stream::iter(pieces));
        let (read, turns) = turns_during(read(&headers, &mut body, 4 << 20)).await;
        assert!(matches!(read, Err(ReflectorError::TooLong(_))));
        assert!(turns >= 8, "{turns} turns");
        let left = std::iter::from_fn(|| body.frame().now_or_never().flatten());
        assert_eq!(left.count(), 499);
    }

    #[tokio::test]
    async fn what_is_no_gzip_is_bad_bytes() {
        let whole = gzip(&b"some text. ".repeat(1000));
        let mut other_sum = whole.clone();
        let sum = other_sum.len() - 8;
        other_sum[sum] ^= 1;
        let mut bodies = vec![
            Vec::new(),
            b"{}".to_vec(),
            other_sum,
            [&whole[..], b"x"].concat(),
            [&whole[..], &whole[..]].concat(),
        ];
        bodies.extend((1..whole.len()).map(|cut| whole[..cut].to_vec()));
        for (at, body) in bodies.iter().enumerate() {
            for piece in [1, 1 << 20] {
                let error = read_of("gzip", body, piece, 1 << 20).await.unwrap_err();
                assert!(error.is_bad_bytes(), "{at}: {error}");
                assert_eq!(error.refusal(), None);
            }
        }
    }

    /// Likewise, where nobody else waits.
    fn read_now(body: &[u8], piece: usize, limit: usize) -> Result<Bytes, ReflectorError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(read_of("gzip", body, piece, limit))
    }

    proptest! {
        #[test]
        fn what_was_compressed_is_read_however_it_is_cut(
            words in prop::collection::vec("[a-z]{1,9}", 0..2000), piece in 1_usize..5000,
        ) {
            let plain = words.concat();
            let read = read_now(&gzip(plain.as_bytes()), piece, 1 << 20);
            prop_assert_eq!(read.unwrap(), plain.as_bytes());
        }

        #[test]
        fn nothing_panics_and_nothing_grows_whatever_comes(
            mut bytes in prop::collection::vec(any::<u8>(), 0..300), begins in any::<bool>(),
        ) {
            if begins {
                let head = gzip(b"").into_iter().take(10);
                bytes.splice(..0, head);
            }
            if let Ok(read) = read_now(&bytes, 7, 1000) {
                prop_assert!(read.len() <= 1000);
            }
        }
    }
}
