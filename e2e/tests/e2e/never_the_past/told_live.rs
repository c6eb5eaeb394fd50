//! What a live answer told of writes past the proxy, memory knows too: watches, lists and single objects, in every
//! representation.
//!
//! Each round first writes a large object of the same kind elsewhere. The informer gets it before the small one that the
//! round is about, while the live answer is about the small one alone: so the informer is behind, if only for a moment.

use bytes::BytesMut;
use fleetcache_e2e::client::{Answer, Client};
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{Bench, configmap, rounds, version};
use crate::model::wire;
use crate::pair::warm_as;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const METADATA_LIST_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Live whatever memory could answer.
const LIVE: (&str, &str) = ("cache-control", "no-store");

/// Who writes past the proxy, and who reads through it.
struct Elsewhere {
    bench: Bench,
    direct: Client,
    /// An object of the same kind that takes an informer its time.
    large: String,
    reads: usize,
    hits: usize,
    /// Those of another informer.
    in_protobuf: usize,
}

impl Elsewhere {
    async fn new() -> Self {
        let bench = Bench::new(2).await;
        let direct = bench._pair.cluster.client().unwrap();
        let namespace = bench._pair.cluster.namespace("large").await.unwrap();
        let large = format!("/api/v1/namespaces/{namespace}/configmaps");
        warm_as(&bench.reader, &bench.configmaps, PROTOBUF).await;
        let object = configmap("large", &[]);
        direct.create(&large, &object).await.unwrap().ok().unwrap();
        Self {
            bench,
            direct,
            large: format!("{large}/large"),
            reads: 0,
            hits: 0,
            in_protobuf: 0,
        }
    }

    fn path(&self) -> String {
        format!("{}/c", self.bench.configmaps)
    }

    async fn delay_the_informer(&self, round: usize) {
        let data = format!("{round:07}").repeat(100_000);
        let patch = json!({"data": {"large": data}});
        let patched = self.direct.patch(&self.large, &patch).await;
        patched.unwrap().ok().unwrap();
    }

    async fn create(&self) -> Value {
        let object = configmap("c", &[]);
        let created = self.direct.create(&self.bench.configmaps, &object);
        created.await.unwrap().ok().unwrap().json().unwrap()
    }

    async fn patch(&self, round: usize) -> Value {
        let patch = json!({"data": {"round": round.to_string()}});
        let patched = self.direct.patch(&self.path(), &patch).await;
        patched.unwrap().ok().unwrap().json().unwrap()
    }

    async fn delete(&self) {
        self.direct
            .delete(&self.path())
            .await
            .unwrap()
            .ok()
            .unwrap();
    }

    /// A live read through the proxy.
    async fn live(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let headers = [headers, &[LIVE]].concat();
        let answer = self.bench.writer.get_with(path, &headers).await.unwrap();
        assert!(!answer.is_hit(), "{path}: {}", answer.cache_status());
        answer
    }

    fn count(&mut self, answer: &Answer) {
        self.reads += 1;
        self.hits += usize::from(answer.is_hit());
    }

    /// Every reader sees `c` as it was written, or something newer.
    async fn must_show(&mut self, what: &str, written: &Value) {
        let answer = self.bench.reader.get(&self.path()).await.unwrap();
        self.count(&answer);
        let (status, seen) = (answer.cache_status().to_owned(), answer.ok().unwrap());
        let seen = seen.json().unwrap();
        assert!(
            version(&seen) >= version(written),
            "{what}: GET ({status}) gives {seen} after {written} was told"
        );
        let (answer, seen) = self.listed().await;
        let seen = seen.unwrap_or_else(|| panic!("{what}: LIST lacks {written}: {answer}"));
        assert!(
            version(&seen) >= version(written),
            "{what}: LIST ({answer}) gives {seen} after {written} was told"
        );
        let (answer, seen) = self.listed_in_protobuf().await;
        let seen = seen.unwrap_or_else(|| panic!("{what}: {answer} lacks {written} in protobuf"));
        assert!(
            seen >= version(written),
            "{what}: {answer} gives {seen} in protobuf after {written} was told"
        );
    }

