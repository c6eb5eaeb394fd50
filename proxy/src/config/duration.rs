//! Durations as written in a configuration: `10s`, `1m30s`, `250ms`.

use std::time::Duration;

use super::section::Form;

/// What [`parse`] takes, sizes apart.
pub(super) const FORM: Form = &[UNITS, "[0-9]"];

/// The same without nothing at all.
pub(super) const POSITIVE_FORM: Form = &[UNITS, "[1-9]"];

const UNITS: &str = "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$";

/// Reads a duration: numbers each followed by `h`, `m`, `s` or `ms`, the larger unit first.
///
/// # Errors
/// What is wrong with it, as a sentence's end.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as \"10s\", \"1m30s\" or \"250ms\"");
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut last_unit = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let unit_len = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let millis = match &rest[..unit_len] {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1000,
            "ms" => 1,
            _ => return Err(wrong()),
        };
        if millis >= last_unit {
            return Err(wrong());
        }
        last_unit = millis;
        rest = &rest[unit_len..];
        let part = number.checked_mul(millis).map(Duration::from_millis);
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or_else(wrong)?;
    }
    if text.is_empty() {
        return Err(wrong());
    }
    Ok(total)
}

/// Writes a duration as [`parse`] reads it.
pub(super) fn text(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit, of) in [("h", 3_600_000), ("m", 60_000), ("s", 1000)] {
        // 60s says more than 1m.
        if millis.is_multiple_of(of) && (millis > of || unit == "s") {
            return format!("{}{unit}", millis / of);
        }
    }
    format!("{millis}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_they_are_read() {
        for written in ["0s", "1ms", "1500ms", "10s", "90s", "30m", "2h"] {
            assert_eq!(text(parse(written).unwrap()), written);
        }
    }

    #[test]
    fn durations() {
        let check = |text: &str, millis: Option<u64>| {
            assert_eq!(
                parse(text).ok(),
                millis.map(Duration::from_millis),
                "{text:?}"
            );
        };
        check("10s", Some(10_000));
        check("1m30s", Some(90_000));
        check("250ms", Some(250));
        check("2h", Some(7_200_000));
        check("1h1m1s1ms", Some(3_661_001));
        check("0s", Some(0));
        for wrong in [
            "",
            "10",
            "s",
            "1.5s",
            "-1s",
            "10 s",
            "10S",
            "1d",
            "1s1m",
            "1s1s",
            " 1s",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            check(wrong, None);
        }
        assert_eq!(
            parse("10").unwrap_err(),
            "\"10\" is not a duration such as \"10s\", \"1m30s\" or \"250ms\""
        );
    }
}
