//! Percent-decoding of paths and query strings.

/// A decoded query string. Of a repeated parameter the first value counts, as in the apiserver.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(key, true), decode(value, true))
            });
        Self(pairs.collect())
    }

    /// The value of `key`, empty or not, if the query has it at all.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value.as_str())
    }

    /// The value of `key` unless it is empty.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }

    /// Absent, `0` and `false` are false; anything else is true, the empty value included.
    pub(super) fn flag(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// An integer, in Go's words where it is none.
    pub(super) fn integer(&self, key: &str) -> Result<Option<i64>, String> {
        let parse = |text: &str| {
            text.parse()
                .map_err(|_| format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
        };
        self.get(key).map(parse).transpose()
    }
}

/// Decodes `%41` and, in queries, `+`. A broken escape stays as it is.
pub(super) fn decode(text: &str, plus_is_space: bool) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if let Some(byte) = hex_pair(*high, *low) => {
                decoded.push(byte);
                rest = after;
            }
            (b'+', _) if plus_is_space => decoded.push(b' '),
            (byte, _) => decoded.push(*byte),
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hex_pair(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_value_counts_and_escapes_are_decoded() {
        let query = Query::parse("a=x%3Dy&a=z&watch&b=1+2&c=%zz&limit=abc");
        assert_eq!(query.get("a"), Some("x=y"));
        assert_eq!(query.get("b"), Some("1 2"));
        assert_eq!(query.get("c"), Some("%zz"));
        assert_eq!(query.get("d"), None);
        assert!(query.flag("watch"));
        assert!(!Query::parse("watch=0&watch=1").flag("watch"));
        assert!(
            query
                .integer("limit")
                .unwrap_err()
                .contains("parsing \"abc\"")
        );
    }
}
