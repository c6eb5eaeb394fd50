//! Protobuf as Kubernetes writes it: the fields of a message, and what is around an object and around an event of a watch.
//!
//! An object is `k8s\0` and a `runtime.Unknown`, whose raw bytes are the message of its kind. A watch is of frames: a length
//! in four bytes, and a `WatchEvent` of that length. Field numbers are those of `generated.proto` in apimachinery.

use bytes::{BufMut as _, BytesMut};

pub mod read;

/// What every object begins with.
pub const MAGIC: &[u8] = b"k8s\0";

/// `contentEncoding` and `contentType` of a `runtime.Unknown`, which the server writes empty.
pub(crate) const CONTENT: &[u8] = &[0x1a, 0, 0x22, 0];

/// The field of a `runtime.Unknown` that has the message of an object's kind.
const RAW: u32 = 2;

/// Wire types.
const VARINT: u32 = 0;
const LENGTH_DELIMITED: u32 = 2;

/// Writes a number; a negative one has ten bytes.
pub fn number(to: &mut BytesMut, field: u32, value: i64) {
    tag(to, field, VARINT);
    varint(to, value.cast_unsigned());
}

/// Writes text or bytes.
pub fn text(to: &mut BytesMut, field: u32, value: impl AsRef<[u8]>) {
    let value = value.as_ref();
    tag(to, field, LENGTH_DELIMITED);
    varint(to, value.len() as u64);
    to.put_slice(value);
}

/// Writes a message, of which the length is known only when it has been written.
pub fn message<R>(to: &mut BytesMut, field: u32, write: impl FnOnce(&mut BytesMut) -> R) -> R {
    tag(to, field, LENGTH_DELIMITED);
    let start = to.len();
    let result = write(to);
    let end = to.len();
    varint(to, (end - start) as u64);
    let length = to.len() - end;
    to[start..].rotate_right(length);
    result
}

/// Writes an object, of which `write` writes the message of its kind.
pub fn object<R>(
    to: &mut BytesMut,
    api_version: &str,
    kind: &str,
    write: impl FnOnce(&mut BytesMut) -> R,
) -> R {
    begin_object(to, api_version, kind);
    let result = message(to, RAW, write);
    to.put_slice(CONTENT);
    result
}

/// What stands before and after the message of an object's kind, which has so many bytes.
pub(crate) fn around_object(api_version: &str, kind: &str, raw: u64) -> (BytesMut, BytesMut) {
    let mut head = BytesMut::new();
    begin_object(&mut head, api_version, kind);
    tag(&mut head, RAW, LENGTH_DELIMITED);
    varint(&mut head, raw);
    (head, CONTENT.into())
}

/// Writes what stands before the raw bytes of an object.
pub(crate) fn begin_object(to: &mut BytesMut, api_version: &str, kind: &str) {
    to.put_slice(MAGIC);
    message(to, 1, |to| {
        text(to, 1, api_version);
        text(to, 2, kind);
    });
}

/// Writes the frame of an event, of which `write` writes the object.
pub fn event<R>(to: &mut BytesMut, event_type: &str, write: impl FnOnce(&mut BytesMut) -> R) -> R {
    let start = to.len();
    to.put_u32(0);
    text(to, 1, event_type);
    // The raw bytes of a RawExtension.
    let result = message(to, 2, |to| message(to, 1, write));
    let length = to.len() - start - 4;
    // An object is a few megabytes at most.
    to[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
    result
}

/// Bytes that text, bytes or a message of so many take as a field of a number below 16.
pub(crate) fn room(length: usize) -> u64 {
    let length = length as u64;
    let bits = u64::from(64 - (length | 1).leading_zeros());
    1 + bits.div_ceil(7) + length
}

fn tag(to: &mut BytesMut, field: u32, wire_type: u32) {
    varint(to, u64::from(field << 3 | wire_type));
}

fn varint(to: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        to.put_u8(value as u8 | 0x80);
        value >>= 7;
    }
    to.put_u8(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_protobuf_has_them() {
        for (value, bytes) in [
            (0, &[8, 0][..]),
            (127, &[8, 127]),
            (128, &[8, 0x80, 1]),
            (300, &[8, 0xac, 2]),
            (-1, &[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            let mut written = BytesMut::new();
            number(&mut written, 1, value);
            assert_eq!(written, bytes, "{value}");
        }
        for length in [0, 1, 127, 128, 16_383, 16_384, 70_000] {
            let mut written = BytesMut::new();
            text(&mut written, 2, vec![b'x'; length]);
            assert_eq!(room(length), written.len() as u64, "{length}");
        }
        let mut written = BytesMut::new();
        text(&mut written, 17, "ab");
        assert_eq!(written, &[0x8a, 1, 2, b'a', b'b'][..]);
    }

    #[test]
    fn the_length_of_a_message_stands_before_it() {
        for length in [0, 1, 127, 128, 20_000] {
            let inner = vec![b'x'; length];
            let mut written: BytesMut = b"before"[..].into();
            message(&mut written, 1, |to| to.put_slice(&inner));
            let mut expected: BytesMut = b"before"[..].into();
            text(&mut expected, 1, &inner);
            assert_eq!(written, expected, "{length}");
        }
    }

    #[test]
    fn an_object_has_its_type_around_it() {
        let mut written = BytesMut::new();
        object(&mut written, "v1", "Pod", |to| to.put_slice(b"raw"));
        let expected = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x03raw\x1a\0\x22\0";
        assert_eq!(written, &expected[..]);
        let (head, tail) = around_object("v1", "Pod", 3);
        assert_eq!(written, [&head, &b"raw"[..], &tail].concat()[..]);
    }

    #[test]
    fn frames_follow_each_other() {
        let mut written = BytesMut::new();
        event(&mut written, "ADDED", |to| to.put_slice(b"a"));
        event(&mut written, "DELETED", |to| to.put_slice(b"b"));
        let expected =
            b"\0\0\0\x0c\x0a\x05ADDED\x12\x03\x0a\x01a\0\0\0\x0e\x0a\x07DELETED\x12\x03\x0a\x01b";
        assert_eq!(written, &expected[..]);
    }
}
