//! What stands around objects in protobuf: learned from a `LIST limit=1`, and proven by writing that answer again.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{Envelope, EnvelopeError, KeyOrder, Learned};
use crate::fields::Fields;
use crate::form::{Form, Unwritable};
use crate::metadata;
use crate::object::protobuf::{ListHead, Typed};
use crate::protobuf::read;
use crate::protobuf::{CONTENT, around_object, begin_object, text};
use crate::resource_version::ResourceVersion;
use crate::store::Element;

/// The field of a list that has its items, of every kind.
const ITEMS: u32 = 2;

/// The field of an object as it stands by itself that has its message.
const RAW: u32 = 2;

impl Envelope {
    /// Learns the form from the answer to a `LIST limit=1` of `kind` in protobuf. Its objects may be selected by their
    /// metadata alone: nothing else of them is read.
    pub(crate) fn learn_protobuf(body: &[u8], kind: &str) -> Result<Learned, EnvelopeError> {
        let unknown = |_| EnvelopeError::UnknownForm;
        let typed = Typed::parse(body).map_err(unknown)?;
        let list = ListHead::parse(typed.raw).map_err(unknown)?;
        let mut object_prefix = BytesMut::new();
        begin_object(&mut object_prefix, typed.api_version, kind);
        let envelope = Self {
            order: KeyOrder::Numbers,
            list_kind: typed.kind.to_owned(),
            api_version: typed.api_version.to_owned(),
            object_prefix: object_prefix.freeze(),
            warnings: Vec::new(),
            fields: Fields::default(),
            printed: None,
            managed_fields: true,
            own: false,
        };
        let mut items = BytesMut::new();
        for item in &list.items {
            Element::of_protobuf(item).map_err(unknown)?;
            text(&mut items, ITEMS, item);
        }
        let (head, tail) = envelope.around_raw(
            list.resource_version,
            list.continue_token,
            list.remaining,
            items.len() as u64,
        );
        if [&head[..], &items, &tail].concat() != body {
            return Err(EnvelopeError::UnknownForm);
        }
        let listed = list.items.len() as u64;
        let count = match (list.continue_token.is_empty(), list.remaining) {
            (true, _) => Some(listed),
            (false, remaining) => remaining.and_then(|remaining| listed.checked_add(remaining)),
        };
        let resource_version = ResourceVersion::parse(list.resource_version);
        Ok(Learned {
            envelope,
            resource_version: resource_version.ok_or(EnvelopeError::NoResourceVersion)?,
            count,
        })
    }

    /// The bytes before and after the items of a list at a version, which have so many bytes.
    pub(crate) fn around_protobuf(
        &self,
        resource_version: ResourceVersion,
        continue_token: &str,
        remaining: Option<u64>,
        items: u64,
    ) -> (Bytes, Bytes) {
        let version = resource_version.to_string();
        self.around_raw(&version, continue_token, remaining, items)
    }

    fn around_raw(
        &self,
        resource_version: &str,
        continue_token: &str,
        remaining: Option<u64>,
        items: u64,
    ) -> (Bytes, Bytes) {
        let meta = metadata::protobuf::list_meta(1, resource_version, continue_token, remaining);
        let raw = meta.len() as u64 + items;
        let (mut head, tail) = around_object(&self.api_version, &self.list_kind, raw);
        head.unsplit(meta);
        (head.freeze(), tail.freeze())
    }

    /// The message of an object as it stands by itself.
    pub(crate) fn message_of_object<'a>(
        &self,
        object: &'a [u8],
    ) -> Result<&'a [u8], EnvelopeError> {
        if !object.starts_with(&self.object_prefix) {
            return Err(EnvelopeError::UnknownObjectForm);
        }
        let typed = Typed::parse(object).map_err(|_| EnvelopeError::UnknownObjectForm)?;
        // The type, the message, and the content: nothing else, and in this order.
        let around = self.object_prefix.len() as u64
            + crate::protobuf::room(typed.raw.len())
            + CONTENT.len() as u64;
        let is_plain = object.len() as u64 == around && object.ends_with(CONTENT);
        is_plain
            .then_some(typed.raw)
            .ok_or(EnvelopeError::UnknownObjectForm)
    }
}

/// Writes an object as a LIST holds it.
pub(super) fn write_item(to: &mut BytesMut, form: Form, item: &[u8]) -> Result<(), Unwritable> {
    match form {
        Form::Protobuf => text(to, ITEMS, item),
        Form::ProtobufMetadata(version) => {
            metadata::protobuf::write_held_item(to, version, metadata_of(item)?);
        }
        Form::Object | Form::Metadata(_) | Form::Table(_) => return Err(Unwritable),
    }
    Ok(())
}

