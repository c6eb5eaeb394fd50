//! Answers compressed as kube-apiserver compresses them: where `gzip` itself is accepted and the body is long.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

/// Bodies that are not longer than this are sent as they are.
pub(crate) const THRESHOLD: u64 = 128 << 10;

/// Whether the server would compress for who sends these headers: of a list only a member that is exactly `gzip` counts, so
/// none with a weight, and of several headers the first.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get(ACCEPT_ENCODING)
        .map_or(&b""[..], |it| it.as_bytes());
    let mut members = accepted.split(|byte| *byte == b',');
    members.any(|it| it.trim_ascii() == b"gzip")
}

/// Compresses a body as it is made, at the level that the server takes: of each chunk what the encoder has done with, which may
/// be nothing.
pub(crate) struct Compressed<I> {
    chunks: I,
    /// `None` after the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<I: Iterator<Item = Bytes>> Compressed<I> {
    pub(crate) fn new(chunks: I) -> Self {
        Self {
            chunks,
            encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())),
        }
    }
}

impl<I: Iterator<Item = Bytes>> Iterator for Compressed<I> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        const NEVER_FAILS: &str = "a vector takes all that is written";
        let encoder = self.encoder.as_mut()?;
        let Some(chunk) = self.chunks.next() else {
            let end = self.encoder.take()?.finish();
            return Some(end.expect(NEVER_FAILS).into());
        };
        encoder.write_all(&chunk).expect(NEVER_FAILS);
        Some(std::mem::take(encoder.get_mut()).into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use http::HeaderValue;

    use super::*;

    #[test]
    fn gzip_itself_is_what_counts() {
        for (values, expected) in [
            (&[][..], false),
            (&["gzip"][..], true),
            (&["deflate, gzip"], true),
            (&["br,\tgzip ,x"], true),
            (&["gzip;q=0.5"], false),
            (&["GZIP"], false),
            (&["*"], false),
            (&["", "gzip"], false),
            (&["br", "gzip"], false),
            (&["gzip", "br"], true),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
            }
            assert_eq!(is_accepted(&headers), expected, "{values:?}");
        }
    }

    #[test]
    fn what_was_compressed_can_be_read_again() {
        for chunks in [0, 1, 3, 100] {
            let chunk = |at: u64| Bytes::from(format!("{at} {}", at.pow(7)).repeat(5000));
            let plain: Vec<Bytes> = (0..chunks).map(chunk).collect();
            let compressed: Vec<Bytes> = Compressed::new(plain.clone().into_iter()).collect();
            assert_eq!(compressed.len(), plain.len() + 1);
            let mut read = Vec::new();
            let compressed = compressed.concat();
            GzDecoder::new(&*compressed).read_to_end(&mut read).unwrap();
            assert_eq!(read, plain.concat());
        }
    }
}
