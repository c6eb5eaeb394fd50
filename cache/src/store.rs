//! The objects of one kind: an ordered map with immutable snapshots.
//!
//! A write makes a new map that shares all but a path with the old one, so readers keep what they have at no cost and
//! the writer waits for nobody.

use std::sync::Arc;

use imbl::OrdMap;

use crate::envelope::Envelope;
use crate::resource_version::ResourceVersion;

mod between;
mod change;
mod element;
mod initial_events;
mod page;
mod snapshot;

pub use change::{Change, EventType, NotTellable};
pub use element::{Element, key};
pub use initial_events::InitialEvents;
pub use page::{Page, Rest};
pub use snapshot::{ListBody, Snapshot};

/// Objects looked at in one go, by their selectors too: less than a millisecond of a worker thread.
const STEP: usize = 256;

/// Chunks of a LIST are about this long: large enough that TLS records and HTTP frames are full, small enough that a
/// slow reader pins little.
const CHUNK_BYTES: usize = 64 << 10;

/// Objects compared in one go: some ten kilobytes each are less than a millisecond of a worker thread.
const COMPARE_STEP: usize = 128;

/// A change of one kind's objects.
#[derive(Debug)]
pub enum Event {
    /// An object is there, new or changed.
    Applied(Element),
    /// An object is gone: as it was, but with the version at which it went.
    Deleted(Element),
    /// Nothing happened up to a version.
    Bookmark(ResourceVersion),
}

/// The objects of one kind, changed by its reflector alone.
#[derive(Debug, Default)]
pub struct Store {
    objects: OrdMap<Arc<str>, Arc<Element>>,
    bytes: usize,
    /// Objects whose values cannot be told.
    unreadable: usize,
    resource_version: ResourceVersion,
    last_event: ResourceVersion,
    /// Bytes of all objects that were replaced or removed so far: what older snapshots may hold beyond this state.
    replaced: u64,
    /// Tells this store's snapshots from those of the store that a relist put in its place.
    identity: Arc<()>,
}

impl Event {
    /// The version of the change.
    pub fn resource_version(&self) -> ResourceVersion {
        match self {
            Self::Applied(element) | Self::Deleted(element) => element.resource_version,
            Self::Bookmark(resource_version) => *resource_version,
        }
    }
}

impl Store {
    /// Takes one event; the change that it is to an object, if any.
    pub fn apply(&mut self, event: Event) -> Option<Change> {
        match event {
            Event::Applied(element) => {
                self.advance_event(element.resource_version);
                let element = Arc::new(element);
                let previous = self.insert(Arc::clone(&element));
                Some(Change::applied(element, previous))
            }
            Event::Deleted(element) => {
                self.advance_event(element.resource_version);
                let previous = self.remove(&element.key)?;
                Some(Change::deleted(Arc::new(element), previous))
            }
            Event::Bookmark(resource_version) => {
                self.advance(resource_version);
                None
            }
        }
    }

    fn insert(&mut self, element: Arc<Element>) -> Option<Arc<Element>> {
        self.bytes += element.bytes();
        self.unreadable += usize::from(element.values.is_none());
        let old = self.objects.insert(Arc::clone(&element.key), element)?;
        self.forget(&old);
        Some(old)
    }

    fn remove(&mut self, key: &str) -> Option<Arc<Element>> {
        let gone = self.objects.remove(key)?;
        self.forget(&gone);
        Some(gone)
    }

    fn forget(&mut self, element: &Element) {
        self.bytes -= element.bytes();
        self.replaced += element.bytes() as u64;
        self.unreadable -= usize::from(element.values.is_none());
    }

    /// Adds an object of a list that is not complete yet: the version stays.
    pub fn stage(&mut self, element: Element) {
        self.insert(Arc::new(element));
    }

    /// Removes an object of a list that is not complete yet.
    pub fn unstage(&mut self, key: &str) {
        self.remove(key);
    }

    /// Ends a list: the store is complete at this version.
    pub fn complete(&mut self, resource_version: ResourceVersion) {
        self.advance_event(resource_version);
    }