/// Writes an object as a GET or a watch does; `prefix` is what stands before its message.
pub(super) fn write_object(
    to: &mut BytesMut,
    prefix: &[u8],
    form: Form,
    item: &[u8],
) -> Result<(), Unwritable> {
    match form {
        Form::Protobuf => {
            to.put_slice(prefix);
            text(to, RAW, item);
            to.put_slice(CONTENT);
        }
        Form::ProtobufMetadata(version) => {
            metadata::protobuf::write_held_object(to, version, metadata_of(item)?);
        }
        Form::Object | Form::Metadata(_) | Form::Table(_) => return Err(Unwritable),
    }
    Ok(())
}

/// The metadata of an object as a field of it, which is the first of any kind, and the only one of metadata alone.
fn metadata_of(item: &[u8]) -> Result<&[u8], Unwritable> {
    let first = read::Fields::of(item).next();
    let first = first.and_then(Result::ok).ok_or(Unwritable)?;
    Ok(&item[first.place])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::form::MetaVersion;
    use crate::object::protobuf::tests::item;
    use crate::protobuf::{event, message, number, object};
    use crate::selector::Selector;
    use crate::store::{Event, InitialEvents, Store};

    fn list(version: &str, token: &str, remaining: Option<i64>, items: &[Vec<u8>]) -> BytesMut {
        let mut body = BytesMut::new();
        object(&mut body, "v1", "PodList", |to| {
            message(to, 1, |to| {
                text(to, 1, "");
                text(to, 2, version);
                text(to, 3, token);
                if let Some(remaining) = remaining {
                    number(to, 4, remaining);
                }
            });
            for item in items {
                text(to, 2, item);
            }
        });
        body
    }

    fn learned() -> Learned {
        let body = list("77", "tok", Some(4), &[item("n", "a", "7", &[])]);
        Envelope::learn_protobuf(&body, "Pod").unwrap()
    }

    #[test]
    fn a_list_is_learned_and_given_back() {
        let learned = learned();
        assert_eq!(
            (learned.resource_version.get(), learned.count),
            (77, Some(5))
        );
        let envelope = learned.envelope;
        assert_eq!(envelope.holding().as_str(), "protobuf");
        let items = [item("n", "a", "7", &[]), item("n", "b", "8", &[("a", "b")])];
        let mut written = BytesMut::new();
        for item in &items {
            write_item(&mut written, Form::Protobuf, item).unwrap();
        }
        let at = ResourceVersion::from_number(80);
        let (head, tail) = envelope.around_protobuf(at, "", None, written.len() as u64);
        let whole = [&head[..], &written, &tail].concat();
        assert_eq!(whole, list("80", "", None, &items));
        let count = |body: &[u8]| Envelope::learn_protobuf(body, "Pod").unwrap().count;
        assert_eq!(count(&list("5", "", None, &[])), Some(0));
        assert_eq!(count(&list("5", "t", None, &items)), None);
    }

    #[test]
    fn an_object_is_given_back() {
        let envelope = learned().envelope;
        let message = item("n", "a", "7", &[]);
        let mut body = BytesMut::new();
        object(&mut body, "v1", "Pod", |to| to.put_slice(&message));
        assert_eq!(envelope.message_of_object(&body).unwrap(), message);
        let element = Element::of_protobuf(&message).unwrap().unwrap();
        let mut written = BytesMut::new();
        envelope
            .write_object(&mut written, Form::Protobuf, &element)
            .unwrap();
        assert_eq!(written, body);
        for (other, kind) in [(&b""[..], "Pod"), (b"x", "Pod"), (b"", "Node")] {
            let mut body = BytesMut::new();
            object(&mut body, "v1", kind, |to| to.put_slice(&message));
            body.put_slice(other);
            let read = envelope.message_of_object(&body);
            assert_eq!(read.is_ok(), kind == "Pod" && other.is_empty());
        }
        for form in [Form::Object, Form::Metadata(MetaVersion::V1)] {
            let written = envelope.write_object(&mut BytesMut::new(), form, &element);
            assert_eq!(written, Err(Unwritable));
        }
    }

    #[test]
    fn its_metadata_alone_are_its_own_bytes() {
        let envelope = learned().envelope;
        let message = item("n", "a", "7", &[("x", "y")]);
        let element = Element::of_protobuf(&message).unwrap().unwrap();
        let field = metadata_of(&message).unwrap();
        let form = Form::ProtobufMetadata(MetaVersion::V1beta1);
        let mut written = BytesMut::new();
        envelope.write_object(&mut written, form, &element).unwrap();
        let mut expected = BytesMut::new();
        let kind = "PartialObjectMetadata";
        object(&mut expected, "meta.k8s.io/v1beta1", kind, |to| {
            to.put_slice(field)
        });
        assert_eq!(written, expected);
        for (version, number) in [(MetaVersion::V1, 2), (MetaVersion::V1beta1, 1)] {
            let (mut written, mut expected) = (BytesMut::new(), BytesMut::new());
            let form = Form::ProtobufMetadata(version);
            envelope.write_item(&mut written, form, &element).unwrap();
            text(&mut expected, number, field);
            assert_eq!(written, expected);
        }
    }

    /// A pod with a label, at a version.
    fn element(name: &str, version: u64, label: &str) -> Element {
        let message = item("n", name, &version.to_string(), &[("a", label)]);
        Element::of_protobuf(&message).unwrap().unwrap()
    }

    fn told(event_type: &str, item: &[u8]) -> BytesMut {
        let mut frame = BytesMut::new();
        event(&mut frame, event_type, |to| {
            object(to, "v1", "Pod", |to| to.put_slice(item));
        });
        frame
    }

    #[tokio::test]
    async fn a_kind_is_read_and_watched_in_it() {
        let envelope = Arc::new(learned().envelope.with_fields(Fields::default()));
        let mut store = Store::default();
        for at in 1..=300 {
            store.stage(element(
                &format!("p{at:03}"),
                at,
                if at % 2 == 0 { "x" } else { "y" },
            ));
        }
        store.complete(ResourceVersion::from_number(400));
        let snapshot = store.snapshot(&envelope);
        let bind = |labels| {
            snapshot
                .bind(&Selector::parse(labels, "").unwrap())
                .unwrap()
        };
        assert!(
            snapshot
                .bind(&Selector::parse("", "spec.nodeName=n").unwrap())
                .is_none()
        );
        for (labels, limit, count) in [
            ("", None, 300),
            ("a=x", None, 150),
            ("a=z", None, 0),
            ("", Some(7), 7),
        ] {
            let page = snapshot.page(None, None, &bind(labels), limit).await;
            let items: Vec<_> = page.items().map(|item| item.to_vec()).collect();
            assert_eq!(items.len(), count, "{labels}");
            let remaining = page.rest.as_ref().and_then(|rest| rest.count);
            let token = if page.rest.is_some() { "t" } else { "" };
            let at = snapshot.resource_version;
            let body = snapshot
                .list_body(page, Form::Protobuf, at, token)
                .await
                .unwrap();
            let length = body.length().unwrap();
            let body = body.collect::<Vec<_>>().concat();
            assert_eq!(length, body.len() as u64);
            let remaining = remaining.map(u64::cast_signed);
            assert_eq!(body, list("400", token, remaining, &items), "{labels}");
        }
        let page = snapshot.page(None, None, &bind(""), None).await;
        let body = snapshot.list_body(page, Form::Object, snapshot.resource_version, "");
        assert!(body.await.is_err(), "it is held in another encoding");

        let mut initial = InitialEvents::new(Arc::clone(&snapshot), Form::Protobuf, Some("n"));
        let first = initial.next_chunk(&bind("a=y")).unwrap().unwrap();
        assert!(first.starts_with(&told("ADDED", &element("p001", 1, "y").item)));
        let mut change = |label, at| {
            let element = element("p002", at, label);
            store.apply(Event::Applied(element)).unwrap()
        };
        // It leaves the selection as it was, at the version of the change.
        for (change, labels, event_type, label, at) in [
            (change("x", 401), "a=x", "MODIFIED", "x", 401),
            (change("z", 1_000_402), "a=x", "DELETED", "x", 1_000_402),
            (change("x", 1_000_403), "a=x", "ADDED", "x", 1_000_403),
            (change("x", 1_000_404), "", "MODIFIED", "x", 1_000_404),
        ] {
            let line = change.line(&envelope, Form::Protobuf, Some("n"), &bind(labels));
            let expected = told(event_type, &element("p002", at, label).item);
            assert_eq!(line.unwrap().unwrap(), expected, "{at}");
        }
    }

    #[test]
    fn another_form_is_refused() {
        let good = list("5", "", None, &[]);
        let json = b"{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let more = [&good[..], b"\x2a\0"].concat();
        let mut other_list = BytesMut::new();
        object(&mut other_list, "v1", "PodList", |to| {
            text(to, 1, b"\x0a\0\x12\x015\x1a\0");
            text(to, 3, "x");
        });
        let mut no_token = BytesMut::new();
        object(&mut no_token, "v1", "PodList", |to| {
            text(to, 1, b"\x0a\0\x12\x015")
        });
        for body in [
            &b""[..],
            json,
            &more,
            &good[..good.len() - 1],
            &other_list,
            &no_token,
            &list("", "", None, &[]),
            &list("5", "", None, &[b"\x12\0".to_vec()]),
        ] {
            let learned = Envelope::learn_protobuf(body, "Pod");
            assert!(learned.is_err(), "{}", body.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_whatever_comes(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>()) {
            let _ = Envelope::learn_protobuf(&bytes, "Pod");
            let envelope = learned().envelope;
            let _ = envelope.message_of_object(&bytes);
            let mut body = list("5", "", None, &[item("n", "a", "7", &[])]).to_vec();
            body.truncate(cut.index(body.len()));
            prop_assert!(Envelope::learn_protobuf(&body, "Pod").is_err());
        }
    }
}
