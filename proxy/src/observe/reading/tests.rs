use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use fleetcache_cache::eviction::Fleet;
use fleetcache_cache::gvr::Gvr;
use fleetcache_cache::holding::Holding;
use fleetcache_cache::informers::InformersConfig;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;

const EPOCH: u64 = 1;

/// Informers of a cluster that is not connected.
struct Cluster {
    informers: Arc<Informers>,
    pods: Gvr,
    _connections: watch::Sender<Option<Arc<fleetcache_cache::connection::Connection>>>,
    stop: CancellationToken,
}

impl Cluster {
    fn new() -> Self {
        let stop = CancellationToken::new();
        let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &stop);
        let (connections, connected) = watch::channel(None);
        Self {
            informers: Informers::new("a", &fleet, connected, &stop),
            pods: Gvr::new("", "v1", "pods"),
            _connections: connections,
            stop,
        }
    }

    fn with_informer() -> Self {
        let cluster = Self::new();
        cluster.start_informer();
        cluster
    }

    fn start_informer(&self) {
        self.informers.note_list(&self.pods, Holding::Objects);
    }

    fn floor(&self) -> Option<Arc<Floor>> {
        self.informers.floor(&self.pods.storage())
    }

    fn reading(&self, content_type: &str, of: Of) -> Reading {
        Reading {
            informers: Arc::clone(&self.informers),
            on: (1, EPOCH),
            storage: self.pods.storage(),
            floor: self.floor(),
            scan: Scan::of(content_type, matches!(of, Of::Watch { .. })),
            of,
        }
    }

    fn told(&self) -> u64 {
        let floor = self.floor();
        floor.map_or(0, |floor| floor.told(EPOCH).get())
    }

    fn is_unconfirmed(&self) -> bool {
        self.floor().is_some_and(|floor| floor.needed().is_none())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn object() -> Of {
    Of::Object { row: None }
}

fn list(query: &str) -> Of {
    Of::List(Some(ListReading::of(None, query)))
}

fn events() -> Of {
    Of::Watch {
        initial: Some(ListReading::of(None, "")),
        row: None,
    }
}

const JSON: &str = "application/json";

fn object_at(version: u64) -> String {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"a","namespace":"ns","resourceVersion":"{version}"}}}}"#
    )
}

fn event(event_type: &str, object: &str) -> String {
    format!("{{\"type\":\"{event_type}\",\"object\":{object}}}\n")
}

/// What was told after each byte, as (bytes, version) where it changes.
fn told_by_byte(cluster: &Cluster, mut reader: Reader, bytes: &[u8]) -> Vec<(usize, u64)> {
    let mut told = vec![(0, cluster.told())];
    for (at, byte) in bytes.iter().enumerate() {
        reader.read(&[*byte]);
        if told
            .last()
            .is_some_and(|(_, before)| *before != cluster.told())
        {
            told.push((at + 1, cluster.told()));
        }
    }
    told
}

#[tokio::test]
async fn an_event_is_told_with_the_byte_that_completes_it() {
    let cluster = Cluster::with_informer();
    let (one, two) = (
        event("ADDED", &object_at(5)),
        event("DELETED", &object_at(9)),
    );
    let between = event("BOOKMARK", &object_at(7))
        + &event(
            "ERROR",
            r#"{"kind":"Status","metadata":{"resourceVersion":"8"},"code":410}"#,
        );
    let stream = format!("{one}{between}{two}");
    let reader = Reader::new(cluster.reading(JSON, events()), None);
    let told = told_by_byte(&cluster, reader, stream.as_bytes());
    // Before the newlines.
    assert_eq!(told, [(0, 0), (one.len() - 1, 5), (stream.len() - 1, 9)]);
}

#[tokio::test]
async fn a_watch_is_read_from_the_event_on_that_finds_an_informer() {
    let cluster = Cluster::new();
    let (one, two, three) = (
        event("ADDED", &object_at(5)),
        event("ADDED", &object_at(6)),
        event("ADDED", &object_at(7)),
    );
    let mut reader = Reader::new(cluster.reading(JSON, events()), None);
    let (begun, rest) = two.split_at(20);
    reader.read(format!("{one}{begun}").as_bytes());
    cluster.start_informer();
    reader.read(rest.as_bytes());
    // The informer's first list comes after an event that had begun to pass.
    assert_eq!(cluster.told(), 0);
    reader.read(three.as_bytes());
    assert_eq!(cluster.told(), 7);
}

#[tokio::test]
async fn a_table_tells_of_its_row() {
    let cluster = Cluster::with_informer();
    let table = |version: &str, row: &str| {
        format!(
            r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"columnDefinitions":null,"rows":[{{"cells":["a"],"object":{row}}}]}}"#
        )
    };
    let mut reading = cluster.reading(JSON, object());
    reading.read(table("", &object_at(5)).as_bytes());
    assert_eq!(cluster.told(), 5);
    let mut reading = cluster.reading(JSON, object());
    reading.read(table("6", "null").as_bytes());
    assert_eq!(cluster.told(), 6);
    let mut reading = cluster.reading(JSON, events());
    reading.read(event("MODIFIED", &table("", &object_at(7))).as_bytes());
    assert_eq!(cluster.told(), 7);
    assert!(!cluster.is_unconfirmed());
    reading.read(event("MODIFIED", &table("", "null")).as_bytes());
    assert!(cluster.is_unconfirmed());
}

