//! What is read of an object's bytes: its metadata, without building a tree of the rest.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

pub(crate) mod protobuf;

/// The head of any JSON object the API serves.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectHead<'a> {
    /// Its kind; "" inside the lists of built-in kinds.
    #[serde(borrow, default)]
    pub kind: Cow<'a, str>,
    /// Its metadata.
    #[serde(borrow, default)]
    pub metadata: ObjectMeta<'a>,
}

/// The part of `ObjectMeta` that identifies an object and tells how far its deletion is.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectMeta<'a> {
    /// Name within its namespace.
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    /// Namespace, "" where cluster-scoped.
    #[serde(borrow, default)]
    pub namespace: Cow<'a, str>,
    /// Unique for ever.
    #[serde(borrow, default)]
    pub uid: Cow<'a, str>,
    /// Version of this object.
    #[serde(borrow, default)]
    pub resource_version: Cow<'a, str>,
    /// Set once its deletion began.
    #[serde(default)]
    pub deletion_timestamp: Option<String>,
    /// Seconds it may take to end.
    #[serde(default)]
    pub deletion_grace_period_seconds: Option<i64>,
    /// Who must let go of it first.
    #[serde(default)]
    pub finalizers: Option<Vec<String>>,
    /// Who manages which of its fields, unread.
    #[serde(borrow, default)]
    pub managed_fields: Option<&'a RawValue>,
    /// Its labels, unread.
    #[serde(borrow, default)]
    pub labels: Option<&'a RawValue>,
    /// Only `k8s.io/initial-events-end` is of interest, on bookmarks.
    #[serde(borrow, default)]
    pub annotations: Option<&'a RawValue>,
}

impl<'a> ObjectHead<'a> {
    /// Reads the head of an object.
    ///
    /// # Errors
    /// The bytes are not a JSON object with readable metadata.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        // serde would read an array as the fields in order.
        if !bytes.starts_with(b"{") {
            return Err(serde::de::Error::custom("not an object"));
        }
        serde_json::from_slice(bytes)
    }
}

/// The head of a LIST answer and its items, unread.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListHead<'a> {
    /// Such as `PodList`.
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    /// Such as `v1`.
    #[serde(borrow)]
    pub api_version: Cow<'a, str>,
    /// Version, and where the next page begins.
    #[serde(borrow)]
    pub metadata: ListMeta<'a>,
    /// The bytes of each item.
    #[serde(borrow)]
    pub items: Option<Vec<&'a RawValue>>,
}

/// `ListMeta`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListMeta<'a> {
    /// Version of the list.
    #[serde(borrow, default)]
    pub resource_version: Cow<'a, str>,
    /// Where the next page begins; "" on the last.
    #[serde(rename = "continue", borrow, default)]
    pub continue_token: Cow<'a, str>,
    /// Items after this page, where the server counts them.
    #[serde(default)]
    pub remaining_item_count: Option<u64>,
}

impl<'a> ListHead<'a> {
    /// Reads a LIST answer.
    ///
    /// # Errors
    /// The bytes are not a JSON list.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// One event of a watch, its object unread.
#[derive(Debug, Deserialize)]
pub struct WatchFrame<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type", borrow)]
    pub event_type: Cow<'a, str>,
    /// The object's bytes.
    #[serde(borrow)]
    pub object: &'a RawValue,
}

impl<'a> WatchFrame<'a> {
    /// Reads one line of a watch.
    ///
    /// # Errors
    /// The bytes are not a watch event.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// The `Status` a server answers errors with.
#[derive(Debug, Default, Deserialize)]
pub struct StatusHead {
    /// `Success` or `Failure`.
    #[serde(default)]
    pub status: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// HTTP code.
    #[serde(default)]
    pub code: u16,
    /// What it is about.
    #[serde(default)]
    pub details: Option<StatusDetails>,
}

/// `StatusDetails`.
#[derive(Debug, Default, Deserialize)]
pub struct StatusDetails {
    /// The object's name.
    #[serde(default)]
    pub name: String,
    /// The object's uid.
    #[serde(default)]
    pub uid: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn metadata_is_read_whatever_stands_around_it() {
        let bytes = br#"{"apiVersion":"ex.io/v1","kind":"Widget","spec":{"metadata":{"name":"no"}},"metadata":{"labels":{"a":"b"},"name":"w\u003c","namespace":"ns","uid":"u","resourceVersion":"12","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a/b"]},"status":null}"#;
        let head = ObjectHead::parse(bytes).unwrap();
        assert_eq!(head.kind, "Widget");
        assert_eq!(head.metadata.name, "w<");
        assert_eq!(head.metadata.namespace, "ns");
        assert_eq!(head.metadata.resource_version, "12");
        assert!(head.metadata.deletion_timestamp.is_some());
        assert_eq!(head.metadata.finalizers.unwrap().len(), 1);
    }

    #[test]
    fn bytes_that_are_no_object_are_an_error() {
        for bytes in [
            &b"{\"metadata\":{\"name\":"[..],
            b"[]",
            b"",
            b"{\"metadata\":7}",
            b"{}x",
        ] {
            assert!(
                ObjectHead::parse(bytes).is_err(),
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(".{0,6}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Byte ranges and metadata agree with a full parse, for any object.
        #[test]
        fn a_frame_gives_the_objects_own_bytes(spec in json_value(), name in ".{1,10}", ns in ".{0,10}", rv in 1_u64..) {
            let object = json!({"kind": "K", "metadata": {"name": name, "namespace": ns, "resourceVersion": rv.to_string(), "extra": spec}, "spec": spec});
            let text = serde_json::to_string(&object).unwrap();
            let line = format!(r#"{{"type":"ADDED","object":{text}}}"#);
            let frame = WatchFrame::parse(line.as_bytes()).unwrap();
            prop_assert_eq!(frame.object.get(), &text);
            let head = ObjectHead::parse(frame.object.get().as_bytes()).unwrap();
            prop_assert_eq!(&head.metadata.name, object["metadata"]["name"].as_str().unwrap());
            prop_assert_eq!(&head.metadata.namespace, object["metadata"]["namespace"].as_str().unwrap());
            prop_assert_eq!(head.metadata.resource_version, rv.to_string());
        }
    }
}
