//! Clients that hang up leave nothing behind: no descriptor, no task, no memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use futures_util::StreamExt as _;
use futures_util::stream;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::pair::{Pair, warm};

/// How many requests are aborted, and how many of them are under way at once.
const ABORTS: usize = 10_000;
const AT_ONCE: usize = 32;

/// Enough to fill every pool, buffer and allocator arena before the first measurement.
const WARM_UP: usize = 1_000;

/// Connections the proxy may keep to its cluster, and those of this test that are just closing.
const SPARE_FILES: usize = 40;

/// Allocators keep some of what they once had. A leak of two kilobytes a request would be more than this.
const SPARE_BYTES: u64 = 16 << 20;

/// What the aborted requests were, in turn. Logs and execs are fewer, since each of them is a request to the kubelet too.
#[derive(Clone, Copy, Debug)]
enum Abort {
    CachedList,
    LiveList,
    Watch,
    Write,
    Log,
    Exec,
}

const TURNS: [Abort; 10] = [
    Abort::CachedList,
    Abort::LiveList,
    Abort::Watch,
    Abort::CachedList,
    Abort::Write,
    Abort::LiveList,
    Abort::Watch,
    Abort::CachedList,
    Abort::Log,
    Abort::Exec,
];

#[derive(Debug)]
struct Usage {
    files: usize,
    bytes: u64,
    tasks: Option<f64>,
}

struct Aborter {
    namespace: String,
    pair: Pair,
    answered: AtomicUsize,
}

impl Aborter {
    async fn abort(&self, n: usize) {
        // A connection each: an aborted HTTP/1.1 request takes its connection with it.
        let client = self.pair.proxy.client(self.pair.cluster.name()).unwrap();
        let base = format!("/api/v1/namespaces/{}", self.namespace);
        let request = match TURNS[n % TURNS.len()] {
            Abort::CachedList => open(&client, Method::GET, format!("{base}/configmaps"), &[]),
            Abort::LiveList => open(&client, Method::GET, format!("{base}/secrets"), &[]),
            Abort::Watch => open(
                &client,
                Method::GET,
                format!("{base}/configmaps?watch=true"),
                &[],
            ),
            Abort::Write => open(
                &client,
                Method::DELETE,
                format!("{base}/configmaps/absent"),
                &[],
            ),
            Abort::Log => open(
                &client,
                Method::GET,
                format!("{base}/pods/p/log?follow=true"),
                &[],
            ),
            Abort::Exec => open(
                &client,
                Method::GET,
                format!("{base}/pods/p/exec?command=cat&stdin=true&stdout=true"),
                &[
                    ("connection", "Upgrade"),
                    ("upgrade", "websocket"),
                    ("sec-websocket-version", "13"),
                    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
                    ("sec-websocket-protocol", "v5.channel.k8s.io"),
                ],
            ),
        };
        // A third is dropped before an answer can be there, a third after its headers, a third after its first bytes.
        let depth = n / TURNS.len() % 3;
        if depth == 0 {
            let _ =
                tokio::time::timeout(Duration::from_micros(50 * (n % 40) as u64), request).await;
            return;
        }
        let response = request.await.unwrap();
        self.answered.fetch_add(1, Ordering::Relaxed);
        if depth == 2 && response.status() == 200 {
            // A watch without events and a list that was read whole both end the wait soon enough.
            let _ =
                tokio::time::timeout(Duration::from_millis(2), response.into_body().frame()).await;
        }
    }

    async fn abort_many(&self, count: usize) {
        stream::iter(0..count)
            .for_each_concurrent(AT_ONCE, |n| self.abort(n))
            .await;
    }

    fn usage(&self) -> Usage {
        let proxy = &self.pair.proxy;
        Usage {
            files: proxy.open_files().unwrap(),
            bytes: proxy.resident_bytes().unwrap(),
            tasks: proxy.metrics().unwrap().get("fleetcache_tasks"),
        }
    }
}

fn open<'a>(
    client: &'a Client,
    method: Method,
    path: String,
    headers: &'a [(&'a str, &'a str)],
) -> std::pin::Pin<
    Box<dyn Future<Output = anyhow::Result<http::Response<hyper::body::Incoming>>> + Send + 'a>,
> {
    Box::pin(async move { client.open(method, &path, headers, "").await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_aborted_requests_leave_nothing_behind() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("aborts").await.unwrap();
    let base = format!("/api/v1/namespaces/{namespace}");
    for n in 0..20 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c-{n}")}, "data": {"k": "v".repeat(10_000)}});
        pair.direct
            .create(&format!("{base}/configmaps"), &object)
            .await
            .unwrap()
            .ok()
            .unwrap();
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pair.direct
        .create(&format!("{base}/pods"), &pod)
        .await
        .unwrap()
        .ok()
        .unwrap();
    wait_for("the pod to run", PATIENCE, async || {
        let pod = pair.direct.get(&format!("{base}/pods/p")).await?.json()?;
        anyhow::ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]);
        Ok(())
    })
    .await
    .unwrap();
    warm(&pair.proxied, &format!("{base}/configmaps")).await;

    let aborter = Aborter {
        namespace,
        pair,
        answered: AtomicUsize::new(0),
    };
    aborter.abort_many(WARM_UP).await;
    let before = aborter.usage();
    aborter.abort_many(ABORTS).await;
    println!(
        "{} of {} requests were answered before they were aborted",
        aborter.answered.load(Ordering::Relaxed),
        WARM_UP + ABORTS
    );

    let after = wait_for("everything to be given back", PATIENCE, async || {
        let now = aborter.usage();
        let files = now.files <= before.files + SPARE_FILES;
        let bytes = now.bytes <= before.bytes + SPARE_BYTES;
        let tasks = now
            .tasks
            .zip(before.tasks)
            .is_none_or(|(now, before)| now <= before + SPARE_FILES as f64);
        anyhow::ensure!(files && bytes && tasks, "{now:?}, and before {before:?}");
        Ok(now)
    })
    .await
    .unwrap();
    println!("before {before:?}\nafter  {after:?}");
    // And it still works.
    assert_eq!(
        aborter
            .pair
            .proxied
            .get(&format!("{base}/pods/p/log"))
            .await
            .unwrap()
            .status,
        200
    );
}
