//! Events out of a watch's byte stream: a line each in JSON, a frame each in protobuf.

use bytes::{Bytes, BytesMut};

mod lengths;

use crate::holding::Holding;
use lengths::LengthFramer;

/// The longest line taken. etcd's own limit for one object is 1.5 MiB by default; a server may raise it, but a line of
/// this length is a fault and not an object.
pub const FRAME_LIMIT: usize = 64 << 20;

/// A line grew past the limit.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a frame of more than {limit} bytes")]
pub struct FrameTooLong {
    /// The limit in bytes.
    pub limit: usize,
}

/// Cuts a stream of chunks into lines, each byte looked at once.
#[derive(Debug)]
pub struct LineFramer {
    buffer: BytesMut,
    /// Bytes of the buffer that hold no newline.
    scanned: usize,
    limit: usize,
}

impl LineFramer {
    /// A framer whose lines have at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            limit,
        }
    }

    /// Adds what arrived.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete line without its newline; empty lines are skipped.
    ///
    /// # Errors
    /// The line is longer than the limit.
    pub fn next_line(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        while let Some(at) = memchr::memchr(b'\n', &self.buffer[self.scanned..]) {
            let line = self.buffer.split_to(self.scanned + at + 1).freeze();
            self.scanned = 0;
            let line = line.slice(..line.len() - 1);
            if line.len() > self.limit {
                return Err(FrameTooLong { limit: self.limit });
            }
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
        self.scanned = self.buffer.len();
        if self.scanned > self.limit {
            return Err(FrameTooLong { limit: self.limit });
        }
        Ok(None)
    }

    /// Whether the stream ended inside a line.
    pub fn has_partial_line(&self) -> bool {
        !self.buffer.is_empty()
    }
}

/// Cuts a stream of chunks into the events of a watch.
#[derive(Debug)]
pub(crate) enum Framer {
    Lines(LineFramer),
    Lengths(LengthFramer),
}

impl Framer {
    /// For a watch of objects in an encoding; an event has at most `limit` bytes.
    pub(crate) fn new(holding: Holding, limit: usize) -> Self {
        match holding {
            Holding::Objects => Self::Lines(LineFramer::new(limit)),
            Holding::Protobuf => Self::Lengths(LengthFramer::new(limit)),
        }
    }

    pub(crate) fn push(&mut self, chunk: &[u8]) {
        match self {
            Self::Lines(lines) => lines.push(chunk),
            Self::Lengths(frames) => frames.push(chunk),
        }
    }

    /// The next complete event.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        match self {
            Self::Lines(lines) => lines.next_line(),
            Self::Lengths(frames) => frames.next_frame(),
        }
    }

    /// Whether the stream ended inside an event.
    pub(crate) fn has_partial(&self) -> bool {
        match self {
            Self::Lines(lines) => lines.has_partial_line(),
            Self::Lengths(frames) => frames.has_partial_frame(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(framer: &mut LineFramer) -> Vec<Bytes> {
        std::iter::from_fn(|| framer.next_line().unwrap()).collect()
    }

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_lines(
            text in prop::collection::vec("[a-c]{0,5}", 0..20),
            cuts in prop::collection::vec(1_usize..7, 1..40),
        ) {
            let stream: String = text.iter().map(|line| format!("{line}\n")).collect();
            let mut framer = LineFramer::new(100);
            let mut seen = Vec::new();
            let mut rest = stream.as_bytes();
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (chunk, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                framer.push(chunk);
                seen.extend(lines(&mut framer));
                rest = tail;
            }
            let expected: Vec<&str> = text.iter().map(String::as_str).filter(|l| !l.is_empty()).collect();
            prop_assert_eq!(seen, expected);
            prop_assert!(!framer.has_partial_line());
        }
    }

    #[test]
    fn a_line_past_the_limit_is_an_error_before_it_is_complete() {
        let mut framer = LineFramer::new(4);
        framer.push(b"12345");
        assert_eq!(framer.next_line(), Err(FrameTooLong { limit: 4 }));
    }

    #[test]
    fn the_end_inside_a_line_is_known() {
        let mut framer = LineFramer::new(10);
        framer.push(b"ab\ncd");
        assert_eq!(lines(&mut framer), ["ab"]);
        assert!(framer.has_partial_line());
    }
}
