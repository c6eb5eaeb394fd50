//! Which informers run, and which start again after a panic.

use tokio_util::task::TaskTracker;

use super::*;
use crate::envelope::Envelope;
use crate::key_range::KeyRange;
use crate::panics::planned;
use crate::resource_version::ResourceVersion;
use crate::selector::Selector;
use crate::store::Store;
use crate::told_list::{Pairs, ToldList};

#[tokio::test]
async fn reads_that_wait_start_no_more_kinds_than_may_be_unknown() {
    let stop = CancellationToken::new();
    let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &stop);
    // Without a connection nothing becomes known of any.
    let (_connections, connected) = watch::channel(None);
    let informers = Informers::new("a", &fleet, connected, &stop);
    for at in 0..MOST_UNKNOWN + 10 {
        informers.demand(
            &Gvr::new("ex.io", "v1", &format!("things{at}")),
            Holding::Objects,
        );
    }
    assert_eq!(informers.all().len(), MOST_UNKNOWN);
    stop.cancel();
}

#[tokio::test]
async fn all_versions_and_views_of_a_storage_have_one_floor() {
    let (stop, mut config) = (CancellationToken::new(), InformersConfig::default());
    config.resources.clear();
    let fleet = Fleet::start(config, &TaskTracker::new(), &stop);
    let (_connections, connected) = watch::channel(None);
    let informers = Informers::new("a", &fleet, connected, &stop);
    let floor = |gvr: &Gvr| {
        informers.note_list(gvr, Holding::Objects);
        let Lookup::Informer(informer) = informers.lookup(gvr, Holding::Objects) else {
            panic!("no informer of {gvr}");
        };
        Arc::clone(informer.floor())
    };
    for (one, other, expected) in [
        (("ex.io", "v1", "things"), ("ex.io", "v2", "things"), true),
        (
            ("", "v1", "events"),
            ("events.k8s.io", "v1", "events"),
            true,
        ),
        (("ex.io", "v1", "things"), ("ex.org", "v1", "things"), false),
        (("ex.io", "v1", "things"), ("ex.io", "v1", "widgets"), false),
    ] {
        let (one, other) = (
            Gvr::new(one.0, one.1, one.2),
            Gvr::new(other.0, other.1, other.2),
        );
        let shared = Arc::ptr_eq(&floor(&one), &floor(&other));
        assert_eq!(shared, expected, "{one} {other}");
    }
    stop.cancel();
}

/// A cluster without a connection, in which nothing becomes known.
fn unconnected(config: InformersConfig) -> (Arc<Informers>, CancellationToken) {
    let stop = CancellationToken::new();
    let fleet = Fleet::start(config, &TaskTracker::new(), &stop);
    let (connections, connected) = watch::channel(None);
    // For as long as the test lasts.
    std::mem::forget(connections);
    (Informers::new("a", &fleet, connected, &stop), stop)
}

