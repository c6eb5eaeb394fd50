//! Which states are held for pages, for how long, and how many of them.

use tokio_util::sync::CancellationToken;

use super::*;
use crate::envelope::Envelope;
use crate::gvr::Gvr;
use crate::object::ObjectHead;
use crate::store::{Element, Event, Store};

const ON: (u64, u64) = (1, 1);
const ANY: Scope = Scope {
    namespace: false,
    name: false,
};

/// An informer and what its reflector would do.
struct Kind {
    informer: Informer,
    store: Store,
    envelope: Arc<Envelope>,
}

fn rv(number: u64) -> ResourceVersion {
    ResourceVersion::from_number(number)
}

impl Kind {
    /// Listed at a version, with an object of that many bytes.
    fn listed(at: u64, bytes: usize) -> Self {
        let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Arc::new(Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope);
        let gvr = Gvr::new("", "v1", "pods");
        let informer = Informer::new(gvr, Arc::default(), CancellationToken::new());
        let mut kind = Self {
            informer,
            store: Store::default(),
            envelope,
        };
        kind.relist(at, bytes);
        kind
    }

    fn relist(&mut self, at: u64, bytes: usize) {
        self.store = Store::default();
        self.store.stage(pod("a", at, bytes));
        self.store.complete(rv(at));
        self.publish(1);
    }

    fn publish(&self, epoch: u64) {
        let snapshot = self.store.snapshot(&self.envelope);
        self.informer.publish((1, epoch), true, snapshot);
    }

    /// The object of that name changes.
    fn change(&mut self, name: &str, at: u64, bytes: usize) {
        self.store.apply(Event::Applied(pod(name, at, bytes)));
        self.publish(1);
    }

    fn bookmark(&mut self, at: u64) {
        self.store.apply(Event::Bookmark(rv(at)));
        self.publish(1);
    }

    /// Somebody has a page of what is newest.
    fn page(&self) -> ResourceVersion {
        let newest = self.informer.newest().unwrap();
        self.informer.keep_for_pages(&newest);
        newest.resource_version
    }

    /// The version of the last change in what is shown at a version.
    fn shown(&self, at: u64) -> Result<u64, NotServable> {
        let held = self.informer.read_exact(ON, ANY, rv(at));
        held.map(|held| held.last_event.get())
    }

    fn kept(&self) -> usize {
        self.informer.pages.state.lock().kept.len()
    }
}

fn pod(name: &str, at: u64, bytes: usize) -> Element {
    let object = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"n","uid":"u","resourceVersion":"{at}"}},"data":"{}"}}"#,
        "x".repeat(bytes)
    );
    let head = ObjectHead::parse(object.as_bytes()).unwrap();
    Element::new(&head.metadata, object.as_bytes(), object.clone().into()).unwrap()
}

#[tokio::test]
async fn a_state_is_shown_at_its_versions_and_no_others() {
    let mut kind = Kind::listed(10, 1);
    kind.bookmark(15);
    assert_eq!(kind.shown(9), Err(NotServable::NotHeld));
    assert_eq!(kind.shown(10), Ok(10));
    assert_eq!(kind.shown(15), Ok(10));
    assert_eq!(kind.shown(16), Err(NotServable::NotHeld));
    assert_eq!(kind.page(), rv(15));
    kind.change("a", 20, 1);
    // What was between is not known to be nothing.
    for (at, expected) in [
        (9, None),
        (10, Some(10)),
        (15, Some(10)),
        (16, None),
        (19, None),
        (20, Some(20)),
        (21, None),
    ] {
        assert_eq!(kind.shown(at).ok(), expected, "{at}");
    }
    kind.change("a", 30, 1);
    assert_eq!(
        kind.shown(20),
        Err(NotServable::NotHeld),
        "nobody had a page of it"
    );
}

