//! Between a list and the watch from its version nothing is lost and nothing comes twice.
//!
//! A direct watch of the whole test is the reference. Each round gets a state with its version (a list in memory, a live
//! one, one that is newer than what is in memory, or the initial events of a watch) and the first events after it through
//! the proxy. The state must be what the reference has made of the objects up to that version, and the events must be
//! the reference's next ones, byte for byte.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use fleetcache_e2e::client::Client;
use http::Method;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::cluster::{configmap, configmaps, create, delete, patch, plain, value, version};
use super::rounds;
use super::stream::Stream;
use crate::pair::{connect, warm};

const READERS: usize = 8;
const WRITERS: usize = 2;
const KEYS: usize = 8;

/// How many events a round waits for: those that are there already, and some that come.
const EVENTS: usize = 4;

/// Versions by name.
type State = BTreeMap<String, u64>;

/// What one round was told.
struct Round {
    how: &'static str,
    version: u64,
    state: State,
    events: Vec<Bytes>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_doubled_between_a_list_and_its_watch() {
    let cluster = plain().await;
    let path = configmaps(cluster, "seam").await;
    let (direct, proxied, proxy) = connect(cluster).await;
    for key in 0..KEYS {
        create(&direct, &path, &configmap(&format!("k{key}"), "0")).await;
    }
    warm(&proxied, &path).await;
    let before = direct.get(&path).await.unwrap().json().unwrap();
    let watch = format!("{path}?watch=1&resourceVersion={}", version(&before));
    let reference = Stream::watch(&direct, &watch).await;

    let stop = CancellationToken::new();
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        // One writes past the proxy, the other through it.
        let client = if writer == 0 {
            cluster.client()
        } else {
            proxy.client(cluster.name())
        };
        writers.push(tokio::spawn(write(
            client.unwrap(),
            path.clone(),
            writer,
            stop.clone(),
        )));
    }
    let next = Arc::new(AtomicUsize::new(0));
    let mut readers = Vec::new();
    for reader in 0..READERS {
        let context = proxy.context(cluster.name()).unwrap();
        // On HTTP/1.1 each watch that is left costs a connection.
        let client = if reader == 0 {
            Client::new(&context)
        } else {
            Client::http2(&context)
        };
        let reader = Reader {
            proxied: client.unwrap(),
            direct: cluster.client().unwrap(),
            path: path.clone(),
        };
        readers.push(tokio::spawn(reader.run(next.clone())));
    }
    let mut all = Vec::new();
    for reader in readers {
        all.extend(reader.await.unwrap());
    }
    stop.cancel();
    for writer in writers {
        writer.await.unwrap();
    }
    create(&direct, &path, &configmap("last", "word")).await;
    reference.has("\"last\"").await;

    let text = reference.bytes();
    let events: Vec<&[u8]> = text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .collect();
    check(&before, &events, &mut all);
    let after = direct.get(&path).await.unwrap().json().unwrap();
    let seen = warm(&proxied, &path).await.json().unwrap();
    assert_eq!(seen["items"], after["items"]);
    println!("{} rounds beside {} events", all.len(), events.len());
    assert_eq!(all.len(), rounds(10_000));
    let quick = all.iter().filter(|round| round.how == "hit").count();
    assert!(
        quick > all.len() / 10,
        "only {quick} lists came from memory"
    );
}

/// Changes the keys of this writer in turn, and now and then makes one again.
async fn write(client: Client, path: String, writer: usize, stop: CancellationToken) {
    for n in 1_u64.. {
        for key in (writer..KEYS).step_by(WRITERS) {
            if stop.is_cancelled() {
                return;
            }
            let name = format!("k{key}");
            let object = format!("{path}/{name}");
            if (n + key as u64).is_multiple_of(5) {
                delete(&client, &object).await;
                create(&client, &path, &configmap(&name, &n.to_string())).await;
            } else {
                patch(&client, &object, &value(n.to_string())).await;
            }
        }
    }
}

struct Reader {
    proxied: Client,
    direct: Client,
    path: String,
}

impl Reader {
    async fn run(self, next: Arc<AtomicUsize>) -> Vec<Round> {
        let mut told = Vec::new();
        loop {
            let round = next.fetch_add(1, Ordering::Relaxed);
            if round >= rounds(10_000) {
                return told;
            }
            let json = ("accept", "application/json");
            let round = match round % 6 {
                0 | 1 => self.list(&self.proxied, "", &[json]).await,
                2 => {
                    self.list(&self.proxied, "?resourceVersion=0", &[json])
                        .await
                }
                3 => {
                    self.list(&self.proxied, "", &[json, ("cache-control", "no-store")])
                        .await
                }
                4 => self.list(&self.direct, "", &[json]).await,
                _ => self.initial_events().await,
            };
            told.push(round);
        }
    }

    async fn list(&self, client: &Client, query: &str, headers: &[(&str, &str)]) -> Round {
        let path = format!("{}{query}", self.path);
        let answer = client
            .send(Method::GET, &path, headers, "")
            .await
            .unwrap()
            .ok()
            .unwrap();
        let list = answer.json().unwrap();
        let version = version(&list);
        let watch = format!("{}?watch=1&resourceVersion={version}", self.path);
        let mut lines = self.proxied.lines(&watch).await.unwrap();
        let mut events = Vec::new();
        while events.len() < EVENTS {
            events.push(lines.next().await.unwrap().expect("the watch goes on"));
        }
        Round {
            how: if answer.is_hit() { "hit" } else { "live" },
            version,
            state: list["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(entry)
                .collect(),
            events,
        }
    }

    async fn initial_events(&self) -> Round {
        let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let mut lines = self
            .proxied
            .lines(&format!("{}?{query}", self.path))
            .await
            .unwrap();
        let mut round = Round {
            how: "initial events",
            version: 0,
            state: State::new(),
            events: Vec::new(),
        };
        while round.events.len() < EVENTS {
            let line = lines.next().await.unwrap().expect("the watch goes on");
            let event: Value = serde_json::from_slice(&line).unwrap();
            if round.version > 0 {
                // Bookmarks are for whoever asked for them.
                if event["type"] != "BOOKMARK" {
                    round.events.push(line);
                }
                continue;
            }
            match event["type"].as_str().unwrap() {
                "ADDED" => round.state.extend([entry(&event["object"])]),
                "BOOKMARK" => round.version = version(&event),
                other => panic!("{other} among the initial events"),
            }
        }
        round
    }
}

fn entry(object: &Value) -> (String, u64) {
    let name = object["metadata"]["name"].as_str().unwrap();
    (name.to_owned(), version(object))
}

/// Replays the reference through all rounds, in the order of their versions.
fn check(before: &Value, events: &[&[u8]], rounds: &mut [Round]) {
    let mut state: State = before["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(entry)
        .collect();
    rounds.sort_by_key(|round| round.version);
    let mut at = 0;
    for round in rounds {
        while let Some(line) = events.get(at) {
            let event: Value = serde_json::from_slice(line).unwrap();
            if version(&event) > round.version {
                break;
            }
            let (name, version) = entry(&event["object"]);
            if event["type"] == "DELETED" {
                state.remove(&name);
            } else {
                state.insert(name, version);
            }
            at += 1;
        }
        let Round {
            how,
            version,
            state: told,
            ..
        } = round;
        assert_eq!(*told, state, "the state of {version} by {how}");
        for (n, event) in round.events.iter().enumerate() {
            let (text, expected) = (
                String::from_utf8_lossy(event),
                String::from_utf8_lossy(events[at + n]),
            );
            assert_eq!(text, expected, "event {n} after {version} by {how}");
        }
    }
}
