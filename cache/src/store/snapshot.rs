//! What readers get: one state of a kind, and the bytes of a LIST out of it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use imbl::OrdMap;

use super::page::WRITE_STEP;
use super::{CHUNK_BYTES, Element, Page};
use crate::envelope::Envelope;
use crate::form::{Form, Unwritable};
use crate::metadata::protobuf;
use crate::protobuf::room;
use crate::resource_version::ResourceVersion;
use crate::selector::{BoundSelector, Selector};
use crate::table::Columns;

/// What one kind held at a version, immutable.
#[derive(Debug)]
pub struct Snapshot {
    pub(super) objects: OrdMap<Arc<str>, Arc<Element>>,
    pub(super) bytes: usize,
    /// Objects whose fields' values cannot be told.
    pub(super) unreadable: usize,
    /// The version through which it is complete (C).
    pub resource_version: ResourceVersion,
    /// The version of the last change in it; bookmarks do not count.
    pub last_event: ResourceVersion,
    /// See `Store::replaced`.
    pub(super) replaced: u64,
    /// See `Store::identity`.
    pub(super) store: Arc<()>,
    pub(super) envelope: Arc<Envelope>,
}

impl Snapshot {
    /// The object of a key.
    pub fn get(&self, key: &str) -> Option<&Arc<Element>> {
        self.objects.get(key)
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether the kind may no longer be served at all: the objects of a removed CustomResourceDefinition go first, and
    /// the server ends their watch about a second after it has begun to answer 404.
    pub fn may_be_removed(&self) -> bool {
        self.objects.is_empty() && self.envelope.may_be_removed()
    }

    /// Memory of the objects, in bytes, estimated from their lengths.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is what the kind held at a version: nothing happened between that version and this snapshot.
    pub fn is_state_at(&self, resource_version: ResourceVersion) -> bool {
        (self.last_event..=self.resource_version).contains(&resource_version)
    }

    /// Whether another snapshot is a state of the same store: no relist lies between them.
    pub(crate) fn is_of_same_store(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.store, &other.store)
    }

    /// Bytes that this snapshot holds and a later one of the same store does not, at most.
    pub(crate) fn bytes_beyond(&self, later: &Self) -> u64 {
        let replaced = later.replaced.saturating_sub(self.replaced);
        replaced.min(self.bytes as u64)
    }

    /// The `Warning` headers of every answer about this kind.
    pub fn warnings(&self) -> &[HeaderValue] {
        self.envelope.warnings()
    }

    /// A selector as this kind understands it; `None` where only the server can judge it.
    pub fn bind(&self, selector: &Selector) -> Option<BoundSelector> {
        let bound = selector.bind(self.envelope.fields())?;
        (self.unreadable == 0 || !bound.reads_values()).then_some(bound)
    }

    /// Whether its objects can be written in a form, as they are held.
    pub fn writes(&self, form: Form) -> bool {
        self.envelope.writes(form)
    }

    /// Whether the kind is a custom resource (or another that the server keeps without a Go type).
    pub fn is_unstructured(&self) -> bool {
        self.envelope.is_unstructured()
    }

    /// The body of a GET.
    ///
    /// # Errors
    /// The form has no words for it.
    pub fn object(&self, element: &Element, form: Form) -> Result<Bytes, Unwritable> {
        if !self.writes(form) {
            return Err(Unwritable);
        }
        let mut body = BytesMut::with_capacity(form.room(element.item.len()));
        self.envelope.write_object(&mut body, form, element)?;
        if !form.is_protobuf() {
            body.extend_from_slice(b"\n");
        }
        Ok(body.freeze())
    }

