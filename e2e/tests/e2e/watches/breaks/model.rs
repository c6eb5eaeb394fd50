//! A client that lists and watches as controllers do, and notices when what it is told goes back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fleetcache_e2e::client::{Client, Lines};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::watches::cluster::version;

/// Between attempts at a cluster that is away.
const PAUSE: Duration = Duration::from_millis(50);

/// What it was told.
#[derive(Debug, Default)]
struct Told {
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Whether versions may mean something else from some moment on.
    another_cluster: bool,
    lists: usize,
    watches: usize,
    events: usize,
    expired: usize,
    refused: usize,
}

pub(super) struct Model {
    path: String,
    selector: String,
    told: Arc<Mutex<Told>>,
    task: JoinHandle<()>,
}

enum Next {
    List,
    Watch,
}

impl Model {
    /// Lists and watches a collection by a selector until it is dropped.
    pub(super) fn start(client: Client, path: &str, selector: &str) -> Self {
        let told = Arc::new(Mutex::new(Told::default()));
        let task = run(client, path.to_owned(), selector.to_owned(), told.clone());
        Self {
            path: path.to_owned(),
            selector: selector.to_owned(),
            told,
            task: tokio::spawn(task),
        }
    }

    /// Returns when it holds what the server says now.
    pub(super) async fn converges(&self, direct: &Client) {
        let path = format!("{}?{}", self.path, self.selector);
        let what = format!("a client of {path} to converge");
        wait_for(&what, PATIENCE, async || {
            anyhow::ensure!(!self.task.is_finished(), "it has stopped");
            let list = direct.get(&path).await?.ok()?.json()?;
            let items = list["items"].as_array().into_iter().flatten();
            let expected: BTreeMap<String, Value> = items.map(entry).collect();
            let told = self.told.lock();
            let names = |objects: &BTreeMap<String, Value>| {
                let pairs = objects
                    .iter()
                    .map(|(name, object)| format!("{name}@{}", version(object)));
                pairs.collect::<Vec<_>>().join(" ")
            };
            anyhow::ensure!(
                told.objects == expected,
                "it has {}\nthe server {}\n{told:?}",
                names(&told.objects),
                names(&expected)
            );
            Ok(())
        })
        .await
        .unwrap();
    }

    /// From now on versions may go back once.
    pub(super) fn expect_another_cluster(&self) {
        self.told.lock().another_cluster = true;
    }

    /// How often it was told that its version is too old.
    pub(super) fn expired(&self) -> usize {
        self.told.lock().expired
    }

    pub(super) fn tally(&self) -> impl fmt::Display {
        let told = self.told.lock();
        format!(
            "{}?{}: {} lists, {} watches, {} events, expired {} times, refused {} times",
            self.path,
            self.selector,
            told.lists,
            told.watches,
            told.events,
            told.expired,
            told.refused
        )
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// In the form of a list's items, where built-in objects have no kind.
fn entry(object: &Value) -> (String, Value) {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    let metadata = &object["metadata"];
    (
        format!("{}/{}", metadata["namespace"], metadata["name"]),
        object,
    )
}

async fn run(client: Client, path: String, selector: String, told: Arc<Mutex<Told>>) {
    let mut next = Next::List;
    loop {
        next = match next {
            Next::List => list(&client, &format!("{path}?{selector}"), &told).await,
            Next::Watch => {
                let from = told.lock().version;
                let query = format!("watch=1&allowWatchBookmarks=true&resourceVersion={from}");
                match client.lines(&format!("{path}?{query}&{selector}")).await {
                    Ok(lines) => watch(lines, &told).await,
                    Err(_) => {
                        told.lock().refused += 1;
                        tokio::time::sleep(PAUSE).await;
                        Next::Watch
                    }
                }
            }
        };
    }
}

async fn list(client: &Client, path: &str, told: &Mutex<Told>) -> Next {
    let answer = client.get(path).await;
    let Ok(answer) = answer.and_then(|answer| answer.ok()) else {
        told.lock().refused += 1;
        tokio::time::sleep(PAUSE).await;
        return Next::List;
    };
    let list = answer.json().unwrap();
    let mut told = told.lock();
    let version = version(&list);
    assert!(
        version >= told.version || told.another_cluster,
        "a list of {version} after {} ({})",
        told.version,
        answer.cache_status()
    );
    told.version = version;
    told.objects = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(entry)
        .collect();
    told.lists += 1;
    Next::Watch
}

async fn watch(mut lines: Lines, told: &Mutex<Told>) -> Next {
    told.lock().watches += 1;
    // However it ends: a watch from the last version says what was missed.
    while let Ok(Some(line)) = lines.next().await {
        // Half a line is all that a broken connection may leave behind.
        let Ok(event) = serde_json::from_slice::<Value>(&line) else {
            return Next::Watch;
        };
        let mut told = told.lock();
        if event["type"] == "ERROR" {
            assert_eq!(event["object"]["code"], 410, "{event}");
            told.expired += 1;
            return Next::List;
        }
        let version = version(&event);
        let is_bookmark = event["type"] == "BOOKMARK";
        let forward = version > told.version || (is_bookmark && version == told.version);
        assert!(forward, "{event} after {}", told.version);
        told.version = version;
        told.events += 1;
        let (name, object) = entry(&event["object"]);
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => drop(told.objects.insert(name, object)),
            Some("DELETED") => {
                let known = told.objects.remove(&name);
                assert!(known.is_some(), "a deletion of what it never had: {event}");
            }
            _ => assert!(is_bookmark, "{event}"),
        }
    }
    Next::Watch
}
