//! A change of one object, and the line of a watch that tells a watcher of it.
//!
//! Whoever selects, is told what the change is to their selection: an object that leaves it is DELETED, as it was before but
//! with the version of the change; one that enters it is ADDED.

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};

use super::Element;
use crate::envelope::Envelope;
use crate::form::{Form, Unwritable};
use crate::protobuf;
use crate::resource_version::ResourceVersion;
use crate::selector::BoundSelector;

/// Memory of a change beside the bytes of its objects and its line.
const CHANGE_OVERHEAD: usize = 150;

/// What a watch calls a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The object was not there before.
    Added,
    /// It was.
    Modified,
    /// It is gone.
    Deleted,
}

impl EventType {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Why a watcher cannot be told of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTellable {
    /// Its selector asks for a field whose value cannot be read from the object.
    Unreadable,
    /// The object cannot be written in its form.
    Unwritable,
}

impl From<Unwritable> for NotTellable {
    fn from(_: Unwritable) -> Self {
        Self::Unwritable
    }
}

/// A change of one object.
#[derive(Debug)]
pub struct Change {
    event_type: EventType,
    /// The object after it, or as the server sent it for the last time.
    element: Arc<Element>,
    previous: Option<Arc<Element>>,
    /// The line of whole objects for whoever selects everything: made by the first watcher that takes it, sent to all.
    line: OnceLock<Bytes>,
}

impl Change {
    pub(crate) fn applied(element: Arc<Element>, previous: Option<Arc<Element>>) -> Self {
        let event_type = match previous {
            None => EventType::Added,
            Some(_) => EventType::Modified,
        };
        Self {
            event_type,
            element,
            previous,
            line: OnceLock::new(),
        }
    }

    pub(super) fn deleted(element: Arc<Element>, previous: Arc<Element>) -> Self {
        Self {
            event_type: EventType::Deleted,
            element,
            previous: Some(previous),
            line: OnceLock::new(),
        }
    }

    /// Its version.
    pub fn resource_version(&self) -> ResourceVersion {
        self.element.resource_version
    }

    /// Whether the values of its kind's own fields can be told, before it and after it.
    pub(crate) fn is_readable(&self) -> bool {
        let previous = self.previous.as_ref();
        self.element.values.is_some() && previous.is_none_or(|previous| previous.values.is_some())
    }

    /// Memory of it, in bytes, estimated from lengths: its objects, which others may hold too, and its line.
    pub fn bytes(&self) -> usize {
        let previous = self.previous.as_ref();
        let previous = previous.map_or(0, |previous| previous.content());
        let line = self.element.item.len();
        self.element.content() + previous + line + CHANGE_OVERHEAD
    }

    /// The line or the frame that tells of it, newline included; `None` where it does not concern who selects these objects.
    ///
    /// # Errors
    /// The selector cannot judge it, or the form has no words for it.
    pub fn line(
        &self,
        envelope: &Envelope,
        form: Form,
        namespace: Option<&str>,
        selector: &BoundSelector,
    ) -> Result<Option<Bytes>, NotTellable> {
        if !namespace.is_none_or(|namespace| self.element.is_in(namespace)) {
            return Ok(None);
        }
        if selector.is_empty() {
            return Ok(Some(self.whole_line(envelope, form)?));
        }
        let selects = |element: &Element| {
            if element.values.is_none() && selector.reads_values() {
                return Err(NotTellable::Unreadable);
            }
            Ok(selector.matches(element))
        };
        let before = self.previous.as_deref().map_or(Ok(false), selects)?;
        let after = self.event_type != EventType::Deleted && selects(&self.element)?;
        let event_type = match (before, after) {
            (false, false) => return Ok(None),
            (false, true) => EventType::Added,
            (true, true) => EventType::Modified,
            (true, false) => EventType::Deleted,
        };
        Ok(Some(if event_type == self.event_type {
            self.whole_line(envelope, form)?
        } else if let Some(left) = self.previous.as_ref().filter(|_| !after) {
            let left = left.at(self.resource_version());
            event_line(envelope, form, event_type, &left)?
        } else {
            event_line(envelope, form, event_type, &self.element)?
        }))
    }

