//! Live lists that somebody was told, compared with what an informer holds.
//!
//! The version of a list is the cluster's newest, which a quiet kind's informer hears of within a minute. So the floor
//! is not raised to it where the objects are those that are held, or will be once an event has come.

use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::key_range::KeyRange;
use crate::resource_version::ResourceVersion;
use crate::selector::Selector;
use crate::store::Snapshot;

/// Objects looked at before others get their turn.
const LOOKED_AT: usize = 256;

/// What a list told, or a page of one: which objects there are, in which versions.
#[derive(Debug)]
pub struct ToldList {
    /// The keys that it tells of.
    pub keys: KeyRange,
    /// Which of their objects.
    pub selector: Selector,
    /// What it said of them.
    pub pairs: Pairs,
    /// The version of the list.
    pub resource_version: ResourceVersion,
}

/// A list whose objects no informer was known to hold when it was told.
#[derive(Debug)]
pub(crate) struct PendingList {
    list: ToldList,
    /// The version at which a snapshot is known to show it: its own until a lower one is found.
    shown_at: AtomicU64,
}

/// Keys and versions of objects in the order of a LIST, of which only a digest is kept.
#[derive(Clone, Debug)]
pub struct Pairs {
    keys: RandomState,
    digest: DefaultHasher,
    count: usize,
}

impl Default for Pairs {
    fn default() -> Self {
        let keys = RandomState::new();
        Self {
            digest: keys.build_hasher(),
            keys,
            count: 0,
        }
    }
}

impl Pairs {
    /// Adds the next object.
    pub fn push(&mut self, key: &str, resource_version: ResourceVersion) {
        self.digest.write(key.as_bytes());
        // No key has such a byte.
        self.digest.write_u8(0xff);
        self.digest.write_u64(resource_version.get());
        self.count += 1;
    }

    /// None yet, to be compared with these.
    fn none(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            digest: self.keys.build_hasher(),
            count: 0,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.count == other.count && self.digest.finish() == other.digest.finish()
    }
}

impl ToldList {
    /// The version that a snapshot must have to show this list, judged by this one; `None` where this one does not.
    pub(crate) async fn shown_by(&self, snapshot: &Snapshot) -> Option<ResourceVersion> {
        if snapshot.resource_version >= self.resource_version {
            return Some(self.resource_version);
        }
        // Whoever reads another version of the resource next may be told nothing older than what is equal here.
        self.is_same_as(snapshot)
            .await
            .then_some(snapshot.last_event)
    }

    async fn is_same_as(&self, snapshot: &Snapshot) -> bool {
        let Some(selector) = snapshot.bind(&self.selector) else {
            return false;
        };
        let mut held = self.pairs.none();
        for (looked_at, element) in snapshot.between(&self.keys).enumerate() {
            if looked_at % LOOKED_AT == LOOKED_AT - 1 {
                tokio::task::yield_now().await;
            }
            if !selector.is_empty() && !selector.matches(element) {
                continue;
            }
            if held.count == self.pairs.count {
                return false;
            }
            held.push(&element.key, element.resource_version);
        }
        held.is_same(&self.pairs)
    }
}

impl PendingList {
    pub(crate) fn new(list: ToldList) -> Self {
        let shown_at = AtomicU64::new(list.resource_version.get());
        Self { list, shown_at }
    }

    pub(crate) fn list(&self) -> &ToldList {
        &self.list
    }

    /// The version from which on a snapshot shows it.
    pub(crate) fn shown_at(&self) -> ResourceVersion {
        ResourceVersion::from_number(self.shown_at.load(Ordering::Relaxed))
    }

