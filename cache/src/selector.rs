//! Which objects of a list are asked for: by their labels, and by the fields that their kind lets one select by.

use crate::fields::{Fields, Selectable};
use crate::label_selector::{InvalidSelector, LabelSelector};
use crate::store::Element;

/// The selectors of a list as they stand in a query: any field may be named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    labels: LabelSelector,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    field: String,
    equals: bool,
    value: String,
}

impl Selector {
    /// Reads both selectors as they stand in a query.
    ///
    /// # Errors
    /// The server would refuse one.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, InvalidSelector> {
        let terms = split_terms(fields).filter(|term| !term.is_empty());
        Ok(Self {
            labels: LabelSelector::parse(labels)?,
            fields: terms.map(field_term).collect::<Result<_, _>>()?,
        })
    }

    /// Whether it asks for one value of a field.
    pub fn names_one(&self, field: &str) -> bool {
        let mut terms = self.fields.iter();
        terms.any(|term| term.equals && term.field == field)
    }

    /// The fields that it names, in order.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|term| term.field.as_str())
    }

    /// What it means to a kind with these fields; `None` where only the server can judge it.
    pub(crate) fn bind(&self, fields: &Fields) -> Option<BoundSelector> {
        let bind = |term: &FieldTerm| {
            Some(BoundTerm {
                field: fields.find(&term.field)?,
                equals: term.equals,
                value: term.value.clone(),
            })
        };
        Some(BoundSelector {
            labels: self.labels.clone(),
            fields: self.fields.iter().map(bind).collect::<Option<_>>()?,
        })
    }
}

/// The selectors of a list of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundSelector {
    labels: LabelSelector,
    fields: Vec<BoundTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct BoundTerm {
    field: Selectable,
    equals: bool,
    value: String,
}

impl BoundSelector {
    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether it asks for more than metadata.
    pub(crate) fn reads_values(&self) -> bool {
        let mut terms = self.fields.iter();
        terms.any(|term| matches!(term.field, Selectable::Own(_)))
    }

    /// Whether an object is selected.
    pub fn matches(&self, element: &Element) -> bool {
        let (namespace, name) = element.key.split_once('/').unwrap_or(("", &element.key));
        let fields = self.fields.iter().all(|term| {
            let value = match term.field {
                Selectable::Name => name,
                Selectable::Namespace => namespace,
                Selectable::Own(field) => element.value(field),
            };
            (value == term.value) == term.equals
        });
        fields && (self.labels.is_empty() || self.labels.matches(&element.labels()))
    }
}

/// The terms between commas; a comma behind a backslash belongs to its term.
fn split_terms(fields: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    fields.split(move |c| {
        let comma = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        comma
    })
}

/// `field=value`, `field==value` or `field!=value`, with no space anywhere; the first operator counts.
fn field_term(term: &str) -> Result<FieldTerm, InvalidSelector> {
    let unequal = term.find("!=");
    let equal = term.find('=').ok_or(InvalidSelector)?;
    let (at, operator) = match unequal {
        Some(at) if at < equal => (at, "!="),
        _ if term[equal..].starts_with("==") => (equal, "=="),
        _ => (equal, "="),
    };
    Ok(FieldTerm {
        field: term[..at].to_owned(),
        equals: operator != "!=",
        value: unescape(&term[at + operator.len()..])?,
    })
}

/// A value without its escapes: a backslash stands before each backslash, comma and equals sign, and nowhere else.
fn unescape(value: &str) -> Result<String, InvalidSelector> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => escaped,
                _ => return Err(InvalidSelector),
            },
            ',' | '=' => return Err(InvalidSelector),
            c => c,
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gvr::Gvr;
    use crate::object::ObjectHead;

    fn element(namespace: &str, fields: &Fields) -> Element {
        let object = format!(
            r#"{{"metadata":{{"name":"n","namespace":"{namespace}","resourceVersion":"1","labels":{{"a":"b"}}}},"type":"a,b=\\"}}"#
        );
        let head = ObjectHead::parse(object.as_bytes()).unwrap();
        Element::new(&head.metadata, object.as_bytes(), object.clone().into())
            .unwrap()
            .with_values(fields, object.as_bytes())
    }

    /// Whether a Secret is selected; `None` where the server would refuse the selector.
    fn selects(labels: &str, fields: &str, namespace: &str) -> Option<bool> {
        let secrets = Fields::built_in(&Gvr::new("", "v1", "secrets"), true);
        let selector = Selector::parse(labels, fields).ok()?.bind(&secrets)?;
        Some(selector.matches(&element(namespace, &secrets)))
    }

    #[test]
    fn fields_and_labels_must_both_hold() {
        for (labels, fields, expected) in [
            ("", "", true),
            ("", ",", true),
            ("", "metadata.name=n", true),
            ("", "metadata.name==n", true),
            ("", "metadata.name!=n", false),
            ("", "metadata.name=m", false),
            ("", "metadata.name=n,metadata.namespace=ns", true),
            ("", "metadata.name=n,metadata.name=m", false),
            ("", "metadata.namespace=", false),
            ("a=b", "metadata.namespace=ns", true),
            ("a=c", "metadata.namespace=ns", false),
            ("", r"type=a\,b\=\\", true),
            ("", r"type==a\,b\=\\,metadata.name=n", true),
            ("", r"type!=a\,b\=\\", false),
            ("", r"type=a\\,metadata.name=n", false),
            ("", r"type!=a\\,metadata.name=n", true),
            ("", r"type!=n\,metadata.namespace", true),
            ("", r"metadata.name=n\,metadata.namespace", false),
        ] {
            let selected = selects(labels, fields, "ns");
            assert_eq!(selected, Some(expected), "{labels} {fields}");
        }
        assert_eq!(selects("", "metadata.namespace=", ""), Some(true));
    }

    #[test]
    fn what_the_server_refuses_is_not_read() {
        for fields in [
            "metadata.name",
            "metadata.name!n",
            "metadata.name=a=b",
            r"metadata.name=a\b",
            r"metadata.name=a\",
            "metadata.name===a",
            "metadata.name!==a",
            "metadata.name!=!=",
            "foo",
            r"\,",
        ] {
            assert!(Selector::parse("", fields).is_err(), "{fields}");
        }
    }

    #[test]
    fn a_field_that_the_kind_does_not_have_is_the_servers_to_refuse() {
        for fields in [
            "status.phase=Running",
            "metadata.name =n",
            " metadata.name=n",
            "metadata!.name=n",
            "=n",
            "metadata.uid=",
            "metadata.name=n,status.phase=",
        ] {
            assert!(Selector::parse("", fields).is_ok(), "{fields}");
            assert_eq!(selects("", fields, "ns"), None, "{fields}");
        }
    }
}
