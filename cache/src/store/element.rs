//! One object of a kind, as the server sent it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::fields::{Fields, Values};
use crate::object::ObjectMeta;
use crate::resource_version::ResourceVersion;
use crate::table::Row;

mod managed_fields;
mod protobuf;

/// Memory of an element beside its object's bytes: the map's entry, the key twice counted, and the allocations.
const ELEMENT_OVERHEAD: usize = 250;

/// One object, in list-item form.
#[derive(Clone, Debug)]
pub struct Element {
    /// `namespace/name`, or the name where cluster-scoped: the order of a LIST is the order of these bytes.
    pub key: Arc<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// Its own version.
    pub resource_version: ResourceVersion,
    /// What a LIST holds of it.
    pub item: Bytes,
    /// Where its labels stand in `item`; empty where it has none.
    pub(super) labels: Range<u32>,
    /// Where its own version stands in `item`, without the quotes; in protobuf, its text alone.
    pub(super) version: Range<u32>,
    /// What a Table has of it beside the object; `None` where the kind has none, or it is not understood.
    pub(crate) row: Option<Row>,
    /// The values of its kind's own fields; `None` where they cannot be told.
    pub(super) values: Option<Values>,
}

/// The key of an object: `namespace/name`, or the name alone.
pub fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

/// Where a text of an object stands in its list-item form.
fn place(text: &str, object: &[u8], item: &[u8]) -> Range<usize> {
    let start = text.as_ptr().addr() - object.as_ptr().addr();
    let start = start + item.len() - object.len();
    start..start + text.len()
}

impl Element {
    /// An element from an object's metadata, read from `object`, and its list-item form, which is `object` or its end
    /// behind another beginning. `None` where the version cannot be compared.
    pub fn new(meta: &ObjectMeta<'_>, object: &[u8], item: Bytes) -> Option<Self> {
        let place = |text: &str| {
            let place = place(text, object, &item);
            place.start as u32..place.end as u32
        };
        let Cow::Borrowed(version) = meta.resource_version else {
            return None;
        };
        let labels = meta.labels.map_or(0..0, |labels| place(labels.get()));
        Some(Self {
            version: place(version),
            key: key(&meta.namespace, &meta.name).into(),
            uid: (*meta.uid).into(),
            resource_version: ResourceVersion::parse(&meta.resource_version)?,
            item,
            labels,
            row: None,
            values: Some(Values::default()),
        })
    }

    /// With the values of its kind's own fields, read from the object's bytes.
    #[must_use]
    pub fn with_values(self, fields: &Fields, object: &[u8]) -> Self {
        Self {
            values: fields.read(object),
            ..self
        }
    }

    /// With its row.
    #[must_use]
    pub(crate) fn with_row(self, row: Option<Row>) -> Self {
        Self { row, ..self }
    }

    /// The value of one of its kind's own fields, by its number.
    pub(crate) fn value(&self, field: usize) -> &str {
        self.values.as_ref().map_or("", |values| values.get(field))
    }

    /// Its labels.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let range = self.labels.start as usize..self.labels.end as usize;
        if self.is_protobuf() {
            return protobuf::labels(&self.item[range]);
        }
        serde_json::from_slice(&self.item[range]).unwrap_or_default()
    }

    /// Whether it is held in protobuf, where no message of an object begins as one in JSON does.
    fn is_protobuf(&self) -> bool {
        !self.item.starts_with(b"{")
    }

    /// Whether it is of that namespace.
    pub fn is_in(&self, namespace: &str) -> bool {
        let rest = self.key.strip_prefix(namespace);
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// The same object with another version in the place of its own.
    pub(super) fn at(&self, version: ResourceVersion) -> Self {
        let item = if self.is_protobuf() {
            self.protobuf_at(version)
        } else {
            let (before, after) = (
                &self.item[..self.version.start as usize],
                &self.item[self.version.end as usize..],
            );
            let item = [before, version.to_string().as_bytes(), after].concat();
            item.into()
        };
        Self {
            resource_version: version,
            ..self.with_item(item)
        }
    }

    /// The same object written otherwise.
    pub(super) fn with_item(&self, item: Bytes) -> Self {
        Self {
            item,
            ..self.clone()
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let values = self.values.as_ref().map_or(0, Values::bytes);
        self.content() + self.key.len() + self.uid.len() + values + ELEMENT_OVERHEAD
    }

    /// Bytes of what the server says of it.
    pub(super) fn content(&self) -> usize {
        self.item.len() + self.row.as_ref().map_or(0, Row::bytes)
    }
}