    /// A snapshot of this version shows it.
    pub(crate) fn is_shown_at(&self, at: ResourceVersion) {
        self.shown_at.store(at.get(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use super::*;
    use crate::envelope::Envelope;
    use crate::object::ObjectHead;
    use crate::store::{Element, Event, Store};

    fn rv(number: u64) -> ResourceVersion {
        ResourceVersion::from_number(number)
    }

    fn element(namespace: &str, name: &str, at: u64) -> Element {
        let object = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"u","resourceVersion":"{at}","labels":{{"is":"{name}"}}}}}}"#
        );
        let head = ObjectHead::parse(object.as_bytes()).unwrap();
        Element::new(&head.metadata, object.as_bytes(), object.clone().into()).unwrap()
    }

    /// a/x at 1, a/y at 2, b/x at 3; complete through 5.
    fn snapshot() -> Arc<Snapshot> {
        let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Arc::new(Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope);
        let mut store = Store::default();
        for (namespace, name, at) in [("a", "x", 1), ("a", "y", 2), ("b", "x", 3)] {
            store.apply(Event::Applied(element(namespace, name, at)));
        }
        store.apply(Event::Bookmark(rv(5)));
        store.snapshot(&envelope)
    }

    fn list(keys: KeyRange, labels: &str, pairs: &[(&str, u64)], at: u64) -> ToldList {
        let mut told = Pairs::default();
        for (key, at) in pairs {
            told.push(key, rv(*at));
        }
        ToldList {
            keys,
            selector: Selector::parse(labels, "").unwrap(),
            pairs: told,
            resource_version: rv(at),
        }
    }

    fn shown(list: &ToldList) -> Option<u64> {
        let shown = list.shown_by(&snapshot()).now_or_never().unwrap();
        shown.map(ResourceVersion::get)
    }

    #[test]
    fn a_list_of_what_is_held_is_shown_by_the_last_event() {
        let all = || KeyRange::of_namespace(None);
        let a = || KeyRange::of_namespace(Some("a"));
        let (x, y, b) = (("a/x", 1), ("a/y", 2), ("b/x", 3));
        for (what, list, expected) in [
            ("all", list(all(), "", &[x, y, b], 9), Some(3)),
            ("a namespace", list(a(), "", &[x, y], 9), Some(3)),
            (
                "an empty one",
                list(KeyRange::of_namespace(Some("c")), "", &[], 9),
                Some(3),
            ),
            ("selected", list(all(), "is=x", &[x, b], 9), Some(3)),
            (
                "a first page",
                list(all().ending_with("a/x".to_owned()), "", &[x], 9),
                Some(3),
            ),
            (
                "a page between",
                list(
                    all()
                        .starting_at("a/x\0".to_owned())
                        .ending_with("a/y".to_owned()),
                    "",
                    &[y],
                    9,
                ),
                Some(3),
            ),
            (
                "a last page",
                list(a().starting_at("a/x\0".to_owned()), "", &[y], 9),
                Some(3),
            ),
            (
                "a newer object",
                list(all(), "", &[x, ("a/y", 7), b], 9),
                None,
            ),
            ("one more", list(all(), "", &[x, y, b, ("b/y", 9)], 9), None),
            ("one less", list(all(), "", &[x, b], 9), None),
            ("another name", list(a(), "", &[x, ("a/z", 2)], 9), None),
            ("none at all", list(all(), "", &[], 9), None),
            (
                "no newer than what is held",
                list(all(), "", &[x, b], 5),
                Some(5),
            ),
        ] {
            assert_eq!(shown(&list), expected, "{what}");
        }
    }

    #[test]
    fn keys_that_end_before_they_begin_are_none() {
        let keys = KeyRange::of_namespace(None).starting_at("b".to_owned());
        assert_eq!(
            snapshot()
                .between(&keys.ending_with("a".to_owned()))
                .count(),
            0
        );
    }

    #[tokio::test]
    async fn others_get_their_turn_while_a_long_list_is_compared() {
        let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Arc::new(Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope);
        let (mut store, mut pairs) = (Store::default(), Vec::new());
        for at in 1..=LOOKED_AT as u64 {
            let name = format!("{at:05}");
            store.apply(Event::Applied(element("a", &name, at)));
            pairs.push((format!("a/{name}"), at));
        }
        let snapshot = store.snapshot(&envelope);
        let pairs: Vec<_> = pairs.iter().map(|(key, at)| (key.as_str(), *at)).collect();
        let list = list(KeyRange::of_namespace(None), "", &pairs, 1 << 20);
        assert_eq!(list.shown_by(&snapshot).now_or_never(), None);
        assert_eq!(list.shown_by(&snapshot).await, Some(rv(LOOKED_AT as u64)));
    }
}