#[tokio::test]
async fn one_state_is_kept_once_at_all_its_versions() {
    let mut kind = Kind::listed(10, 1);
    kind.page();
    kind.bookmark(15);
    kind.page();
    kind.change("a", 20, 1);
    kind.page();
    assert_eq!(kind.kept(), 2);
    assert_eq!((kind.shown(10), kind.shown(15)), (Ok(10), Ok(10)));
    // A reader that is behind has another page of an older one.
    let old = kind.informer.read_exact(ON, ANY, rv(12)).unwrap();
    kind.informer.keep_for_pages(&old);
    assert_eq!(kind.kept(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_state_that_nobody_reads_goes_after_its_time_without_a_reader() {
    let mut kind = Kind::listed(10, 1);
    kind.page();
    kind.change("a", 20, 1);
    tokio::time::advance(KEPT_FOR).await;
    kind.informer.trim_pages();
    assert_eq!(kind.shown(10), Ok(10), "used again, so it stays");
    tokio::time::advance(KEPT_FOR).await;
    assert_eq!(kind.shown(10), Ok(10));
    tokio::time::advance(KEPT_FOR + Duration::from_millis(1)).await;
    assert_eq!(
        kind.shown(10),
        Err(NotServable::NotHeld),
        "before it is looked after"
    );
    assert_eq!(kind.kept(), 1);
    kind.informer.trim_pages();
    assert_eq!(kind.kept(), 0);
}

#[tokio::test]
async fn what_is_kept_counts_and_has_a_limit() {
    let bytes = 20 << 20;
    let mut kind = Kind::listed(10, bytes);
    let alone = kind.informer.size().1;
    for at in 11..=13 {
        kind.page();
        kind.change("a", at, bytes);
        let held = kind.informer.size().1;
        let states = usize::try_from(at - 9).unwrap();
        assert!(held.abs_diff(alone * states) < 1000, "{held} at {at}");
    }
    assert_eq!(kind.shown(10), Ok(10), "60 MiB");
    kind.page();
    kind.change("a", 14, bytes);
    kind.informer.trim_pages();
    assert_eq!(kind.shown(10), Err(NotServable::NotHeld), "the oldest went");
    assert_eq!(kind.shown(11), Ok(11));

    // What changes again and again is held once by each state, however often it changed between.
    let mut kind = Kind::listed(10, bytes);
    kind.page();
    for at in 11..20 {
        kind.change("a", at, bytes);
    }
    kind.informer.trim_pages();
    assert_eq!(kind.shown(10), Ok(10));
}

#[tokio::test]
async fn only_so_many_are_kept() {
    let mut kind = Kind::listed(10, 1);
    for at in 0..100 {
        kind.page();
        kind.change("a", 11 + at, 1);
    }
    assert_eq!(kind.kept(), MOST_SNAPSHOTS);
    assert_eq!(kind.shown(109), Ok(109));
    assert_eq!(kind.shown(10), Err(NotServable::NotHeld));
}

#[tokio::test]
async fn a_relist_ends_pages() {
    let mut kind = Kind::listed(10, 1);
    kind.page();
    kind.change("a", 11, 1);
    let late = kind.informer.newest().unwrap();
    kind.relist(12, 1);
    assert_eq!(kind.shown(10), Err(NotServable::NotHeld));
    // Of a reader who took its snapshot before.
    kind.informer.keep_for_pages(&late);
    assert_eq!(kind.shown(11), Err(NotServable::NotHeld));
    kind.informer.trim_pages();
    assert_eq!(kind.kept(), 0);
}

#[tokio::test]
async fn a_break_of_the_connection_ends_no_pages() {
    let mut kind = Kind::listed(10, 1);
    kind.page();
    kind.change("a", 11, 1);
    kind.informer.suspend();
    assert_eq!(kind.shown(10), Err(NotServable::NotSynced));
    let last_known = |at| kind.informer.read_exact_last_known(1, ANY, rv(at));
    assert_eq!(last_known(10).unwrap().last_event, rv(10));
    assert_eq!(last_known(9).unwrap_err(), NotServable::NotHeld);
    kind.publish(1);
    assert_eq!(kind.shown(10), Ok(10));
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_former_epoch_is_known() {
    let mut kind = Kind::listed(1000, 1);
    kind.page();
    // The connection is to the new cluster, and the reflector has not come to it.
    let next = |kind: &Kind, at| {
        let held = kind.informer.read_exact((2, 2), ANY, rv(at));
        held.map(|held| held.last_event.get())
    };
    kind.informer.suspend();
    assert_eq!(next(&kind, 1000), Err(NotServable::FormerEpoch));
    assert_eq!(next(&kind, 1001), Err(NotServable::NotSynced));
    kind.informer.clear();
    assert_eq!(next(&kind, 1000), Err(NotServable::FormerEpoch));
    assert_eq!(next(&kind, 1001), Err(NotServable::NotSynced));
    kind.store = Store::default();
    kind.store.stage(pod("a", 20, 1));
    kind.store.complete(rv(20));
    let snapshot = kind.store.snapshot(&kind.envelope);
    kind.informer.publish((2, 2), true, snapshot);
    assert_eq!(next(&kind, 20), Ok(20), "what is held is what was told");
    for at in [19, 21, 1000] {
        assert_eq!(next(&kind, at), Err(NotServable::FormerEpoch), "{at}");
    }
    assert_eq!(next(&kind, 1001), Err(NotServable::NotHeld));
    tokio::time::advance(FORMER_EPOCH_TOLD).await;
    assert_eq!(next(&kind, 1000), Err(NotServable::NotHeld));
}

#[tokio::test]
async fn a_page_raises_the_floor_to_what_it_shows() {
    let mut kind = Kind::listed(10, 1);
    kind.page();
    kind.change("a", 20, 1);
    assert_eq!(kind.shown(10), Ok(10));
    assert_eq!(kind.informer.floor().told(1), rv(10));
    kind.informer.floor().raise(1, rv(99));
    assert_eq!(
        kind.shown(20),
        Ok(20),
        "what was told since is of no account"
    );
}