async fn visited(place: &'static str, times: u32) {
    let visited = async {
        while planned::visits(place) < times {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let minute = Duration::from_secs(60);
    tokio::time::timeout(minute, visited).await.expect(place);
}

#[tokio::test(start_paused = true)]
async fn kinds_that_are_always_kept_are_started_after_a_panic() {
    planned::plan("always", 1);
    let mut config = InformersConfig::default();
    let pods = (String::new(), "pods".to_owned());
    config.resources.insert(pods, CachePolicy::Always.into());
    let (_informers, _stop) = unconnected(config);
    visited("always", 2).await;
}

#[tokio::test(start_paused = true)]
async fn writes_are_confirmed_and_deletions_checked_after_a_panic() {
    let (informers, _stop) = unconnected(InformersConfig::default());
    let gvr = Gvr::new("", "v1", "pods");
    informers.note_list(&gvr, Holding::Objects);
    planned::plan("confirm", 1);
    informers.unconfirmed(&gvr.storage(), 1);
    visited("confirm", 2).await;
    planned::plan("confirm", 1);
    informers.gone(&gvr.storage(), 1, "n/a", "uid");
    visited("confirm", 2).await;
}

/// Those in protobuf read no fields but metadata: a list by another may show what they do not.
#[tokio::test]
async fn a_list_that_no_informer_can_judge_counts_where_that_is_for_its_encoding() {
    for (holding, expected) in [(Holding::Objects, 5), (Holding::Protobuf, 9)] {
        let (informers, stop) = unconnected(InformersConfig::default());
        let gvr = Gvr::new("", "v1", "pods");
        informers.note_list(&gvr, holding);
        let Lookup::Informer(informer) = informers.lookup(&gvr, holding) else {
            panic!("no informer");
        };
        let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope;
        let mut store = Store::default();
        store.complete(ResourceVersion::from_number(5));
        // No fields but the name are known here.
        informer.publish((1, 1), true, store.snapshot(&Arc::new(envelope)));
        let floor = informers.floor(&gvr.storage()).unwrap();
        floor.raise(1, ResourceVersion::from_number(5));
        let list = ToldList {
            keys: KeyRange::of_namespace(None),
            selector: Selector::parse("", "spec.nodeName=n").unwrap(),
            pairs: Pairs::default(),
            resource_version: ResourceVersion::from_number(9),
        };
        informers.told_list(&floor, (1, 1), list);
        assert_eq!(floor.told(1).get(), expected, "{holding:?}");
        stop.cancel();
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_for_which_nobody_can_look_is_believed_as_it_was_told() {
    let (informers, _stop) = unconnected(InformersConfig::default());
    let gvr = Gvr::new("", "v1", "pods");
    informers.note_list(&gvr, Holding::Objects);
    let floor = informers.floor(&gvr.storage()).unwrap();
    planned::plan("told list", 1);
    let version = ResourceVersion::from_number(9);
    let list = ToldList {
        keys: KeyRange::of_namespace(None),
        selector: Selector::default(),
        pairs: Pairs::default(),
        resource_version: version,
    };
    informers.told_list(&floor, (1, 1), list);
    visited("told list", 1).await;
    let settled = async {
        while floor.told(1) < version {
            tokio::task::yield_now().await;
        }
    };
    let second = Duration::from_secs(1);
    tokio::time::timeout(second, settled).await.unwrap();
}

#[tokio::test]
async fn an_informer_of_which_something_else_is_to_be_kept_stops() {
    let stop = CancellationToken::new();
    let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &stop);
    let (_connections, connected) = watch::channel(None);
    let informers = Informers::new("a", &fleet, connected, &stop);
    let running = |resource: &str| {
        let gvr = Gvr::new("", "v1", resource);
        match informers.lookup(&gvr, Holding::Objects) {
            Lookup::Informer(informer) => Some(informer),
            _ => None,
        }
    };
    for resource in ["pods", "nodes", "services"] {
        informers.note_list(&Gvr::new("", "v1", resource), Holding::Objects);
    }
    let before = ["pods", "nodes", "services"].map(|resource| running(resource).unwrap());
    let mut config = InformersConfig::default();
    for (resource, policy, tables) in [
        ("pods", CachePolicy::OnDemand, false),
        ("nodes", CachePolicy::Always, false),
        ("services", CachePolicy::Always, true),
    ] {
        let keeps = Keeps {
            tables,
            ..Keeps::default()
        };
        let kind = (String::new(), resource.to_owned());
        config.resources.insert(kind, KindConfig { policy, keeps });
    }
    for _ in 0..2 {
        fleet.reconfigure(config.clone());
        assert_eq!(before.each_ref().map(|it| it.runs()), [false, false, true]);
        // What is always kept is kept so at once, what is not from the next read on.
        assert!(running("pods").is_none());
        let nodes = running("nodes").unwrap();
        assert!(nodes.runs() && !nodes.keeps.tables);
        let services = running("services").unwrap();
        assert!(Arc::ptr_eq(&services, &before[2]));
    }
    informers.note_list(&Gvr::new("", "v1", "pods"), Holding::Objects);
    assert!(!running("pods").unwrap().keeps.tables);
    stop.cancel();
}
