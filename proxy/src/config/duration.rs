//! Durations as written in a configuration: `10s`, `1m30s`, `250ms`.

use std::time::Duration;

/// Reads a duration: numbers each followed by `h`, `m`, `s` or `ms`, the larger unit first.
///
/// # Errors
/// What is wrong with it, as a sentence's end.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
