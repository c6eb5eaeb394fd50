//! Frames out of a watch's byte stream in protobuf: each is a length in four bytes, and so many bytes.

use bytes::{Buf as _, Bytes, BytesMut};

use super::FrameTooLong;

/// Bytes of a length.
const LENGTH: usize = 4;

/// Cuts a stream of chunks into frames.
#[derive(Debug)]
pub(crate) struct LengthFramer {
    buffer: BytesMut,
    limit: usize,
}

impl LengthFramer {
    /// A framer whose frames have at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            limit,
        }
    }

    /// Adds what arrived. Nothing is set aside for what a length promises.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next complete frame without its length.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        let Some(length) = self.buffer.first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > self.limit {
            return Err(FrameTooLong { limit: self.limit });
        }
        if self.buffer.len() < LENGTH + length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Whether the stream ended inside a frame.
    pub(crate) fn has_partial_frame(&self) -> bool {
        !self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_cut_of_the_stream_gives_the_same_frames(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..20),
            cuts in prop::collection::vec(1_usize..7, 1..40),
        ) {
            let stream: Vec<u8> = frames
                .iter()
                .flat_map(|frame| [&(frame.len() as u32).to_be_bytes(), &frame[..]].concat())
                .collect();
            let mut framer = LengthFramer::new(8);
            let mut seen = Vec::new();
            let mut rest = &stream[..];
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (chunk, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                framer.push(chunk);
                seen.extend(std::iter::from_fn(|| framer.next_frame().unwrap()));
                rest = tail;
            }
            prop_assert_eq!(seen, frames);
            prop_assert!(!framer.has_partial_frame());
        }
    }

    #[test]
    fn a_frame_past_the_limit_is_an_error_before_any_of_it_is_there() {
        let mut framer = LengthFramer::new(8);
        framer.push(b"\0\0\0\x09");
        assert_eq!(framer.next_frame(), Err(FrameTooLong { limit: 8 }));
        let mut framer = LengthFramer::new(8);
        framer.push(b"\xff\xff\xff\xff");
        assert_eq!(framer.next_frame(), Err(FrameTooLong { limit: 8 }));
    }

    #[test]
    fn the_end_inside_a_frame_is_known() {
        let mut framer = LengthFramer::new(8);
        framer.push(b"\0\0\0\x02ab\0\0");
        assert_eq!(framer.next_frame().unwrap().unwrap(), &b"ab"[..]);
        assert_eq!(framer.next_frame(), Ok(None));
        assert!(framer.has_partial_frame());
    }
}
