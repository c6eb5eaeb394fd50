//! Selectors of the fleet's API: read as everywhere, refused in the words of apimachinery's parsers.

use std::fmt::Write as _;

use fleetcache_cache::selector::Selector;

use super::refusal::Refusal;

/// What a binary operator may be.
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

/// Reads both selectors.
///
/// # Errors
/// One is none.
pub(super) fn read(labels: &str, fields: &str) -> Result<Selector, Refusal> {
    Selector::parse(labels, fields).map_err(|_| {
        let why = label_error(labels).or_else(|| field_error(fields));
        Refusal::BadRequest(why.unwrap_or_else(|| "unable to parse requirement".to_owned()))
    })
}

/// Reads both selectors of a kind that has a name and nothing else to be selected by.
///
/// # Errors
/// One is none, or names another field.
pub(super) fn check(labels: &str, fields: &str) -> Result<Selector, Refusal> {
    let selector = read(labels, fields)?;
    let other = selector.fields().find(|field| *field != "metadata.name");
    if let Some(field) = other {
        let message = format!("field label not supported: {field}");
        return Err(Refusal::BadRequest(message));
    }
    Ok(selector)
}

/// What is wrong with a field selector, if anything.
fn field_error(fields: &str) -> Option<String> {
    for term in fields.split(',').filter(|term| !term.is_empty()) {
        let Some((_, value)) = term.split_once('=') else {
            return Some(format!(
                "invalid selector: '{fields}'; can't understand '{term}'"
            ));
        };
        let value = value.trim_start_matches('=');
        if let Some((_, escape)) = value.split_once('\\') {
            let mut sequence = "\\".to_owned();
            sequence.extend(escape.chars().next());
            return Some(format!(
                "invalid field selector: invalid escape sequence: {sequence}"
            ));
        }
    }
    None
}

/// What is wrong with a label selector, if anything: the first thing that Go's parser would stumble over.
fn label_error(labels: &str) -> Option<String> {
    let mut words = Words(labels);
    match words.peek() {
        "" => return None,
        word if word == "!" || is_word(word) => {}
        word => {
            return Some(format!(
                "found '{word}', expected: !, identifier, or 'end of string'"
            ));
        }
    }
    loop {
        if let Err(why) = requirement(&mut words) {
            return Some(format!("unable to parse requirement: {why}"));
        }
        match words.next() {
            "" => return None,
            "," => {
                let next = words.peek();
                if next != "!" && !is_word(next) {
                    return Some(format!("found '{next}', expected: identifier after ','"));
                }
            }
            word => return Some(format!("found '{word}', expected: ',' or 'end of string'")),
        }
    }
}

fn requirement(words: &mut Words<'_>) -> Result<(), String> {
    let mut key = words.next();
    let negated = key == "!";
    if negated {
        key = words.next();
    }
    if !is_word(key) {
        return Err(format!("found '{key}', expected: identifier"));
    }
    check_key(key)?;
    if negated || matches!(words.peek(), "" | ",") {
        return Ok(());
    }
    match words.next() {
        "=" | "==" | "!=" => {
            let value = one_value(words)?;
            check_value(key, 0, value)
        }
        ">" | "<" => {
            let value = one_value(words)?;
            if value.parse::<i64>().is_err() {
                return Err(format!(
                    "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                ));
            }
            Ok(())
        }
        "in" | "notin" => values(key, words),
        word => Err(format!("found '{word}', expected: {OPERATORS}")),
    }
}

fn one_value<'a>(words: &mut Words<'a>) -> Result<&'a str, String> {
    if matches!(words.peek(), "" | ",") {
        return Ok("");
    }
    match words.next() {
        word if is_word(word) => Ok(word),
        word => Err(format!("found '{word}', expected: identifier")),
    }
}

