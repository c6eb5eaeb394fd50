//! Globs on cluster names.

use super::section::Form;

/// What [`parse`] takes.
pub(super) const FORM: Form = &[r"^[-a-z0-9.*?]+$"];

/// A glob that some cluster's name may match.
pub(super) fn parse(text: &str) -> Result<String, String> {
    let may_match =
        |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.*?".contains(&it);
    if text.is_empty() {
        Err("must not be empty".to_owned())
    } else if text.bytes().all(may_match) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} matches no cluster: besides `*` and `?` only lower-case letters, digits, `-` and `.` can, as in the \
             names under which contexts are served"
        ))
    }
}

/// Whether a name matches: `*` stands for any text, `?` for any one character, all else for itself. Of a glob in the place
/// of the name it says that whatever that matches does too; where it says no, some may all the same.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to go on when a later character does not match: behind the last star, one character further.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(&c) if c == name[n] || (c == b'?' && name[n] != b'*') => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((star, taken)) = retry else {
                    return false;
                };
                retry = Some((star, taken + 1));
                (p, n) = (star, taken + 1);
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, name, expect) in [
            ("edge-*", "edge-1", true),
            ("edge-*", "edge-", true),
            ("edge-*", "core-edge-1", false),
            ("*", "", true),
            ("*-eu", "a-eu-b-eu", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "aXbX", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("", "a", false),
            // A glob for a glob.
            ("*", "edge-*", true),
            ("edge-*", "edge-?", true),
            ("edge-?", "edge-*", false),
            ("edge-*", "*", false),
            ("a", "?", false),
        ] {
            assert_eq!(matches(pattern, name), expect, "{pattern} {name}");
        }
    }
}
