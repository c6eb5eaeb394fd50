//! One object in protobuf: the message of its kind, as a list has it.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::{Element, key};
use crate::fields::Values;
use crate::object::protobuf::{ObjectMeta, entry};
use crate::protobuf::read::{Fields, Malformed};
use crate::protobuf::text;
use crate::resource_version::ResourceVersion;

impl Element {
    /// An element from the message of an object, in its own allocation. `None` where the version cannot be compared.
    pub(crate) fn of_protobuf(message: &[u8]) -> Result<Option<Self>, Malformed> {
        let meta = ObjectMeta::parse(message)?;
        let place = |range: Range<usize>| range.start as u32..range.end as u32;
        Ok(
            ResourceVersion::parse(meta.resource_version).map(|resource_version| Self {
                key: key(meta.namespace, meta.name).into(),
                uid: meta.uid.into(),
                resource_version,
                item: Bytes::copy_from_slice(message),
                labels: place(meta.labels),
                version: place(meta.version),
                row: None,
                values: Some(Values::default()),
            }),
        )
    }

    /// Its message with another version in the place of its own, and its metadata's length with it.
    pub(super) fn protobuf_at(&self, version: ResourceVersion) -> Bytes {
        let own = self.version.start as usize..self.version.end as usize;
        let fields = &mut Fields::of(&self.item);
        // It was read before.
        let Some(Ok(metadata)) = fields.next() else {
            return self.item.clone();
        };
        let place = metadata.place_of_bytes();
        // A version has few digits: its tag and its length take a byte each.
        let before = place.start..own.start.saturating_sub(2);
        let mut changed = BytesMut::with_capacity(place.len() + 20);
        changed.extend_from_slice(&self.item[before]);
        text(&mut changed, 6, version.to_string());
        changed.extend_from_slice(&self.item[own.end..place.end]);
        let mut item = BytesMut::with_capacity(self.item.len() + 24);
        text(&mut item, 1, changed);
        item.extend_from_slice(&self.item[place.end..]);
        item.freeze()
    }
}

/// Labels as they stand in an object's metadata.
pub(super) fn labels(fields: &[u8]) -> BTreeMap<String, String> {
    let labels = Fields::of(fields).filter_map(|label| {
        let (key, value) = entry(label.ok()?.bytes().ok()?).ok()?;
        Some((key.to_owned(), value.to_owned()))
    });
    labels.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::protobuf::tests::item;

    #[test]
    fn it_is_what_its_message_says() {
        let message = item("n", "a", "12", &[("x", "1"), ("y", "2")]);
        let element = Element::of_protobuf(&message).unwrap().unwrap();
        assert_eq!((&*element.key, &*element.uid), ("n/a", "u"));
        assert_eq!(element.resource_version.get(), 12);
        assert_eq!(element.item, message);
        let labels =
            [("x", "1"), ("y", "2")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(element.labels(), BTreeMap::from(labels));
        let without = Element::of_protobuf(&item("", "a", "0", &[])).unwrap();
        assert!(without.is_none());
    }

    #[test]
    fn another_version_changes_the_lengths_around_it() {
        // The length of the metadata takes one byte more, one less, as many as before.
        for pad in [
            0, 40, 60, 70, 75, 76, 77, 78, 79, 80, 100, 16_300, 16_320, 16_330, 20_000,
        ] {
            let pad = "x".repeat(pad);
            for (from, to) in [
                ("1", "9"),
                ("9", "18446744073709551615"),
                ("18446744073709551615", "7"),
            ] {
                let labels = [("pad", &*pad)];
                let element = Element::of_protobuf(&item("n", "a", from, &labels));
                let element = element.unwrap().unwrap();
                let changed = element.at(ResourceVersion::parse(to).unwrap());
                assert_eq!(changed.item, item("n", "a", to, &labels), "{from} {to}");
            }
        }
    }
}
