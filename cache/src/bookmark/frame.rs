//! How a server writes the bookmarks of a kind in protobuf.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::END;
use crate::form::{Form, MetaVersion};
use crate::metadata::protobuf::ObjectMeta as WrittenMeta;
use crate::object::protobuf::{ObjectMeta, Typed, WatchFrame, entry};
use crate::protobuf::read::Fields;
use crate::protobuf::{event, message, object, text};
use crate::resource_version::ResourceVersion;

/// The frame of a bookmark, but for its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    api_version: String,
    kind: String,
    /// Of the metadata, what stands before the version and behind it.
    before: Bytes,
    after: Bytes,
    /// Of the object, what stands behind its metadata.
    rest: Bytes,
    ends_initial_events: bool,
}

impl Frame {
    /// From the frame of an event, without its length. `None` where it would not be given back byte for byte.
    pub(super) fn learn(frame: &[u8]) -> Option<Self> {
        let object = WatchFrame::parse(frame).ok()?.object;
        let typed = Typed::parse(object).ok()?;
        let meta = ObjectMeta::parse(typed.raw).ok()?;
        let version = ResourceVersion::parse(meta.resource_version)?;
        let annotations = &typed.raw[meta.annotations.clone()];
        // The tag and the length of the version take a byte each.
        let before = meta.place.start..meta.version.start.checked_sub(2)?;
        let part = |range| Bytes::copy_from_slice(&typed.raw[range]);
        let learned = Self {
            api_version: typed.api_version.to_owned(),
            kind: typed.kind.to_owned(),
            before: part(before),
            after: part(meta.version.end..meta.place.end),
            rest: part(meta.place.end..typed.raw.len()),
            ends_initial_events: ends_initial_events(annotations),
        };
        let again = learned.at(version, Form::Protobuf)?;
        (again.get(4..) == Some(frame)).then_some(learned)
    }

    /// The same bookmark without the annotation that ends the initial events; `None` where it has others beside it.
    pub(super) fn plain(&self) -> Option<Self> {
        let (key, value) = END;
        let mut annotation = BytesMut::new();
        message(&mut annotation, ANNOTATIONS, |to| {
            text(to, 1, key);
            text(to, 2, value);
        });
        let without = |part: &Bytes| match memchr::memmem::find(part, &annotation) {
            Some(at) => [&part[..at], &part[at + annotation.len()..]]
                .concat()
                .into(),
            None => part.clone(),
        };
        let plain = Self {
            before: without(&self.before),
            after: without(&self.after),
            ends_initial_events: false,
            ..self.clone()
        };
        let mut fields = Fields::of(&plain.before).chain(Fields::of(&plain.after));
        let is_plain =
            fields.all(|field| field.is_ok_and(|field| field.number != u64::from(ANNOTATIONS)));
        is_plain.then_some(plain)
    }

    /// The frame at a version, for who is told of objects in this form; `None` where it is none of protobuf.
    pub(super) fn at(&self, version: ResourceVersion, form: Form) -> Option<Bytes> {
        match form {
            Form::Protobuf => {
                let mut frame = BytesMut::new();
                event(&mut frame, "BOOKMARK", |to| {
                    object(to, &self.api_version, &self.kind, |to| {
                        message(to, 1, |to| {
                            to.put_slice(&self.before);
                            text(to, 6, version.to_string());
                            to.put_slice(&self.after);
                        });
                        to.put_slice(&self.rest);
                    });
                });
                Some(frame.freeze())
            }
            Form::ProtobufMetadata(meta_version) => Some(metadata_alone(
                version,
                meta_version,
                self.ends_initial_events,
            )),
            Form::Object | Form::Metadata(_) | Form::Table(_) => None,
        }
    }
}

/// The field of `ObjectMeta` with the annotations.
const ANNOTATIONS: u32 = 12;

/// Whether annotations, as they stand in an object's metadata, have the one that ends the initial events.
pub(crate) fn ends_initial_events(annotations: &[u8]) -> bool {
    let is_end = |annotation: &[u8]| entry(annotation) == Ok(END);
    Fields::of(annotations)
        .filter_map(|field| field.ok()?.bytes().ok())
        .any(is_end)
}

/// The frame of a bookmark for who is told of metadata alone.
pub(super) fn metadata_alone(
    version: ResourceVersion,
    meta_version: MetaVersion,
    ends_initial_events: bool,
) -> Bytes {
    let metadata = WrittenMeta::of_bookmark(version, ends_initial_events.then_some(END));
    let mut frame = BytesMut::new();
    event(&mut frame, "BOOKMARK", |to| {
        metadata.write_object(to, meta_version);
    });
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bookmark of a Node, as a server of 1.36 sends it.
    fn bookmark(version: &str, end: bool, other: bool) -> Bytes {
        let mut frame = BytesMut::new();
        event(&mut frame, "BOOKMARK", |to| {
            object(to, "v1", "Node", |to| {
                message(to, 1, |to| {
                    to.put_slice(b"\n\0\x12\0\x1a\0\"\0*\0");
                    text(to, 6, version);
                    to.put_slice(b"8\0B\0");
                    for (key, value) in [("a", "b")]
                        .into_iter()
                        .filter(|_| other)
                        .chain(Some(END).filter(|_| end))
                    {
                        message(to, 12, |to| {
                            text(to, 1, key);
                            text(to, 2, value);
                        });
                    }
                });
                to.put_slice(b"\x12\x08\n\0\x12\0\x1a\0 \0");
            });
        });
        frame.freeze()
    }

    #[test]
    fn bookmarks_are_written_as_the_server_writes_them() {
        let at = |version| ResourceVersion::parse(version).unwrap();
        let end = Frame::learn(&bookmark("9", true, false)[4..]).unwrap();
        let plain = Frame::learn(&bookmark("9", false, false)[4..]).unwrap();
        assert_eq!(end.plain(), Some(plain.clone()));
        for version in ["7", "12", "18446744073709551615"] {
            let written = |frame: &Frame| frame.at(at(version), Form::Protobuf).unwrap();
            assert_eq!(written(&end), bookmark(version, true, false));
            assert_eq!(written(&plain), bookmark(version, false, false));
            let form = Form::ProtobufMetadata(MetaVersion::V1);
            let expected = metadata_alone(at(version), MetaVersion::V1, true);
            assert_eq!(end.at(at(version), form), Some(expected));
        }
        assert_eq!(end.at(at("7"), Form::Object), None);
    }

    #[test]
    fn a_form_that_is_not_clear_is_not_learned() {
        let more = Frame::learn(&bookmark("9", true, true)[4..]).unwrap();
        assert_eq!(more.plain(), None);
        for frame in [
            &b""[..],
            b"x",
            &bookmark("0", true, false)[4..],
            &bookmark("9", true, false),
        ] {
            assert_eq!(Frame::learn(frame), None);
        }
    }
}
