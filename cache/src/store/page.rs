//! The objects of a LIST, or of a page of one.
//!
//! How the server pages, seen on 1.36 for kinds with a watch cache and without: it walks over the objects in order and stops
//! with the last one that fits in the limit. There is more if any object follows, selected or not; so the page after may be
//! empty. What follows is counted only where everything is selected.

use std::sync::Arc;

use bytes::Bytes;

use super::{Element, STEP, Snapshot};
use crate::key_range::KeyRange;
use crate::selector::BoundSelector;

/// Items written in one go: some ten microseconds each are less than a millisecond of a worker thread.
pub(super) const WRITE_STEP: usize = 32;

/// The items of a list, in order.
#[derive(Debug)]
pub struct Page {
    pub(super) items: Vec<Arc<Element>>,
    /// What follows them; `None` where nothing does.
    pub rest: Option<Rest>,
    /// Whether it has as many items as the limit.
    pub is_full: bool,
}

impl Page {
    /// The same page with its items written otherwise. Gives way to other tasks on its way.
    pub async fn map_items(mut self, mut write: impl FnMut(&Bytes) -> Bytes) -> Self {
        for (at, element) in self.items.iter_mut().enumerate() {
            if at % WRITE_STEP == WRITE_STEP - 1 {
                tokio::task::yield_now().await;
            }
            *element = Arc::new(element.with_item(write(&element.item)));
        }
        self
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The items, in order.
    pub fn items(&self) -> impl Iterator<Item = &Bytes> {
        self.items.iter().map(|element| &element.item)
    }
}

/// What follows a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The key of the page's last object: the next page has those behind it.
    pub after: Arc<str>,
    /// Objects that follow; `None` where not all objects are selected.
    pub count: Option<u64>,
}

impl Snapshot {
    /// The selected objects of a namespace, or of all, from a key on, `limit` of them at most. Gives way to other tasks while
    /// it looks.
    pub async fn page(
        &self,
        namespace: Option<&str>,
        from: Option<&str>,
        selector: &BoundSelector,
        limit: Option<usize>,
    ) -> Page {
        let mut keys = KeyRange::of_namespace(namespace);
        if let Some(from) = from {
            keys = keys.starting_at(from.to_owned());
        }
        let all = selector.is_empty();
        let limit = limit.unwrap_or(usize::MAX);
        let mut page = Page {
            items: Vec::new(),
            rest: None,
            is_full: false,
        };
        let mut last: Option<&Arc<Element>> = None;
        let mut following = 0;
        for (at, element) in self.between(&keys).enumerate() {
            if at % STEP == STEP - 1 {
                tokio::task::yield_now().await;
            }
            if page.items.len() == limit {
                following += 1;
                // One more is all there is to know, unless they are counted.
                if !all {
                    break;
                }
                if namespace.is_none() && from.is_none() {
                    following = self.len() - page.items.len();
                    break;
                }
            } else if all || selector.matches(element) {
                page.items.push(Arc::clone(element));
                last = Some(element);
            }
        }
        page.is_full = page.items.len() == limit;
        page.rest = last.filter(|_| following > 0).map(|last| Rest {
            after: Arc::clone(&last.key),
            count: all.then_some(following as u64),
        });
        page
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;
    use crate::envelope::Envelope;
    use crate::object::ObjectHead;
    use crate::selector::Selector;
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
        for (labels, from, limit, expected, rest) in [
            ("", None, None, 100_000, None),
            ("odd=1", None, None, 50_000, None),
            ("odd=2", None, None, 0, None),
            ("odd=1", None, Some(49_999), 49_999, Some(None)),
            ("", Some("n/"), Some(1), 1, Some(Some(99_999))),
        ] {
            let selector = Selector::parse(labels, "").unwrap();
            let selector = snapshot.bind(&selector).unwrap();
            let page = snapshot.page(None, from, &selector, limit);
            let (page, turns) = turns_during(page).await;
            assert_eq!(page.items.len(), expected, "{labels}");
            assert_eq!(page.rest.map(|rest| rest.count), rest, "{labels}");
            assert!(turns >= 100_000 / STEP - 1, "{turns} turns, {labels}");
        }
    }

    /// One object a key, in the order of keys; labels tell the odd from the even.
    fn snapshot(keys: &BTreeSet<(u8, u8)>) -> Arc<Snapshot> {
        let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope;
        let mut store = Store::default();
        for (namespace, name) in keys {
            let object = format!(
                r#"{{"metadata":{{"name":"p{name}","namespace":"n{namespace}","resourceVersion":"1","labels":{{"odd":"{}"}}}}}}"#,
                name % 2
            );
            let head = ObjectHead::parse(object.as_bytes()).unwrap();
            let element = Element::new(&head.metadata, object.as_bytes(), object.clone().into());
            store.stage(element.unwrap());
        }
        store.snapshot(&Arc::new(envelope))
    }

    proptest! {
        /// A walk by pages gives what the whole list has, each page but the last has as many items as the limit, and what is
        /// said of the rest is so.
        #[test]
        fn a_walk_is_the_list(
            keys in prop::collection::btree_set((0_u8..3, 0_u8..30), 0..40),
            limit in 1_usize..12,
            namespace in prop::option::of(0_u8..4),
            labels in prop::sample::select(vec!["", "odd=1", "odd=7"]),
        ) {
            let snapshot = snapshot(&keys);
            let namespace = namespace.map(|namespace| format!("n{namespace}"));
            let selector = snapshot.bind(&Selector::parse(labels, "").unwrap()).unwrap();
            let page = |from: Option<&str>, limit| {
                let page = snapshot.page(namespace.as_deref(), from, &selector, limit);
                page.now_or_never().unwrap()
            };
            let all: Vec<String> = keys.iter().map(|(namespace, name)| format!("n{namespace}/p{name}")).collect();
            let in_namespace = |key: &&String| namespace.as_ref().is_none_or(|namespace| key.starts_with(&format!("{namespace}/")));
            let mut listed: Vec<&String> = all.iter().filter(in_namespace).collect();
            listed.sort();
            let whole = page(None, None);
            prop_assert_eq!(&whole.rest, &None);
            let (mut items, mut from) = (Vec::new(), None::<String>);
            for _ in 0..=keys.len() {
                let next = page(from.as_deref(), Some(limit));
                prop_assert_eq!(next.is_full, next.items.len() == limit);
                items.extend(next.items().cloned());
                let Some(rest) = next.rest else { break };
                prop_assert_eq!(items.len() % limit, 0);
                let follow = listed.iter().filter(|key| key.as_str() > &*rest.after).count();
                prop_assert!(follow > 0);
                prop_assert_eq!(rest.count, labels.is_empty().then_some(follow as u64));
                from = Some(format!("{}\0", rest.after));
            }
            prop_assert!(items.iter().eq(whole.items()));
            let selected = listed.iter().filter(|key| {
                let name: u8 = key.rsplit('p').next().unwrap().parse().unwrap();
                labels.is_empty() || labels == format!("odd={}", name % 2)
            });
            prop_assert_eq!(selected.count(), whole.items.len());
        }
    }
}
