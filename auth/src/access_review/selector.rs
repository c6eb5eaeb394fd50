//! Selectors as an authorizer is told of them (KEP-4601): requirements where the text is plain, else the text.
//!
//! The server reads a text itself, by the very parser that reads the request's. What is odd in any way is left to it: a
//! selector that was misread here could make a narrower question of the user's, whose answer says too much.

use serde::Serialize;

/// One requirement; all of them must hold.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Requirement {
    key: String,
    operator: Operator,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<String>,
}

/// The operators that `authorization.k8s.io` knows; of fields `In` and `NotIn` alone, with one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// The object that a list or a watch is about, by its field selector: kube-apiserver authorizes a list with
/// `metadata.name=x` as one of `x`. It takes the first such term in the order of their bytes.
pub fn selected_name(field_selector: &str) -> Option<String> {
    let mut terms = field_terms(field_selector)?.into_iter();
    let named = |term: &FieldTerm<'_>| term.equals && term.field == "metadata.name";
    let name = terms.find(named)?.value;
    // The server's own rule for what may stand in a path.
    let segment = !matches!(&*name, "" | "." | "..") && !name.contains(['/', '%']);
    segment.then_some(name)
}

/// The requirements of a field selector; `None` where they are for the server to read.
pub(super) fn of_fields(text: &str) -> Option<Vec<Requirement>> {
    let requirement = |term: FieldTerm<'_>| Requirement {
        key: term.field.to_owned(),
        operator: match term.equals {
            true => Operator::In,
            false => Operator::NotIn,
        },
        values: vec![term.value],
    };
    let terms = field_terms(text)?;
    let plain = !terms.is_empty() && terms.iter().all(|term| !term.field.is_empty());
    plain.then(|| terms.into_iter().map(requirement).collect())
}

/// The requirements of a label selector; `None` where they are for the server to read, as `>` and `<` always are.
pub(super) fn of_labels(text: &str) -> Option<Vec<Requirement>> {
    let mut requirements = Vec::new();
    let mut rest = text;
    loop {
        let end = match (rest.find(','), rest.find('(')) {
            (Some(comma), Some(open)) if open < comma => {
                let close = open + rest[open..].find(')')?;
                match &rest[close + 1..] {
                    "" => rest.len(),
                    after if after.starts_with(',') => close + 1,
                    _ => return None,
                }
            }
            (Some(comma), _) => comma,
            (None, _) => rest.len(),
        };
        requirements.push(label_requirement(&rest[..end])?);
        match rest.get(end + 1..) {
            Some(next) => rest = next,
            None => return Some(requirements),
        }
    }
}

struct FieldTerm<'a> {
    field: &'a str,
    equals: bool,
    value: String,
}

/// The terms of a field selector, in the order of their bytes as the server has them; `None` where it would refuse one.
fn field_terms(text: &str) -> Option<Vec<FieldTerm<'_>>> {
    let mut escaped = false;
    let terms = text.split(move |c| {
        let comma = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        comma
    });
    let mut terms: Vec<_> = terms.filter(|term| !term.is_empty()).collect();
    terms.sort_unstable();
    terms.into_iter().map(field_term).collect()
}

/// `field=value`, `field==value` or `field!=value`; the first operator counts.
fn field_term(term: &str) -> Option<FieldTerm<'_>> {
    let equal = term.find('=')?;
    let (field, equals) = match term[..equal].strip_suffix('!') {
        Some(field) => (field, false),
        None => (&term[..equal], true),
    };
    let value = &term[equal + 1..];
    let value = match equals {
        true => value.strip_prefix('=').unwrap_or(value),
        false => value,
    };
    Some(FieldTerm {
        field,
        equals,
        value: unescape(value)?,
    })
}

fn unescape(value: &str) -> Option<String> {
    let mut unescaped = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => unescaped.push(chars.next().filter(|c| matches!(c, '\\' | ',' | '='))?),
            ',' | '=' => return None,
            c => unescaped.push(c),
        }
    }
    Some(unescaped)
}

/// One requirement in the spelling that clients use: single spaces around `in` and `notin`, none elsewhere.
fn label_requirement(text: &str) -> Option<Requirement> {
    use Operator::{DoesNotExist, Exists, In, NotIn};
    let (key, operator, values) = if let Some((key, set)) = text.split_once(" in (") {
        (key, In, set.strip_suffix(')')?.split(',').collect())
    } else if let Some((key, set)) = text.split_once(" notin (") {
        (key, NotIn, set.strip_suffix(')')?.split(',').collect())
    } else if let Some(key) = text.strip_prefix('!') {
        (key, DoesNotExist, Vec::new())
    } else if let Some((key, value)) = text.split_once("!=") {
        (key, NotIn, vec![value])
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key, In, vec![value])
    } else {
        (text, Exists, Vec::new())
    };
    (is_label_key(key) && values.iter().all(|value| is_label_value(value))).then(|| Requirement {
        key: key.to_owned(),
        operator,
        values: values.into_iter().map(str::to_owned).collect(),
    })
}