    /// No reader sees `c`.
    async fn must_not_show(&mut self, what: &str) {
        // The list first: a GET that is answered 404 live makes readers wait by itself.
        let (answer, seen) = self.listed().await;
        assert_eq!(
            seen, None,
            "{what}: LIST ({answer}) shows what was told to be gone"
        );
        let (answer, seen) = self.listed_in_protobuf().await;
        assert_eq!(
            seen, None,
            "{what}: {answer} shows in protobuf what was told to be gone"
        );
        let answer = self.bench.reader.get(&self.path()).await.unwrap();
        assert_eq!(answer.status, 404, "{what}: {}", answer.text());
    }

    /// What a list has of `c`, and where the list came from.
    async fn listed(&mut self) -> (String, Option<Value>) {
        let answer = self.bench.reader.get(&self.bench.configmaps).await.unwrap();
        self.count(&answer);
        let status = answer.cache_status().to_owned();
        let list = answer.ok().unwrap().json().unwrap();
        let mut items = list["items"].as_array().unwrap().iter();
        let found = items.find(|item| item["metadata"]["name"] == "c");
        (status, found.cloned())
    }

    /// The version that a list in protobuf has of `c`, and where the list came from.
    async fn listed_in_protobuf(&mut self) -> (String, Option<u64>) {
        let headers = [("accept", PROTOBUF)];
        let answer = self.bench.reader.get_with(&self.bench.configmaps, &headers);
        let answer = answer.await.unwrap();
        self.in_protobuf += usize::from(answer.is_hit());
        let shown = wire::shown(&answer).unwrap();
        let found = shown.iter().find(|object| object.name == "c");
        let version = found.map(|object| object.version);
        (answer.cache_status().to_owned(), version)
    }

    fn finish(&self, what: &str) {
        println!("{what}: {} of {} reads from memory", self.hits, self.reads);
        println!("{what}: {} in protobuf", self.in_protobuf);
        assert!(
            self.hits > 0 && self.in_protobuf > 0,
            "{what}: nothing was answered from memory, so nothing was proven"
        );
    }
}

/// An open watch of which only is asked whether some bytes have come.
struct Watch {
    body: Incoming,
    buffer: BytesMut,
}

impl Watch {
    async fn open(client: &Client, path: &str, accept: &str) -> Self {
        let opened = client
            .open(Method::GET, path, &[("accept", accept), LIVE], "")
            .await;
        let opened = opened.unwrap();
        assert_eq!(opened.status(), 200, "{path}");
        Self {
            body: opened.into_body(),
            buffer: BytesMut::new(),
        }
    }

    /// Reads until these bytes have come.
    async fn until(&mut self, wanted: &[u8]) {
        let read = async {
            loop {
                let found = self
                    .buffer
                    .windows(wanted.len())
                    .position(|at| at == wanted);
                if let Some(at) = found {
                    let _ = self.buffer.split_to(at + wanted.len());
                    return;
                }
                let frame = self.body.frame().await.expect("the watch goes on").unwrap();
                self.buffer
                    .extend_from_slice(&frame.into_data().unwrap_or_default());
            }
        };
        let patience = fleetcache_e2e::poll::PATIENCE;
        tokio::time::timeout(patience, read)
            .await
            .unwrap_or_else(|_| panic!("{} has not come", String::from_utf8_lossy(wanted)));
    }

    async fn until_version(&mut self, accept: &str, object: &Value) {
        let version = version(object).to_string();
        if accept.starts_with(PROTOBUF) {
            // Field 6 of ObjectMeta.
            let field = [&[6 << 3 | 2, version.len() as u8], version.as_bytes()].concat();
            self.until(&field).await;
        } else {
            self.until(format!("\"resourceVersion\":\"{version}\"").as_bytes())
                .await;
        }
    }
}