    fn whole_line(&self, envelope: &Envelope, form: Form) -> Result<Bytes, Unwritable> {
        let line = || event_line(envelope, form, self.event_type, &self.element);
        // Metadata is short, and few ask for it.
        if !form.is_whole() {
            return line();
        }
        if let Some(kept) = self.line.get() {
            return Ok(kept.clone());
        }
        let line = line()?;
        Ok(self.line.get_or_init(|| line).clone())
    }
}

fn event_line(
    envelope: &Envelope,
    form: Form,
    event_type: EventType,
    element: &Element,
) -> Result<Bytes, Unwritable> {
    let mut line = BytesMut::with_capacity(form.room(element.item.len()));
    write_event(&mut line, envelope, form, event_type, element)?;
    Ok(line.freeze())
}

/// Writes one line of a watch, or one frame.
pub(super) fn write_event(
    to: &mut BytesMut,
    envelope: &Envelope,
    form: Form,
    event_type: EventType,
    element: &Element,
) -> Result<(), Unwritable> {
    let event_type = event_type.as_str();
    if form.is_protobuf() {
        return protobuf::event(to, event_type, |to| {
            envelope.write_object(to, form, element)
        });
    }
    to.extend_from_slice(br#"{"type":""#);
    to.extend_from_slice(event_type.as_bytes());
    to.extend_from_slice(br#"","object":"#);
    envelope.write_object(to, form, element)?;
    to.extend_from_slice(b"}\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectHead;
    use crate::selector::Selector;

    fn envelope() -> Envelope {
        let list = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        Envelope::learn(list.as_bytes(), "Pod").unwrap().envelope
    }

    fn element(label: &str, version: u64) -> Arc<Element> {
        let item = format!(
            r#"{{"metadata":{{"name":"p","namespace":"n","uid":"u","resourceVersion":"{version}","labels":{{"a":"{label}"}}}},"spec":{{"x":"\"resourceVersion\":\"{version}\""}}}}"#
        );
        let head = ObjectHead::parse(item.as_bytes()).unwrap();
        Arc::new(Element::new(&head.metadata, item.as_bytes(), item.clone().into()).unwrap())
    }

    /// What a watcher of `a=x` is told of an object whose label was, and is.
    fn told(before: Option<&str>, after: Option<&str>) -> Option<String> {
        let previous = before.map(|label| element(label, 7));
        let change = match (previous, after) {
            (previous, Some(label)) => Change::applied(element(label, 19), previous),
            (Some(previous), None) => Change::deleted(element(before.unwrap(), 19), previous),
            (None, None) => unreachable!(),
        };
        let envelope = envelope();
        let selector = Selector::parse("a=x", "").unwrap();
        let selector = selector.bind(envelope.fields()).unwrap();
        assert_eq!(
            change.line(&envelope, Form::Object, Some("m"), &selector),
            Ok(None)
        );
        let all = BoundSelector::default();
        let whole = change
            .line(&envelope, Form::Object, Some("n"), &all)
            .unwrap()
            .unwrap();
        let line = change
            .line(&envelope, Form::Object, None, &selector)
            .unwrap()?;
        let of_all = |line: &Bytes| line.as_ptr() == whole.as_ptr();
        let line_type = line.split(|byte| *byte == b'"').nth(3).unwrap();
        let whole_type = whole.split(|byte| *byte == b'"').nth(3).unwrap();
        assert_eq!(of_all(&line), line_type == whole_type, "made once");
        Some(String::from_utf8(line.to_vec()).unwrap())
    }

    #[test]
    fn a_change_is_told_as_what_it_is_to_the_selection() {
        let line = |event_type: &str, label: &str, own: u64, version: u64| {
            Some(format!(
                "{{\"type\":\"{event_type}\",\"object\":{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"p\",\"namespace\":\"n\",\"uid\":\"u\",\"resourceVersion\":\"{version}\",\"labels\":{{\"a\":\"{label}\"}}}},\"spec\":{{\"x\":\"\\\"resourceVersion\\\":\\\"{own}\\\"\"}}}}}}\n"
            ))
        };
        for (before, after, expected) in [
            (None, Some("x"), line("ADDED", "x", 19, 19)),
            (None, Some("y"), None),
            (Some("x"), Some("x"), line("MODIFIED", "x", 19, 19)),
            (Some("y"), Some("x"), line("ADDED", "x", 19, 19)),
            (Some("x"), Some("y"), line("DELETED", "x", 7, 19)),
            (Some("y"), Some("y"), None),
            (Some("x"), None, line("DELETED", "x", 19, 19)),
            (Some("y"), None, None),
        ] {
            assert_eq!(told(before, after), expected, "{before:?} {after:?}");
        }
    }
}