/// Narrower than what Kubernetes takes, never broader: it answers 422 to a requirement with an invalid key or value.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').unwrap_or(("a", key));
    let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label =
        |label: &str| is_word(label) && label.bytes().all(|byte| lower(byte) || byte == b'-');
    is_word(name) && prefix.len() <= 253 && prefix.split('.').all(label)
}

fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_word(value)
}

/// Up to 63 letters, digits, `-`, `_` and `.`, the first and the last of them a letter or a digit.
fn is_word(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= 63
        && text.bytes().all(plain)
        && ends
            .iter()
            .all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(requirements: Option<Vec<Requirement>>) -> String {
        requirements.map_or_else(
            || "raw".to_owned(),
            |requirements| {
                let shown = requirements
                    .iter()
                    .map(|it| format!("{} {:?} {:?}", it.key, it.operator, it.values));
                shown.collect::<Vec<_>>().join("; ")
            },
        )
    }

    #[test]
    fn fields_become_requirements() {
        for (text, expected) in [
            ("a=b", r#"a In ["b"]"#),
            ("a==b", r#"a In ["b"]"#),
            ("a!=b", r#"a NotIn ["b"]"#),
            ("a=", r#"a In [""]"#),
            (
                "spec.nodeName=n,metadata.name=x",
                r#"metadata.name In ["x"]; spec.nodeName In ["n"]"#,
            ),
            (",a=b,", r#"a In ["b"]"#),
            (r"a=b\,c\=d\\", r#"a In ["b,c=d\\"]"#),
            ("a=b c", r#"a In ["b c"]"#),
            // The first operator counts, and a value holds none unescaped.
            ("a=b=c", "raw"),
            ("a=!=b", "raw"),
            ("a===b", "raw"),
            (r"a=b\", "raw"),
            (r"a=b\x", "raw"),
            ("a", "raw"),
            ("a=b,c", "raw"),
            (",", "raw"),
            ("=b", "raw"),
            ("!=b", "raw"),
        ] {
            assert_eq!(shown(of_fields(text)), expected, "{text:?}");
        }
    }

    #[test]
    fn labels_become_requirements_where_they_are_plain() {
        for (text, expected) in [
            ("a=b", r#"a In ["b"]"#),
            ("a==b", r#"a In ["b"]"#),
            ("a!=b", r#"a NotIn ["b"]"#),
            ("a=", r#"a In [""]"#),
            ("a", "a Exists []"),
            ("!a", "a DoesNotExist []"),
            ("example.com/a-b=C_d.e", r#"example.com/a-b In ["C_d.e"]"#),
            ("a in (b,c),d", r#"a In ["b", "c"]; d Exists []"#),
            ("d,a notin (b)", r#"d Exists []; a NotIn ["b"]"#),
            ("a in (),b=c", r#"a In [""]; b In ["c"]"#),
            ("in in (in)", r#"in In ["in"]"#),
            ("a>1", "raw"),
            ("a<1", "raw"),
            ("", "raw"),
            (",", "raw"),
            ("a,", "raw"),
            ("a = b", "raw"),
            (" a", "raw"),
            ("a in(b)", "raw"),
            ("a in (b, c)", "raw"),
            ("a in (b", "raw"),
            ("a in (b)c", "raw"),
            ("a in (b) ,c", "raw"),
            ("a=(b)", "raw"),
            ("a=b=c", "raw"),
            ("a=!b", "raw"),
            ("!a=b", "raw"),
            ("!!a", "raw"),
            ("a!==b", "raw"),
            ("-a=b", "raw"),
            ("a=b-", "raw"),
            ("A.com/b", "raw"),
            ("a/b/c", "raw"),
            ("/b", "raw"),
            ("a/", "raw"),
            ("ä=b", "raw"),
            ("a=b\tc", "raw"),
        ] {
            assert_eq!(shown(of_labels(text)), expected, "{text:?}");
        }
        assert_eq!(shown(of_labels(&format!("a={}", "v".repeat(64)))), "raw");
    }

    #[test]
    fn a_field_selector_may_name_the_object() {
        for (text, expected) in [
            ("metadata.name=a", Some("a")),
            ("metadata.name==a", Some("a")),
            ("spec.nodeName=n,metadata.name=a", Some("a")),
            ("metadata.name=b,metadata.name=a", Some("a")),
            ("metadata.name=a,metadata.name=b", Some("a")),
            ("metadata.name!=a,metadata.name=b", Some("b")),
            (r"metadata.name=a\,b", Some("a,b")),
            ("metadata.name!=a", None),
            ("metadata.name=", None),
            ("metadata.name=..", None),
            ("metadata.name=a/b", None),
            ("metadata.name=a%2fb", None),
            // The server finds no selector in it at all.
            ("metadata.name=a,x", None),
            ("metadata.name=a=b", None),
            ("", None),
        ] {
            assert_eq!(selected_name(text).as_deref(), expected, "{text:?}");
        }
    }
}
