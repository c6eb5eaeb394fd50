//! Reading the protobuf bodies in which `kubectl create` sends built-in kinds. Answers are always JSON.
//!
//! The messages below hold the fields that `kubectl create` fills in; what else a client sends is ignored.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// What a field holds.
#[derive(Clone, Copy)]
enum Field {
    Text,
    Base64,
    Integer,
    Message(&'static [Entry]),
    /// A map from text to this.
    Map(&'static Self),
    /// A list of this.
    Many(&'static Self),
}

/// A field of a message: its number, its name in JSON, its type.
type Entry = (u64, &'static str, Field);

const TEXTS: Field = Field::Map(&Field::Text);

const OBJECT_META: Field = Field::Message(&[
    (1, "name", Field::Text),
    (2, "generateName", Field::Text),
    (3, "namespace", Field::Text),
    (5, "uid", Field::Text),
    (6, "resourceVersion", Field::Text),
    (11, "labels", TEXTS),
    (12, "annotations", TEXTS),
    (14, "finalizers", Field::Many(&Field::Text)),
]);

const CONTAINER: Field = Field::Message(&[
    (1, "name", Field::Text),
    (2, "image", Field::Text),
    (3, "command", Field::Many(&Field::Text)),
    (4, "args", Field::Many(&Field::Text)),
    (
        6,
        "ports",
        Field::Many(&Field::Message(&[
            (1, "name", Field::Text),
            (3, "containerPort", Field::Integer),
        ])),
    ),
    (
        7,
        "env",
        Field::Many(&Field::Message(&[
            (1, "name", Field::Text),
            (2, "value", Field::Text),
        ])),
    ),
]);

const POD_SPEC: Field = Field::Message(&[
    (2, "containers", Field::Many(&CONTAINER)),
    (3, "restartPolicy", Field::Text),
    (10, "nodeName", Field::Text),
]);

const DEPLOYMENT_SPEC: Field = Field::Message(&[
    (1, "replicas", Field::Integer),
    (2, "selector", Field::Message(&[(1, "matchLabels", TEXTS)])),
    (
        3,
        "template",
        Field::Message(&[(1, "metadata", OBJECT_META), (2, "spec", POD_SPEC)]),
    ),
]);

const SERVICE_SPEC: Field = Field::Message(&[
    (
        1,
        "ports",
        Field::Many(&Field::Message(&[
            (1, "name", Field::Text),
            (2, "protocol", Field::Text),
            (3, "port", Field::Integer),
        ])),
    ),
    (2, "selector", TEXTS),
    (3, "clusterIP", Field::Text),
    (4, "type", Field::Text),
]);

const ACCESS_REVIEW: Field = Field::Message(&[
    (
        1,
        "resourceAttributes",
        Field::Message(&[
            (1, "namespace", Field::Text),
            (2, "verb", Field::Text),
            (3, "group", Field::Text),
            (4, "version", Field::Text),
            (5, "resource", Field::Text),
            (6, "subresource", Field::Text),
            (7, "name", Field::Text),
        ]),
    ),
    (
        2,
        "nonResourceAttributes",
        Field::Message(&[(1, "path", Field::Text), (2, "verb", Field::Text)]),
    ),
    (3, "user", Field::Text),
]);

/// The kinds that can be read.
const KINDS: &[(&str, &[Entry])] = &[
    (
        "ConfigMap",
        &[
            (1, "metadata", OBJECT_META),
            (2, "data", TEXTS),
            (3, "binaryData", Field::Map(&Field::Base64)),
        ],
    ),
    (
        "Deployment",
        &[(1, "metadata", OBJECT_META), (2, "spec", DEPLOYMENT_SPEC)],
    ),
    ("Namespace", &[(1, "metadata", OBJECT_META)]),
    (
        "Pod",
        &[(1, "metadata", OBJECT_META), (2, "spec", POD_SPEC)],
    ),
    (
        "Secret",
        &[
            (1, "metadata", OBJECT_META),
            (2, "data", Field::Map(&Field::Base64)),
            (3, "type", Field::Text),
            (4, "stringData", TEXTS),
        ],
    ),
    (
        "Service",
        &[(1, "metadata", OBJECT_META), (2, "spec", SERVICE_SPEC)],
    ),
    ("SelfSubjectAccessReview", &[(2, "spec", ACCESS_REVIEW)]),
    ("SelfSubjectReview", &[]),
    ("SubjectAccessReview", &[(2, "spec", ACCESS_REVIEW)]),
];

/// The media type of these bodies.
pub(super) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The object in `body`, if it is one of the kinds that can be read.
pub(super) fn decode(kind: &str, body: &[u8]) -> Option<Value> {
    let envelope = body.strip_prefix(b"k8s\0")?;
    let (_, message) = KINDS.iter().find(|(name, _)| *name == kind)?;
    let mut reader = Reader(envelope);
    while let Some((number, wire)) = reader.field() {
        // `runtime.Unknown` holds the object in its second field.
        if let (2, Wire::Bytes(object)) = (number, wire) {
            return read_message(message, object);
        }
    }
    None
}

fn read_message(message: &[Entry], bytes: &[u8]) -> Option<Value> {
    let mut object = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, wire)) = reader.field() {
        let Some((_, name, field)) = message.iter().find(|(known, ..)| *known == number) else {
            continue;
        };
        let slot = object.entry(*name).or_insert(Value::Null);
        read_field(*field, wire, slot)?;
    }
    // These encoders write empty strings, which JSON leaves out.
    object.retain(|_, value| value != "");
    // What is left could not be read as a field.
    reader.0.is_empty().then_some(Value::Object(object))
}

fn read_field(field: Field, wire: Wire<'_>, slot: &mut Value) -> Option<()> {
    match (field, wire) {
        (Field::Many(item), wire) => {
            let mut value = Value::Null;
            read_field(*item, wire, &mut value)?;
            match slot {
                Value::Array(items) => items.push(value),
                _ => *slot = Value::Array(vec![value]),
            }
        }
        (Field::Map(value), Wire::Bytes(bytes)) => {
            let (mut key, mut read) = (String::new(), Value::Null);
            let mut reader = Reader(bytes);
            while let Some((number, wire)) = reader.field() {
                match (number, wire) {
                    (1, Wire::Bytes(bytes)) => key = String::from_utf8_lossy(bytes).into_owned(),
                    (2, wire) => read_field(*value, wire, &mut read)?,
                    _ => {}
                }
            }
            super::object::as_map(slot).insert(key, read);
        }
        (Field::Text, Wire::Bytes(bytes)) => {
            *slot = String::from_utf8_lossy(bytes).into_owned().into()
        }
        (Field::Base64, Wire::Bytes(bytes)) => *slot = STANDARD.encode(bytes).into(),
        (Field::Message(message), Wire::Bytes(bytes)) => *slot = read_message(message, bytes)?,
        (Field::Integer, Wire::Varint(number)) => *slot = number.into(),
        _ => return None,
    }
    Some(())
}

/// A field as it stands in the bytes.
enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Fixed,
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next field's number and content, or `None` at the end or where the bytes make no sense.
    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => self.take(8).map(|_| Wire::Fixed)?,
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Wire::Fixed)?,
            _ => return None,
        };
        Some((tag >> 3, wire))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A field with `content`.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        [&[number << 3 | 2, length], content].concat()
    }

    fn envelope(object: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
        [
            b"k8s\0".to_vec(),
            field(1, &type_meta),
            field(2, object),
            field(3, b""),
            field(4, b""),
        ]
        .concat()
    }

    #[test]
    fn a_configmap_is_read() {
        let metadata = [
            field(1, b"a"),
            field(11, &[field(1, b"k"), field(2, b"v")].concat()),
        ]
        .concat();
        let object = [
            field(1, &metadata),
            field(2, &[field(1, b"x"), field(2, b"1")].concat()),
        ]
        .concat();
        let expected = json!({"metadata": {"name": "a", "labels": {"k": "v"}}, "data": {"x": "1"}});
        assert_eq!(decode("ConfigMap", &envelope(&object)), Some(expected));
    }

    #[test]
    fn lists_and_numbers_are_read() {
        let container = [field(1, b"c"), field(3, b"run"), field(3, b"it")].concat();
        let template = field(2, &field(2, &container));
        let spec = [vec![1 << 3, 3], field(3, &template)].concat();
        let expected = json!({"spec": {
            "replicas": 3, "template": {"spec": {"containers": [{"name": "c", "command": ["run", "it"]}]}},
        }});
        assert_eq!(
            decode("Deployment", &envelope(&field(2, &spec))),
            Some(expected)
        );
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let object = field(1, &field(1, b"a"));
        assert_eq!(decode("Node", &envelope(&object)), None);
        assert_eq!(decode("ConfigMap", b"{}"), None);
        assert_eq!(
            decode("ConfigMap", &envelope(&object[..object.len() - 1])),
            None
        );
    }
}
