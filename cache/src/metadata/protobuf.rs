//! An object's metadata in protobuf, made from what the server says of it in JSON.
//!
//! JSON does not tell everything. What the server keeps of managed fields is JSON itself, which is escaped once more when it
//! is written as such; bytes that are no UTF-8 are written as a mark. Where that may have happened, and where there is a field
//! that is not known here, the object is not written: the server is asked.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::{BufMut as _, Bytes, BytesMut};
use memchr::memmem;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::form::{MetaVersion, Unwritable};
use crate::protobuf::{around_object, message, number, object, text};
use crate::resource_version::ResourceVersion;

/// What Go writes for a byte that is no UTF-8; the character itself it writes as it is.
const NO_TEXT: &[u8] = br"\ufffd";

/// What Go escapes in JSON that is given to it as such: it may have been escaped before or not.
const ESCAPED: [&str; 5] = [r"\u003c", r"\u003e", r"\u0026", r"\u2028", r"\u2029"];

/// `ObjectMeta`. What has no default is left out where it is not there; all else the server writes even if it is empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct ObjectMeta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    generate_name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    self_link: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    generation: i64,
    // Older servers say `null`.
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    annotations: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow)]
    owner_references: Vec<OwnerReference<'a>>,
    finalizers: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    managed_fields: Vec<ManagedFieldsEntry<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct ManagedFieldsEntry<'a> {
    #[serde(borrow)]
    manager: Cow<'a, str>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    time: Option<Time>,
    #[serde(borrow)]
    fields_type: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "fields")]
    fields_v1: Option<&'a RawValue>,
    #[serde(borrow)]
    subresource: Cow<'a, str>,
}

/// A time of whole seconds, as the server writes it.
#[derive(Debug)]
struct Time {
    seconds: i64,
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let parsed: jiff::Timestamp = text.parse().map_err(D::Error::custom)?;
        let seconds = parsed.as_second();
        // Go's zero time is long past, and written as none.
        let is_plain = seconds >= 0 && text.len() == "2026-01-01T00:00:00Z".len();
        if !is_plain || !text.ends_with('Z') {
            return Err(D::Error::custom("a time that the server would not write"));
        }
        Ok(Self { seconds })
    }
}

/// Managed fields whose bytes are known.
fn fields<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    let fields = <&RawValue>::deserialize(from)?;
    let text = fields.get();
    if !text.starts_with('{') || ESCAPED.iter().any(|escaped| text.contains(escaped)) {
        return Err(D::Error::custom("fields whose bytes are not known"));
    }
    Ok(Some(fields))
}

impl<'a> ObjectMeta<'a> {
    /// Reads it from an object's `metadata`.
    fn parse(metadata: &'a RawValue) -> Result<Self, Unwritable> {
        let text = metadata.get();
        // serde would read an array as the fields in order.
        if !text.starts_with('{') || memmem::find(text.as_bytes(), NO_TEXT).is_some() {
            return Err(Unwritable);
        }
        serde_json::from_str(text).map_err(|_| Unwritable)
    }

    /// That of a bookmark.
    pub(crate) fn of_bookmark(
        version: ResourceVersion,
        annotation: Option<(&'a str, &'a str)>,
    ) -> Self {
        let annotation = annotation.map(|(key, value)| (key.into(), value.into()));
        Self {
            resource_version: version.to_string().into(),
            annotations: annotation.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Writes it as an object by itself.
    pub(crate) fn write_object(&self, to: &mut BytesMut, version: MetaVersion) {
        let kind = "PartialObjectMetadata";
        object(to, &api_version(version), kind, |to| self.write_field(to));
    }

    /// Writes it as the one field that a `PartialObjectMetadata` has.
    fn write_field(&self, to: &mut BytesMut) {
        message(to, 1, |to| self.write(to));
    }

    fn write(&self, to: &mut BytesMut) {
        text(to, 1, &*self.name);
        text(to, 2, &*self.generate_name);
        text(to, 3, &*self.namespace);
        text(to, 4, &*self.self_link);
        text(to, 5, &*self.uid);
        text(to, 6, &*self.resource_version);
        number(to, 7, self.generation);
        message(to, 8, |to| {
            if let Some(time) = &self.creation_timestamp {
                time.write(to);
            }
        });
        if let Some(time) = &self.deletion_timestamp {
            message(to, 9, |to| time.write(to));
        }
        if let Some(seconds) = self.deletion_grace_period_seconds {
            number(to, 10, seconds);
        }
        for (field, map) in [(11, &self.labels), (12, &self.annotations)] {
            for (key, value) in map {
                message(to, field, |to| {
                    text(to, 1, &**key);
                    text(to, 2, &**value);
                });
            }
        }
        for owner in &self.owner_references {
            message(to, 13, |to| owner.write(to));
        }
        for finalizer in &self.finalizers {
            text(to, 14, &**finalizer);
        }
        for entry in &self.managed_fields {
            message(to, 17, |to| entry.write(to));
        }
    }
}

impl OwnerReference<'_> {
    fn write(&self, to: &mut BytesMut) {
        text(to, 1, &*self.kind);
        text(to, 3, &*self.name);
        text(to, 4, &*self.uid);
        text(to, 5, &*self.api_version);
        for (field, value) in [(6, self.controller), (7, self.block_owner_deletion)] {
            if let Some(value) = value {
                number(to, field, value.into());
            }
        }
    }
}

impl ManagedFieldsEntry<'_> {
    fn write(&self, to: &mut BytesMut) {
        text(to, 1, &*self.manager);
        text(to, 2, &*self.operation);
        text(to, 3, &*self.api_version);
        if let Some(time) = &self.time {
            message(to, 4, |to| time.write(to));
        }
        text(to, 6, &*self.fields_type);
        if let Some(fields) = self.fields_v1 {
            message(to, 7, |to| text(to, 1, fields.get()));
        }
        text(to, 8, &*self.subresource);
    }
}

