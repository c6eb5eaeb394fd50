//! An informer whose changes are told to watchers, without a server.

mod expiry;

use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::bookmark::BookmarkForm;
use crate::fields::Fields;
use crate::floor::Floor;
use crate::form::MetaVersion;
use crate::gvr::Gvr;
use crate::informer::NotServable;
use crate::object::ObjectHead;
use crate::selector::Selector;
use crate::store::{Element, Event, Store};

const GENERATION: u64 = 1;
const EPOCH: u64 = 1;
const ALL: Scope = Scope {
    namespace: false,
    name: false,
};
const END: &[u8] = br#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;

/// What a reflector does, by hand.
struct Kind {
    informer: Arc<Informer>,
    store: Store,
    envelope: Arc<Envelope>,
}

fn rv(number: u64) -> ResourceVersion {
    ResourceVersion::from_number(number)
}

fn element(key: &str, version: u64, label: &str) -> Element {
    let (namespace, name) = key.split_once('/').unwrap();
    let item = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","resourceVersion":"{version}","labels":{{"a":"{label}"}}}}}}"#
    );
    let head = ObjectHead::parse(item.as_bytes()).unwrap();
    Element::new(&head.metadata, item.as_bytes(), item.clone().into()).unwrap()
}

impl Kind {
    fn new() -> Self {
        let list = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Envelope::learn(list.as_bytes(), "Pod").unwrap().envelope;
        let gvr = Gvr::new("", "v1", "pods");
        let informer = Informer::new(gvr, Arc::new(Floor::default()), CancellationToken::new());
        Self {
            informer: Arc::new(informer),
            store: Store::default(),
            envelope: Arc::new(envelope),
        }
    }

    /// One that listed these at version 10.
    fn listed(keys: &[&str]) -> Self {
        let mut kind = Self::new();
        kind.list(keys, 10);
        kind
    }

    fn list(&mut self, keys: &[&str], version: u64) {
        self.store = Store::default();
        for key in keys {
            self.store.stage(element(key, 1, "x"));
        }
        self.store.complete(rv(version));
        self.publish();
        let envelope = Arc::clone(&self.envelope);
        self.informer.history().begin(EPOCH, rv(version), envelope);
    }

    fn publish(&self) {
        let snapshot = self.store.snapshot(&self.envelope);
        self.informer.publish((GENERATION, EPOCH), true, snapshot);
    }

    fn apply(&mut self, events: impl IntoIterator<Item = Event>) {
        let store = &mut self.store;
        let events = events.into_iter();
        let changes: Vec<_> = events.filter_map(|event| store.apply(event)).collect();
        self.publish();
        let through = self.store.resource_version();
        let history = self.informer.history();
        history.append(changes.into_iter(), through);
    }

    fn put(&mut self, key: &str, version: u64) {
        self.apply([Event::Applied(element(key, version, "x"))]);
    }

    fn delete(&mut self, key: &str, version: u64) {
        self.apply([Event::Deleted(element(key, version, "x"))]);
    }

    fn watch(&self, after: Option<u64>) -> Result<Watcher, NotWatchable> {
        let watch = self.informer.watch(GENERATION, ALL, after.map(rv));
        watch.map(|(watcher, _)| watcher)
    }

    fn watch_state(&self, tell_end: bool) -> Watcher {
        let (watcher, held) = self.informer.watch(GENERATION, ALL, None).unwrap();
        watcher.beginning_with(held, tell_end)
    }
}

/// `+key@version` for ADDED, `~` for MODIFIED, `-` for DELETED, `=version` for a bookmark, `=|version` for the one that ends
/// the initial events; `.` at the end of the watch.
fn told(watcher: &mut Watcher) -> String {
    let mut told = Vec::new();
    loop {
        let lines = match watcher.tell(Waker::noop()) {
            Err(Ended) => {
                told.push(".".to_owned());
                break;
            }
            Ok(Told::Nothing { .. }) => break,
            Ok(Told::Lines(lines)) => lines,
        };
        told.extend(lines.split_inclusive(|byte| *byte == b'\n').map(read));
    }
    told.join(" ")
}