/// A watch that is open while objects come, change and go.
async fn what_a_watch_showed(accept: &str, path: impl Fn(&str) -> String) {
    let mut elsewhere = Elsewhere::new().await;
    let path = path(&elsewhere.bench.configmaps);
    let mut watch = Watch::open(&elsewhere.bench.writer, &path, accept).await;
    for round in 0..rounds() / 20 {
        elsewhere.delay_the_informer(round).await;
        let created = elsewhere.create().await;
        watch.until_version(accept, &created).await;
        elsewhere.must_show("created", &created).await;

        elsewhere.delay_the_informer(round).await;
        let patched = elsewhere.patch(round).await;
        watch.until_version(accept, &patched).await;
        elsewhere.must_show("patched", &patched).await;

        elsewhere.delay_the_informer(round).await;
        elsewhere.delete().await;
        watch.until(b"DELETED").await;
        elsewhere.must_not_show("deleted").await;
    }
    elsewhere.finish(accept);
}

#[tokio::test]
async fn a_watch_in_json() {
    what_a_watch_showed(JSON, |path| format!("{path}?watch=1")).await;
}

#[tokio::test]
async fn a_watch_in_protobuf() {
    what_a_watch_showed(PROTOBUF, |path| format!("{path}?watch=1")).await;
}

#[tokio::test]
async fn a_watch_as_table() {
    what_a_watch_showed(TABLE, |path| format!("{path}?watch=1")).await;
}

#[tokio::test]
async fn a_watch_of_metadata() {
    what_a_watch_showed(METADATA, |path| format!("{path}?watch=1")).await;
}

#[tokio::test]
async fn a_watch_by_the_old_path() {
    let legacy = |path: &str| path.replace("/api/v1/", "/api/v1/watch/");
    what_a_watch_showed(JSON, legacy).await;
}

/// What the initial events of a watch do not show is gone.
#[tokio::test]
async fn the_initial_events_of_a_watch() {
    let mut elsewhere = Elsewhere::new().await;
    let path = format!(
        "{}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
        elsewhere.bench.configmaps
    );
    for round in 0..rounds() / 20 {
        for accept in [JSON, PROTOBUF, TABLE] {
            let created = elsewhere.create().await;
            elsewhere.live(&elsewhere.path(), &[]).await;
            elsewhere.must_show("created", &created).await;
            elsewhere.delay_the_informer(round).await;
            elsewhere.delete().await;
            let mut watch = Watch::open(&elsewhere.bench.writer, &path, accept).await;
            watch.until(b"initial-events-end").await;
            elsewhere.must_not_show(accept).await;
        }
    }
    elsewhere.finish("initial events");
}

/// Lists that were told live, of a namespace and of all of them.
async fn what_a_list_showed(headers: &[(&str, &str)], query: &str) {
    let mut elsewhere = Elsewhere::new().await;
    let path = format!("{}?{query}", elsewhere.bench.configmaps);
    for round in 0..rounds() / 20 {
        elsewhere.delay_the_informer(round).await;
        let created = elsewhere.create().await;
        elsewhere.live(&path, headers).await.ok().unwrap();
        elsewhere.must_show("created", &created).await;

        elsewhere.delay_the_informer(round).await;
        let patched = elsewhere.patch(round).await;
        elsewhere.live(&path, headers).await.ok().unwrap();
        elsewhere.must_show("patched", &patched).await;

        elsewhere.delay_the_informer(round).await;
        elsewhere.delete().await;
        elsewhere.live(&path, headers).await.ok().unwrap();
        elsewhere.must_not_show("deleted").await;
    }
    elsewhere.finish(&format!("{headers:?} {query}"));
}

#[tokio::test]
async fn a_list_in_json() {
    what_a_list_showed(&[("accept", JSON)], "").await;
}

#[tokio::test]
async fn a_list_in_protobuf() {
    what_a_list_showed(&[("accept", PROTOBUF)], "limit=500").await;
}

#[tokio::test]
async fn a_list_as_table() {
    what_a_list_showed(&[("accept", TABLE)], "limit=500").await;
}

#[tokio::test]
async fn a_list_as_table_without_objects() {
    what_a_list_showed(&[("accept", TABLE)], "includeObject=None").await;
}

#[tokio::test]
async fn a_list_of_metadata() {
    what_a_list_showed(&[("accept", METADATA_LIST)], "labelSelector=!none").await;
}

#[tokio::test]
async fn a_list_of_metadata_in_protobuf() {
    what_a_list_showed(&[("accept", METADATA_LIST_PROTOBUF)], "").await;
}

