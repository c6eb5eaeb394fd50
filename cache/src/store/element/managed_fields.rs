//! An object without what its metadata say of who manages which of its fields, which is often half of its bytes.

use std::ops::Range;

use super::{Element, place};
use crate::object::ObjectMeta;

/// The key, as servers write it.
const KEY: &[u8] = b"\"managedFields\":";

impl Element {
    /// The same object without them; its metadata were read from `object`. `None` where they are not written as a server
    /// writes them.
    pub(crate) fn without_managed_fields(
        self,
        meta: &ObjectMeta<'_>,
        object: &[u8],
    ) -> Option<Self> {
        let Some(managed_fields) = meta.managed_fields else {
            return Some(self);
        };
        let value = place(managed_fields.get(), object, &self.item);
        let cut = with_key(value, &self.item)?;
        let moved = |range: Range<u32>| match range.start as usize >= cut.end {
            true => range.start - cut.len() as u32..range.end - cut.len() as u32,
            false => range,
        };
        Some(Self {
            labels: moved(self.labels),
            version: moved(self.version),
            item: [&self.item[..cut.start], &self.item[cut.end..]]
                .concat()
                .into(),
            ..self
        })
    }
}

/// What is to be cut so that the key goes with its value, and one of the commas beside them.
fn with_key(value: Range<usize>, item: &[u8]) -> Option<Range<usize>> {
    let before = item[..value.start].strip_suffix(KEY)?;
    match before.last()? {
        b',' => Some(before.len() - 1..value.end),
        b'{' if item[value.end..].starts_with(b",") => Some(before.len()..value.end + 1),
        b'{' => Some(before.len()..value.end),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::object::ObjectHead;
    use crate::resource_version::ResourceVersion;

    const PREFIX: &str = r#"{"kind":"Pod","apiVersion":"v1","#;

    /// From an object as it stands by itself; its item begins otherwise where it is of a built-in kind.
    fn stripped(object: &str) -> Option<Element> {
        let head = ObjectHead::parse(object.as_bytes()).unwrap();
        let item = match object.strip_prefix(PREFIX) {
            Some(rest) => format!("{{{rest}"),
            None => object.to_owned(),
        };
        let element = Element::new(&head.metadata, object.as_bytes(), item.into()).unwrap();
        element.without_managed_fields(&head.metadata, object.as_bytes())
    }

    #[test]
    fn they_go_wherever_they_stand_and_nothing_else() {
        let fields = r#"[{"manager":"a","fieldsV1":{"f:labels":{".":{},"f:resourceVersion":{}},"k:{\"name\":\"x\"}":{}}}]"#;
        for (with, without) in [
            // Built-in kinds: the last key.
            (
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7","labels":{"x":"y"},"managedFields":@},"spec":{"managedFields":1}}"#,
                r#"{"metadata":{"name":"a","resourceVersion":"7","labels":{"x":"y"}},"spec":{"managedFields":1}}"#,
            ),
            (
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7","managedFields":@}}"#,
                r#"{"metadata":{"name":"a","resourceVersion":"7"}}"#,
            ),
            // Custom resources: in the middle, before the version.
            (
                r#"{"apiVersion":"e/v1","kind":"W","metadata":{"labels":{"x":"y"},"managedFields":@,"name":"a","resourceVersion":"7"},"spec":{}}"#,
                r#"{"apiVersion":"e/v1","kind":"W","metadata":{"labels":{"x":"y"},"name":"a","resourceVersion":"7"},"spec":{}}"#,
            ),
            // The first.
            (
                r#"{"apiVersion":"e/v1","metadata":{"managedFields":@,"name":"a","labels":{"x":"y"},"resourceVersion":"7"}}"#,
                r#"{"apiVersion":"e/v1","metadata":{"name":"a","labels":{"x":"y"},"resourceVersion":"7"}}"#,
            ),
            // None.
            (
                r#"{"apiVersion":"e/v1","metadata":{"name":"a","resourceVersion":"7"},"managedFields":@}"#,
                r#"{"apiVersion":"e/v1","metadata":{"name":"a","resourceVersion":"7"},"managedFields":@}"#,
            ),
        ] {
            let element = stripped(&with.replace('@', fields)).unwrap();
            let expected = without.replace('@', fields);
            assert_eq!(element.item, expected);
            let label = expected.contains("\"x\"").then_some("y");
            assert_eq!(element.labels().get("x").map(String::as_str), label);
            let later = element.at(ResourceVersion::from_number(100));
            let expected = expected.replace(r#"Version":"7""#, r#"Version":"100""#);
            assert_eq!(later.item, expected);
        }
    }

    #[test]
    fn the_only_key_leaves_no_metadata() {
        let item = br#"{"metadata":{"managedFields":[1]},"spec":{}}"#;
        let cut = with_key(29..32, item).unwrap();
        let rest = [&item[..cut.start], &item[cut.end..]].concat();
        assert_eq!(rest, br#"{"metadata":{},"spec":{}}"#);
    }

    #[test]
    fn what_no_server_writes_is_not_cut() {
        for metadata in [
            r#""managedFields": [],"resourceVersion":"7""#,
            r#""resourceVersion":"7", "managedFields":[]"#,
            r#""resourceVersion":"7","managed\u0046ields":[]"#,
        ] {
            assert!(stripped(&format!(r#"{{"metadata":{{{metadata}}}}}"#)).is_none());
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}|managedFields|resourceVersion", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// What is left is what a full parse would leave, and what is known of it stands where it stood.
        #[test]
        fn a_tree_without_them_is_the_same(
            values in prop::collection::vec(any_value(), 3),
            order in Just(["resourceVersion", "labels", "managedFields", "name", "other"]).prop_shuffle(),
            version in 1_u64..,
        ) {
            let value = |key: &str| match key {
                "resourceVersion" => json!(version.to_string()),
                "labels" => json!({"x": "y"}),
                "managedFields" => json!([values[0]]),
                "name" => json!("a"),
                _ => values[1].clone(),
            };
            let object = |with: bool| {
                let keys = order.iter().filter(|key| with || **key != "managedFields");
                let keys: Vec<_> = keys.map(|key| format!("\"{key}\":{}", value(key))).collect();
                format!(r#"{{"metadata":{{{}}},"spec":{}}}"#, keys.join(","), values[2])
            };
            let element = stripped(&object(true)).unwrap();
            let rest = object(false);
            prop_assert_eq!(&element.item[..], rest.as_bytes());
            let labels = element.labels();
            prop_assert_eq!(labels.get("x").map(String::as_str), Some("y"));
            let own = element.version.start as usize..element.version.end as usize;
            prop_assert_eq!(&rest[own.clone()], version.to_string());
            prop_assert!(rest[..own.start].ends_with("\"resourceVersion\":\""));
        }
    }
}
