//! How a server writes the bookmarks of a kind: learned from its own, since an encoder may write required fields even of an
//! object that has none of them.

use bytes::{Bytes, BytesMut};
use jiff::Timestamp;

use crate::envelope::Envelope;
use crate::form::{Form, IncludeObject, MetaVersion};
use crate::resource_version::ResourceVersion;
use crate::table::Row;

mod frame;

pub(crate) use frame::ends_initial_events;

/// The annotation of the bookmark that ends the initial events of a watch (KEP-3157).
pub(crate) const INITIAL_EVENTS_END: &str = r#""k8s.io/initial-events-end":"true""#;

/// What is before the object of one.
const BEGINNING: &str = r#"{"type":"BOOKMARK","object":"#;

/// Its key and its value.
const END: (&str, &str) = ("k8s.io/initial-events-end", "true");

/// A bookmark of a kind, but for its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookmarkForm(Written);

/// As an informer is told it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Written {
    Line(Line),
    Frame(frame::Frame),
}

/// The line of a bookmark in JSON, but for its version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    before: String,
    after: String,
    /// What a Table has of it beside its object, where that is known.
    row: Option<Row>,
}

impl BookmarkForm {
    /// From a line of a watch, without its newline, and the version in it. `None` where the place of the version cannot be
    /// told.
    pub(crate) fn learn(line: &[u8], version: &str) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let version = format!(r#""resourceVersion":"{version}""#);
        let (before, after) = line.split_once(&version)?;
        (!after.contains(&version)).then(|| {
            Self(Written::Line(Line {
                before: format!(r#"{before}"resourceVersion":""#),
                after: format!("\"{after}\n"),
                row: None,
            }))
        })
    }

    /// The line of one with this object, without its newline.
    pub(crate) fn line(object: &[u8]) -> Vec<u8> {
        [BEGINNING.as_bytes(), object, b"}"].concat()
    }

    /// With its row.
    pub(crate) fn with_row(self, row: Option<Row>) -> Self {
        Self(match self.0 {
            Written::Line(line) => Written::Line(Line { row, ..line }),
            frame @ Written::Frame(_) => frame,
        })
    }

    /// From a frame of a watch in protobuf, without its length. `None` where the place of the version cannot be told.
    pub(crate) fn learn_protobuf(frame: &[u8]) -> Option<Self> {
        frame::Frame::learn(frame).map(Written::Frame).map(Self)
    }

    /// The one that ends the initial events of a kind without a Go type, as the server writes those of custom resources.
    pub(crate) fn of_initial_events_end(api_version: &str, kind: &str) -> Option<Self> {
        let line = format!(
            r#"{{"type":"BOOKMARK","object":{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"annotations":{{{INITIAL_EVENTS_END}}},"resourceVersion":"1"}}}}}}"#
        );
        Self::learn(line.as_bytes(), "1")
    }

    /// The same bookmark without the annotation that ends the initial events; `None` where it has others beside it.
    pub(crate) fn plain(&self) -> Option<Self> {
        Some(Self(match &self.0 {
            Written::Line(line) => Written::Line(line.plain()?),
            Written::Frame(frame) => Written::Frame(frame.plain()?),
        }))
    }

    /// The line at a version, newline included, or the frame, for who is told of objects in this form; `None` where they are
    /// held in another encoding, or its row is not known.
    pub(crate) fn at(
        &self,
        version: ResourceVersion,
        form: Form,
        envelope: &Envelope,
    ) -> Option<Bytes> {
        match &self.0 {
            Written::Line(line) => line.at(version, form, envelope),
            Written::Frame(frame) => frame.at(version, form),
        }
    }
}

impl Line {
    fn plain(&self) -> Option<Self> {
        let annotations = format!(r#""annotations":{{{INITIAL_EVENTS_END}}}"#);
        // Built-in kinds have their annotations behind the version, custom resources before.
        let (first, last) = (format!("{annotations},"), format!(",{annotations}"));
        let plain = Self {
            before: self.before.replace(&first, ""),
            after: self.after.replace(&last, ""),
            row: self.row.clone(),
        };
        let is_plain =
            !plain.before.contains("annotations") && !plain.after.contains("annotations");
        is_plain.then_some(plain)
    }

    fn at(&self, version: ResourceVersion, form: Form, envelope: &Envelope) -> Option<Bytes> {
        let object = match form {
            Form::Protobuf => return None,
            Form::Object => return Some(self.whole(version).into()),
            Form::Metadata(meta_version) => self.metadata(version, meta_version),
            Form::Table(table) => {
                let object = match table.include {
                    IncludeObject::Object => self.object(version),
                    // Nothing is never included of a bookmark: its annotation would be lost.
                    IncludeObject::None | IncludeObject::Metadata => {
                        self.metadata(version, table.version)
                    }
                };
                let metadata = format!(r#"{{"resourceVersion":"{version}"}}"#);
                let (head, tail) = envelope.around_rows(table, &metadata).ok()?;
                let mut row = BytesMut::new();
                // Nothing of it has an age.
                self.row.as_ref()?.write(&mut row, Timestamp::UNIX_EPOCH);
                let row = std::str::from_utf8(&row).ok()?;
                format!(r#"{head}{row}"object":{object}}}{tail}"#)
            }
            Form::ProtobufMetadata(meta_version) => {
                let ends = self.has(INITIAL_EVENTS_END);
                return Some(frame::metadata_alone(version, meta_version, ends));
            }
        };
        Some([BEGINNING, &object, "}\n"].concat().into())
    }

    fn has(&self, text: &str) -> bool {
        self.before.contains(text) || self.after.contains(text)
    }

    fn whole(&self, version: ResourceVersion) -> String {
        format!("{}{version}{}", self.before, self.after)
    }

    /// Its object.
    fn object(&self, version: ResourceVersion) -> String {
        let whole = self.whole(version);
        let object = whole.strip_prefix(BEGINNING);
        let object = object.and_then(|object| object.strip_suffix("}\n"));
        object.unwrap_or(&whole).to_owned()
    }

    /// What its object has of metadata, in the order of Go's struct; older servers write an empty time.
    fn metadata(&self, version: ResourceVersion, meta_version: MetaVersion) -> String {
        let time = r#","creationTimestamp":null"#;
        let end = format!(r#","annotations":{{{INITIAL_EVENTS_END}}}"#);
        let time = if self.has(&time[1..]) { time } else { "" };
        let end = if self.has(INITIAL_EVENTS_END) {
            &*end
        } else {
            ""
        };
        let meta_version = meta_version.as_str();
        format!(
            r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/{meta_version}","metadata":{{"resourceVersion":"{version}"{time}{end}}}}}"#
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::MetaVersion;

    #[test]
    fn bookmarks_are_written_as_the_server_writes_them() {
        let envelope = Envelope::of_own_kind("v1", "Pod");
        for (end, plain) in [
            (
                r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":null},"status":{}}}"#,
                r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12"},"spec":{"containers":null},"status":{}}}"#,
            ),
            (
                r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","creationTimestamp":null,"annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
                r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12","creationTimestamp":null}}}"#,
            ),
            (
                r#"{"type":"BOOKMARK","object":{"apiVersion":"ex.io/v1","kind":"W","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"9"}}}"#,
                r#"{"type":"BOOKMARK","object":{"apiVersion":"ex.io/v1","kind":"W","metadata":{"resourceVersion":"12"}}}"#,
            ),
        ] {
            let form = BookmarkForm::learn(end.as_bytes(), "9").unwrap();
            let version = ResourceVersion::from_number(12);
            let expected = end.replace("\"9\"", "\"12\"") + "\n";
            let as_objects =
                |form: &BookmarkForm| form.at(version, Form::Object, &envelope).unwrap();
            assert_eq!(as_objects(&form), expected);
            assert_eq!(as_objects(&form.plain().unwrap()), format!("{plain}\n"));
            let time = if end.contains("creationTimestamp") {
                r#","creationTimestamp":null"#
            } else {
                ""
            };
            let metadata = |more: &str| {
                format!(
                    r#"{{"type":"BOOKMARK","object":{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"12"{time}{more}}}}}}}{}"#,
                    "\n"
                )
            };
            let as_metadata = |form: &BookmarkForm| {
                form.at(version, Form::Metadata(MetaVersion::V1), &envelope)
                    .unwrap()
            };
            let end = r#","annotations":{"k8s.io/initial-events-end":"true"}"#;
            assert_eq!(as_metadata(&form), metadata(end));
            assert_eq!(as_metadata(&form.plain().unwrap()), metadata(""));
            let in_protobuf = |form: &BookmarkForm| {
                form.at(version, Form::ProtobufMetadata(MetaVersion::V1), &envelope)
                    .unwrap()
            };
            // A time that is not there is empty in protobuf, whatever it is in JSON.
            let metadata = b"\n\0\x12\0\x1a\0\"\0*\x002\x02128\0B\0";
            let end = b"b!\n\x19k8s.io/initial-events-end\x12\x04true";
            for (frame, end) in [
                (in_protobuf(&form), &end[..]),
                (in_protobuf(&form.plain().unwrap()), b""),
            ] {
                assert_eq!(frame[4..14], *b"\n\x08BOOKMARK");
                let expected = [metadata, end, b"\x1a\0\"\0"].concat();
                assert!(frame.ends_with(&expected), "{}", frame.escape_ascii());
            }
            let learned = BookmarkForm::learn(plain.as_bytes(), "12");
            assert_eq!(form.plain(), learned);
        }
    }

    #[test]
    fn a_form_that_is_not_clear_is_not_learned() {
        let twice = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"},"spec":{"resourceVersion":"9"}}}"#;
        assert_eq!(BookmarkForm::learn(twice, "9"), None);
        let more = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"a":"b","k8s.io/initial-events-end":"true"}}}}"#;
        assert_eq!(BookmarkForm::learn(more, "9").unwrap().plain(), None);
    }
}
