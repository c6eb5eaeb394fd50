//! What is read of an object's bytes in protobuf: its metadata, by skipping all else.
//!
//! Field numbers are those of `generated.proto` in apimachinery; `ObjectMeta` is field 1 of every kind, and items are field 2
//! of every list. What protobuf allows and the server does not write (a field twice, metadata elsewhere than first) is
//! malformed here: what is held is given out again as the server's own bytes.

use std::borrow::Cow;
use std::ops::Range;

use bytes::BytesMut;

use crate::protobuf::read::{Fields, Malformed, Value};
use crate::protobuf::{MAGIC, text};

/// An object or list as it stands by itself: its type, and the message of its kind, unread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Typed<'a> {
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) raw: &'a [u8],
}

impl<'a> Typed<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let unknown = bytes.strip_prefix(MAGIC).ok_or(Malformed("no object"))?;
        let [type_meta, raw, encoding, content_type] = texts(unknown, [1, 2, 3, 4])?;
        if !encoding.is_empty() || !content_type.is_empty() {
            return Err(Malformed("an object in another encoding"));
        }
        let [api_version, kind] = texts(type_meta, [1, 2])?;
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Malformed("a type without name"));
        Ok(Self {
            api_version: text(api_version)?,
            kind: text(kind)?,
            raw,
        })
    }
}

/// The values of a message that has these fields at most, each once at most; empty where there is none.
fn texts<const N: usize>(message: &[u8], numbers: [u64; N]) -> Result<[&[u8]; N], Malformed> {
    let mut found: [Option<&[u8]>; N] = [None; N];
    for field in Fields::of(message) {
        let field = field?;
        let at = numbers.iter().position(|number| *number == field.number);
        let at = at.ok_or(Malformed("an unknown field"))?;
        once(&mut found[at], field.bytes()?)?;
    }
    Ok(found.map(Option::unwrap_or_default))
}

fn once<T>(found: &mut Option<T>, value: T) -> Result<(), Malformed> {
    match found.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed("a field twice")),
    }
}

/// The part of `ObjectMeta` that identifies an object, and where it stands in the bytes that it was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectMeta<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) resource_version: &'a str,
    /// Where the metadata stand, without their tag and length.
    pub(crate) place: Range<usize>,
    /// Where the version's own text stands.
    pub(crate) version: Range<usize>,
    /// Where the labels stand, all of them together.
    pub(crate) labels: Range<usize>,
    /// Where the annotations stand, all of them together.
    pub(crate) annotations: Range<usize>,
}

impl<'a> ObjectMeta<'a> {
    /// Reads that of the message of any kind.
    pub(crate) fn parse(object: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::of(object);
        let first = fields.next().ok_or(Malformed("no metadata"))??;
        if first.number != 1 {
            return Err(Malformed("no metadata"));
        }
        let meta = Self::of_field(first.bytes()?, first.place_of_bytes())?;
        for field in fields {
            if field?.number <= 1 {
                return Err(Malformed("metadata twice"));
            }
        }
        Ok(meta)
    }

    fn of_field(meta: &'a [u8], place: Range<usize>) -> Result<Self, Malformed> {
        let (mut name, mut namespace, mut uid, mut version) = (None, None, None, None);
        let (mut labels, mut annotations) = (None, None);
        for field in Fields::of(meta) {
            let field = field?;
            match field.number {
                0 => return Err(Malformed("a field without number")),
                1 => once(&mut name, field.text()?)?,
                3 => once(&mut namespace, field.text()?)?,
                5 => once(&mut uid, field.text()?)?,
                6 => once(&mut version, (field.text()?, field.place_of_bytes()))?,
                11 => {
                    entry(field.bytes()?)?;
                    together(&mut labels, field.place)?;
                }
                12 => together(&mut annotations, field.place)?,
                _ => {}
            }
        }
        let (resource_version, version) = version.unwrap_or_default();
        let start = place.start;
        let moved = |range: Range<usize>| start + range.start..start + range.end;
        Ok(Self {
            name: name.unwrap_or_default(),
            namespace: namespace.unwrap_or_default(),
            uid: uid.unwrap_or_default(),
            resource_version,
            version: moved(version),
            labels: moved(labels.unwrap_or_default()),
            annotations: moved(annotations.unwrap_or_default()),
            place,
        })
    }
}

/// The field of `ObjectMeta` that says who manages which field of the object, once for each of them.
const MANAGED_FIELDS: u64 = 17;