    /// The body of a LIST at a version that this snapshot is the state at. `continue_token` is empty where no more follows.
    /// Protobuf has the length of the whole before the first object, so all of them are written once to know it; gives way to
    /// other tasks meanwhile.
    ///
    /// # Errors
    /// The form has no words for one of the objects.
    pub async fn list_body(
        &self,
        page: Page,
        form: Form,
        resource_version: ResourceVersion,
        continue_token: &str,
    ) -> Result<ListBody, Unwritable> {
        if !self.writes(form) {
            return Err(Unwritable);
        }
        let remaining = page.rest.as_ref().and_then(|rest| rest.count);
        if form == Form::Protobuf {
            let items = page.items().map(|item| room(item.len())).sum();
            let around =
                self.envelope
                    .around_protobuf(resource_version, continue_token, remaining, items);
            let length = (around.0.len() + around.1.len()) as u64 + items;
            return Ok(self.body(page, form, around, length));
        }
        if let Form::ProtobufMetadata(version) = form {
            let items = self.measure(&page, form).await?;
            let (head, tail) =
                protobuf::around_list(version, resource_version, continue_token, remaining, items);
            let length = (head.len() + tail.len()) as u64 + items;
            return Ok(self.body(page, form, (head, tail), length));
        }
        let is_table = matches!(form, Form::Table(_));
        if is_table && page.items.iter().any(|element| element.row.is_none()) {
            return Err(Unwritable);
        }
        let (mut head, mut tail) =
            self.envelope
                .around_list(form, resource_version, continue_token, remaining)?;
        let is_null = match form {
            Form::Metadata(_) => true,
            Form::Table(_) => self.envelope.columns().is_some_and(Columns::are_default),
            _ => false,
        };
        if page.items.is_empty() && is_null {
            // Go's slice that nothing was appended to, where others are made empty.
            let list = [head.strip_suffix(b"[").unwrap_or(&head), b"null"].concat();
            (head, tail) = (list.into(), tail.slice(1..));
        }
        let commas = page.items.len().saturating_sub(1);
        let items: usize = page.items().map(Bytes::len).sum();
        let length = (head.len() + items + commas + tail.len()) as u64;
        Ok(self.body(page, form, (head, tail), length))
    }

    fn body(&self, page: Page, form: Form, around: (Bytes, Bytes), length: u64) -> ListBody {
        let (head, tail) = around;
        ListBody {
            length,
            form,
            envelope: Arc::clone(&self.envelope),
            head: Some(head),
            tail: Some(tail),
            items: page.items.into_iter(),
            first: true,
        }
    }

    /// Bytes that the objects of a page have in a form.
    async fn measure(&self, page: &Page, form: Form) -> Result<u64, Unwritable> {
        let mut all = 0;
        let mut one = BytesMut::new();
        for (at, element) in page.items.iter().enumerate() {
            if at % WRITE_STEP == WRITE_STEP - 1 {
                tokio::task::yield_now().await;
            }
            one.clear();
            self.envelope.write_item(&mut one, form, element)?;
            all += one.len() as u64;
        }
        Ok(all)
    }
}

/// The body of a LIST as chunks of some 64 KiB.
#[derive(Debug)]
pub struct ListBody {
    /// Bytes of the whole body; of metadata in JSON and of Tables, about so many.
    length: u64,
    form: Form,
    envelope: Arc<Envelope>,
    head: Option<Bytes>,
    tail: Option<Bytes>,
    items: std::vec::IntoIter<Arc<Element>>,
    first: bool,
}

impl ListBody {
    /// Bytes of the whole body; `None` where that is known only when it is written.
    pub fn length(&self) -> Option<u64> {
        (!matches!(self.form, Form::Metadata(_) | Form::Table(_))).then_some(self.length)
    }
}

impl Iterator for ListBody {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        self.tail.as_ref()?;
        let mut chunk =
            BytesMut::with_capacity((CHUNK_BYTES + (CHUNK_BYTES >> 2)).min(self.length as usize));
        if let Some(head) = self.head.take() {
            chunk.extend_from_slice(&head);
        }
        while chunk.len() < CHUNK_BYTES {
            let Some(element) = self.items.next() else {
                chunk.extend_from_slice(&self.tail.take()?);
                break;
            };
            if !std::mem::take(&mut self.first) && !self.form.is_protobuf() {
                chunk.extend_from_slice(b",");
            }
            // Whether it can be was looked at before.
            let written = self.envelope.write_item(&mut chunk, self.form, &element);
            debug_assert_eq!(written, Ok(()));
        }
        Some(chunk.freeze())
    }
}
