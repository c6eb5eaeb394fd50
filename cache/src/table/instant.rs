//! Points in time as objects name them, and as rows keep them.

use std::fmt;

use bytes::{BufMut as _, BytesMut};
use jiff::Timestamp;
use jiff::civil::Date;
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use super::age::{INVALID, LONGEST, Words, in_words};

/// Around an instant in a row: no JSON has it, since text in it is escaped.
const MARK: u8 = 1;

/// Nanoseconds in a second.
const NANOS: i128 = 1_000_000_000;

/// A point in time, of the years that RFC 3339 can write, whatever its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Instant {
    /// Since 1970.
    seconds: i64,
    nanoseconds: u32,
}

impl Instant {
    /// What Go has where no time was set.
    const ZERO: Self = Self {
        seconds: -62_135_596_800,
        nanoseconds: 0,
    };

    /// Reads what Go's `time.Parse(time.RFC3339, …)` does: more than the RFC allows (an hour of one digit, a comma before the
    /// fraction, an offset of 24 hours and of 60 minutes) and less (no small letters, no leap seconds).
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut rest = Rest(text.as_bytes());
        let year = rest.digits(4)?;
        rest.literal(b'-')?;
        let month = rest.digits(2)?;
        rest.literal(b'-')?;
        let day = rest.digits(2)?;
        rest.literal(b'T')?;
        let hour = match rest.digits(2) {
            Some(hour) => hour,
            None => rest.digits(1)?,
        };
        rest.literal(b':')?;
        let minute = rest.digits(2)?;
        rest.literal(b':')?;
        let second = rest.digits(2)?;
        let nanoseconds = rest.fraction();
        let offset = rest.offset()?;
        if !rest.0.is_empty() || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let (year, month, day) = (
            i16::try_from(year).ok()?,
            i8::try_from(month).ok()?,
            i8::try_from(day).ok()?,
        );
        // A number of days, so that no offset leads out of a calendar.
        let date = Date::new(year, month, day).ok()?;
        let days = i64::from((date - Date::constant(1970, 1, 1)).get_days());
        Some(Self {
            seconds: days * 86_400 + hour * 3600 + minute * 60 + second - offset,
            nanoseconds,
        })
    }

    /// The same, where it is one that was set.
    pub(super) fn if_set(self) -> Option<Self> {
        (self != Self::ZERO).then_some(self)
    }

    /// Whole seconds since 1970, rounded down.
    pub(super) fn seconds(self) -> i64 {
        self.seconds
    }

    /// How long ago it was.
    fn ago(self, now: Timestamp) -> Words {
        let then = i128::from(self.seconds) * NANOS + i128::from(self.nanoseconds);
        let seconds = (now.as_nanosecond() - then) / NANOS;
        in_words(i64::try_from(seconds).unwrap_or(LONGEST))
    }

    /// Writes it so that [`write_ages`] finds it.
    pub(super) fn mark(self, to: &mut Vec<u8>) {
        to.push(MARK);
        to.extend_from_slice(self.seconds.to_string().as_bytes());
        if self.nanoseconds != 0 {
            let fraction = format!(".{:09}", self.nanoseconds);
            to.extend_from_slice(fraction.trim_end_matches('0').as_bytes());
        }
        to.push(MARK);
    }

    /// Reads what is between two marks.
    fn marked(text: &[u8]) -> Self {
        let (text, is_negative) = match text {
            [b'-', text @ ..] => (text, true),
            text => (text, false),
        };
        let mut seconds = 0_i64;
        let mut digits = text.iter();
        for digit in digits.by_ref().take_while(|it| **it != b'.') {
            seconds = seconds * 10 + i64::from(digit.wrapping_sub(b'0'));
        }
        let (mut nanoseconds, mut unit) = (0, 100_000_000);
        for digit in digits {
            nanoseconds += u32::from(digit.wrapping_sub(b'0')) * unit;
            unit /= 10;
        }
        Self {
            seconds: if is_negative { -seconds } else { seconds },
            nanoseconds,
        }
    }
}

/// Whether there is a mark in it already, which JSON cannot have.
pub(super) fn is_marked(text: &str) -> bool {
    memchr::memchr(MARK, text.as_bytes()).is_some()
}