fn read(line: &[u8]) -> String {
    let event: serde_json::Value = serde_json::from_slice(line).unwrap();
    let meta = &event["object"]["metadata"];
    let text = |field: &str| meta[field].as_str().unwrap_or_default();
    let version = text("resourceVersion");
    let key = format!("{}/{}@{version}", text("namespace"), text("name"));
    match event["type"].as_str().unwrap() {
        "ADDED" => format!("+{key}"),
        "MODIFIED" => format!("~{key}"),
        "DELETED" => format!("-{key}"),
        "BOOKMARK" if meta["annotations"].is_object() => format!("=|{version}"),
        "BOOKMARK" => format!("={version}"),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn changes_above_a_version_are_told_once_and_in_order() {
    let mut kind = Kind::listed(&["n/a"]);
    kind.put("n/b", 12);
    kind.put("n/a", 15);
    kind.delete("n/b", 17);
    for (after, expected) in [
        (10, "+n/b@12 ~n/a@15 -n/b@17"),
        (12, "~n/a@15 -n/b@17"),
        (13, "~n/a@15 -n/b@17"),
        (17, ""),
        (20, ""),
    ] {
        let mut watcher = kind.watch(Some(after)).unwrap();
        assert_eq!(told(&mut watcher), expected, "{after}");
        assert_eq!(told(&mut watcher), "", "{after}, again");
    }
    // One from the future is told what comes after its version.
    let mut early = kind.watch(Some(20)).unwrap();
    let mut now = kind.watch(Some(17)).unwrap();
    kind.put("n/c", 19);
    kind.put("n/d", 21);
    assert_eq!(told(&mut early), "+n/d@21");
    assert_eq!(told(&mut now), "+n/c@19 +n/d@21");
}

#[tokio::test]
async fn objects_that_expire_together_are_all_told() {
    let mut kind = Kind::listed(&["n/a", "n/b"]);
    let mut watcher = kind.watch(Some(10)).unwrap();
    let expired = |key| Event::Deleted(element(key, 12, "x"));
    kind.apply([expired("n/a")]);
    assert_eq!(told(&mut watcher), "-n/a@12");
    // Whoever begins with what is there now has the second one and its version.
    let mut state = kind.watch_state(false);
    kind.apply([expired("n/b")]);
    assert_eq!(told(&mut watcher), "-n/b@12");
    assert_eq!(told(&mut state), "+n/b@1 -n/b@12");
    let mut listed = kind.watch(Some(12)).unwrap();
    assert_eq!(told(&mut listed), "-n/b@12");
    assert_eq!(told(&mut kind.watch(Some(13)).unwrap()), "");
}

#[tokio::test]
async fn what_expired_at_once_is_told_once() {
    let mut kind = Kind::listed(&["n/a", "n/b"]);
    let expired = |key| Event::Deleted(element(key, 12, "x"));
    kind.apply([expired("n/a"), expired("n/b")]);
    let mut watcher = kind.watch(Some(11)).unwrap();
    assert_eq!(told(&mut watcher), "-n/a@12 -n/b@12");
    assert_eq!(told(&mut kind.watch(Some(12)).unwrap()), "");
}

#[tokio::test]
async fn a_watch_begins_with_a_state_in_the_order_of_a_list() {
    let mut kind = Kind::listed(&["zz/a", "zz-b/a", "a/b", "a/a", "aa/x"]);
    let mut all = kind.watch_state(false);
    let (watcher, held) = kind.informer.watch(GENERATION, ALL, None).unwrap();
    let mut one = watcher
        .of(Some("a"), BoundSelector::default())
        .beginning_with(held, false);
    // What comes meanwhile is told once, behind the state.
    kind.put("a/c", 12);
    let expected = "+a/a@1 +a/b@1 +aa/x@1 +zz-b/a@1 +zz/a@1 +a/c@12";
    assert_eq!(told(&mut all), expected);
    assert_eq!(told(&mut one), "+a/a@1 +a/b@1 +a/c@12");
}

#[tokio::test]
async fn a_long_state_is_told_in_pieces() {
    let keys: Vec<String> = (0..2000).map(|at| format!("n/p{at:04}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let kind = Kind::listed(&keys);
    let mut watcher = kind.watch_state(false);
    let expected: Vec<String> = keys.iter().map(|key| format!("+{key}@1")).collect();
    assert_eq!(told(&mut watcher), expected.join(" "));

    let none = Selector::parse("a=y", "").unwrap();
    let (watcher, held) = kind.informer.watch(GENERATION, ALL, None).unwrap();
    let none = held.bind(&none).unwrap();
    let mut watcher = watcher.of(None, none).beginning_with(held, false);
    let mut turns = 0;
    while let Ok(Told::Lines(lines)) = watcher.tell(Waker::noop()) {
        assert_eq!(lines, "");
        turns += 1;
    }
    assert!(turns > 2000 / 256, "{turns}");
}

#[tokio::test]
async fn the_end_of_the_state_is_told_where_the_server_does() {
    let mut kind = Kind::listed(&["n/a"]);
    assert!(!kind.informer.streams_lists());
    assert_eq!(told(&mut kind.watch_state(true)), "+n/a@1");
    let form = BookmarkForm::learn(END, "9").unwrap();
    kind.informer.history().learn_bookmark(form, true);
    assert!(kind.informer.streams_lists());
    let mut watcher = kind.watch_state(true);
    kind.put("n/b", 12);
    assert_eq!(told(&mut watcher), "+n/a@1 =|10 +n/b@12");
    assert_eq!(told(&mut kind.watch_state(false)), "+n/a@1 +n/b@12");
}

#[tokio::test]
async fn a_bookmark_tells_how_far_the_watch_has_got() {
    let mut kind = Kind::listed(&[]);
    let mut watcher = kind.watch(Some(10)).unwrap();
    let form = BookmarkForm::learn(END, "9").unwrap();
    kind.informer.history().learn_bookmark(form, true);
    let bookmark = |watcher: &mut Watcher| watcher.bookmark().map(|line| read(&line));
    assert_eq!(told(&mut watcher), "");
    assert_eq!(bookmark(&mut watcher), None, "where it began");
    kind.apply([Event::Bookmark(rv(14))]);
    assert_eq!(bookmark(&mut watcher), None, "it has not looked since");
    assert_eq!(told(&mut watcher), "");
    assert_eq!(bookmark(&mut watcher).as_deref(), Some("=14"));
    // The server says it again, and what an event has said.
    assert_eq!(bookmark(&mut watcher).as_deref(), Some("=14"));
    kind.put("n/a", 15);
    let Ok(Told::Lines(line)) = watcher.tell(Waker::noop()) else {
        panic!("no event");
    };
    assert_eq!(read(&line), "+n/a@15");
    assert_eq!(bookmark(&mut watcher), None, "it never goes back");
    assert_eq!(told(&mut watcher), "");
    assert_eq!(bookmark(&mut watcher).as_deref(), Some("=15"));
}

/// Its client would begin it again where it was, and meet the same change.
#[tokio::test]
async fn a_watch_does_not_begin_before_a_change_that_it_cannot_judge() {
    let mut kind = Kind::listed(&[]);
    let fields = Fields::custom(&["spec.color".to_owned()], true);
    kind.envelope = Arc::new(Envelope::clone(&kind.envelope).with_fields(fields.clone()));
    kind.list(&[], 10);
    let painted = |version, color: &str| {
        let item = format!(
            r#"{{"metadata":{{"name":"a","namespace":"n","resourceVersion":"{version}"}},"spec":{{"color":{color}}}}}"#
        );
        let head = ObjectHead::parse(item.as_bytes()).unwrap();
        let element = Element::new(&head.metadata, item.as_bytes(), item.clone().into()).unwrap();
        element.with_values(&fields, item.as_bytes())
    };
    let watch = |kind: &Kind, after| {
        let (watcher, held) = kind
            .informer
            .watch(GENERATION, ALL, Some(rv(after)))
            .unwrap();
        let red = Selector::parse("", "spec.color=red").unwrap();
        watcher.of(None, held.bind(&red).unwrap())
    };
    let mut open = watch(&kind, 10);
    kind.apply([Event::Applied(painted(11, "\"red\""))]);
    assert!(watch(&kind, 10).is_judged());
    assert_eq!(told(&mut open), "+n/a@11");
    kind.apply([Event::Applied(painted(12, "{}"))]);
    assert_eq!(told(&mut open), ".");
    // Of an object that is gone the state knows nothing.
    kind.delete("n/a", 13);
    for (after, is_judged) in [(10, false), (11, false), (12, false), (13, true)] {
        assert_eq!(watch(&kind, after).is_judged(), is_judged, "{after}");
    }
    let all = kind.watch(Some(10)).unwrap();
    assert!(all.is_judged());
}

#[tokio::test(start_paused = true)]
async fn what_is_old_is_let_go_and_who_needs_it_has_ended() {
    let mut kind = Kind::listed(&[]);
    let mut slow = kind.watch(Some(10)).unwrap();
    kind.put("n/a", 11);
    let mut late = kind.watch(Some(11)).unwrap();
    tokio::time::advance(Duration::from_secs(200)).await;
    kind.put("n/b", 12);
    tokio::time::advance(Duration::from_secs(101)).await;
    kind.informer.history().trim();
    assert_eq!(told(&mut slow), ".");
    assert_eq!(told(&mut late), "+n/b@12");
    assert_eq!(kind.watch(Some(10)).unwrap_err(), NotWatchable::TooOld);
    assert_eq!(told(&mut kind.watch(Some(11)).unwrap()), "+n/b@12");
}

#[tokio::test]
async fn what_is_too_much_is_let_go() {
    let mut kind = Kind::listed(&[]);
    let mut slow = kind.watch(Some(10)).unwrap();
    let label = "x".repeat(1 << 20);
    let (mut fast, most) = (kind.watch(Some(10)).unwrap(), 32 << 20);
    for version in 11..111 {
        kind.apply([Event::Applied(element("n/a", version, &label))]);
        assert_ne!(told(&mut fast), ".");
        assert!(kind.informer.history().bytes() <= most);
    }
    assert!(kind.informer.history().bytes() > most / 2);
    assert_eq!(told(&mut slow), ".");
}

#[tokio::test]
async fn who_is_told_of_a_change_raises_the_floor_first() {
    let mut kind = Kind::listed(&[]);
    let floor = Arc::clone(kind.informer.floor());
    kind.put("n/a", 11);
    assert_eq!(floor.told(EPOCH), rv(0), "nobody was told");
    let from_now = kind.watch(Some(11)).unwrap();
    assert_eq!(floor.told(EPOCH), rv(0), "nothing is to be told");
    let before = kind.watch(Some(10)).unwrap();
    assert_eq!(floor.told(EPOCH), rv(11));
    kind.put("n/b", 12);
    assert_eq!(floor.told(EPOCH), rv(12));
    kind.apply([Event::Bookmark(rv(15))]);
    assert_eq!(floor.told(EPOCH), rv(12), "bookmarks tell nothing");
    drop((from_now, before));
    kind.put("n/c", 16);
    assert_eq!(floor.told(EPOCH), rv(12), "nobody is left");
}

#[tokio::test]
async fn an_open_watch_keeps_its_informer_from_being_idle() {
    tokio::time::pause();
    let kind = Kind::listed(&[]);
    let watcher = kind.watch(Some(10)).unwrap();
    tokio::time::advance(Duration::from_secs(100)).await;
    assert_eq!(kind.informer.idle_for(), Duration::ZERO);
    drop(watcher);
    assert_eq!(kind.informer.idle_for(), Duration::ZERO);
    tokio::time::advance(Duration::from_secs(100)).await;
    assert_eq!(kind.informer.idle_for(), Duration::from_secs(100));
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_told_until_it_is_heard_again() {
    let mut kind = Kind::listed(&[]);
    let mut watcher = kind.watch(Some(10)).unwrap();
    let silent = |watcher: &mut Watcher| match watcher.tell(Waker::noop()) {
        Ok(Told::Nothing { silent_since }) => silent_since,
        other => panic!("{other:?}"),
    };
    assert_eq!(silent(&mut watcher), None);
    kind.informer.suspend();
    let since = Instant::now();
    tokio::time::advance(Duration::from_secs(5)).await;
    kind.informer.suspend();
    assert_eq!(silent(&mut watcher), Some(since), "since the first time");
    assert!(kind.watch(Some(10)).is_err(), "no new watch meanwhile");
    kind.publish();
    assert_eq!(silent(&mut watcher), None);
    kind.put("n/a", 11);
    assert_eq!(told(&mut watcher), "+n/a@11");
}

#[tokio::test]
async fn a_watch_in_protobuf_ends_before_an_object_that_it_has_no_words_for() {
    let protobuf = Form::ProtobufMetadata(MetaVersion::V1);
    // Bytes that are no text, which JSON has a mark for.
    let odd = |version| Event::Applied(element("n/odd", version, r"\ufffd"));
    let mut kind = Kind::listed(&["n/a"]);
    let mut json = kind.watch(Some(10)).unwrap();
    let mut binary = kind.watch(Some(10)).unwrap().written_as(protobuf);
    kind.put("n/b", 12);
    kind.apply([odd(13)]);
    let tell = |watcher: &mut Watcher| watcher.tell(Waker::noop());
    let Ok(Told::Lines(frame)) = tell(&mut binary) else {
        panic!("the change before it is told");
    };
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap());
    assert_eq!(frame.len(), 4 + length as usize, "one frame");
    assert!(
        kind.watch(Some(12))
            .unwrap()
            .written_as(protobuf)
            .is_writable()
    );
    assert_eq!(tell(&mut binary), Err(Ended));
    assert_eq!(told(&mut json), "+n/b@12 +n/odd@13");
    // Whoever begins it again would meet the same object.
    assert!(
        !kind
            .watch(Some(12))
            .unwrap()
            .written_as(protobuf)
            .is_writable()
    );
    assert!(kind.watch(Some(12)).unwrap().is_writable(), "JSON");

    // So it is with the state that a watch begins with, until the next list.
    kind.list(&["n/a"], 20);
    assert!(
        kind.watch(Some(20))
            .unwrap()
            .written_as(protobuf)
            .is_writable()
    );
    kind.apply([odd(21)]);
    let (watcher, held) = kind.informer.watch(GENERATION, ALL, None).unwrap();
    let mut state = watcher.written_as(protobuf).beginning_with(held, false);
    assert_eq!(tell(&mut state), Err(Ended));
    assert!(
        !kind
            .watch(Some(21))
            .unwrap()
            .written_as(protobuf)
            .is_writable()
    );
}
