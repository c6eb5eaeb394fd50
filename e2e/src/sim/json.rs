//! JSON as the apiserver writes it: its key order, its escapes.

use serde::Serialize;
use serde_json::{Map, Value};

/// Go's `encoding/json` order of `ObjectMeta`; built-in kinds follow it, custom resources are alphabetical.
const METADATA_ORDER: [&str; 14] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// The fields that a built-in kind writes first. What follows is alphabetical, which agrees with the structs for
/// every kind that is served here but not for all of their inner fields.
const OBJECT_ORDER: [&str; 3] = ["kind", "apiVersion", "metadata"];

/// Encodes `value` with the escapes of Go's encoder: `<`, `>` and `&` never appear as themselves.
pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    let plain = serde_json::to_vec(value)
        .expect("a value made of strings, numbers and maps can be encoded");
    escape_like_go(plain)
}

/// Encodes an object of a built-in kind in struct order.
pub(super) fn encode_built_in(object: &Map<String, Value>) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write_ordered(&mut out, object, &OBJECT_ORDER, |out, key, value| {
        match (key, value) {
            ("metadata", Value::Object(metadata)) => write_metadata(out, metadata),
            _ => write_plain(out, value),
        }
    });
    escape_like_go(out)
}

/// Encodes an `ObjectMeta` alone in struct order, as `PartialObjectMetadata` holds it whatever the kind.
pub(super) fn encode_metadata(metadata: &Map<String, Value>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    write_metadata(&mut out, metadata);
    escape_like_go(out)
}

fn write_metadata(out: &mut Vec<u8>, metadata: &Map<String, Value>) {
    write_ordered(out, metadata, &METADATA_ORDER, |out, _, value| {
        write_plain(out, value)
    });
}

fn write_ordered(
    out: &mut Vec<u8>,
    map: &Map<String, Value>,
    first: &[&str],
    mut write_value: impl FnMut(&mut Vec<u8>, &str, &Value),
) {
    let known = first.iter().filter_map(|key| map.get_key_value(*key));
    let rest = map.iter().filter(|(key, _)| !first.contains(&key.as_str()));
    out.push(b'{');
    for (index, (key, value)) in known.chain(rest).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_plain(out, key);
        out.push(b':');
        write_value(out, key, value);
    }
    out.push(b'}');
}

fn write_plain(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("writing JSON to memory cannot fail");
}

/// The three characters can only stand inside strings, so the finished text may be rewritten.
fn escape_like_go(plain: Vec<u8>) -> Vec<u8> {
    if !plain.iter().any(|byte| matches!(byte, b'<' | b'>' | b'&')) {
        return plain;
    }
    let mut escaped = Vec::with_capacity(plain.len() + 64);
    for byte in plain {
        match byte {
            b'<' => escaped.extend_from_slice(br"\u003c"),
            b'>' => escaped.extend_from_slice(br"\u003e"),
            b'&' => escaped.extend_from_slice(br"\u0026"),
            _ => escaped.push(byte),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn built_in_objects_follow_the_structs() {
        let object = json!({
            "apiVersion": "v1", "data": {"z": "&<>", "a": "1"}, "kind": "ConfigMap",
            "metadata": {"creationTimestamp": "t", "labels": {"b": "2", "a": "1"}, "name": "n", "uid": "u"},
        });
        assert_eq!(
            text(encode_built_in(object.as_object().unwrap())),
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"n","uid":"u","creationTimestamp":"t","labels":{"a":"1","b":"2"}},"data":{"a":"1","z":"\u0026\u003c\u003e"}}"#
        );
    }

    #[test]
    fn other_values_are_alphabetical() {
        let object =
            json!({"kind": "Widget", "apiVersion": "v1", "metadata": {"uid": "u", "name": "n"}});
        assert_eq!(
            text(encode(&object)),
            r#"{"apiVersion":"v1","kind":"Widget","metadata":{"name":"n","uid":"u"}}"#
        );
    }
}
