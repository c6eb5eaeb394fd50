//! What a watch is told beside events, how it says where it comes from, and what is left of it afterwards.

use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use futures_util::future::join_all;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout};

use super::cluster::{configmap, configmaps, create, list_version, patch, plain, value, version};
use super::stream::Stream;
use crate::pair::{connect, warm, websocket};

/// A bookmark comes about two seconds before the deadline, with what has been told or more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bookmark_comes_before_the_deadline() {
    let cluster = plain().await;
    let path = configmaps(cluster, "bookmark").await;
    let (direct, proxied, _proxy) = connect(cluster).await;
    create(&direct, &path, &configmap("a", "0")).await;
    warm(&proxied, &path).await;
    let from = list_version(&direct, &path).await;
    let query = |seconds: u64, rest: &str| {
        format!("{path}?watch=1&timeoutSeconds={seconds}&resourceVersion={from}{rest}")
    };
    let asked: Vec<(u64, String)> = [3, 5, 8]
        .into_iter()
        .flat_map(|seconds| {
            let bookmarks = "&allowWatchBookmarks=true";
            let selected = "&allowWatchBookmarks=true&labelSelector=none";
            let all = ["", bookmarks, selected];
            all.map(|rest| (seconds, query(seconds, rest)))
        })
        .collect();
    let open = async |client: &Client| {
        join_all(asked.iter().map(|(_, query)| Stream::watch(client, query))).await
    };
    let (server, proxy) = tokio::join!(open(&direct), open(&proxied));
    let told = version(&patch(&direct, &format!("{path}/a"), &value("1")).await);
    for ((seconds, query), (server, proxy)) in asked.iter().zip(server.iter().zip(&proxy)) {
        for stream in [server, proxy] {
            stream.ended_clean().await;
            let lasted = stream.lasted();
            assert!(
                lasted > Duration::from_secs_f64(*seconds as f64 - 0.5),
                "{query}: {lasted:?}"
            );
            let events = stream.events();
            let bookmarks: Vec<&Value> = events
                .iter()
                .filter(|event| event["type"] == "BOOKMARK")
                .collect();
            if query.contains("allowWatchBookmarks") {
                let last = bookmarks
                    .last()
                    .unwrap_or_else(|| panic!("{query}: {}", stream.text()));
                assert!(version(last) >= told, "{query}: {last} after {told}");
                assert_eq!(events.last(), Some(*last), "{query}");
            } else {
                assert!(bookmarks.is_empty(), "{query}: {}", stream.text());
            }
            let changes = events.len() - bookmarks.len();
            assert_eq!(
                changes,
                usize::from(!query.contains("labelSelector")),
                "{query}"
            );
        }
        proxy.assert_hit();
    }
}

/// A watch without events says nothing for long: the server's bookmarks come once a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_come_before_anything_happens_and_say_where_from() {
    let cluster = plain().await;
    let path = configmaps(cluster, "quiet").await;
    let (direct, proxied, proxy) = connect(cluster).await;
    warm(&proxied, &path).await;
    let http2 = Client::http2(&proxy.context(cluster.name()).unwrap()).unwrap();
    let from = list_version(&direct, &path).await;
    for client in [&proxied, &http2] {
        let query = format!("{path}?watch=1&resourceVersion={from}");
        let opened = Instant::now();
        let watch = Stream::watch(client, &query).await;
        // The server itself needs some milliseconds; one that waits for an event waits for ever.
        assert!(opened.elapsed() < Duration::from_secs(30));
        assert_eq!((watch.text().as_str(), watch.end()), ("", None));
        watch.assert_hit();
        assert!(watch.headers.contains_key("age"));
        assert_eq!(watch.headers["cache-control"], "no-cache, private");
        assert_eq!(watch.headers["content-type"], "application/json");
        assert!(!watch.headers.contains_key("content-length"));
        assert!(watch.headers.contains_key("audit-id") && watch.headers.contains_key("date"));
    }
}

/// Who hangs up leaves nothing behind, at the proxy or at the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_leaves_nothing() {
    let cluster = plain().await;
    let path = configmaps(cluster, "hang-up").await;
    let (direct, proxied, proxy) = connect(cluster).await;
    create(&direct, &path, &configmap("a", "0")).await;
    warm(&proxied, &path).await;
    let http2 = Client::http2(&proxy.context(cluster.name()).unwrap()).unwrap();
    let tasks = || proxy.metrics().unwrap().get("fleetcache_tasks").unwrap();
    let watchers = || proxy.metrics().unwrap().get("fleetcache_watchers");
    let (before, files) = (tasks(), proxy.open_files().unwrap());
    let watch = format!("{path}?watch=1");
    for _ in 0..3 {
        let open = join_all((0..100).map(|n| {
            let client = if n % 2 == 0 { &proxied } else { &http2 };
            Stream::watch(client, &watch)
        }))
        .await;
        assert_eq!(watchers(), Some(100.0));
        for stream in &open {
            stream.has("ADDED").await;
        }
        drop(open);
    }
    wait_for("nothing to be left", PATIENCE, async || {
        let left = watchers().unwrap_or(0.0);
        anyhow::ensure!(left == 0.0, "{left} watchers");
        anyhow::ensure!(
            tasks() <= before + 10.0,
            "{} tasks, {before} before",
            tasks()
        );
        let open = proxy.open_files()?;
        anyhow::ensure!(open <= files + 10, "{open} files, {files} before");
        Ok(())
    })
    .await
    .unwrap();
}

/// A watch over WebSocket goes to the server, frame by frame.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_over_websocket_is_the_servers() {
    let cluster = plain().await;
    let path = configmaps(cluster, "socket").await;
    let (direct, proxied, _proxy) = connect(cluster).await;
    create(&direct, &path, &configmap("a", "0")).await;
    warm(&proxied, &path).await;
    let query = format!("{path}?watch=1&timeoutSeconds=8");
    let (mut server, mut proxy) = (
        WebSocket::open(&direct, &query).await,
        WebSocket::open(&proxied, &query).await,
    );
    for n in 1..20 {
        patch(&direct, &format!("{path}/a"), &value(n.to_string())).await;
    }
    let (server, proxy) = tokio::join!(server.frames(), proxy.frames());
    assert_eq!(server, proxy);
    let texts = server.iter().filter(|(opcode, _)| *opcode == 1).count();
    assert_eq!(texts, 20, "{server:?}");
    // A close frame with code 1000.
    assert_eq!(server.last(), Some(&(8, vec![3, 232])));
}

struct WebSocket {
    stream: TokioIo<Upgraded>,
}

impl WebSocket {
    async fn open(client: &Client, query: &str) -> Self {
        Self {
            stream: websocket(client, query).await,
        }
    }

    /// All frames to the end, each with its opcode. A server does not mask them.
    async fn frames(&mut self) -> Vec<(u8, Vec<u8>)> {
        let mut frames = Vec::new();
        loop {
            let next = timeout(PATIENCE, self.stream.read_u8()).await;
            let Ok(first) = next.expect("a frame or the end") else {
                return frames;
            };
            let length = match self.stream.read_u8().await.unwrap() {
                126 => u64::from(self.stream.read_u16().await.unwrap()),
                127 => self.stream.read_u64().await.unwrap(),
                short => u64::from(short),
            };
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut payload).await.unwrap();
            frames.push((first & 15, payload));
            if first & 15 == 8 {
                return frames;
            }
        }
    }
}
