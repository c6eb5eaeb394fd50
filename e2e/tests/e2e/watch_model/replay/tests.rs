//! What a broken proxy would send is seen.

use fleetcache_e2e::sim::Store;

use super::*;
use crate::watch_model::kinds::KINDS;

/// A state of two objects, then three changes, and the lines of a watch of it that is right.
fn watched(mark: Mark) -> (Log, Replay, Vec<Bytes>) {
    let (store, kind) = (Store::new(100), &KINDS[0]);
    let put = |name: &str, n: u64| {
        let object = kind.object("team", name, n, None, 1);
        match store.get(kind.plural, "team", name) {
            None => store.create(kind.plural, object).unwrap(),
            Some(_) => store.update(kind.plural, object).unwrap(),
        }
    };
    let mut log = Log::new(store.record());
    let first = [put("a", 1), put("b", 2)];
    let state = store.revision();
    let later = [
        event("MODIFIED", put("a", 3).json()),
        event("ADDED", put("c", 4).json()),
        event(
            "DELETED",
            store.delete(kind.plural, "team", "b").unwrap().json(),
        ),
    ];
    log.catch_up();
    let mut lines: Vec<Bytes> = first
        .iter()
        .map(|object| event("ADDED", object.json()))
        .collect();
    if mark == Mark::Yes {
        lines.push(kind.bookmark(state, true).into());
    }
    lines.extend(later);
    lines.push(kind.bookmark(store.revision(), false).into());
    let start = Start::State {
        at_least: Moment::default(),
        mark,
    };
    (
        log,
        Replay::new(Selection::all(kind), start, true, 0),
        lines,
    )
}

/// The first line that is not accepted.
fn refused(mark: Mark, change: impl FnOnce(&mut Vec<Bytes>)) -> Option<usize> {
    let (log, mut replay, mut lines) = watched(mark);
    change(&mut lines);
    lines
        .iter()
        .position(|line| replay.take(&log, line).is_err())
}

#[test]
fn a_watch_that_is_right_is_accepted_and_complete_at_its_end() {
    for mark in [Mark::Yes, Mark::No] {
        let (log, mut replay, lines) = watched(mark);
        for (at, line) in lines.iter().enumerate() {
            let waits = at < lines.len() - 1;
            assert_eq!(!replay.complete(&log), waits, "before line {at}");
            replay.take(&log, line).unwrap();
        }
        assert!(replay.complete(&log));
    }
}

#[test]
fn what_is_lost_told_twice_or_in_another_order_is_seen() {
    // At the seam between state and events, and later.
    for at in 3..5 {
        assert_eq!(refused(Mark::Yes, |lines| drop(lines.remove(at))), Some(at));
        let twice = |lines: &mut Vec<Bytes>| lines.insert(at, lines[at].clone());
        assert_eq!(refused(Mark::Yes, twice), Some(at + 1));
        assert_eq!(refused(Mark::Yes, |lines| lines.swap(at, at + 1)), Some(at));
    }
    assert_eq!(refused(Mark::Yes, |lines| drop(lines.remove(5))), Some(5));
    let without_state = |lines: &mut Vec<Bytes>| drop(lines.remove(0));
    assert!(refused(Mark::Yes, without_state).is_some());
}

#[test]
fn a_bookmark_that_comes_too_early_or_says_too_much_is_seen() {
    assert_eq!(refused(Mark::Yes, |lines| lines.swap(1, 2)), Some(1));
    assert_eq!(refused(Mark::Yes, |lines| lines.swap(5, 6)), Some(5));
    let too_much = |lines: &mut Vec<Bytes>| lines[6] = KINDS[0].bookmark(1_000, false).into();
    assert_eq!(refused(Mark::Yes, too_much), Some(6));
    assert_eq!(refused(Mark::Yes, |lines| drop(lines.remove(2))), Some(2));
    let nobody_asked = |lines: &mut Vec<Bytes>| lines.insert(2, KINDS[0].bookmark(5, true).into());
    assert_eq!(refused(Mark::No, nobody_asked), Some(2));
}

#[test]
fn other_bytes_are_seen() {
    let other = |lines: &mut Vec<Bytes>| {
        let text = String::from_utf8(lines[3].to_vec()).unwrap();
        lines[3] = text.replace("\"data\"", "\"date\"").into();
    };
    assert_eq!(refused(Mark::Yes, other), Some(3));
}
