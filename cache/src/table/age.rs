//! How long ago something was, in the words of Go's `duration.HumanDuration`, and what such words say.

use std::fmt;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Of a time that has yet to come.
pub(super) const INVALID: &str = "<invalid>";

/// As long as Go can say: a difference of more is this one.
pub(super) const LONGEST: i64 = i64::MAX / 1_000_000_000;

/// Seconds in two units at most.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Words {
    text: [u8; INVALID.len()],
    length: usize,
}

/// Says so many seconds. Clocks that differ by less than two seconds are taken to agree.
pub fn in_words(seconds: i64) -> Words {
    let mut words = Words {
        text: [0; INVALID.len()],
        length: 0,
    };
    let seconds = seconds.min(LONGEST);
    let (minutes, hours, days, years) = (
        seconds / MINUTE,
        seconds / HOUR,
        seconds / DAY,
        seconds / YEAR,
    );
    match seconds {
        ..-1 => words.put(INVALID.as_bytes()),
        -1..0 => words.one(0, b's'),
        0..120 => words.one(seconds, b's'),
        _ if minutes < 10 => words.two(minutes, b'm', seconds % 60, b's'),
        _ if hours < 3 => words.one(minutes, b'm'),
        _ if hours < 8 => words.two(hours, b'h', minutes % 60, b'm'),
        _ if hours < 48 => words.one(hours, b'h'),
        _ if days < 8 => words.two(days, b'd', hours % 24, b'h'),
        _ if years < 2 => words.one(days, b'd'),
        _ if years < 8 => words.two(years, b'y', days % 365, b'd'),
        _ => words.one(years, b'y'),
    }
    words
}

impl Words {
    /// As text.
    pub fn as_str(&self) -> &str {
        // Nothing but ASCII is put there.
        str::from_utf8(&self.text[..self.length]).unwrap_or_default()
    }

    fn two(&mut self, one: i64, unit: u8, more: i64, less: u8) {
        self.one(one, unit);
        if more != 0 {
            self.one(more, less);
        }
    }

    /// At most four digits: of the largest unit, years, there are 292.
    fn one(&mut self, number: i64, unit: u8) {
        let mut divisor = 1000;
        while divisor > 1 && number < divisor {
            divisor /= 10;
        }
        while divisor > 0 {
            let digit = u8::try_from(number / divisor % 10).unwrap_or_default();
            self.put(&[b'0' + digit]);
            divisor /= 10;
        }
        self.put(&[unit]);
    }

    fn put(&mut self, text: &[u8]) {
        let end = self.length + text.len();
        self.text[self.length..end].copy_from_slice(text);
        self.length = end;
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The least and the most whole seconds that are said in these words; `None` where they are no such words.
pub(super) fn span(words: &str) -> Option<(i64, i64)> {
    if words == INVALID {
        return Some((i64::MIN, -2));
    }
    let mut least = 0_i64;
    let mut number = 0_i64;
    for byte in words.bytes() {
        let unit = match byte {
            // Whatever is longer is said otherwise.
            b'0'..=b'9' if number < 10_000 => {
                number = number * 10 + i64::from(byte - b'0');
                continue;
            }
            b's' => 1,
            b'm' => MINUTE,
            b'h' => HOUR,
            b'd' => DAY,
            b'y' => YEAR,
            _ => return None,
        };
        least = least.checked_add(number * unit)?;
        number = 0;
    }
    if in_words(least).as_str() != words {
        return None;
    }
    let step = match least {
        _ if least < 10 * MINUTE => 1,
        _ if least < 8 * HOUR => MINUTE,
        _ if least < 8 * DAY => HOUR,
        _ if least < 8 * YEAR => DAY,
        _ => YEAR,
    };
    let most = match least + step - 1 {
        LONGEST.. => i64::MAX,
        most => most,
    };
    Some((if least == 0 { -1 } else { least }, most))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `duration.HumanDuration` of k8s.io/apimachinery v0.36.3 says, by nanoseconds.
    const OF_GO: &str = include_str!("testdata/durations.txt");

    #[test]
    fn durations_are_said_as_go_says_them() {
        let lines: Vec<_> = OF_GO.lines().collect();
        assert_eq!(lines.len(), 166);
        for line in lines {
            let (nanoseconds, words) = line.split_once(' ').unwrap();
            let seconds = nanoseconds.parse::<i64>().unwrap() / 1_000_000_000;
            assert_eq!(in_words(seconds).to_string(), words, "{nanoseconds}");
        }
        assert_eq!(in_words(i64::MAX).as_str(), "292y");
        assert_eq!(in_words(i64::MIN).as_str(), "<invalid>");
    }

    #[test]
    fn what_is_not_said_so_is_no_duration() {
        for words in [
            "",
            "5",
            "m",
            "s",
            "120s",
            "60m0s",
            "179s",
            "10m5s",
            "1h",
            "2h",
            "48h",
            "5m1h",
            "05s",
            "-5s",
            "5 m",
            "99999999999y",
            "293y",
            "<unknown>",
            "<none>",
            "2026-01-01T00:00:00Z",
            "ß",
        ] {
            assert_eq!(span(words), None, "{words}");
        }
    }

    proptest! {
        #[test]
        fn words_say_as_much_as_they_do(seconds in prop_oneof![-200..1000_i64, -200..100_000_i64, 0..LONGEST, any::<i64>()]) {
            let words = in_words(seconds);
            let (least, most) = span(words.as_str()).unwrap();
            prop_assert!((least..=most).contains(&seconds), "{words}: {seconds}");
            for said in [least, most] {
                prop_assert_eq!(in_words(said), words);
            }
            if let Some(before) = least.checked_sub(1) {
                prop_assert_ne!(in_words(before), words);
            }
            if let Some(after) = most.checked_add(1) {
                prop_assert_ne!(in_words(after), words);
            }
        }

        #[test]
        fn any_text_can_be_looked_at(text in ".{0,12}") {
            span(&text);
        }
    }
}
