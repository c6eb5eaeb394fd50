//! What counts as told, and what is needed then.

use super::*;
use crate::envelope::Envelope;
use crate::key_range::KeyRange;
use crate::object::ObjectHead;
use crate::selector::Selector;
use crate::store::{Element, Event, Store};
use crate::told_list::{Pairs, ToldList};

fn rv(number: u64) -> ResourceVersion {
    ResourceVersion::from_number(number)
}

fn snapshot(uid: Option<&str>, at: u64) -> Arc<Snapshot> {
    let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
    let envelope = Arc::new(Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope);
    let mut store = Store::default();
    if let Some(uid) = uid {
        let object = format!(
            r#"{{"metadata":{{"name":"a","namespace":"ns","uid":"{uid}","resourceVersion":"1"}}}}"#
        );
        let head = ObjectHead::parse(object.as_bytes()).unwrap();
        let item = object.clone().into();
        store.stage(Element::new(&head.metadata, object.as_bytes(), item).unwrap());
    }
    store.apply(Event::Bookmark(rv(at)));
    store.snapshot(&envelope)
}

fn admits(floor: &Floor, snapshot: &Snapshot) -> bool {
    floor.needed().is_some_and(|needed| needed.admits(snapshot))
}

#[test]
fn a_snapshot_older_than_what_was_told_is_below() {
    let floor = Floor::default();
    floor.raise(1, rv(10));
    floor.raise(1, rv(7));
    assert!(!admits(&floor, &snapshot(None, 9)));
    assert!(admits(&floor, &snapshot(None, 10)));
}

#[test]
fn a_snapshot_that_holds_a_gone_uid_is_below() {
    let floor = Floor::default();
    floor.gone(1, "ns/a", "u1");
    assert!(!admits(&floor, &snapshot(Some("u1"), 9)));
    assert!(
        admits(&floor, &snapshot(Some("u2"), 9)),
        "recreated under the same name"
    );
    floor.deleted(1, "u1", rv(9));
    assert!(
        admits(&floor, &snapshot(Some("u1"), 9)),
        "the uid leaves with its event"
    );
}

#[test]
fn an_event_after_a_readers_arrival_does_not_hide_what_the_reader_needs() {
    let floor = Floor::default();
    floor.gone(1, "ns/a", "u1");
    let needed = floor.needed().unwrap();
    let before = snapshot(Some("u1"), 9);
    floor.deleted(1, "u1", rv(10));
    assert!(!needed.admits(&before));
}

#[test]
fn a_deletion_that_was_none_hides_nothing_for_long() {
    let floor = Floor::default();
    let before = Instant::now();
    assert!(floor.gone(1, "ns/a", "u1"));
    assert!(!floor.gone(1, "ns/b", "u2"), "one question for both");
    floor.gone_checked(1, before - Duration::from_secs(1), rv(9));
    assert!(!admits(&floor, &snapshot(Some("u1"), 9)), "asked too early");
    floor.gone_checked(1, Instant::now(), rv(9));
    assert!(!admits(&floor, &snapshot(Some("u1"), 8)));
    assert!(admits(&floor, &snapshot(Some("u1"), 9)));
    assert_eq!((floor.told(1), floor.goal(1)), (rv(0), rv(9)));
    floor.raise(1, rv(11));
    assert_eq!(floor.goal(1), rv(11));
}

#[test]
fn an_event_that_precedes_the_answer_is_remembered() {
    let floor = Floor::default();
    floor.deleted(1, "u1", rv(9));
    floor.gone(1, "ns/a", "u1");
    assert!(!floor.has_gone_to_check(1));
    assert!(admits(&floor, &snapshot(None, 9)));
}

#[test]
fn a_deletion_that_one_informer_has_seen_is_below_the_other_versions() {
    let behind = snapshot(Some("u1"), 8);
    let floor = Floor::default();
    floor.gone(1, "ns/a", "u1");
    floor.deleted(1, "u1", rv(9));
    assert!(!admits(&floor, &behind), "answer, then event");

    let floor = Floor::default();
    floor.deleted(1, "u1", rv(9));
    floor.gone(1, "ns/a", "u1");
    assert!(!admits(&floor, &behind), "event, then answer");
}

#[test]
fn what_was_made_and_deleted_during_a_list_stays_gone() {
    let floor = Floor::default();
    floor.raise(1, rv(8));
    floor.gone(1, "ns/a", "u1");
    floor.replaced(1, rv(7));
    // The event that makes it came, the one that deletes it did not.
    assert!(!admits(&floor, &snapshot(Some("u1"), 8)));
    floor.gone_checked(1, Instant::now(), rv(9));
    floor.replaced(1, rv(9));
    assert!(!floor.has_gone_to_check(1));
}

#[test]
fn a_pending_list_is_needed_at_its_version_until_a_lower_one_shows_it() {
    let floor = Floor::default();
    let pending = || {
        Arc::new(PendingList::new(ToldList {
            keys: KeyRange::of_namespace(None),
            selector: Selector::default(),
            pairs: Pairs::default(),
            resource_version: rv(9),
        }))
    };
    let list = pending();
    assert!(floor.told_list(1, &list));
    let needed = floor.needed().unwrap();
    assert!(!needed.admits(&snapshot(None, 8)));
    floor.list_shown(1, &list, rv(7));
    assert!(needed.admits(&snapshot(None, 7)), "arrived before");
    assert!(admits(&floor, &snapshot(None, 7)), "arrives afterwards");
    assert!(!admits(&floor, &snapshot(None, 6)));

    for _ in 0..PENDING_LISTS {
        assert!(floor.told_list(1, &pending()));
    }
    assert!(!floor.told_list(1, &pending()), "one too many");
    assert!(!floor.told_list(0, &pending()), "an epoch that is over");
}

#[test]
fn nobody_reads_until_all_writes_are_confirmed() {
    let floor = Floor::default();
    assert!(floor.unconfirmed(1), "the first is to be seen to");
    assert!(!floor.unconfirmed(1), "and the second with it");
    let asked = floor.to_confirm(1).unwrap();
    assert!(!floor.unconfirmed(1));
    floor.confirmed(1, asked, rv(8));
    assert!(floor.needed().is_none());
    assert_eq!(floor.to_confirm(1), Some(1), "came after the question");
    floor.confirmed(1, 1, rv(6));
    assert_eq!(floor.to_confirm(1), None);
    assert!(!admits(&floor, &snapshot(None, 7)));
    assert!(admits(&floor, &snapshot(None, 8)));
}

#[test]
fn a_new_epoch_starts_with_an_empty_floor_and_the_old_one_is_deaf() {
    let floor = Floor::default();
    floor.raise(1, rv(100));
    floor.raise(2, rv(3));
    floor.raise(1, rv(200));
    assert!(!floor.unconfirmed(1));
    assert!(admits(&floor, &snapshot(None, 3)));
}