    /// The version through which the store is complete (C).
    pub fn resource_version(&self) -> ResourceVersion {
        self.resource_version
    }

    /// The version of the last change in it, or of the list it began with; bookmarks do not count.
    pub fn last_event(&self) -> ResourceVersion {
        self.last_event
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether another, older store may be brought here by changes above its version: what is older than that is in it,
    /// byte for byte. Gives way to other tasks while it looks.
    pub(crate) async fn agrees_with(&self, older: &Self) -> bool {
        for (at, (key, element)) in self.objects.iter().enumerate() {
            if at % COMPARE_STEP == COMPARE_STEP - 1 {
                tokio::task::yield_now().await;
            }
            let agrees = element.resource_version > older.resource_version
                || older.objects.get(key).is_some_and(|held| {
                    held.resource_version == element.resource_version
                        && held.item == element.item
                        && held.row == element.row
                });
            if !agrees {
                return false;
            }
        }
        true
    }

    /// What is held now, for readers.
    pub fn snapshot(&self, envelope: &Arc<Envelope>) -> Arc<Snapshot> {
        Arc::new(Snapshot {
            objects: self.objects.clone(),
            bytes: self.bytes,
            unreadable: self.unreadable,
            resource_version: self.resource_version,
            last_event: self.last_event,
            replaced: self.replaced,
            store: Arc::clone(&self.identity),
            envelope: Arc::clone(envelope),
        })
    }

    /// Drops it on a thread of its own kind: to free a hundred thousand objects takes tens of milliseconds, in which a
    /// worker thread would answer nobody.
    pub(crate) fn retire(self) {
        if !self.is_empty() {
            drop(tokio::task::spawn_blocking(move || drop(self)));
        }
    }

    fn advance(&mut self, to: ResourceVersion) {
        self.resource_version = self.resource_version.max(to);
    }

    fn advance_event(&mut self, to: ResourceVersion) {
        self.advance(to);
        self.last_event = self.last_event.max(to);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use crate::fields::Values;
    use crate::form::Form;
    use crate::key_range::KeyRange;
    use crate::selector::BoundSelector;

    fn envelope() -> Arc<Envelope> {
        let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        Arc::new(Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope)
    }

    fn element(namespace: &str, name: &str, rv: u64) -> Element {
        Element {
            key: key(namespace, name).into(),
            uid: "u".into(),
            resource_version: ResourceVersion::from_number(rv),
            item: format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}"}}}}"#).into(),
            labels: 0..0,
            version: 0..0,
            row: None,
            values: Some(Values::default()),
        }
    }

    fn list(snapshot: &Snapshot, namespace: Option<&str>) -> String {
        let all = BoundSelector::default();
        let page = snapshot.page(namespace, None, &all, None);
        // Few objects are looked at in one go.
        let page = page.now_or_never().unwrap();
        let body = snapshot.list_body(page, Form::Object, snapshot.resource_version, "");
        let body = body.now_or_never().unwrap().unwrap();
        let length = body.length();
        let bytes: Vec<u8> = body.flatten().collect();
        assert_eq!(Some(bytes.len() as u64), length);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_list_is_ordered_by_the_bytes_of_namespace_slash_name() {
        let mut store = Store::default();
        for (namespace, name) in [
            ("zz", "b"),
            ("zz-b", "a"),
            ("zz.c", "a"),
            ("a", "z"),
            ("zz0", "a"),
        ] {
            store.stage(element(namespace, name, 1));
        }
        store.complete(ResourceVersion::from_number(9));
        let snapshot = store.snapshot(&envelope());
        let keys: Vec<&str> = snapshot
            .between(&KeyRange::of_namespace(None))
            .map(|element| &*element.key)
            .collect();
        assert_eq!(keys, ["a/z", "zz-b/a", "zz.c/a", "zz/b", "zz0/a"]);
        let one: Vec<&str> = snapshot
            .between(&KeyRange::of_namespace(Some("zz")))
            .map(|element| &*element.key)
            .collect();
        assert_eq!(one, ["zz/b"]);
    }

    #[test]
    fn an_empty_namespace_is_an_empty_list() {
        let mut store = Store::default();
        store.complete(ResourceVersion::from_number(9));
        let expected = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"9\"},\"items\":[]}\n";
        assert_eq!(list(&store.snapshot(&envelope()), Some("none")), expected);
    }

    /// Tells on which thread it was dropped.
    struct Dropped(std::sync::mpsc::Sender<std::thread::ThreadId>);

    impl AsRef<[u8]> for Dropped {
        fn as_ref(&self) -> &[u8] {
            b"{}"
        }
    }

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send(std::thread::current().id()).unwrap();
        }
    }

