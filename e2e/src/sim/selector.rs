//! Label and field selectors.

use std::collections::BTreeMap;

use serde_json::Value;

use super::object::Object;
use super::resource::Resource;
use super::status::Status;

/// What a list or watch filters by.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    DoesNotExist(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    field: String,
    value: String,
    equal: bool,
}

impl Selector {
    pub(super) fn parse(
        resource: &Resource,
        labels: Option<&str>,
        fields: Option<&str>,
    ) -> Result<Self, Status> {
        let labels = parse_labels(labels.unwrap_or_default()).map_err(Status::bad_request)?;
        let fields = parse_fields(fields.unwrap_or_default()).map_err(Status::bad_request)?;
        match fields
            .iter()
            .find(|term| !resource.knows_field(&term.field))
        {
            Some(term) => Err(Status::bad_request(unknown_field(resource, &term.field))),
            None => Ok(Self { labels, fields }),
        }
    }

    /// Whether everything matches.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Object) -> bool {
        self.labels
            .iter()
            .all(|requirement| requirement.matches(&object.labels))
            && self.matches_fields(object)
    }

    fn matches_fields(&self, object: &Object) -> bool {
        // Most selectors name the object; only the others need it parsed.
        let mut parsed: Option<Value> = None;
        self.fields.iter().all(|term| {
            let equal = match term.field.as_str() {
                "metadata.name" => object.name == term.value,
                "metadata.namespace" => object.namespace == term.value,
                field => {
                    field_text(parsed.get_or_insert_with(|| object.value()), field) == term.value
                }
            };
            equal == term.equal
        })
    }
}

fn unknown_field(resource: &Resource, field: &str) -> String {
    if resource.uses_default_fields() {
        format!(
            "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        )
    } else {
        format!("field label not supported: {field}")
    }
}

/// Fields compare as text; what is absent is empty, except the one boolean that always has a value.
fn field_text(object: &Value, field: &str) -> String {
    let value = field
        .split('.')
        .try_fold(object, |value, key| value.get(key));
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ if field == "spec.unschedulable" => "false".to_owned(),
        _ => String::new(),
    }
}

impl Requirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Exists(key) => labels.contains_key(key),
            Self::DoesNotExist(key) => !labels.contains_key(key),
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
        }
    }
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    split_outside_parentheses(text)
        .map(str::trim)
        .filter(|term| !term.is_empty())
        .map(parse_requirement)
        .collect()
}

fn parse_requirement(term: &str) -> Result<Requirement, String> {
    if let Some(key) = term.strip_prefix('!') {
        return Ok(Requirement::DoesNotExist(label_key(key)?));
    }
    for (operator, build) in [
        (
            "!=",
            Requirement::NotIn as fn(String, Vec<String>) -> Requirement,
        ),
        ("==", Requirement::In),
        ("=", Requirement::In),
    ] {
        if let Some((key, value)) = term.split_once(operator) {
            return Ok(build(label_key(key)?, vec![value.trim().to_owned()]));
        }
    }
    let Some((key, rest)) = term.split_once(char::is_whitespace) else {
        return Ok(Requirement::Exists(label_key(term)?));
    };
    let rest = rest.trim();
    let (operator, values) = rest
        .split_once(|c: char| c == '(' || c.is_whitespace())
        .unwrap_or((rest, ""));
    let values = values.trim().trim_start_matches('(').trim_end_matches(')');
    let values = values
        .split(',')
        .map(|value| value.trim().to_owned())
        .collect();
    match operator {
        "in" => Ok(Requirement::In(label_key(key)?, values)),
        "notin" => Ok(Requirement::NotIn(label_key(key)?, values)),
        other => Err(format!(
            "unable to parse requirement: found '{other}', expected: in, notin, =, ==, !=, gt, lt"
        )),
    }
}

fn label_key(key: &str) -> Result<String, String> {
    let key = key.trim();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if key.is_empty() || !key.chars().all(legal) {
        return Err(format!(
            "unable to parse requirement: invalid label key {key:?}"
        ));
    }
    Ok(key.to_owned())
}

/// Splits at the commas between terms, not at those inside `(a,b)`.
fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn parse_fields(text: &str) -> Result<Vec<FieldTerm>, String> {
    let terms = text.split(',').filter(|term| !term.is_empty());
    terms
        .map(|term| {
            let (field, value, equal) = if let Some((field, value)) = term.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) =
                term.split_once("==").or_else(|| term.split_once('='))
            {
                (field, value, true)
            } else {
                return Err(format!(
                    "invalid selector: '{term}'; can't understand '{term}'"
                ));
            };
            Ok(FieldTerm {
                field: field.to_owned(),
                value: value.to_owned(),
                equal,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Object {
        let value = json!({
            "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "web", "empty": ""}},
            "spec": {"nodeName": "n1"}, "status": {"phase": "Running"},
        });
        Object::new(Resource::named("pods").unwrap(), value, 7)
    }

    #[test]
    fn label_selectors_follow_the_grammar() {
        let check = |text: &str, expected: bool| {
            let selector =
                Selector::parse(Resource::named("pods").unwrap(), Some(text), None).unwrap();
            assert_eq!(selector.matches(&pod()), expected, "{text}");
        };
        check("", true);
        check("app=web", true);
        check("app==web,empty=", true);
        check("app!=web", false);
        check("other!=x", true);
        check("app", true);
        check("!app", false);
        check("app in (db, web),empty", true);
        check("app notin (db,web)", false);
        check("other in ()", false);
    }

    #[test]
    fn field_selectors_compare_text() {
        let check = |text: &str, expected: bool| {
            let selector =
                Selector::parse(Resource::named("pods").unwrap(), None, Some(text)).unwrap();
            assert_eq!(selector.matches(&pod()), expected, "{text}");
        };
        check("metadata.name=p,metadata.namespace=ns", true);
        check("metadata.name=p,metadata.name=q", false);
        check(",", true);
        check("spec.nodeName=n1,status.phase!=Succeeded", true);
        check("status.podIP=", true);
    }

    #[test]
    fn what_cannot_be_selected_is_a_bad_request() {
        let check = |plural: &str, labels: Option<&str>, fields: Option<&str>, expected: &str| {
            let error =
                Selector::parse(Resource::named(plural).unwrap(), labels, fields).unwrap_err();
            assert_eq!((error.code, error.message.as_str()), (400, expected));
        };
        check(
            "pods",
            Some("a b"),
            None,
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        );
        check(
            "pods",
            None,
            Some("spec.foo=x"),
            "field label not supported: spec.foo",
        );
        check(
            "nodes",
            None,
            Some("metadata.namespace=x"),
            "field label not supported: metadata.namespace",
        );
        check(
            "configmaps",
            None,
            Some("foo=bar"),
            "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        );
        check(
            "pods",
            None,
            Some("foo"),
            "invalid selector: 'foo'; can't understand 'foo'",
        );
    }
}
