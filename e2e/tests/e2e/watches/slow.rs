//! A reader that is too slow loses its watch, and costs nobody else anything.

use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::timeout;

use super::cluster::{configmap, configmaps, create, plain, version};
use super::stream::Stream;
use crate::pair::{connect, warm};

const UPDATES: usize = 5000;

/// The bytes of an object: all updates are 200 MB, far more than sockets and the history hold.
const SIZE: usize = 40_000;

/// How many objects are updated, each by a writer of its own.
const OBJECTS: usize = 4;

/// What the proxy may grow by: its history, and what is under way to three readers that keep up.
const GROWTH: u64 = 150 << 20;

/// What the slow reader reads in a second.
const RATE: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_gets_an_end_and_nobody_else() {
    let cluster = plain().await;
    let path = configmaps(cluster, "slow").await;
    let (direct, proxied, proxy) = connect(cluster).await;
    for n in 0..OBJECTS {
        create(&direct, &path, &configmap(&format!("c{n}"), "")).await;
    }
    let list = warm(&proxied, &path).await.json().unwrap();
    let query = format!("{path}?watch=1&resourceVersion={}", version(&list));
    let context = proxy.context(cluster.name()).unwrap();
    let slow = Slow::open(&Client::new(&context).unwrap(), &query).await;
    let http2 = Client::http2(&context).unwrap();
    let quick = [
        Watcher::open(&proxied, &query).await,
        Watcher::open(&http2, &query).await,
    ];
    let before = proxy.resident_bytes().unwrap();

    let mut most = before;
    let writers = (0..OBJECTS).map(|n| {
        let client = cluster.client().unwrap();
        let path = path.clone();
        tokio::spawn(async move {
            let name = format!("c{n}");
            for update in 0..UPDATES / OBJECTS {
                let text = format!("{update:05}{}", "x".repeat(SIZE));
                let object = configmap(&name, &text);
                let updated = client.update(&format!("{path}/{name}"), &object).await;
                updated.unwrap().ok().unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    for writer in writers {
        while !writer.is_finished() {
            most = most.max(proxy.resident_bytes().unwrap());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        writer.await.unwrap();
    }
    for watcher in quick {
        watcher.told_everything().await;
    }
    most = most.max(proxy.resident_bytes().unwrap());
    println!("{} MiB before, {} MiB at most", before >> 20, most >> 20);
    assert!(most < before + GROWTH, "{before} bytes became {most}");
    wait_for(
        "the slow watch to be given up",
        PATIENCE,
        async || match proxy.metrics()?.get("fleetcache_watchers") {
            Some(0.0) => Ok(()),
            other => Err(anyhow::anyhow!("{other:?} watchers")),
        },
    )
    .await
    .unwrap();
    slow.gets_an_end().await;
    // Who comes afterwards is served.
    let watch = Stream::watch(&proxied, &format!("{path}?watch=1&timeoutSeconds=1")).await;
    watch.ended_clean().await;
}

/// Reads as it comes, and keeps nothing but what it makes sure of: that the updates come in order.
struct Watcher {
    reading: tokio::task::JoinHandle<usize>,
}

impl Watcher {
    async fn open(client: &Client, query: &str) -> Self {
        let mut lines = client.lines(query).await.unwrap();
        let reading = tokio::spawn(async move {
            let (mut told, mut next) = (0, [0; OBJECTS]);
            while told < UPDATES {
                let line = lines.next().await.unwrap().expect("the watch goes on");
                let event: Value = serde_json::from_slice(&line).unwrap();
                let value = event["object"]["data"]["value"].as_str().unwrap();
                let name = event["object"]["metadata"]["name"].as_str().unwrap();
                let of_object: &mut usize = &mut next[name[1..].parse::<usize>().unwrap()];
                assert_eq!(value[..5], format!("{of_object:05}"), "{name}");
                *of_object += 1;
                told += 1;
            }
            told
        });
        Self { reading }
    }

    async fn told_everything(self) {
        let told = timeout(PATIENCE, self.reading).await;
        assert_eq!(told.expect("all of it in time").unwrap(), UPDATES);
    }
}

/// Reads 1 kB a second, on a connection of its own.
struct Slow {
    headers: HeaderMap,
    stop: tokio_util::sync::CancellationToken,
    reading: tokio::task::JoinHandle<(usize, bool)>,
}

impl Slow {
    async fn open(client: &Client, query: &str) -> Self {
        let headers = [("accept", "application/json")];
        let response = client.open(Method::GET, query, &headers, "").await.unwrap();
        let (parts, mut body) = response.into_parts();
        let stop = tokio_util::sync::CancellationToken::new();
        let stopped = stop.clone();
        let reading = tokio::spawn(async move {
            let mut read = 0;
            let mut patience = tokio::time::interval(Duration::from_secs(1));
            let ended = loop {
                if !stopped.is_cancelled() {
                    let until = (read / RATE).max(1);
                    for _ in 0..until {
                        tokio::select! {
                            _ = patience.tick() => {}
                            () = stopped.cancelled() => break,
                        }
                    }
                }
                match body.frame().await {
                    Some(Ok(frame)) => read += frame.into_data().map_or(0, |data| data.len()),
                    Some(Err(_)) | None => break true,
                }
            };
            (read, ended)
        });
        Self {
            headers: parts.headers,
            stop,
            reading,
        }
    }

    /// Reads what is on its way, as fast as it can: after it comes an end, and it was not everything.
    async fn gets_an_end(self) {
        self.stop.cancel();
        let ended = timeout(PATIENCE, self.reading).await;
        let (read, ended) = ended.expect("the slow watch never ends").unwrap();
        assert!(ended, "{:?}", self.headers);
        println!("the slow reader got {} MiB", read >> 20);
        assert!(read < UPDATES * SIZE, "it got everything");
    }
}
