//! What readers get: one state of a kind, and the bytes of a LIST out of it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use imbl::OrdMap;

use super::Element;
use crate::envelope::Envelope;
use crate::resource_version::ResourceVersion;
use crate::selector::{BoundSelector, Selector};

/// Chunks of a LIST are about this long: large enough that TLS records and HTTP frames are full, small enough that a
/// slow reader pins little.
const CHUNK_BYTES: usize = 64 << 10;

/// Objects looked at in one go, by their selectors too: less than a millisecond of a worker thread.
const STEP: usize = 256;

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
        self.objects.is_empty() && self.envelope.is_unstructured()
    }

    /// Memory of the objects, in bytes, estimated from their lengths.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The objects of a namespace, or all of them, in the order of a LIST.
    pub fn range(
        &self,
        namespace: Option<&str>,
    ) -> Box<dyn Iterator<Item = &Arc<Element>> + Send + '_> {
        match namespace {
            // '0' is the byte after '/', so this is every key that begins with "namespace/".
            Some(namespace) => Box::new(
                self.objects
                    .range(
                        Arc::<str>::from(format!("{namespace}/"))..format!("{namespace}0").into(),
                    )
                    .map(|(_, element)| element),
            ),
            None => Box::new(self.objects.values()),
        }
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

    /// The pieces of a GET's body.
    pub fn object(&self, element: &Element) -> [Bytes; 3] {
        self.envelope.object_from_item(&element.item)
    }

    /// A LIST's body; `None` where more than `most` objects are selected. Gives way to other tasks while it looks.
    pub async fn list(
        &self,
        namespace: Option<&str>,
        selector: &BoundSelector,
        most: Option<usize>,
    ) -> Option<ListBody> {
        let (head, tail) = self.envelope.around_list(self.resource_version);
        let most = most.unwrap_or(usize::MAX);
        let all = selector.is_empty();
        let mut items = Vec::new();
        let mut length = head.len() + tail.len();
        for (at, element) in self.range(namespace).enumerate() {
            if at % STEP == STEP - 1 {
                tokio::task::yield_now().await;
            }
            if !all && !selector.matches(element) {
                continue;
            }
            // One more tells that there are too many; the rest is not looked at.
            if items.len() == most {
                return None;
            }
            length += element.item.len() + usize::from(!items.is_empty());
            items.push(element.item.clone());
        }
        Some(ListBody {
            length: length as u64,
            head: Some(head),
            tail: Some(tail),
            items: items.into_iter(),
            first: true,
        })
    }
}

/// The body of a LIST as chunks of some 64 KiB.
#[derive(Debug)]
pub struct ListBody {
    length: u64,
    head: Option<Bytes>,
    tail: Option<Bytes>,
    items: std::vec::IntoIter<Bytes>,
    first: bool,
}

impl ListBody {
    /// Bytes of the whole body, taken before the first chunk.
    pub fn length(&self) -> u64 {
        self.length
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
            let Some(item) = self.items.next() else {
                chunk.extend_from_slice(&self.tail.take()?);
                break;
            };
            if !std::mem::take(&mut self.first) {
                chunk.extend_from_slice(b",");
            }
            chunk.extend_from_slice(&item);
        }
        Some(chunk.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectHead;
    use crate::store::Store;
    use crate::turns::turns_during;

    #[tokio::test]
    async fn a_list_of_many_objects_lets_others_work() {
        let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope;
        let mut store = Store::default();
        for at in 0..100_000 {
            let object = format!(
                r#"{{"metadata":{{"name":"p{at}","namespace":"n","resourceVersion":"1","labels":{{"odd":"{}"}}}}}}"#,
                at % 2
            );
            let head = ObjectHead::parse(object.as_bytes()).unwrap();
            let element = Element::new(&head.metadata, object.as_bytes(), object.clone().into());
            store.stage(element.unwrap());
        }
        let snapshot = store.snapshot(&Arc::new(envelope));
        for (labels, most, expected) in [
            ("", None, Some(100_000)),
            ("odd=1", None, Some(50_000)),
            ("odd=2", None, Some(0)),
            ("odd=1", Some(49_999), None),
        ] {
            let selector = Selector::parse(labels, "").unwrap();
            let selector = snapshot.bind(&selector).unwrap();
            let (list, turns) = turns_during(snapshot.list(None, &selector, most)).await;
            assert_eq!(list.map(|list| list.items.len()), expected, "{labels}");
            assert!(turns >= 100_000 / STEP - 1, "{turns} turns, {labels}");
        }
    }
}
