//! An object's metadata alone, as `PartialObjectMetadata`: made from the object's own bytes.
//!
//! Built-in kinds have it in these very bytes. Custom resources have their keys in alphabetical order, while this type is
//! one of Go's structs for them too, so theirs are put in order when somebody asks. `metadata/protobuf.rs` writes both in
//! protobuf.

use std::collections::BTreeMap;

use bytes::{BufMut as _, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::form::{MetaVersion, Unwritable};

pub(crate) mod protobuf;

/// Writes an item of a built-in kind, whose metadata comes first.
pub(crate) fn write_built_in(
    to: &mut BytesMut,
    version: MetaVersion,
    item: &[u8],
) -> Result<(), Unwritable> {
    let metadata = of_built_in(item).ok_or(Unwritable)?;
    begin(to, version);
    to.put_slice(metadata.get().as_bytes());
    to.put_slice(b"}");
    Ok(())
}

/// What an item of a built-in kind has as its metadata.
pub(crate) fn of_built_in(item: &[u8]) -> Option<&RawValue> {
    let after_key = item.strip_prefix(b"{\"metadata\":")?;
    // Only the first value is read.
    let mut values = serde_json::Deserializer::from_slice(after_key).into_iter::<&RawValue>();
    values.next()?.ok()
}

/// What a custom resource has as its metadata.
pub(crate) fn of_custom(item: &[u8]) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: &'a RawValue,
    }
    let object: Object<'_> = serde_json::from_slice(item).ok()?;
    Some(object.metadata)
}

/// Writes a custom resource.
pub(crate) fn write_custom(
    to: &mut BytesMut,
    version: MetaVersion,
    item: &[u8],
) -> Result<(), Unwritable> {
    let metadata = of_custom(item).ok_or(Unwritable)?;
    let keys: Keys<'_> = serde_json::from_str(metadata.get()).map_err(|_| Unwritable)?;
    begin(to, version);
    write_in_order(to, &OBJECT_META, &keys, |to, key, value| match key {
        "managedFields" => write_each(to, value, &MANAGED_FIELDS_ENTRY),
        "ownerReferences" => write_each(to, value, &OWNER_REFERENCE),
        _ => to.put_slice(value.get().as_bytes()),
    });
    to.put_slice(b"}");
    Ok(())
}

/// An object's keys and their values, unread.
type Keys<'a> = BTreeMap<&'a str, &'a RawValue>;

/// The order of Go's structs.
const OBJECT_META: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
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
const OWNER_REFERENCE: [&str; 6] = [
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
];
const MANAGED_FIELDS_ENTRY: [&str; 7] = [
    "manager",
    "operation",
    "apiVersion",
    "time",
    "fieldsType",
    "fieldsV1",
    "subresource",
];

fn begin(to: &mut BytesMut, version: MetaVersion) {
    to.put_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/");
    to.put_slice(version.as_str().as_bytes());
    to.put_slice(b"\",\"metadata\":");
}

/// Writes those of an object's keys that a struct has, in its order.
fn write_in_order(
    to: &mut BytesMut,
    order: &[&str],
    keys: &Keys<'_>,
    write: impl Fn(&mut BytesMut, &str, &RawValue),
) {
    to.put_slice(b"{");
    let mut is_first = true;
    for key in order {
        // Go leaves out what is empty, but for numbers: those are pointers there.
        let Some(value) = keys.get(key).filter(|value| !is_empty(value)) else {
            continue;
        };
        if !std::mem::take(&mut is_first) {
            to.put_slice(b",");
        }
        to.put_slice(b"\"");
        to.put_slice(key.as_bytes());
        to.put_slice(b"\":");
        write(to, key, value);
    }
    to.put_slice(b"}");
}

/// Writes a list of objects, each with the keys of a struct.
fn write_each(to: &mut BytesMut, list: &RawValue, order: &[&str]) {
    let list: Vec<Keys<'_>> = serde_json::from_str(list.get()).unwrap_or_default();
    to.put_slice(b"[");
    for (at, keys) in list.iter().enumerate() {
        if at > 0 {
            to.put_slice(b",");
        }
        write_in_order(to, order, keys, |to, _, value| {
            to.put_slice(value.get().as_bytes());
        });
    }
    to.put_slice(b"]");
}

fn is_empty(value: &RawValue) -> bool {
    matches!(value.get(), "{}" | "[]" | "\"\"" | "null")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Write = fn(&mut BytesMut, MetaVersion, &[u8]) -> Result<(), Unwritable>;

    fn check(write: Write, item: &str) -> String {
        let mut written = BytesMut::new();
        write(&mut written, MetaVersion::V1, item.as_bytes()).unwrap();
        let prefix =
            "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":";
        let written = String::from_utf8(written.to_vec()).unwrap();
        let metadata = written.strip_prefix(prefix).unwrap();
        metadata.strip_suffix('}').unwrap().to_owned()
    }

    #[test]
    fn that_of_a_built_in_kind_is_its_own_bytes() {
        for metadata in [
            "{}",
            r#"{"name":"a","labels":{"b":"}\\\"{","c":"\u003c"},"managedFields":[{"fieldsV1":{"f:a":{}}}]}"#,
        ] {
            for rest in ["", r#","spec":{"x":[{}]}"#, r#","metadata":{}"#] {
                let item = format!(r#"{{"metadata":{metadata}{rest}}}"#);
                assert_eq!(check(write_built_in, &item), metadata);
            }
        }
    }

    #[test]
    fn that_of_a_custom_resource_is_put_in_order() {
        let item = concat!(
            r#"{"apiVersion":"ex.io/v1","data":{"metadata":{"name":"no"}},"kind":"W","metadata":{"annotations":{"b":"1"},"#,
            r#""creationTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0,"finalizers":["f"],"generation":2,"labels":{},"managedFields":[{"#,
            r#""apiVersion":"ex.io/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}},"manager":"m","operation":"Update","#,
            r#""subresource":"status","time":"2026-01-01T00:00:00Z"}],"name":"a","namespace":"n","ownerReferences":[{"#,
            r#""apiVersion":"v1","blockOwnerDeletion":false,"controller":true,"kind":"Pod","name":"p","uid":"u1"}],"#,
            r#""resourceVersion":"7","uid":"u2"},"spec":{}}"#
        );
        let expected = concat!(
            r#"{"name":"a","namespace":"n","uid":"u2","resourceVersion":"7","generation":2,"#,
            r#""creationTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0,"annotations":{"b":"1"},"ownerReferences":[{"apiVersion":"v1","#,
            r#""kind":"Pod","name":"p","uid":"u1","controller":true,"blockOwnerDeletion":false}],"finalizers":["f"],"#,
            r#""managedFields":[{"manager":"m","operation":"Update","apiVersion":"ex.io/v1","time":"2026-01-01T00:00:00Z","#,
            r#""fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}},"subresource":"status"}]}"#
        );
        assert_eq!(check(write_custom, item), expected);
    }

    #[test]
    fn what_has_no_metadata_cannot_be_written() {
        for item in [
            "",
            "[",
            "{\"metadata\":",
            "{\"metadata\":{\"a\"",
            "\u{0}",
            r#"{"apiVersion":"v1","kind":"W"}"#,
        ] {
            for write in [write_built_in, write_custom] {
                let mut nowhere = BytesMut::new();
                let written = write(&mut nowhere, MetaVersion::V1, item.as_bytes());
                assert_eq!((written, &nowhere[..]), (Err(Unwritable), &b""[..]));
            }
        }
    }
}