#[tokio::test]
async fn a_list_in_yaml() {
    what_a_list_showed(&[("accept", "application/yaml")], "").await;
}

/// A namespace whose lists are long enough that the server compresses them.
#[tokio::test]
async fn a_compressed_list() {
    let mut elsewhere = Elsewhere::new().await;
    let mut long = configmap("long", &[]);
    long["data"] = json!({"long": "x".repeat(300_000)});
    let configmaps = elsewhere.bench.configmaps.clone();
    let created = elsewhere.direct.create(&configmaps, &long).await;
    created.unwrap().ok().unwrap();
    for round in 0..rounds() / 20 {
        for accept in [JSON, PROTOBUF] {
            let created = elsewhere.create().await;
            elsewhere.delay_the_informer(round).await;
            let patched = elsewhere.patch(round).await;
            let headers = [("accept", accept), ("accept-encoding", "gzip")];
            let list = elsewhere.live(&configmaps, &headers).await;
            assert_eq!(list.headers["content-encoding"], "gzip");
            elsewhere.must_show("patched", &patched).await;
            assert!(version(&patched) > version(&created));
            elsewhere.delay_the_informer(round).await;
            elsewhere.delete().await;
            elsewhere.live(&configmaps, &headers).await.ok().unwrap();
            elsewhere.must_not_show("deleted").await;
        }
    }
    elsewhere.finish("gzip");
}

/// Single objects, in each representation.
#[tokio::test]
async fn an_object() {
    let mut elsewhere = Elsewhere::new().await;
    elsewhere.create().await;
    for round in 0..rounds() / 20 {
        for accept in [JSON, PROTOBUF, TABLE, METADATA, "application/yaml"] {
            elsewhere.delay_the_informer(round).await;
            let patched = elsewhere.patch(round).await;
            let path = elsewhere.path();
            let live = elsewhere.live(&path, &[("accept", accept)]).await;
            live.ok().unwrap();
            elsewhere.must_show(accept, &patched).await;
        }
    }
    elsewhere.finish("objects");
}

/// Live lists of a kind to which nothing happens, while the cluster's version goes on: what is in memory is as new.
#[tokio::test]
async fn live_lists_of_a_quiet_kind_keep_nobody_from_memory() {
    let elsewhere = Elsewhere::new().await;
    let namespaced = elsewhere.bench.configmaps.trim_end_matches("/configmaps");
    let path = format!("{namespaced}/limitranges");
    for name in ["a", "b", "c", "d", "e"] {
        let object = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name, "labels": {"is": name}}, "spec": {"limits": []}});
        elsewhere
            .direct
            .create(&path, &object)
            .await
            .unwrap()
            .ok()
            .unwrap();
    }
    crate::pair::warm(&elsewhere.bench.reader, &path).await;
    for round in 0..rounds() / 10 {
        // Another kind: this is what moves the version of the next list.
        elsewhere.delay_the_informer(round).await;
        for accept in [JSON, TABLE, PROTOBUF, METADATA_LIST] {
            for query in [
                "",
                "limit=500",
                "limit=2",
                "labelSelector=is%20in%20(a,c)",
                "fieldSelector=metadata.name%3Db",
            ] {
                let live = elsewhere
                    .live(&format!("{path}?{query}"), &[("accept", accept)])
                    .await;
                live.ok().unwrap();
                let answer = elsewhere.bench.reader.get(&path).await.unwrap();
                assert!(
                    answer.is_hit(),
                    "{accept} {query}: {}",
                    answer.cache_status()
                );
            }
        }
        // All pages of a list.
        let mut token = String::new();
        loop {
            let page = elsewhere
                .live(
                    &format!("{path}?limit=2&continue={token}"),
                    &[("accept", TABLE)],
                )
                .await;
            let page = page.ok().unwrap().json().unwrap();
            let answer = elsewhere.bench.reader.get(&path).await.unwrap();
            assert!(answer.is_hit(), "after a page: {}", answer.cache_status());
            match page["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => token = next.to_owned(),
                _ => break,
            }
        }
    }
}