impl Time {
    fn write(&self, to: &mut BytesMut) {
        number(to, 1, self.seconds);
        // The server's times have no nanoseconds.
        number(to, 2, 0);
    }
}

/// Writes an object's metadata as an object by itself.
pub(crate) fn write_object(
    to: &mut BytesMut,
    version: MetaVersion,
    metadata: &RawValue,
) -> Result<(), Unwritable> {
    ObjectMeta::parse(metadata)?.write_object(to, version);
    Ok(())
}

/// Writes an object's metadata as a list has it.
pub(crate) fn write_item(
    to: &mut BytesMut,
    version: MetaVersion,
    metadata: &RawValue,
) -> Result<(), Unwritable> {
    let parsed = ObjectMeta::parse(metadata)?;
    message(to, item_field(version), |to| parsed.write_field(to));
    Ok(())
}

/// What stands before and after the items of a list, which have so many bytes.
pub(crate) fn around_list(
    version: MetaVersion,
    resource_version: ResourceVersion,
    continue_token: &str,
    remaining: Option<u64>,
    items: u64,
) -> (Bytes, Bytes) {
    let field = match version {
        MetaVersion::V1 => 1,
        MetaVersion::V1beta1 => 2,
    };
    let version_text = resource_version.to_string();
    let mut metadata = list_meta(field, &version_text, continue_token, remaining);
    let kind = "PartialObjectMetadataList";
    let raw = items + metadata.len() as u64;
    let (mut head, tail) = around_object(&api_version(version), kind, raw);
    // Fields are written in the order of their numbers.
    let tail = match version {
        MetaVersion::V1 => {
            head.unsplit(metadata);
            tail
        }
        MetaVersion::V1beta1 => {
            metadata.unsplit(tail);
            metadata
        }
    };
    (head.freeze(), tail.freeze())
}

/// The metadata of a list as a field of it.
pub(crate) fn list_meta(
    field: u32,
    resource_version: &str,
    continue_token: &str,
    remaining: Option<u64>,
) -> BytesMut {
    let mut metadata = BytesMut::new();
    message(&mut metadata, field, |to| {
        // The link of a list to itself, which is long gone.
        text(to, 1, "");
        text(to, 2, resource_version);
        text(to, 3, continue_token);
        if let Some(remaining) = remaining {
            number(to, 4, remaining.cast_signed());
        }
    });
    metadata
}

/// Writes metadata that are held in protobuf as an object by itself: `metadata` is the field of it in its object.
pub(crate) fn write_held_object(to: &mut BytesMut, version: MetaVersion, metadata: &[u8]) {
    let kind = "PartialObjectMetadata";
    object(to, &api_version(version), kind, |to| to.put_slice(metadata));
}

/// Writes them as a list has them.
pub(crate) fn write_held_item(to: &mut BytesMut, version: MetaVersion, metadata: &[u8]) {
    text(to, item_field(version), metadata);
}

fn item_field(version: MetaVersion) -> u32 {
    match version {
        MetaVersion::V1 => 2,
        MetaVersion::V1beta1 => 1,
    }
}

fn api_version(version: MetaVersion) -> String {
    format!("meta.k8s.io/{}", version.as_str())
}

#[cfg(test)]
mod tests;