/// The message of an object without what its metadata say of who manages which of its fields.
pub(crate) fn without_managed_fields(object: &[u8]) -> Result<Cow<'_, [u8]>, Malformed> {
    let place = ObjectMeta::parse(object)?.place;
    let meta = &object[place.clone()];
    let mut kept = BytesMut::with_capacity(meta.len());
    for field in Fields::of(meta) {
        let field = field?;
        if field.number != MANAGED_FIELDS {
            kept.extend_from_slice(&meta[field.place]);
        }
    }
    if kept.len() == meta.len() {
        return Ok(Cow::Borrowed(object));
    }
    let mut rest = BytesMut::with_capacity(object.len());
    text(&mut rest, 1, kept);
    rest.extend_from_slice(&object[place.end..]);
    Ok(Cow::Owned(rest.to_vec()))
}

/// Adds a field to those of the same map, which follow each other.
fn together(all: &mut Option<Range<usize>>, field: Range<usize>) -> Result<(), Malformed> {
    let all = all.get_or_insert_with(|| field.start..field.start);
    if field.start != all.end {
        return Err(Malformed("fields of a map apart from each other"));
    }
    all.end = field.end;
    Ok(())
}

/// The key and the value of a label or an annotation.
pub(crate) fn entry(entry: &[u8]) -> Result<(&str, &str), Malformed> {
    let [key, value] = texts(entry, [1, 2])?;
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Malformed("a text that is no UTF-8"));
    Ok((text(key)?, text(value)?))
}

/// The head of a LIST answer, and its items, unread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListHead<'a> {
    pub(crate) resource_version: &'a str,
    pub(crate) continue_token: &'a str,
    pub(crate) remaining: Option<u64>,
    pub(crate) items: Vec<&'a [u8]>,
}

impl<'a> ListHead<'a> {
    /// Reads the message of a list.
    pub(crate) fn parse(list: &'a [u8]) -> Result<Self, Malformed> {
        let mut head = None;
        let mut items = Vec::new();
        for field in Fields::of(list) {
            let field = field?;
            match field.number {
                1 => once(&mut head, field.bytes()?)?,
                2 => items.push(field.bytes()?),
                _ => return Err(Malformed("an unknown field")),
            }
        }
        let (mut version, mut token, mut remaining) = (None, None, None);
        for field in Fields::of(head.unwrap_or_default()) {
            let field = field?;
            match (field.number, &field.value) {
                // The link of a list to itself, which is long gone.
                (1, Value::Bytes([])) => {}
                (2, _) => once(&mut version, field.text()?)?,
                (3, _) => once(&mut token, field.text()?)?,
                (4, Value::Number(count)) => once(&mut remaining, *count)?,
                _ => return Err(Malformed("an unknown field")),
            }
        }
        Ok(Self {
            resource_version: version.unwrap_or_default(),
            continue_token: token.unwrap_or_default(),
            remaining,
            items,
        })
    }
}

/// One event of a watch: the bytes of its frame, its object unread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchFrame<'a> {
    pub(crate) event_type: &'a [u8],
    pub(crate) object: &'a [u8],
}

impl<'a> WatchFrame<'a> {
    pub(crate) fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let [event_type, object] = texts(frame, [1, 2])?;
        let [object] = texts(object, [1])?;
        Ok(Self { event_type, object })
    }
}

