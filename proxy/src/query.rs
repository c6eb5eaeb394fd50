//! Queries and escapes, decoded as Go decodes them.

use std::borrow::Cow;

/// The pairs of a query, decoded. Those with a malformed escape or a semicolon are left out, as the server leaves them out:
/// it answers as if they were not there.
pub fn query_pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.contains(';') && !has_malformed_escape(pair))
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decode(key), form_decode(value))
        })
}

fn has_malformed_escape(text: &str) -> bool {
    text.split('%').skip(1).any(|rest| {
        let digits = rest.bytes().take(2);
        digits.filter(u8::is_ascii_hexdigit).count() < 2
    })
}

fn form_decode(text: &str) -> Cow<'_, str> {
    if text.contains('+') {
        return Cow::Owned(percent_decode(&text.replace('+', " ")).into_owned());
    }
    percent_decode(text)
}

/// Decodes escapes; a malformed one stays as it is.
pub(crate) fn percent_decode(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = (byte == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        let pairs: Vec<_> =
            query_pairs("a=1&b=x%3Dy+z&&c&d=%zz&e=%&%1=f&g=h;i&j=%+1&%6b=l").collect();
        let expected = [("a", "1"), ("b", "x=y z"), ("c", ""), ("k", "l")];
        assert_eq!(
            pairs,
            expected.map(|(key, value)| (Cow::from(key), Cow::from(value)))
        );
    }
}
