//! The `jsonPath` of a printer column, and what it leads to.
//!
//! What is read of client-go's `jsonpath`: names, the one element of a list, and the elements of a list that have a text in
//! them. Nothing else is of use to a date.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Name(String),
    /// Counted from the end where negative.
    Index(isize),
    /// `[?(@.type=="Ready")]`
    Where {
        names: Vec<String>,
        is: String,
    },
}

/// The path means nothing for this object: the server leaves the cell empty.
#[derive(Debug, PartialEq, Eq)]
struct Inapplicable;

impl JsonPath {
    /// `None` where there is anything in it that is not understood.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let mut steps = vec![];
        let mut rest = path;
        while !rest.is_empty() {
            if let Some(filter) = rest.strip_prefix("[?(@") {
                let (step, after) = filtered(filter)?;
                steps.push(step);
                rest = after;
            } else if let Some(index) = rest.strip_prefix('[') {
                let (index, after) = index.split_once(']')?;
                // In quotes are names with dots between them, as without.
                match index
                    .strip_prefix('\'')
                    .and_then(|it| it.strip_suffix('\''))
                {
                    Some(names) if !names.contains(['\'', ',']) => {
                        steps.extend(all_names(&format!(".{names}"))?.into_iter().map(Step::Name));
                    }
                    Some(_) => return None,
                    None => steps.push(Step::Index(self::index(index)?)),
                }
                rest = after;
            } else {
                let (name, after) = name(rest)?;
                steps.push(Step::Name(name));
                rest = after;
            }
        }
        (!steps.is_empty()).then_some(Self(steps))
    }

    /// The first value that it leads to.
    pub(super) fn first<'a>(&self, object: &'a RawValue) -> Option<&'a RawValue> {
        let mut values = vec![object];
        for step in &self.0 {
            values = step.take(&values).ok()?;
        }
        values.first().copied()
    }
}

impl Step {
    fn take<'a>(&self, values: &[&'a RawValue]) -> Result<Vec<&'a RawValue>, Inapplicable> {
        let mut found = vec![];
        for value in values {
            match self {
                Self::Name(name) => found.extend(member(value, name)),
                Self::Index(_) if value.get() == "null" => {}
                Self::Index(index) => {
                    let elements = elements(value)?;
                    let at = match usize::try_from(*index) {
                        Ok(at) => Some(at),
                        Err(_) => elements.len().checked_sub(index.unsigned_abs()),
                    };
                    found.push(*at.and_then(|at| elements.get(at)).ok_or(Inapplicable)?);
                }
                Self::Where { names, is } => {
                    for element in elements(value)? {
                        let mut value = Some(element);
                        for name in names {
                            value = value.and_then(|value| member(value, name));
                        }
                        let Some(value) = value else { continue };
                        // What is no text cannot be compared with one.
                        if text(value).ok_or(Inapplicable)? == *is {
                            found.push(element);
                        }
                    }
                }
            }
        }
        Ok(found)
    }
}

/// A name and what follows it.
fn name(path: &str) -> Option<(String, &str)> {
    let path = path.strip_prefix('.')?;
    let mut name = String::new();
    let mut characters = path.char_indices();
    let end = loop {
        match characters.next() {
            None => break path.len(),
            Some((at, '.' | '[')) => break at,
            // All of them are left out afterwards, escaped ones too.
            Some((_, '\\')) => match characters.next()? {
                (_, '\\') => {}
                (_, escaped) => name.push(escaped),
            },
            Some((_, ' ' | '\t' | '\r' | '\n' | ',' | ']' | '$' | '@' | '{' | '}')) => return None,
            Some((_, other)) => name.push(other),
        }
    };
    let rest = &path[end..];
    // `..` descends, `*` takes all.
    let is_name = name != "*" && !path.starts_with('.') && !rest.starts_with("..");
    is_name.then_some((name, rest))
}

fn all_names(mut path: &str) -> Option<Vec<String>> {
    let mut names = vec![];
    while !path.is_empty() {
        let (name, rest) = name(path)?;
        names.push(name);
        path = rest;
    }
    Some(names)
}

fn index(index: &str) -> Option<isize> {
    let digits = index.strip_prefix('-').unwrap_or(index);
    let is_number = (1..=9).contains(&digits.len()) && digits.bytes().all(|it| it.is_ascii_digit());
    is_number.then(|| index.parse().ok()).flatten()
}

/// What is behind `[?(@`.
fn filtered(filter: &str) -> Option<(Step, &str)> {
    let (names, compared) = filter.split_once("==")?;
    let names = names.trim_end_matches(' ');
    let compared = compared.trim_start_matches(' ');
    let quote = compared.chars().next().filter(|it| "\"'".contains(*it))?;
    let (is, rest) = compared[1..].split_once(quote)?;
    let rest = rest.trim_start_matches(' ').strip_prefix(")]")?;
    let names = match names {
        "" => return None,
        names if names.contains(['!', '<', '>', '=', '(', ')', '"', '\'']) => return None,
        names => all_names(names)?,
    };
    // What is escaped in it, or on more than a line, is read by other rules.
    if is.contains(['\\', '"', '\'', '\n', '\r']) {
        return None;
    }
    let is = is.to_owned();
    Some((Step::Where { names, is }, rest))
}