fn values(key: &str, words: &mut Words<'_>) -> Result<(), String> {
    match words.next() {
        "(" => {}
        word => return Err(format!("found '{word}' expected: '('")),
    }
    let mut found = Vec::new();
    match words.peek() {
        ")" => {}
        "," => {}
        word if is_word(word) => {}
        word => return Err(format!("found '{word}', expected: ',', ')' or identifier")),
    }
    loop {
        match words.next() {
            ")" => break,
            "," => {}
            word if is_word(word) => {
                found.push(word);
                match words.peek() {
                    "," | ")" => {}
                    next => return Err(format!("found '{next}', expected: ',' or ')'")),
                }
            }
            word => return Err(format!("found '{word}', expected: ',', or identifier")),
        }
    }
    // Go checks them as a set, in order.
    found.sort_unstable();
    found.dedup();
    let checked = found.into_iter().enumerate();
    let problems: Vec<_> = checked
        .filter_map(|(at, value)| check_value(key, at, value).err())
        .collect();
    match &problems[..] {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// The words of a label selector; "" at its end.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn split(&self) -> (&'a str, &'a str) {
        let rest = self.0.trim_start_matches([' ', '\t', '\r', '\n']);
        let special = |c: char| "=!(),<>".contains(c);
        let length = match rest.chars().next() {
            None => 0,
            Some('=') if rest.starts_with("==") => 2,
            Some('!') if rest.starts_with("!=") => 2,
            Some(first) if special(first) => 1,
            Some(_) => rest
                .find(|c: char| special(c) || " \t\r\n".contains(c))
                .unwrap_or(rest.len()),
        };
        rest.split_at(length)
    }

    fn peek(&self) -> &'a str {
        self.split().0
    }

    fn next(&mut self) -> &'a str {
        let (word, rest) = self.split();
        self.0 = rest;
        word
    }
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && !word.starts_with(['=', '!', '(', ')', ',', '<', '>'])
}

const NAME_FORM: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const NAME_REGEX: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

fn is_name(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let plain = bytes
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte));
    plain && ends(bytes.first()) && ends(bytes.last())
}

/// `validation.IsQualifiedName`.
fn check_key(key: &str) -> Result<(), String> {
    let mut problems = Vec::new();
    let parts: Vec<_> = key.split('/').collect();
    let name = match parts[..] {
        [name] => Some(name),
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                let is_label = |label: &str| {
                    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
                    !label.is_empty()
                        && label.bytes().all(plain)
                        && !label.starts_with('-')
                        && !label.ends_with('-')
                };
                if prefix.len() > 253 {
                    problems.push("prefix part must be no more than 253 bytes".to_owned());
                }
                if !prefix.split('.').all(is_label) {
                    problems.push(r"prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')".to_owned());
                }
            }
            Some(name)
        }
        _ => None,
    };
    match name {
        None => problems.push(format!(
            "a valid label key {NAME_FORM} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME_REGEX}') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )),
        Some(name) => {
            if name.is_empty() {
                problems.push("name part must be non-empty".to_owned());
            } else if name.len() > 63 {
                problems.push("name part must be no more than 63 bytes".to_owned());
            }
            if !is_name(name) {
                problems.push(format!(
                    "name part {NAME_FORM} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{NAME_REGEX}')"
                ));
            }
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!(
        "<nil>: Invalid value: {key:?}: {}",
        problems.join("; ")
    ))
}

/// `validation.IsValidLabelValue`.
fn check_value(key: &str, at: usize, value: &str) -> Result<(), String> {
    let mut problem = String::new();
    if value.len() > 63 {
        problem += "must be no more than 63 bytes";
    }
    if !value.is_empty() && !is_name(value) {
        if !problem.is_empty() {
            problem += "; ";
        }
        let _ = write!(
            problem,
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({NAME_REGEX})?')"
        );
    }
    if problem.is_empty() {
        return Ok(());
    }
    Err(format!(
        "values[{at}][{key}]: Invalid value: {value:?}: {problem}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_would_stumble_over_is_told_in_its_words() {
        for (labels, expected) in [
            ("", None),
            ("a,!b,c=d,e in (f,g),h>5", None),
            (
                "a b",
                Some(
                    "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
                ),
            ),
            (
                "=x",
                Some("found '=', expected: !, identifier, or 'end of string'"),
            ),
            ("a,", Some("found '', expected: identifier after ','")),
            (
                "a>=x",
                Some("unable to parse requirement: found '=', expected: identifier"),
            ),
            (
                "a in x",
                Some("unable to parse requirement: found 'x' expected: '('"),
            ),
            (
                "a in (x",
                Some("unable to parse requirement: found '', expected: ',' or ')'"),
            ),
            (
                "!",
                Some("unable to parse requirement: found '', expected: identifier"),
            ),
        ] {
            assert_eq!(label_error(labels).as_deref(), expected, "{labels}");
        }
        assert_eq!(
            field_error("foo").as_deref(),
            Some("invalid selector: 'foo'; can't understand 'foo'")
        );
    }
}
