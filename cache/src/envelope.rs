//! What stands around the objects: the list's own bytes, and the type that an object carries outside a list; and which of
//! their fields may be selected by.
//!
//! Built-in kinds are written in the order of Go's structs (`kind`, `apiVersion`, `metadata`, `items`) and their items
//! carry no type; custom resources are written in alphabetical order and their items do. The form is learned from a
//! `LIST limit=1` and proven: the envelope must give that answer back, byte for byte. Deprecated kinds have headers around
//! their answers too.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::WARNING;
use http::{HeaderMap, HeaderValue};
use serde_json::value::RawValue;

use crate::documents::copied;
use crate::fields::Fields;
use crate::form::{Form, Unwritable};
use crate::holding::Holding;
use crate::metadata;
use crate::object::ListHead;
use crate::resource_version::ResourceVersion;
use crate::store::Element;

mod protobuf;
mod table;

/// Why a LIST answer's form was not learned.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Not a JSON list.
    #[error("the answer to a LIST is not a list")]
    NotAList(#[source] serde_json::Error),
    /// A list in a form that this crate would not write byte for byte.
    #[error("the list is written in an unknown form")]
    UnknownForm,
    /// An object that carries another type, or none where one is expected.
    #[error("an object is written in an unknown form")]
    UnknownObjectForm,
    /// The list has no resourceVersion that can be compared.
    #[error("the list has no comparable resourceVersion")]
    NoResourceVersion,
}

/// The order in which a server writes the keys of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyOrder {
    /// `kind`, `apiVersion`, `metadata`, `items`: Go structs.
    Struct,
    /// `apiVersion`, `items`, `kind`, `metadata`: unstructured, as custom resources.
    Alphabetical,
    /// Protobuf, in the order of field numbers.
    Numbers,
}

/// The bytes around the objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    order: KeyOrder,
    list_kind: String,
    api_version: String,
    /// `{"kind":"Pod","apiVersion":"v1",`: what an object has outside a list and lacks inside. Empty where items carry
    /// their type themselves. In protobuf, what stands before the tag of its message.
    object_prefix: Bytes,
    warnings: Vec<HeaderValue>,
    fields: Fields,
    printed: Option<table::Printed>,
    /// Objects are kept with who manages which of their fields.
    managed_fields: bool,
    /// The kind is one of this process: nobody takes it away.
    own: bool,
}

/// What a `LIST limit=1` told.
#[derive(Debug)]
pub struct Learned {
    /// The bytes around the objects.
    pub envelope: Envelope,
    /// The list's version.
    pub resource_version: ResourceVersion,
    /// Objects of the kind, where the server counts them.
    pub count: Option<u64>,
}