/// The text of a JSON string.
pub(super) fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    let quoted = value.get().strip_prefix('"')?.strip_suffix('"')?;
    if quoted.contains('\\') {
        serde_json::from_str(value.get()).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(quoted))
    }
}

fn elements(value: &RawValue) -> Result<Vec<&RawValue>, Inapplicable> {
    if !value.get().starts_with('[') {
        return Err(Inapplicable);
    }
    serde_json::from_str(value.get()).map_err(|_| Inapplicable)
}

/// The value of a key, where it is an object that has it.
fn member<'a>(value: &'a RawValue, name: &str) -> Option<&'a RawValue> {
    struct Member<'n>(&'n str);
    impl<'de> Visitor<'de> for Member<'_> {
        type Value = Option<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(Key(key)) = map.next_key::<Key<'_>>()? {
                if key == self.0 {
                    found = Some(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(value.get());
    deserializer.deserialize_map(Member(name)).ok()?
}

#[derive(serde::Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OBJECT: &str = r#"{"a":{"b":"ab","b.c/d":"dotted","b":"twice","\u0061":1,"":"empty"},
        "l":["x",["y","z"],{"n":"in"}],"e":[],"n":null,
        "c":[{"type":"A","at":"1"},{"at":"0"},null,"s",{"type":"B"},{"type":"B","at":"2"},{"type":"B","at":"3"}],
        "odd":[{"type":"A","at":"1"},{"type":5}],"deep":[{"x":{"y":"A"},"at":"4"}]}"#;

    #[test]
    fn paths_lead_where_the_server_finds_the_value() {
        let object: &RawValue = serde_json::from_str(OBJECT).unwrap();
        for (path, expected) in [
            (".a.b", Some(r#""twice""#)),
            (".a['b']", Some(r#""twice""#)),
            (r".a.b\.c/d", Some(r#""dotted""#)),
            (r".a['b\.c/d']", Some(r#""dotted""#)),
            (".a['b.c/d']", None),
            ("['a.b']", Some(r#""twice""#)),
            (".a.a", Some("1")),
            (".none", None),
            (".a.b.c", None),
            (".n", Some("null")),
            (".n.a", None),
            (".l[0]", Some(r#""x""#)),
            (".l[-3]", Some(r#""x""#)),
            (".l[1][1]", Some(r#""z""#)),
            (".l[-1].n", Some(r#""in""#)),
            (".l[3]", None),
            (".l[-4]", None),
            (".e[0]", None),
            (".a[0]", None),
            (".n[0]", None),
            (".none[0]", None),
            (r#".c[?(@.type=="A")].at"#, Some(r#""1""#)),
            (".c[?(@.type == 'B' )].at", Some(r#""2""#)),
            (r#".c[?(@.type=="C")].at"#, None),
            (r#".c[?(@.type=="B")].at[0]"#, None),
            (r#".deep[?(@.x.y=="A")].at"#, Some(r#""4""#)),
            (r#".odd[?(@.type=="A")].at"#, None),
            (r#".a[?(@.type=="A")].at"#, None),
            (r#".n[?(@.type=="A")].at"#, None),
        ] {
            let path = JsonPath::parse(path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(path.first(object).map(RawValue::get), expected, "{path:?}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for path in [
            "",
            "a",
            ".a..b",
            "..a",
            ".a.*",
            ".*",
            ".a[*]",
            ".a[0:2]",
            ".a[0,1]",
            ".a['b','c']",
            ".a[\"b\"]",
            ".a[]",
            ".a[0",
            ".a[x]",
            ".a[+1]",
            ".a[0]b",
            ".a b",
            ".a}{.b",
            ".a$",
            ".a@",
            r".a\",
            ".a['b",
            ".a[?(@.b)]",
            r#".a[?(@.b!="c")]"#,
            ".a[?(@.b==5)]",
            ".a[?(@.b==true)]",
            r#".a[?(@.b=="c\"d")]"#,
            r#".a[?(@.b=="c"]"#,
            r#".a[?(@.b=="c"&&@.d=="e")]"#,
            r#".a[?(@=="c")]"#,
            r#".a[?(@.b[0]=="c")].d"#,
            r#".a[?(@.b==="c")]"#,
            r#".a[?(.b=="c")]"#,
            r#".a[?(@.b>=="c")]"#,
        ] {
            let parsed = JsonPath::parse(path);
            // An index in a filter is one more step that nobody needs.
            assert_eq!(parsed, None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_path_can_be_read_and_followed(path in r#"([.\[\]'"?(@=)*a-e0-3\\-]|type|\[\?\(@\.){0,20}"#, json in r#"[\[\]{}:,"a-e0-9null]{0,20}"#) {
            let Some(path) = JsonPath::parse(&path) else { return Ok(()) };
            for object in [OBJECT, &json] {
                if let Ok(object) = serde_json::from_str::<&RawValue>(object) {
                    path.first(object);
                }
            }
        }
    }
}