/// Writes text with each instant marked in it as how long ago that was.
pub(super) fn write_ages(to: &mut BytesMut, mut text: &[u8], now: Timestamp) {
    while let Some(begin) = memchr::memchr(MARK, text) {
        to.put_slice(&text[..begin]);
        text = &text[begin + 1..];
        let Some(end) = memchr::memchr(MARK, text) else {
            break;
        };
        let words = Instant::marked(&text[..end]).ago(now);
        match words.as_str() {
            // As Go writes it in JSON.
            INVALID => to.put_slice(br"\u003cinvalid\u003e"),
            words => to.put_slice(words.as_bytes()),
        }
        text = &text[end + 1..];
    }
    to.put_slice(text);
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Instant;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Instant, E> {
                Instant::parse(text).ok_or_else(|| E::custom("not a time"))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// What is left of a text.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn literal(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    /// Exactly so many of them.
    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        if !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        self.0 = rest;
        let number = |number, digit: &u8| number * 10 + i64::from(digit - b'0');
        Some(digits.iter().fold(0, number))
    }

    /// Nanoseconds; what is finer is left out.
    fn fraction(&mut self) -> u32 {
        let [b'.' | b',', digits @ ..] = self.0 else {
            return 0;
        };
        let count = digits.iter().take_while(|it| it.is_ascii_digit()).count();
        if count == 0 {
            return 0;
        }
        self.0 = &digits[count..];
        let (mut nanoseconds, mut unit) = (0, 100_000_000);
        for digit in &digits[..count] {
            nanoseconds += u32::from(digit - b'0') * unit;
            unit /= 10;
        }
        nanoseconds
    }

    /// Seconds east of Greenwich.
    fn offset(&mut self) -> Option<i64> {
        if self.literal(b'Z').is_some() {
            return Some(0);
        }
        let sign = match self.0.first()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        self.0 = &self.0[1..];
        let hours = self.digits(2)?;
        self.literal(b':')?;
        let minutes = self.digits(2)?;
        (hours <= 24 && minutes <= 60).then_some(sign * (hours * 3600 + minutes * 60))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(text: &str) -> Option<i64> {
        Instant::parse(text).map(Instant::seconds)
    }

    #[test]
    fn times_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T0:00:00Z", 0),
            ("1970-01-01T00:00:00,5Z", 0),
            ("1970-01-01T24:00:00Z", -1),
            ("1970-01-02T00:00:00+24:60", 82_800 - 86_400),
            ("2024-02-29T00:00:00Z", 1_709_164_800),
            ("0000-01-01T00:00:00+01:00", -62_167_222_800),
            ("9999-12-31T23:59:59-01:00", 253_402_304_399),
        ] {
            let expected = (expected != -1).then_some(expected);
            assert_eq!(seconds(text), expected, "{text}");
        }
        for text in [
            "",
            "null",
            "1970-01-01",
            "1970-01-01T00:00:00",
            "1970-01-01t00:00:00Z",
            "1970-01-01T00:00:00z",
            "1970-01-01 00:00:00Z",
            "1970-01-01T00:00:60Z",
            "1970-01-01T00:60:00Z",
            "1970-1-01T00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1970-00-01T00:00:00Z",
            "1970-01-00T00:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00+25:00",
            "1970-01-01T00:00:00+00:61",
            "1970-01-01T00:00:00+0000",
            "1970-01-01T00:00:00Z ",
            "10000-01-01T00:00:00Z",
            "-001-01-01T00:00:00Z",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
        let zero = Instant::parse("0001-01-01T01:00:00+01:00").unwrap();
        assert_eq!(zero.if_set(), None);
    }

    #[test]
    fn ages_are_truncated_toward_zero() {
        let now: Timestamp = "2026-01-01T00:00:00.25Z".parse().unwrap();
        for (time, expected) in [
            ("2025-12-31T23:59:58.25Z", "2s"),
            ("2025-12-31T23:59:58.250000001Z", "1s"),
            ("2026-01-01T00:00:02.249999999Z", "0s"),
            ("2026-01-01T00:00:02.25Z", r"\u003cinvalid\u003e"),
            ("0000-01-01T00:00:00Z", "292y"),
            ("9999-12-31T23:59:59Z", r"\u003cinvalid\u003e"),
        ] {
            let mut marked = vec![];
            Instant::parse(time).unwrap().mark(&mut marked);
            let mut written = BytesMut::new();
            write_ages(&mut written, &marked, now);
            assert_eq!(written, expected, "{time}");
        }
    }

    proptest! {
        #[test]
        fn what_is_marked_is_read_again(seconds in -70_000_000_000..260_000_000_000_i64, nanoseconds in prop_oneof![Just(0), Just(500_000_000), 0..1_000_000_000_u32]) {
            let instant = Instant { seconds, nanoseconds };
            let mut marked = vec![];
            instant.mark(&mut marked);
            prop_assert_eq!(Instant::marked(&marked[1..marked.len() - 1]), instant);
        }

        #[test]
        fn any_text_can_be_read(text in "[0-9TZ:.,+-]{0,30}|.{0,30}") {
            Instant::parse(&text);
        }
    }
}