    #[tokio::test]
    async fn a_retired_store_is_dropped_on_another_thread() {
        let (dropped, thread) = std::sync::mpsc::channel();
        let mut store = Store::default();
        let mut last = element("a", "b", 1);
        last.item = Bytes::from_owner(Dropped(dropped));
        store.stage(last);
        store.retire();
        assert_ne!(thread.recv().unwrap(), std::thread::current().id());
    }

    #[tokio::test]
    async fn a_newer_store_agrees_where_all_that_is_not_newer_is_held() {
        let store = |elements: &[(&str, u64, &str)], at: u64| {
            let mut store = Store::default();
            for (name, version, item) in elements {
                let mut element = element("n", name, *version);
                element.item = (*item).to_owned().into();
                store.stage(element);
            }
            store.complete(ResourceVersion::from_number(at));
            store
        };
        let older = store(&[("a", 3, "x"), ("b", 5, "y")], 10);
        for (elements, expected) in [
            (&[("a", 3, "x"), ("b", 5, "y")][..], true),
            // Changed, made and deleted since.
            (&[("a", 12, "z"), ("c", 11, "z")], true),
            (&[], true),
            // Other bytes at the same version, another version that is not newer, one that was never there.
            (&[("a", 3, "z")], false),
            (&[("a", 4, "x")], false),
            (&[("c", 9, "x")], false),
        ] {
            let newer = store(elements, 20);
            assert_eq!(newer.agrees_with(&older).await, expected, "{elements:?}");
        }
    }

    proptest! {
        /// The store against a plain map: same objects, same order, bytes counted, older snapshots untouched.
        #[test]
        fn it_is_a_map_with_a_version(changes in prop::collection::vec((0_u8..4, 0_u8..6, any::<bool>()), 0..60)) {
            let envelope = envelope();
            let mut store = Store::default();
            let mut model: BTreeMap<String, String> = BTreeMap::new();
            let mut kept: Vec<(Arc<Snapshot>, String)> = Vec::new();
            for (at, (namespace, name, apply)) in changes.into_iter().enumerate() {
                let rv = at as u64 + 1;
                let (namespace, name) = (format!("ns{namespace}"), format!("n{name}"));
                if apply {
                    let mut new = element(&namespace, &name, rv);
                    let item = format!(r#"{{"metadata":{{"rv":"{rv}"}}}}"#);
                    new.item = item.clone().into();
                    model.insert(key(&namespace, &name), item);
                    store.apply(Event::Applied(new));
                } else {
                    model.remove(&key(&namespace, &name));
                    store.apply(Event::Deleted(element(&namespace, &name, rv)));
                }
                let snapshot = store.snapshot(&envelope);
                prop_assert_eq!(snapshot.resource_version.get(), rv);
                let items: Vec<&str> = model.values().map(String::as_str).collect();
                let expected = format!(
                    "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{rv}\"}},\"items\":[{}]}}\n",
                    items.join(","),
                );
                prop_assert_eq!(list(&snapshot, None), &expected[..]);
                prop_assert_eq!(snapshot.bytes(), snapshot.between(&KeyRange::of_namespace(None)).map(|e| e.bytes()).sum::<usize>());
                kept.push((snapshot, expected));
            }
            for (snapshot, expected) in kept {
                prop_assert_eq!(list(&snapshot, None), expected);
            }
        }
    }
}
