//! Which objects of a list are asked for: labels, and the fields that every kind has.

use crate::label_selector::{InvalidSelector, LabelSelector};
use crate::store::Element;

/// The selectors of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    labels: LabelSelector,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldTerm {
    field: Field,
    equals: bool,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
}

impl Selector {
    /// Reads both selectors as they stand in a query.
    ///
    /// # Errors
    /// The server would refuse one, or a field is none of `metadata.name` and `metadata.namespace`.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, InvalidSelector> {
        let terms = fields.split(',').filter(|term| !term.is_empty());
        Ok(Self {
            labels: LabelSelector::parse(labels)?,
            fields: terms.map(field_term).collect::<Result<_, _>>()?,
        })
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether it asks for namespaces, which not every cluster-scoped kind lets one ask for.
    pub fn names_namespace(&self) -> bool {
        self.fields
            .iter()
            .any(|term| term.field == Field::Namespace)
    }

    /// Whether an object is selected.
    pub fn matches(&self, element: &Element) -> bool {
        let (namespace, name) = element.key.split_once('/').unwrap_or(("", &element.key));
        let fields = self.fields.iter().all(|term| {
            let value = match term.field {
                Field::Name => name,
                Field::Namespace => namespace,
            };
            (value == term.value) == term.equals
        });
        fields && (self.labels.is_empty() || self.labels.matches(&element.labels()))
    }
}

/// `field=value`, `field==value` or `field!=value`, with no space anywhere; the first operator counts.
fn field_term(term: &str) -> Result<FieldTerm, InvalidSelector> {
    let at = term.find(['=', '!']).ok_or(InvalidSelector)?;
    let (field, rest) = term.split_at(at);
    let (equals, value) = if let Some(value) = rest.strip_prefix("!=") {
        (false, value)
    } else if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        (true, value)
    } else {
        return Err(InvalidSelector);
    };
    let field = match field {
        "metadata.name" => Field::Name,
        "metadata.namespace" => Field::Namespace,
        _ => return Err(InvalidSelector),
    };
    // Escapes, and what would need one.
    if value.contains(['\\', '=']) {
        return Err(InvalidSelector);
    }
    Ok(FieldTerm {
        field,
        equals,
        value: value.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectHead;

    fn element(namespace: &str) -> Element {
        let object = format!(
            r#"{{"metadata":{{"name":"n","namespace":"{namespace}","resourceVersion":"1","labels":{{"a":"b"}}}}}}"#
        );
        let head = ObjectHead::parse(object.as_bytes()).unwrap();
        Element::new(&head.metadata, object.as_bytes(), object.clone().into()).unwrap()
    }

    fn selects(labels: &str, fields: &str, namespace: &str) -> Option<bool> {
        Selector::parse(labels, fields)
            .ok()
            .map(|selector| selector.matches(&element(namespace)))
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
        ] {
            assert_eq!(
                selects(labels, fields, "ns"),
                Some(expected),
                "{labels} {fields}"
            );
        }
        assert_eq!(selects("", "metadata.namespace=", ""), Some(true));
    }

    #[test]
    fn other_fields_and_odd_terms_are_the_servers() {
        for fields in [
            "status.phase=Running",
            "metadata.name",
            "metadata.name!n",
            "metadata.name =n",
            "metadata.name=a=b",
            r"metadata.name=a\,b",
            "foo",
        ] {
            assert!(Selector::parse("", fields).is_err(), "{fields}");
        }
    }
}
