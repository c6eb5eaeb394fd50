//! The store's promises: order, revisions, pages, history.

use serde_json::json;

use super::*;
use crate::sim::selector::Selector;

fn configmap(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace}})
}

fn names(page: &Page) -> Vec<String> {
    page.items
        .iter()
        .map(|object| format!("{}/{}", object.namespace, object.name))
        .collect()
}

fn request<'a>(namespace: &'a str, selector: &'a Selector) -> PageRequest<'a> {
    let resource = Resource::named("configmaps").unwrap();
    PageRequest {
        resource,
        namespace,
        selector,
        at: None,
        after: None,
        limit: None,
    }
}

#[test]
fn lists_are_ordered_by_the_bytes_of_namespace_and_name() {
    let store = Store::new(100);
    for (namespace, name) in [("zz", "a"), ("zz-b", "z"), ("a", "b"), ("a", "a")] {
        store
            .create("configmaps", configmap(namespace, name))
            .unwrap();
    }
    let all = Selector::default();
    assert_eq!(
        names(&store.page(&request("", &all)).unwrap()),
        ["a/a", "a/b", "zz-b/z", "zz/a"]
    );
    assert_eq!(names(&store.page(&request("zz", &all)).unwrap()), ["zz/a"]);
    assert_eq!(names(&store.page(&request("none", &all)).unwrap()), [""; 0]);
}

#[test]
fn pages_show_the_revision_of_the_first() {
    let store = Store::new(100);
    for name in ["a", "b", "c"] {
        store.create("configmaps", configmap("ns", name)).unwrap();
    }
    let all = Selector::default();
    let first = store
        .page(&PageRequest {
            limit: Some(2),
            ..request("ns", &all)
        })
        .unwrap();
    assert_eq!(
        (names(&first), first.remaining),
        (vec!["ns/a".to_owned(), "ns/b".to_owned()], Some(1))
    );
    assert_eq!(first.next.as_deref(), Some("b"));

    store.delete("configmaps", "ns", "c").unwrap();
    store.create("configmaps", configmap("ns", "d")).unwrap();
    let rest = PageRequest {
        at: Some(first.revision),
        after: Some("b"),
        limit: Some(2),
        ..request("ns", &all)
    };
    let second = store.page(&rest).unwrap();
    assert_eq!(
        (names(&second), second.next),
        (vec!["ns/c".to_owned()], None)
    );

    store.compact();
    assert!(store.page(&rest).is_none());
}

#[test]
fn one_counter_numbers_the_changes_of_all_kinds() {
    let store = Store::new(100);
    let start = store.revision();
    store.create("configmaps", configmap("ns", "a")).unwrap();
    store
        .create("nodes", json!({"metadata": {"name": "n"}}))
        .unwrap();
    let changed = store
        .modify("configmaps", "ns", "a", |object| {
            object["data"] = json!({"k": "v"})
        })
        .unwrap();
    assert_eq!(changed.revision, start + 3);
    let same = store.modify("configmaps", "ns", "a", |_| {}).unwrap();
    assert_eq!((same.revision, store.revision()), (start + 3, start + 3));
    let gone = store.delete("configmaps", "ns", "a").unwrap();
    assert_eq!(gone.revision, start + 4);
    assert!(store.get("configmaps", "ns", "a").is_none());
}

#[test]
fn events_resume_where_a_watch_left_off() {
    let store = Store::new(2);
    let resource = Resource::named("configmaps").unwrap();
    let from = store.position();
    store.create("configmaps", configmap("ns", "a")).unwrap();
    store
        .create("nodes", json!({"metadata": {"name": "n"}}))
        .unwrap();
    let (events, complete_to) = store.events_after(resource, from, 10).unwrap();
    assert_eq!((events.len(), complete_to), (1, from.revision + 2));

    store.create("configmaps", configmap("ns", "b")).unwrap();
    store.create("configmaps", configmap("ns", "c")).unwrap();
    let oldest = from.revision + 1;
    assert_eq!(
        store.events_after(resource, from, 10).unwrap_err(),
        Lost::Expired(oldest)
    );
    store.rebuild();
    assert_eq!(
        store.events_after(resource, from, 10).unwrap_err(),
        Lost::Replaced
    );
}

#[test]
fn a_restored_cluster_goes_back_and_a_rebuilt_one_is_another() {
    let store = Store::new(100);
    let uid = |store: &Store| {
        store
            .get("namespaces", "", "kube-system")
            .unwrap()
            .uid
            .clone()
    };
    let first = uid(&store);
    let checkpoint = store.checkpoint();
    store.create("configmaps", configmap("ns", "a")).unwrap();
    let newest = store.revision();

    store.restore(&checkpoint);
    assert!(store.revision() < newest);
    assert!(store.is_empty("configmaps"));
    assert_eq!(uid(&store), first);

    store.rebuild();
    assert_ne!(uid(&store), first);
    assert_eq!(store.len("namespaces"), 3);
}

#[test]
fn a_dry_run_changes_nothing() {
    let store = Store::new(100);
    let resource = Resource::named("configmaps").unwrap();
    let before = store.revision();
    let plan = Plan {
        changes: vec![Change::Put(configmap("ns", "a"))],
        answer: None,
    };
    let written = store
        .write(resource, "ns", "a", true, |_| Ok(plan))
        .unwrap();
    assert!(!String::from_utf8_lossy(written.object.json()).contains("resourceVersion"));
    assert_eq!((store.revision(), store.len("configmaps")), (before, 0));
}

#[test]
fn a_record_has_everything_that_happened_since_it_began() {
    let store = Store::new(1);
    store.create("configmaps", configmap("a", "old")).unwrap();
    let record = store.record();
    let checkpoint = store.checkpoint();
    store.create("configmaps", configmap("a", "new")).unwrap();
    store.delete("configmaps", "a", "old").unwrap();
    store.restore(&checkpoint);
    let told: Vec<String> = record
        .after(0)
        .iter()
        .map(|entry| match entry {
            Entry::Began { revision, objects } => {
                let configmaps = objects.iter().filter(|(plural, _)| *plural == "configmaps");
                format!("{} configmaps at {revision}", configmaps.count())
            }
            Entry::Changed(change) => {
                let (name, revision) = (&change.object.name, change.revision);
                let removed = if change.removed { "-" } else { "+" };
                format!("{removed}{name} at {revision}")
            }
        })
        .collect();
    assert_eq!(
        told,
        [
            "1 configmaps at 4",
            "+new at 5",
            "-old at 6",
            "1 configmaps at 4"
        ]
    );
    assert_eq!(store.record().after(3).len(), 1, "it is the same record");
}
