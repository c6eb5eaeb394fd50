//! Reading protobuf: the fields of a message one after the other, without its schema.
//!
//! Nothing is read beyond the message, nothing is allocated, and messages within it are read only by who asks. Numbers are
//! taken in the one form in which they are written: what is read can be written again, byte for byte.

use std::ops::Range;

/// Bytes that are not protobuf as Kubernetes writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not protobuf as Kubernetes writes it: {0}")]
pub struct Malformed(pub &'static str);

/// A field of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its number.
    pub number: u64,
    /// Its value.
    pub value: Value<'a>,
    /// Where it stands in the message, its tag included.
    pub place: Range<usize>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
    /// A number in four or eight bytes.
    Fixed,
}

impl<'a> Field<'a> {
    /// The bytes of text, bytes or a message.
    ///
    /// # Errors
    /// It is a number.
    pub fn bytes(&self) -> Result<&'a [u8], Malformed> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Number(_) | Value::Fixed => Err(Malformed("a number in the place of a text")),
        }
    }

    /// Text.
    ///
    /// # Errors
    /// It is none.
    pub fn text(&self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("a text that is no UTF-8"))
    }

    /// Where the bytes of the value stand in the message.
    pub fn place_of_bytes(&self) -> Range<usize> {
        match self.value {
            Value::Bytes(bytes) => self.place.end - bytes.len()..self.place.end,
            Value::Number(_) | Value::Fixed => self.place.end..self.place.end,
        }
    }
}

/// The fields of a message; ends after an error.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Those of a message.
    pub fn of(message: &'a [u8]) -> Self {
        Self { message, at: 0 }
    }

    fn field(&mut self) -> Result<Field<'a>, Malformed> {
        let start = self.at;
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| Malformed("cut short"))?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed("an unknown wire type")),
        };
        Ok(Field {
            number: tag >> 3,
            value,
            place: start..self.at,
        })
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return match byte == 0 && shift > 0 {
                    true => Err(Malformed("a number longer than it need be")),
                    false => Ok(number),
                };
            }
        }
        Err(Malformed("a number of more than 64 bits"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, _) = self.message[self.at..]
            .split_at_checked(length)
            .ok_or(Malformed("cut short"))?;
        self.at += length;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.message.len() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.at = self.message.len();
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::protobuf::{number, text};

    fn error(message: &[u8]) -> Option<&'static str> {
        let last = Fields::of(message).last();
        last.and_then(Result::err).map(|error| error.0)
    }

    #[test]
    fn what_is_odd_is_told() {
        for (message, expected) in [
            (&b""[..], None),
            (b"\x0a\x01a\x10\x7f\x09abcdefgh\x0dabcd", None),
            (b"\x0a", Some("cut short")),
            (b"\x0a\x02a", Some("cut short")),
            (b"\x09abcdefg", Some("cut short")),
            (b"\x0d", Some("cut short")),
            (b"\x80", Some("cut short")),
            // A length that no memory has.
            (
                b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                Some("cut short"),
            ),
            (b"\x0b", Some("an unknown wire type")),
            (b"\x0a\x81\x00a", Some("a number longer than it need be")),
            (
                b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
                Some("a number of more than 64 bits"),
            ),
            (
                b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                Some("a number of more than 64 bits"),
            ),
        ] {
            assert_eq!(error(message), expected, "{}", message.escape_ascii());
        }
        let field = Fields::of(b"\x08\x01").next().unwrap().unwrap();
        assert!(field.text().is_err());
        let field = Fields::of(b"\x0a\x01\xff").next().unwrap().unwrap();
        assert!(field.text().is_err());
    }

    proptest! {
        /// Whatever comes, nothing panics, and what is read is written again byte for byte.
        #[test]
        fn what_is_read_can_be_written(message in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut written = BytesMut::new();
            let mut end = 0;
            for field in Fields::of(&message) {
                let Ok(field) = field else { return Ok(()) };
                let Ok(at) = u32::try_from(field.number) else { return Ok(()) };
                if at >= 1 << 29 {
                    return Ok(());
                }
                prop_assert_eq!(field.place.start, end);
                end = field.place.end;
                match field.value {
                    Value::Number(value) => number(&mut written, at, value.cast_signed()),
                    Value::Bytes(bytes) => {
                        prop_assert_eq!(&message[field.place_of_bytes()], bytes);
                        text(&mut written, at, bytes);
                    }
                    Value::Fixed => written.extend_from_slice(&message[field.place]),
                }
            }
            prop_assert_eq!(&written[..], &message[..]);
        }

        #[test]
        fn what_is_written_can_be_read(fields in prop::collection::vec((1_u32..200, any::<i64>(), prop::collection::vec(any::<u8>(), 0..300)), 0..20)) {
            let mut message = BytesMut::new();
            for (at, value, bytes) in &fields {
                number(&mut message, *at, *value);
                text(&mut message, *at, bytes);
            }
            let read: Vec<_> = Fields::of(&message).map(|field| field.unwrap().value).collect();
            let expected: Vec<_> = fields
                .iter()
                .flat_map(|(_, value, bytes)| [Value::Number(value.cast_unsigned()), Value::Bytes(bytes)])
                .collect();
            prop_assert_eq!(read, expected);
        }
    }
}