/// The code and the message of a `Status`; `None` where the object is none.
pub(crate) fn status(object: &[u8]) -> Option<(u16, String)> {
    let typed = Typed::parse(object).ok()?;
    if typed.kind != "Status" {
        return None;
    }
    let (mut code, mut message) = (0, "");
    for field in Fields::of(typed.raw) {
        let field = field.ok()?;
        match (field.number, &field.value) {
            (3, _) => message = field.text().ok()?,
            (6, Value::Number(number)) => code = u16::try_from(*number).unwrap_or_default(),
            _ => {}
        }
    }
    Some((code, message.to_owned()))
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::protobuf::{message, number};

    /// The message of an object.
    pub(crate) fn item(
        namespace: &str,
        name: &str,
        version: &str,
        labels: &[(&str, &str)],
    ) -> Vec<u8> {
        let mut item = BytesMut::new();
        message(&mut item, 1, |to| {
            text(to, 1, name);
            text(to, 2, "");
            text(to, 3, namespace);
            text(to, 4, "");
            text(to, 5, "u");
            text(to, 6, version);
            number(to, 7, 0);
            for (key, value) in labels {
                message(to, 11, |to| {
                    text(to, 1, key);
                    text(to, 2, value);
                });
            }
            text(to, 17, "who manages which field");
        });
        text(&mut item, 2, "spec");
        item.to_vec()
    }

    #[test]
    fn metadata_is_read_and_its_places() {
        let item = item("n", "a", "12", &[("x", "1"), ("y", "2")]);
        let meta = ObjectMeta::parse(&item).unwrap();
        let read = (meta.name, meta.namespace, meta.uid, meta.resource_version);
        assert_eq!(read, ("a", "n", "u", "12"));
        assert_eq!(&item[meta.version], b"12");
        assert_eq!(
            &item[meta.labels],
            b"\x5a\x06\x0a\x01x\x12\x011\x5a\x06\x0a\x01y\x12\x012"
        );
        assert!(item[meta.place].starts_with(b"\x0a\x01a"));
    }

    #[test]
    fn what_the_server_would_not_write_is_malformed() {
        for (object, expected) in [
            (&b""[..], "no metadata"),
            (b"\x12\x00", "no metadata"),
            (b"\x08\x01", "a number in the place of a text"),
            (b"\x0a\x00\x0a\x00", "metadata twice"),
            (b"\x0a\x00\x12\x05a", "cut short"),
            (b"\x0a\x06\x0a\x01a\x0a\x01b", "a field twice"),
            (b"\x0a\x03\x0a\x01\xff", "a text that is no UTF-8"),
            (b"\x0a\x02\x02\x00", "a field without number"),
            (
                b"\x0a\x06\x5a\x00\x0a\x00\x5a\x00",
                "fields of a map apart from each other",
            ),
            (b"\x0a\x04\x5a\x02\x18\x01", "an unknown field"),
            (b"\x0a\x03\x32\x05a", "cut short"),
        ] {
            let read = ObjectMeta::parse(object);
            assert_eq!(read, Err(Malformed(expected)), "{}", object.escape_ascii());
        }
    }

    #[test]
    fn without_who_manages_them_objects_are_the_same() {
        // The length of the metadata takes one byte less, and as many as before.
        for (managers, pad) in [(0, 0), (1, 0), (1, 90), (2, 90), (20, 20_000)] {
            let write = |with: bool| {
                let mut item = BytesMut::new();
                message(&mut item, 1, |to| {
                    text(to, 1, "a");
                    text(to, 6, "7");
                    text(to, 12, "x".repeat(pad));
                    for manager in (0..managers).filter(|_| with) {
                        text(to, 17, format!("manager {manager}"));
                    }
                });
                text(&mut item, 17, "of its own");
                item.to_vec()
            };
            let with = write(true);
            assert_eq!(*without_managed_fields(&with).unwrap(), write(false));
        }
        assert!(without_managed_fields(b"\x0a\x03\x8a\x01\x05").is_err());
    }

    #[test]
    fn a_status_tells_its_code() {
        let body = b"k8s\0\n\x0c\n\x02v1\x12\x06Status\x12\x0e\n\0\x12\0\x1a\x03odd\"\x000\x94\x03\x1a\0\"\0";
        assert_eq!(status(body), Some((404, "odd".to_owned())));
        assert_eq!(status(b"{\"kind\":\"Status\"}"), None);
    }

    /// Messages in messages, as deep as it gets, cut anywhere.
    fn nested() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop::collection::vec(any::<u8>(), 0..8);
        let message = leaf.prop_recursive(24, 200, 6, |inner| {
            prop::collection::vec((1_u32..20, inner), 0..6).prop_map(|fields| {
                let mut message = BytesMut::new();
                for (at, value) in fields {
                    text(&mut message, at, value);
                }
                message.to_vec()
            })
        });
        (message, any::<prop::sample::Index>(), any::<bool>()).prop_map(
            |(mut message, cut, whole)| {
                if !whole && !message.is_empty() {
                    message.truncate(cut.index(message.len()));
                }
                message
            },
        )
    }

    proptest! {
        #[test]
        fn nothing_panics_whatever_comes(bytes in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), nested()]) {
            let with_magic = [MAGIC, &bytes].concat();
            for bytes in [&bytes, &with_magic] {
                let _ = (Typed::parse(bytes), ListHead::parse(bytes), WatchFrame::parse(bytes), status(bytes));
                if let Ok(meta) = ObjectMeta::parse(bytes) {
                    let stripped = without_managed_fields(bytes).unwrap();
                    let same = ObjectMeta::parse(&stripped).unwrap();
                    prop_assert_eq!((same.name, same.resource_version), (meta.name, meta.resource_version));
                    prop_assert_eq!(&stripped[same.labels], &bytes[meta.labels.clone()]);
                    prop_assert_eq!(&stripped[same.place.end..], &bytes[meta.place.end..]);
                    prop_assert_eq!(&bytes[meta.version.clone()], meta.resource_version.as_bytes());
                    let labels = Fields::of(&bytes[meta.labels]).map(|label| entry(label.unwrap().bytes().unwrap()));
                    prop_assert!(labels.into_iter().all(|label| label.is_ok()));
                }
            }
        }
    }
}