#[tokio::test]
async fn a_custom_resource_may_look_like_a_list_or_a_table() {
    let cluster = Cluster::with_informer();
    let within = object_at(99);
    for kind in ["Table", "PodList"] {
        let custom = format!(
            r#"{{"apiVersion":"ex.io/v1","items":[{within}],"kind":"{kind}","metadata":{{"name":"a","resourceVersion":"5"}},"rows":[{{"object":{within}}}]}}"#
        );
        cluster.reading(JSON, object()).read(custom.as_bytes());
        let mut watched = cluster.reading(JSON, events());
        watched.read(event("ADDED", &custom).as_bytes());
    }
    assert_eq!(cluster.told(), 5);
}

fn list_of(versions: &[u64], at: u64) -> String {
    let items: Vec<String> = versions.iter().map(|version| object_at(*version)).collect();
    format!(
        "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{at}\"}},\"items\":[{}]}}\n",
        items.join(",")
    )
}

/// No informer has synced: nobody may read from memory before one is found to hold the list.
#[tokio::test]
async fn a_list_tells_of_its_objects_at_once_and_of_itself_at_its_end() {
    let cluster = Cluster::with_informer();
    let text = list_of(&[5, 8, 7], 20);
    let reader = Reader::new(cluster.reading(JSON, list("")), None);
    let told = told_by_byte(&cluster, reader, text.as_bytes());
    let versions: Vec<u64> = told.iter().map(|(_, version)| *version).collect();
    assert_eq!(versions, [0, 5, 8]);
    let pending = format!("{:?}", cluster.floor().unwrap().needed().unwrap());
    assert!(pending.contains("ResourceVersion(20)"), "{pending}");
}

#[tokio::test]
async fn a_list_by_an_unknown_selector_tells_of_its_objects_alone() {
    let cluster = Cluster::with_informer();
    let mut reading = cluster.reading(JSON, list("shardSelector=x"));
    reading.read(list_of(&[5, 8, 7], 20).as_bytes());
    assert_eq!(cluster.told(), 8);
    let pending = format!("{:?}", cluster.floor().unwrap().needed().unwrap());
    assert!(!pending.contains("ResourceVersion(20)"), "{pending}");
}

#[tokio::test]
async fn a_page_from_an_unknown_start_tells_of_its_version() {
    let cluster = Cluster::with_informer();
    let mut reading = cluster.reading(JSON, list("continue=zzz"));
    reading.read(list_of(&[5], 20).as_bytes());
    assert_eq!(cluster.told(), 20);
}

#[tokio::test]
async fn compressed_bytes_are_inflated_as_they_pass() {
    let cluster = Cluster::with_informer();
    // Items that do not compress well, so that the first are inflated long before the end.
    let versions: Vec<u64> = (1..2000).map(|at| at * 7919 % 100_003).collect();
    let text = list_of(&versions, 200_000);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let bytes = gzip.finish().unwrap();
    let reader = Reader::new(cluster.reading(JSON, list("")), Some(b"gzip"));
    let told = told_by_byte(&cluster, reader, &bytes);
    let newest = versions.iter().max().copied();
    assert_eq!(told.last().map(|(_, version)| *version), newest);
    assert!(told[1].0 < bytes.len() / 2, "not before {told:?}");
    assert!(!cluster.is_unconfirmed());
}

#[tokio::test]
async fn what_cannot_be_read_leaves_the_storage_unconfirmed() {
    let yaml = "kind: Pod\nmetadata:\n  resourceVersion: \"5\"\n";
    let whole = object_at(5);
    for (content_type, encoding, bytes) in [
        ("application/yaml", None, yaml.as_bytes()),
        (JSON, None, yaml.as_bytes()),
        (JSON, Some(&b"br"[..]), whole.as_bytes()),
        (JSON, Some(b"gzip"), whole.as_bytes()),
        (
            "application/vnd.kubernetes.protobuf",
            None,
            whole.as_bytes(),
        ),
    ] {
        let cluster = Cluster::with_informer();
        let reading = cluster.reading(content_type, object());
        let mut reader = Reader::new(reading, encoding);
        reader.read(bytes);
        assert!(cluster.is_unconfirmed(), "{content_type} {encoding:?}");
    }
    let cluster = Cluster::with_informer();
    Reader::new(cluster.reading(JSON, object()), None).read(whole.as_bytes());
    assert!(!cluster.is_unconfirmed());
    assert_eq!(cluster.told(), 5);
}