impl Envelope {
    /// Learns the form from the answer to a `LIST limit=1` of `kind`.
    ///
    /// # Errors
    /// The answer has a form that cannot be given back byte for byte.
    pub fn learn(body: &[u8], kind: &str) -> Result<Learned, EnvelopeError> {
        let list = ListHead::parse(body).map_err(EnvelopeError::NotAList)?;
        let order = if body.starts_with(b"{\"kind\":") {
            KeyOrder::Struct
        } else {
            KeyOrder::Alphabetical
        };
        let plain = |text: &str| !text.contains(['"', '\\']) && !text.contains(char::is_control);
        if ![kind, &list.kind, &list.api_version].into_iter().all(plain) {
            return Err(EnvelopeError::UnknownForm);
        }
        let object_prefix = match order {
            KeyOrder::Struct => {
                format!(r#"{{"kind":"{kind}","apiVersion":"{}","#, list.api_version)
            }
            KeyOrder::Alphabetical | KeyOrder::Numbers => String::new(),
        };
        let envelope = Self {
            order,
            list_kind: list.kind.into_owned(),
            api_version: list.api_version.into_owned(),
            object_prefix: object_prefix.into(),
            warnings: Vec::new(),
            fields: Fields::default(),
            printed: None,
            managed_fields: true,
            own: false,
        };

        let items = list.items.as_deref().ok_or(EnvelopeError::UnknownForm)?;
        for item in items {
            envelope.check_item(item.get().as_bytes())?;
        }
        let meta = &list.metadata;
        let around = envelope.around(
            Form::Object,
            &meta.resource_version,
            &meta.continue_token,
            meta.remaining_item_count,
        );
        let (head, tail) = around.map_err(|_| EnvelopeError::UnknownForm)?;
        let items: Vec<&str> = items.iter().map(|item| item.get()).collect();
        if [head.as_str(), &items.join(","), &tail].concat().as_bytes() != body {
            return Err(EnvelopeError::UnknownForm);
        }
        let count = match (meta.continue_token.is_empty(), meta.remaining_item_count) {
            (true, _) => Some(items.len() as u64),
            (false, Some(remaining)) => Some(items.len() as u64 + remaining),
            (false, None) => None,
        };
        let resource_version = ResourceVersion::parse(&meta.resource_version)
            .ok_or(EnvelopeError::NoResourceVersion)?;
        Ok(Learned {
            envelope,
            resource_version,
            count,
        })
    }

    /// What stands around the objects of a cluster-scoped kind that this process itself makes, in the form of custom
    /// resources.
    pub(crate) fn of_own_kind(api_version: &str, kind: &str) -> Self {
        Self {
            order: KeyOrder::Alphabetical,
            list_kind: format!("{kind}List"),
            api_version: api_version.to_owned(),
            object_prefix: Bytes::new(),
            warnings: Vec::new(),
            fields: Fields::custom(&[], false),
            printed: None,
            managed_fields: true,
            own: true,
        }
    }

    /// Takes the `Warning` headers of the kind, in order, from the headers of a plain LIST of it. Those that another answer
    /// to the same credential has too, one that is not about the kind, are about the credential: each client has its own.
    #[must_use]
    pub fn with_warnings(mut self, list: &HeaderMap, other: &HeaderMap) -> Self {
        let elsewhere: Vec<_> = other.get_all(WARNING).iter().collect();
        let of_kind = list.get_all(WARNING).iter();
        self.warnings = of_kind
            .filter(|it| !elsewhere.contains(it))
            .map(copied)
            .collect();
        self
    }

    /// The `Warning` headers of every answer about this kind: it is deprecated.
    pub fn warnings(&self) -> &[HeaderValue] {
        &self.warnings
    }

    /// The same bytes around objects with these fields; without, they are known by their name alone.
    #[must_use]
    pub fn with_fields(self, fields: Fields) -> Self {
        Self { fields, ..self }
    }

    /// The same kind, whose objects are kept without who manages which of their fields.
    #[must_use]
    pub(crate) fn without_managed_fields(self) -> Self {
        Self {
            managed_fields: false,
            ..self
        }
    }

    /// Whether its objects are kept with who manages which of their fields.
    pub(crate) fn keeps_managed_fields(&self) -> bool {
        self.managed_fields
    }

    /// The fields that may be selected by.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The bytes before and after the items of a list at a version, in JSON. One that more follows has a token to continue
    /// with and, where it is known, the number of objects that follow.
    ///
    /// # Errors
    /// The form has no words for the kind.
    pub fn around_list(
        &self,
        form: Form,
        resource_version: ResourceVersion,
        continue_token: &str,
        remaining: Option<u64>,
    ) -> Result<(Bytes, Bytes), Unwritable> {
        let version = resource_version.to_string();
        let (head, tail) = self.around(form, &version, continue_token, remaining)?;
        Ok((head.into(), tail.into()))
    }

    fn around(
        &self,
        form: Form,
        resource_version: &str,
        continue_token: &str,
        remaining: Option<u64>,
    ) -> Result<(String, String), Unwritable> {
        let meta_version;
        let (order, kind, api_version) = match form {
            Form::Object | Form::Protobuf => (self.order, &*self.list_kind, &*self.api_version),
            Form::Table(table) => {
                let metadata = list_metadata(resource_version, continue_token, remaining);
                let (head, tail) = self.around_rows(table, &metadata)?;
                return Ok((head, format!("{tail}\n")));
            }
            Form::Metadata(version) | Form::ProtobufMetadata(version) => {
                meta_version = format!("meta.k8s.io/{}", version.as_str());
                let kind = "PartialObjectMetadataList";
                (KeyOrder::Struct, kind, &*meta_version)
            }
        };
        Ok(match order {
            KeyOrder::Struct | KeyOrder::Numbers => {
                let metadata = list_metadata(resource_version, continue_token, remaining);
                let head = format!(
                    r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#
                );
                (head, "]}\n".to_owned())
            }
            KeyOrder::Alphabetical => {
                let mut meta = format!(r#""continue":"{continue_token}","#);
                if let Some(remaining) = remaining {
                    meta += &format!(r#""remainingItemCount":{remaining},"#);
                }
                let head = format!(r#"{{"apiVersion":"{api_version}","items":["#);
                let tail = format!(
                    r#"],"kind":"{kind}","metadata":{{{meta}"resourceVersion":"{resource_version}"}}}}{}"#,
                    "\n"
                );
                (head, tail)
            }
        })
    }

    /// From an object as a GET or a watch writes it to list-item form, in its own allocation: a slice would pin the
    /// whole page it came in.
    ///
    /// # Errors
    /// The object does not carry its type where its kind's objects do.
    pub fn item_from_object(&self, object: &[u8]) -> Result<Bytes, EnvelopeError> {
        if self.object_prefix.is_empty() {
            self.check_item(object)?;
            return Ok(Bytes::copy_from_slice(object));
        }
        let rest = object
            .strip_prefix(&*self.object_prefix)
            .ok_or(EnvelopeError::UnknownObjectForm)?;
        let mut item = Vec::with_capacity(rest.len() + 1);
        item.push(b'{');
        item.extend_from_slice(rest);
        Ok(item.into())
    }

    /// An item of a LIST, in its own allocation.
    ///
    /// # Errors
    /// The item carries a type where its kind's items do not, or none where they do.
    pub fn item_from_list(&self, item: &[u8]) -> Result<Bytes, EnvelopeError> {
        self.check_item(item)?;
        Ok(Bytes::copy_from_slice(item))
    }

    /// Writes an object as a LIST holds it.
    pub(crate) fn write_item(
        &self,
        to: &mut BytesMut,
        form: Form,
        element: &Element,
    ) -> Result<(), Unwritable> {
        let item = &element.item;
        match (form, self.order) {
            (_, KeyOrder::Numbers) => return protobuf::write_item(to, form, item),
            (Form::Object, _) => to.put_slice(item),
            (Form::Protobuf, _) => return Err(Unwritable),
            (Form::Metadata(version), KeyOrder::Struct) => {
                metadata::write_built_in(to, version, item)?;
            }
            (Form::Metadata(version), KeyOrder::Alphabetical) => {
                metadata::write_custom(to, version, item)?;
            }
            (Form::ProtobufMetadata(version), _) => {
                metadata::protobuf::write_item(to, version, self.metadata(item)?)?;
            }
            (Form::Table(table), _) => self.write_row(to, table, element)?,
        }
        Ok(())
    }

    /// Writes an object as a GET or a watch does, without a newline.
    pub(crate) fn write_object(
        &self,
        to: &mut BytesMut,
        form: Form,
        element: &Element,
    ) -> Result<(), Unwritable> {
        let item = &element.item;
        match form {
            _ if self.order == KeyOrder::Numbers => {
                protobuf::write_object(to, &self.object_prefix, form, item)
            }
            Form::Object if !self.object_prefix.is_empty() => {
                to.put_slice(&self.object_prefix);
                to.put_slice(item.get(1..).unwrap_or_default());
                Ok(())
            }
            Form::ProtobufMetadata(version) => {
                metadata::protobuf::write_object(to, version, self.metadata(item)?)
            }
            Form::Table(table) => self.write_table(to, table, element),
            // Metadata carries its type in JSON lists too.
            Form::Object | Form::Metadata(_) | Form::Protobuf => self.write_item(to, form, element),
        }
    }

    fn metadata<'a>(&self, item: &'a [u8]) -> Result<&'a RawValue, Unwritable> {
        let metadata = match self.order {
            KeyOrder::Struct => metadata::of_built_in(item),
            KeyOrder::Alphabetical => metadata::of_custom(item),
            KeyOrder::Numbers => None,
        };
        metadata.ok_or(Unwritable)
    }

    /// In which encoding its objects are held.
    pub fn holding(&self) -> Holding {
        match self.order {
            KeyOrder::Numbers => Holding::Protobuf,
            KeyOrder::Alphabetical | KeyOrder::Struct => Holding::Objects,
        }
    }

    /// Whether objects of the kind can be written in a form, as they are held.
    pub(crate) fn writes(&self, form: Form) -> bool {
        form.holdings().contains(&self.holding())
            && (!matches!(form, Form::Table(_)) || self.columns().is_some())
    }

    /// Whether the kind is a custom resource (or another that the server keeps without a Go type).
    pub fn is_unstructured(&self) -> bool {
        self.order == KeyOrder::Alphabetical
    }

    /// Whether the kind may cease to be served without a word: its definition is a custom one.
    pub(crate) fn may_be_removed(&self) -> bool {
        self.is_unstructured() && !self.own
    }

    fn check_item(&self, item: &[u8]) -> Result<(), EnvelopeError> {
        let typed = item.starts_with(b"{\"apiVersion\":");
        let untyped = item.starts_with(b"{\"metadata\":");
        let expected = match self.order {
            KeyOrder::Struct => untyped,
            KeyOrder::Alphabetical => typed,
            KeyOrder::Numbers => false,
        };
        expected
            .then_some(())
            .ok_or(EnvelopeError::UnknownObjectForm)
    }
}

/// `ListMeta` in the order of Go's struct.
fn list_metadata(resource_version: &str, continue_token: &str, remaining: Option<u64>) -> String {
    let mut meta = format!(r#"{{"resourceVersion":"{resource_version}""#);
    if !continue_token.is_empty() {
        meta += &format!(r#","continue":"{continue_token}""#);
    }
    if let Some(remaining) = remaining {
        meta += &format!(r#","remainingItemCount":{remaining}"#);
    }
    meta + "}"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectHead;

    #[test]
    fn a_built_in_list_is_learned_and_given_back() {
        let body = concat!(
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"77","continue":"tok","#,
            r#""remainingItemCount":4},"items":[{"metadata":{"name":"a"},"spec":{}}]}"#,
            "\n"
        );
        let learned = Envelope::learn(body.as_bytes(), "Pod").unwrap();
        assert_eq!(
            (learned.resource_version.get(), learned.count),
            (77, Some(5))
        );
        let (head, tail) = learned
            .envelope
            .around_list(Form::Object, ResourceVersion::from_number(80), "", None)
            .unwrap();
        assert_eq!(
            head,
            r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"80"},"items":["#
        );
        assert_eq!(tail, "]}\n");

        let object =
            br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b","resourceVersion":"7"}}"#;
        let item = learned.envelope.item_from_object(object).unwrap();
        assert_eq!(item, r#"{"metadata":{"name":"b","resourceVersion":"7"}}"#);
        let head = ObjectHead::parse(object).unwrap();
        let element = Element::new(&head.metadata, object, item).unwrap();
        let mut whole = BytesMut::new();
        learned
            .envelope
            .write_object(&mut whole, Form::Object, &element)
            .unwrap();
        assert_eq!(whole, object[..]);
        assert!(
            learned
                .envelope
                .item_from_object(br#"{"kind":"Status","apiVersion":"v1"}"#)
                .is_err()
        );
    }

    #[test]
    fn a_custom_resource_list_is_learned_and_given_back() {
        let body = concat!(
            r#"{"apiVersion":"ex.io/v1","items":[{"apiVersion":"ex.io/v1","kind":"W","metadata":{"name":"a"}}],"#,
            r#""kind":"WidgetCollection","metadata":{"continue":"t","remainingItemCount":1,"resourceVersion":"9"}}"#,
            "\n"
        );
        let learned = Envelope::learn(body.as_bytes(), "W").unwrap();
        assert_eq!(learned.count, Some(2));
        let (head, tail) = learned
            .envelope
            .around_list(Form::Object, ResourceVersion::from_number(10), "", None)
            .unwrap();
        assert_eq!(head, r#"{"apiVersion":"ex.io/v1","items":["#);
        let expected =
            r#"],"kind":"WidgetCollection","metadata":{"continue":"","resourceVersion":"10"}}"#;
        assert_eq!(tail, format!("{expected}\n"));
        let object = br#"{"apiVersion":"ex.io/v1","kind":"W","metadata":{"name":"b"}}"#;
        let item = learned.envelope.item_from_object(object).unwrap();
        assert_eq!(&item[..], object);
        assert!(learned.envelope.is_unstructured());
    }

    #[test]
    fn warnings_are_the_kinds_and_not_the_credentials() {
        let headers = |warnings: &[&'static str]| -> HeaderMap {
            let warnings = warnings.iter().map(|text| HeaderValue::from_static(text));
            warnings.map(|warning| (WARNING, warning)).collect()
        };
        let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope;
        let (b, token, a) = (r#"299 - "b""#, r#"299 - "token""#, r#"299 - "a""#);
        let envelope = envelope.with_warnings(&headers(&[b, token, a]), &headers(&[token]));
        assert_eq!(envelope.warnings(), [b, a]);
    }

    #[test]
    fn an_empty_list_is_learned() {
        let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        assert_eq!(
            Envelope::learn(body.as_bytes(), "Pod").unwrap().count,
            Some(0)
        );
    }

    #[test]
    fn another_form_is_refused() {
        for body in [
            // Null items, spaces, no newline, an unknown key, typed items in a struct list, no version.
            "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":null}\n",
            "{\"kind\": \"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n",
            "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}",
            "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\",\"x\":1},\"items\":[]}\n",
            "{\"kind\":\"L\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[{\"kind\":\"P\",\"metadata\":{}}]}\n",
            "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"\"},\"items\":[]}\n",
            "404 page not found\n",
        ] {
            assert!(Envelope::learn(body.as_bytes(), "Pod").is_err(), "{body}");
        }
    }
}
