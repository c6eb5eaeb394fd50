//! One version of one object, as the bytes a client receives.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::json;
use super::resource::Resource;

/// An object as it stood at one revision.
#[derive(Debug)]
pub struct Object {
    /// Its namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its labels, for selectors.
    pub labels: BTreeMap<String, String>,
    /// Its `metadata.resourceVersion`.
    pub revision: u64,
    json: Bytes,
    /// Where a list item's bytes begin, after the opening brace.
    item_start: usize,
}

impl Object {
    /// Encodes `value` as `resource` at `revision`; kind, apiVersion and resourceVersion are set here.
    pub(super) fn new(resource: &Resource, mut value: Value, revision: u64) -> Self {
        let metadata = metadata_mut(as_map(&mut value));
        metadata.insert("resourceVersion".to_owned(), revision.to_string().into());
        Self {
            revision,
            ..Self::unversioned(resource, value)
        }
    }

    /// Encodes `value` with whatever resourceVersion it has, for answers that show no stored state.
    pub(super) fn unversioned(resource: &Resource, mut value: Value) -> Self {
        let object = as_map(&mut value);
        object.insert("kind".to_owned(), resource.kind.into());
        object.insert("apiVersion".to_owned(), resource.api_version().into());
        let metadata = metadata_mut(object);
        let text = |key: &str| {
            metadata
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
        let labels = labels_of(metadata);
        let (json, item_start) = if resource.custom {
            (json::encode(object), 1)
        } else {
            (json::encode_built_in(object), resource.type_prefix().len())
        };
        Self {
            namespace,
            name,
            uid,
            labels,
            revision: 0,
            json: json.into(),
            item_start,
        }
    }

    /// The whole object, as a GET or a watch event shows it.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// The object as a list item without its opening brace.
    pub(super) fn item_tail(&self) -> &[u8] {
        &self.json[self.item_start..]
    }

    /// The object parsed.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("these bytes were encoded from a value")
    }

    /// The key the store orders by: the bytes of `namespace/name`.
    pub(super) fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }
}

/// `namespace/name`, or the name alone.
pub(super) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

/// `value` as a map; anything else becomes an empty one.
pub(super) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was just made an object")
}

/// The object's `metadata`, made if it is missing.
pub(super) fn metadata_mut(object: &mut Map<String, Value>) -> &mut Map<String, Value> {
    as_map(object.entry("metadata").or_insert(Value::Null))
}

fn labels_of(metadata: &Map<String, Value>) -> BTreeMap<String, String> {
    let labels = metadata.get("labels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten();
    pairs
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_built_in_item_has_no_kind_and_a_custom_one_has() {
        let item = |plural: &str| {
            let value = json!({"metadata": {"name": "n", "namespace": "ns"}});
            let object = Object::new(Resource::named(plural).unwrap(), value, 5);
            format!(
                "{{{}",
                String::from_utf8(object.item_tail().to_vec()).unwrap()
            )
        };
        assert_eq!(
            item("configmaps"),
            r#"{"metadata":{"name":"n","namespace":"ns","resourceVersion":"5"}}"#
        );
        assert_eq!(
            item("widgets"),
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"n","namespace":"ns","resourceVersion":"5"}}"#
        );
    }
}
