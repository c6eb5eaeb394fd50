//! From the lines of a watch to events, or from its frames.

use std::borrow::Cow;

use crate::bookmark::{BookmarkForm, INITIAL_EVENTS_END};
use crate::envelope::Envelope;
use crate::holding::Holding;
use crate::object::{ObjectHead, StatusHead, WatchFrame};
use crate::reflector::ReflectorError;
use crate::reflector::table::Shown;
use crate::reflector::taken_in;
use crate::resource_version::ResourceVersion;
use crate::store::Event;

mod protobuf;

/// What a line of a watch says.
#[derive(Debug)]
pub(crate) enum WatchEvent {
    /// A change of an object.
    Change(Event),
    /// A bookmark.
    Bookmark {
        /// Its version.
        resource_version: ResourceVersion,
        /// How the server writes bookmarks of the kind; `None` where it cannot be told.
        form: Option<BookmarkForm>,
        /// Whether it ends the initial events of a streaming list.
        ends_initial_events: bool,
    },
}

/// Reads one line or frame of a watch, as the kind is held.
///
/// # Errors
/// It is not an event, or the event is an error of the server.
pub(crate) fn event(envelope: &Envelope, line: &[u8]) -> Result<WatchEvent, ReflectorError> {
    if envelope.holding() == Holding::Protobuf {
        return protobuf::event(envelope, line);
    }
    let frame = WatchFrame::parse(line).map_err(ReflectorError::BadBytes)?;
    let object = frame.object.get().as_bytes();
    if frame.event_type == "ERROR" {
        let status: StatusHead =
            serde_json::from_slice(object).map_err(ReflectorError::BadBytes)?;
        return Err(ReflectorError::Status {
            code: status.code,
            message: status.message,
        });
    }
    let Shown {
        object,
        row,
        in_table,
    } = Shown::of_event(envelope, frame.object)?;
    let head = ObjectHead::parse(object).map_err(ReflectorError::BadBytes)?;
    let resource_version = ResourceVersion::parse(&head.metadata.resource_version)
        .ok_or(ReflectorError::NoResourceVersion)?;
    Ok(match &*frame.event_type {
        event_type @ ("ADDED" | "MODIFIED" | "DELETED") => {
            let item = envelope.item_from_object(object)?;
            let element = taken_in::element(envelope, &head.metadata, object, item)?.with_row(row);
            WatchEvent::Change(match event_type {
                "DELETED" => Event::Deleted(element),
                _ => Event::Applied(element.with_values(envelope.fields(), object)),
            })
        }
        "BOOKMARK" => {
            let annotations = head.metadata.annotations;
            let annotations = annotations.map_or("", |annotations| annotations.get());
            let ends_initial_events = annotations.contains(INITIAL_EVENTS_END);
            let line = match in_table {
                true => BookmarkForm::line(object).into(),
                false => Cow::Borrowed(line),
            };
            let form = BookmarkForm::learn(&line, &head.metadata.resource_version);
            WatchEvent::Bookmark {
                resource_version,
                form: form.map(|form| form.with_row(row)),
                ends_initial_events,
            }
        }
        _ => return Err(ReflectorError::UnknownEvent),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> Result<WatchEvent, ReflectorError> {
        let list = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Envelope::learn(list.as_bytes(), "Pod").unwrap().envelope;
        event(&envelope, line.as_bytes())
    }

    #[test]
    fn changes_are_read_into_list_item_form() {
        let line = r#"{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"8"}}}"#;
        let WatchEvent::Change(Event::Applied(element)) = check(line).unwrap() else {
            panic!("an applied element")
        };
        assert_eq!(
            (&*element.key, &*element.uid, element.resource_version.get()),
            ("n/a", "u", 8)
        );
        assert!(element.item.starts_with(b"{\"metadata\":"));
    }

    #[test]
    fn the_end_of_the_initial_events_is_told_from_other_bookmarks() {
        let end = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
        assert!(matches!(
            check(end),
            Ok(WatchEvent::Bookmark { resource_version, ends_initial_events: true, .. }) if resource_version.get() == 9
        ));
        let plain = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"},"spec":{"containers":null}}}"#;
        assert!(matches!(
            check(plain),
            Ok(WatchEvent::Bookmark { resource_version, ends_initial_events: false, .. }) if resource_version.get() == 9
        ));
    }

    #[test]
    fn an_error_event_is_the_servers_error() {
        let line = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}"#;
        assert!(check(line).unwrap_err().is_expired());
    }

    #[test]
    fn bad_bytes_are_told_as_such() {
        for line in [
            "{",
            "404 page not found",
            r#"{"type":"ADDED"}"#,
            r#"{"type":"ADDED","object":[]}"#,
            r#"{"type":"RENAMED","object":{"metadata":{"resourceVersion":"1"}}}"#,
        ] {
            assert!(check(line).unwrap_err().is_bad_bytes(), "{line}");
        }
    }
}
