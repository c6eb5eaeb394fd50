//! `Cache-Control` of a request (RFC 9111, §5.2): how new its answer must be.

use std::time::Duration;

use http::HeaderMap;
use http::header::CACHE_CONTROL;

/// Seconds that no cache lives for.
const FOR_EVER: u64 = u32::MAX as u64;

/// The directives of a request that count here; others say nothing to this cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// Nothing that was not made sure of with the cluster: `no-cache`, and `max-age=0`.
    pub no_cache: bool,
    /// Nothing from memory.
    pub no_store: bool,
    /// Nothing that was last made sure of longer ago.
    pub max_age: Option<Duration>,
    /// Nothing from the cluster.
    pub only_if_cached: bool,
}

impl CacheControl {
    /// Reads all fields of the name, as if they were one list.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut it = Self::default();
        for value in headers.get_all(CACHE_CONTROL) {
            // A quoted string may hold other bytes than ASCII; what it says counts for nothing here.
            let text = String::from_utf8_lossy(value.as_bytes());
            for directive in split_outside_quotes(&text) {
                it.add(directive);
            }
        }
        it
    }

    fn add(&mut self, directive: &str) {
        let (name, value) = match directive.split_once('=') {
            Some((name, value)) => (name, value.trim()),
            None => (directive, ""),
        };
        match &*name.trim().to_ascii_lowercase() {
            "no-cache" => self.no_cache = true,
            "no-store" => self.no_store = true,
            "only-if-cached" => self.only_if_cached = true,
            "max-age" => match delta_seconds(value) {
                // Of several the strictest. One that says nothing (`max-age=-1`) is as strict as can be.
                None | Some(0) => self.no_cache = true,
                Some(seconds) => {
                    let age = Duration::from_secs(seconds);
                    self.max_age = Some(self.max_age.map_or(age, |known| known.min(age)));
                }
            },
            _ => {}
        }
    }
}

/// The members of a comma list whose members may hold quoted strings. What an open quote holds is not looked at.
fn split_outside_quotes(text: &str) -> Vec<&str> {
    let (mut members, mut start) = (Vec::new(), 0);
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                members.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    members.push(&text[start..]);
    members
}

/// A number of seconds, as a token or quoted; one too large to count is as good as any that never ends.
fn delta_seconds(value: &str) -> Option<u64> {
    let quoted = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let digits = quoted.unwrap_or(value);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(FOR_EVER))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(values: &[&str]) -> CacheControl {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CACHE_CONTROL, HeaderValue::try_from(*value).unwrap());
        }
        CacheControl::of(&headers)
    }

    #[test]
    fn directives_are_read() {
        let none = CacheControl::default();
        let no_cache = CacheControl {
            no_cache: true,
            ..none
        };
        let max_age = |seconds| CacheControl {
            max_age: Some(Duration::from_secs(seconds)),
            ..none
        };
        for (values, expected) in [
            (&[][..], none),
            (&[""], none),
            (&["no-cache"], no_cache),
            (&["No-Cache"], no_cache),
            (&[" no-cache\t"], no_cache),
            (&["no-cache=\"a, b\""], no_cache),
            (&["max-age=0"], no_cache),
            (&["max-age=000"], no_cache),
            (&["max-age=\"0\""], no_cache),
            (&["max-age"], no_cache),
            (&["max-age=-1"], no_cache),
            (&["max-age=1s"], no_cache),
            (&["max-age=30"], max_age(30)),
            (&["MAX-AGE = \"30\""], max_age(30)),
            (&["max-age=30, max-age=20"], max_age(20)),
            (&["max-age=20", "max-age=30"], max_age(20)),
            (&["max-age=99999999999999999999999"], max_age(FOR_EVER)),
            (&["max-stale=30, min-fresh=1, x"], none),
            (&["no-caches", "xno-cache"], none),
            (&["ext=\"no-cache, no-store\""], none),
            (&["ext=\"a\\\", no-store\""], none),
            (&["ext=\"a\", no-cache"], no_cache),
            (&[",, ,no-cache,"], no_cache),
            (&["ext=\"open, no-cache"], none),
            (
                &["no-store", "only-if-cached, no-cache"],
                CacheControl {
                    no_cache: true,
                    no_store: true,
                    max_age: None,
                    only_if_cached: true,
                },
            ),
        ] {
            assert_eq!(read(values), expected, "{values:?}");
        }
    }
}
