//! From the frames of a watch in protobuf to events.

use super::WatchEvent;
use crate::bookmark::{BookmarkForm, ends_initial_events};
use crate::envelope::Envelope;
use crate::object::protobuf::{ObjectMeta, Typed, WatchFrame, status};
use crate::protobuf::read::Malformed;
use crate::reflector::{ReflectorError, taken_in};
use crate::resource_version::ResourceVersion;
use crate::store::Event;

/// Reads one frame of a watch.
///
/// # Errors
/// The frame is not an event, or the event is an error of the server.
pub(super) fn event(envelope: &Envelope, frame: &[u8]) -> Result<WatchEvent, ReflectorError> {
    let WatchFrame { event_type, object } = WatchFrame::parse(frame)?;
    Ok(match event_type {
        b"ADDED" | b"MODIFIED" | b"DELETED" => {
            let message = envelope.message_of_object(object)?;
            let element = taken_in::element_of_protobuf(envelope, message)?;
            WatchEvent::Change(match event_type {
                b"DELETED" => Event::Deleted(element),
                _ => Event::Applied(element),
            })
        }
        b"BOOKMARK" => {
            let message = Typed::parse(object)?.raw;
            let meta = ObjectMeta::parse(message)?;
            let resource_version = ResourceVersion::parse(meta.resource_version)
                .ok_or(ReflectorError::NoResourceVersion)?;
            WatchEvent::Bookmark {
                resource_version,
                form: BookmarkForm::learn_protobuf(frame),
                ends_initial_events: ends_initial_events(&message[meta.annotations]),
            }
        }
        b"ERROR" => {
            let (code, message) = status(object).ok_or(Malformed("an error that is no Status"))?;
            return Err(ReflectorError::Status { code, message });
        }
        _ => return Err(ReflectorError::UnknownEvent),
    })
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut as _, BytesMut};
    use proptest::prelude::*;

    use super::*;
    use crate::object::protobuf::tests::item;
    use crate::protobuf::{self, message, number, object, text};

    fn envelope() -> Envelope {
        let mut list = BytesMut::new();
        object(&mut list, "v1", "PodList", |to| {
            text(to, 1, b"\x0a\0\x12\x015\x1a\0");
        });
        Envelope::learn_protobuf(&list, "Pod").unwrap().envelope
    }

    /// A frame without its length.
    fn frame(event_type: &str, kind: &str, message: &[u8]) -> Vec<u8> {
        let mut frame = BytesMut::new();
        protobuf::event(&mut frame, event_type, |to| {
            object(to, "v1", kind, |to| to.put_slice(message));
        });
        frame[4..].to_vec()
    }

    fn check(frame: &[u8]) -> Result<WatchEvent, ReflectorError> {
        event(&envelope(), frame)
    }

    #[test]
    fn changes_are_read_into_list_item_form() {
        let message = item("n", "a", "8", &[]);
        for event_type in ["ADDED", "MODIFIED", "DELETED"] {
            let read = check(&frame(event_type, "Pod", &message)).unwrap();
            let (WatchEvent::Change(Event::Applied(element))
            | WatchEvent::Change(Event::Deleted(element))) = read
            else {
                panic!("a change")
            };
            assert_eq!((&*element.key, element.resource_version.get()), ("n/a", 8));
            assert_eq!(element.item, message);
        }
    }

    #[test]
    fn the_end_of_the_initial_events_is_told_from_other_bookmarks() {
        for (annotation, ends) in [
            (Some(("k8s.io/initial-events-end", "true")), true),
            (Some(("k8s.io/initial-events-end", "false")), false),
            (Some(("a", "k8s.io/initial-events-end")), false),
            (None, false),
        ] {
            let mut bookmark = BytesMut::new();
            message(&mut bookmark, 1, |to| {
                text(to, 6, "9");
                if let Some((key, value)) = annotation {
                    message(to, 12, |to| {
                        text(to, 1, key);
                        text(to, 2, value);
                    });
                }
            });
            let read = check(&frame("BOOKMARK", "Pod", &bookmark)).unwrap();
            let WatchEvent::Bookmark {
                resource_version,
                form,
                ends_initial_events,
            } = read
            else {
                panic!("a bookmark")
            };
            assert_eq!((resource_version.get(), ends_initial_events), (9, ends));
            assert!(form.is_some());
        }
    }

    #[test]
    fn an_error_event_is_the_servers_error() {
        let mut gone = BytesMut::new();
        text(&mut gone, 3, "too old");
        number(&mut gone, 6, 410);
        let error = check(&frame("ERROR", "Status", &gone)).unwrap_err();
        assert!(error.is_expired());
    }

    #[test]
    fn bad_bytes_are_told_as_such() {
        for bytes in [
            &b""[..],
            b"{\"type\":\"ADDED\"}",
            b"\x0a\x05ADDED\x12\xff\xff\xff\xff\x7f",
            &frame("RENAMED", "Pod", b""),
            &frame("ADDED", "Pod", b""),
            &frame("ADDED", "Pod", b"\x0a\x05a"),
            &frame("BOOKMARK", "Pod", b""),
            &frame("ERROR", "Pod", b""),
        ] {
            let error = check(bytes).unwrap_err();
            assert!(error.is_bad_bytes(), "{} {error:?}", bytes.escape_ascii());
        }
        // Another kind than the one that was learned is no fault of the stream.
        let other = check(&frame("ADDED", "Node", &item("", "a", "1", &[])));
        assert!(other.unwrap_err().refusal().is_some());
    }

    proptest! {
        #[test]
        fn nothing_panics_whatever_comes(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>()) {
            let _ = check(&bytes);
            let _ = check(&frame("ADDED", "Pod", &bytes));
            let _ = check(&frame("BOOKMARK", "Pod", &bytes));
            let mut whole = frame("ADDED", "Pod", &item("n", "a", "8", &[("x", "y")]));
            whole.truncate(cut.index(whole.len()));
            prop_assert!(check(&whole).is_err());
        }
    }
}
