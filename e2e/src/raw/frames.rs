//! Frames of HTTP/2, written one by one.

/// What a client begins with: the preface, and settings that say nothing.
pub fn preface() -> Vec<u8> {
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &frame(SETTINGS, 0, 0, b"")[..],
    ]
    .concat()
}

/// The type of a frame.
pub const DATA: u8 = 0;
/// The type of a frame.
pub const HEADERS: u8 = 1;
/// The type of a frame.
pub const RST_STREAM: u8 = 3;
/// The type of a frame.
pub const SETTINGS: u8 = 4;
/// The type of a frame.
pub const PING: u8 = 6;
/// The type of a frame.
pub const GOAWAY: u8 = 7;
/// The type of a frame.
pub const WINDOW_UPDATE: u8 = 8;
/// The type of a frame.
pub const CONTINUATION: u8 = 9;

/// Flag: nothing follows on this stream; of SETTINGS and PING: an answer to one.
pub const END_STREAM: u8 = 1;
/// Flag: nothing follows of these headers.
pub const END_HEADERS: u8 = 4;

/// One frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Fields as they are written, without compression: names in upper case, twice, or in the wrong order, too.
pub fn fields(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_bytes(), value] {
            length(&mut block, text.len());
            block.extend(text);
        }
    }
    block
}

/// An integer of HPACK with seven bits in its first byte.
fn length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        block.extend(u8::try_from(length));
        return;
    };
    block.push(127);
    while rest >= 128 {
        block.extend(u8::try_from(rest % 128 + 128));
        rest /= 128;
    }
    block.extend(u8::try_from(rest));
}

/// A frame that was read: type, flags, stream and payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 for the connection.
    pub stream: u32,
    /// What it holds.
    pub payload: Vec<u8>,
}

/// The next whole frame, taken out of what was read.
pub fn take(read: &mut Vec<u8>) -> Option<Frame> {
    let head = read.get(..9)?;
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    let (kind, flags) = (head[3], head[4]);
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    if read.len() < 9 + length {
        return None;
    }
    let payload = read.drain(..9 + length).skip(9).collect();
    Some(Frame {
        kind,
        flags,
        stream,
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let block = fields(&[("a", b"b"), ("c", &[b'x'; 300])]);
        assert_eq!(block[..6], [0, 1, b'a', 1, b'b', 0]);
        assert_eq!(block[6..11], [1, b'c', 127, 173, 1]);
        let mut read = frame(HEADERS, END_HEADERS, 3, &block);
        read.extend(&frame(PING, 0, 0, &[7; 8])[..5]);
        let first = take(&mut read).unwrap();
        assert_eq!((first.kind, first.stream), (HEADERS, 3));
        assert_eq!(first.payload, block);
        assert_eq!(take(&mut read), None);
        assert_eq!(read.len(), 5);
    }
}
