//! What happens to a custom resource's definition, its watches are told by events or by their end. None stays open and
//! mute, and one that is opened afterwards is the server's.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::Proxy;
use http::Method;
use serde_json::{Value, json};

use super::cluster::{Kind, create, delete, list_version, patch, plain};
use super::stream::Stream;
use crate::pair::{connect, warm};

/// A kind with an object `a`, and watches of it that were opened before anything happens.
struct Defined {
    kind: Kind,
    direct: Client,
    proxied: Client,
    /// The version from which the first of them watches.
    from: u64,
    watches: Vec<(String, Stream)>,
    _proxy: Proxy,
}

/// Where a watch may begin.
fn queries(kind: &Kind, from: u64) -> Vec<String> {
    let streaming =
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let starts = [
        String::new(),
        "resourceVersion=0".to_owned(),
        format!("resourceVersion={from}"),
        streaming.to_owned(),
        format!("resourceVersion={from}&labelSelector=of%3Dtest"),
        format!("resourceVersion={from}&fieldSelector=metadata.name%3Da"),
    ];
    let versions = ["v1", "v2"];
    let of = |version| {
        let path = kind.path(version);
        starts
            .iter()
            .map(move |start| format!("{path}?watch=1&{start}"))
    };
    versions.into_iter().flat_map(of).collect()
}

impl Defined {
    async fn start() -> Self {
        let cluster = plain().await;
        let (direct, proxied, proxy) = connect(cluster).await;
        let kind = Kind::define(&direct).await;
        create(&direct, &kind.path("v1"), &kind.object("a", "first")).await;
        for version in ["v1", "v2"] {
            warm(&proxied, &kind.path(version)).await;
        }
        let from = list_version(&direct, &kind.path("v1")).await;
        let mut watches = Vec::new();
        for query in queries(&kind, from) {
            let watch = Stream::from_memory(&proxied, &query).await;
            watches.push((query, watch));
        }
        Self {
            kind,
            direct,
            proxied,
            from,
            watches,
            _proxy: proxy,
        }
    }

    async fn change(&self, change: Value) {
        let headers = [("content-type", "application/json-patch+json")];
        let changed = self.direct.send(
            Method::PATCH,
            &self.kind.definition,
            &headers,
            change.to_string(),
        );
        changed.await.unwrap().ok().unwrap();
    }

    /// Writes to the object, and returns when every watch has told of it or has ended.
    async fn nobody_is_mute(&self, word: &str) {
        let spec = json!({"spec": {"value": word}});
        patch(&self.direct, &format!("{}/a", self.kind.path("v1")), &spec).await;
        let mut ended = 0;
        for (query, watch) in &self.watches {
            let what = format!("{query} to tell or to end");
            wait_for(&what, PATIENCE, async || {
                if watch.end().is_some() || watch.text().contains(word) {
                    Ok(())
                } else {
                    Err(watch.text())
                }
            })
            .await
            .unwrap();
            ended += usize::from(watch.end().is_some());
        }
        println!("{ended} of {} watches ended", self.watches.len());
    }

    /// Returns when new watches tell what the server's tell, which is looked at again because it hears of a change later
    /// than it answers.
    async fn new_watches_are_the_servers(&self, version: &str, expected: &str, from_memory: bool) {
        for start in ["", "&resourceVersion=0", "&labelSelector=of%3Dtest"] {
            let query = format!(
                "{}?watch=1&timeoutSeconds=1{start}",
                self.kind.path(version)
            );
            wait_for(&query, PATIENCE, async || {
                let (server, proxy) =
                    tokio::join!(self.direct.get(&query), self.proxied.get(&query));
                let (server, proxy) = (server?.ok()?, proxy?.ok()?);
                anyhow::ensure!(server.text().contains(expected), "{}", server.text());
                anyhow::ensure!(
                    server.text() == proxy.text(),
                    "{}\nand not {}",
                    proxy.text(),
                    server.text()
                );
                let hit = proxy.is_hit() || !from_memory;
                anyhow::ensure!(hit, "{}", proxy.cache_status());
                Ok(())
            })
            .await
            .unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_default_that_a_schema_gets_ends_watches_or_is_told() {
    let defined = Defined::start().await;
    let other = "schema/openAPIV3Schema/properties/spec/properties/other/default";
    let paths = [0, 1].map(|n| json!({"op": "add", "path": format!("/spec/versions/{n}/{other}"), "value": "filled in"}));
    defined.change(json!(paths)).await;
    let object = format!("{}/a", defined.kind.path("v1"));
    wait_for("the default", PATIENCE, async || {
        let answer = defined.direct.get(&object).await?.ok()?;
        anyhow::ensure!(answer.text().contains("filled in"), "{}", answer.text());
        Ok(())
    })
    .await
    .unwrap();
    defined.nobody_is_mute("second").await;
    for version in ["v1", "v2"] {
        defined
            .new_watches_are_the_servers(version, "filled in", true)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_version_leaves_nobody_mute() {
    let defined = Defined::start().await;
    let definition = defined
        .direct
        .get(&defined.kind.definition)
        .await
        .unwrap()
        .json()
        .unwrap();
    let mut third = definition["spec"]["versions"][0].clone();
    third["name"] = "v3".into();
    third["storage"] = false.into();
    defined
        .change(json!([{"op": "add", "path": "/spec/versions/-", "value": third}]))
        .await;
    let path = defined.kind.path("v3");
    wait_for("the version to be served", PATIENCE, async || {
        defined.proxied.get(&path).await?.ok()
    })
    .await
    .unwrap();
    defined.nobody_is_mute("second").await;
    defined
        .new_watches_are_the_servers("v3", "second", true)
        .await;
    defined
        .new_watches_are_the_servers("v1", "second", true)
        .await;

    // And one that is served no longer.
    defined
        .change(json!([{"op": "replace", "path": "/spec/versions/1/served", "value": false}]))
        .await;
    let watch = format!("{}?watch=1&timeoutSeconds=1", defined.kind.path("v2"));
    wait_for("the version to be gone", PATIENCE, async || {
        let answer = defined.proxied.get(&watch).await?;
        anyhow::ensure!(answer.status == 404, "{}", answer.status);
        anyhow::Ok(())
    })
    .await
    .unwrap();
    defined.nobody_is_mute("third").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_become_selectable_select() {
    let defined = Defined::start().await;
    let selected = format!(
        "{}?watch=1&timeoutSeconds=1&fieldSelector=spec.value%3Dsecond",
        defined.kind.path("v1")
    );
    for client in [&defined.direct, &defined.proxied] {
        assert_eq!(client.get(&selected).await.unwrap().status, 400);
    }
    let fields = json!([{"jsonPath": ".spec.value"}]);
    let add = [0, 1].map(|n| json!({"op": "add", "path": format!("/spec/versions/{n}/selectableFields"), "value": fields}));
    defined.change(json!(add)).await;
    wait_for("the field to be selectable", PATIENCE, async || {
        defined.proxied.get(&selected).await?.ok()
    })
    .await
    .unwrap();
    defined.nobody_is_mute("second").await;
    defined
        .new_watches_are_the_servers("v1", "second", true)
        .await;
    let from = list_version(&defined.direct, &defined.kind.path("v1")).await;
    let query = format!(
        "{}?watch=1&resourceVersion={from}&fieldSelector=spec.value%3Dsecond",
        defined.kind.path("v1")
    );
    let (server, proxy) = tokio::join!(
        Stream::watch(&defined.direct, &query),
        Stream::watch(&defined.proxied, &query)
    );
    for word in ["third", "second", "fourth"] {
        defined.nobody_is_mute(word).await;
    }
    // It left by the first and the third, and came back by the second.
    for stream in [&server, &proxy] {
        wait_for("three events", PATIENCE, async || {
            let events = stream.events();
            if events.len() == 3 {
                Ok(())
            } else {
                Err(stream.text())
            }
        })
        .await
        .unwrap();
    }
    assert_eq!(proxy.text(), server.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_is_deleted_ends_watches_and_made_again_is_another_kind() {
    let defined = Defined::start().await;
    for round in 0..2 {
        delete(&defined.direct, &defined.kind.definition).await;
        if round == 0 {
            for (query, watch) in &defined.watches {
                watch.ended().await;
                let events = watch.events();
                let told = events.iter().any(|event| event["type"] == "DELETED");
                println!(
                    "{query}: {} events, told of the deletion: {told}",
                    events.len()
                );
            }
        }
        let watch = format!("{}?watch=1&timeoutSeconds=1", defined.kind.path("v1"));
        wait_for("the kind to be gone", PATIENCE, async || {
            let answer = defined.proxied.get(&watch).await?;
            anyhow::ensure!(answer.status == 404, "{}: {}", answer.status, answer.text());
            anyhow::Ok(())
        })
        .await
        .unwrap();
        defined.kind.make(&defined.direct).await;
        let path = defined.kind.path("v1");
        let word = format!("again-{round}");
        // Who watches from a version of before is told what was made since, or that it must list.
        let mut watches = Vec::new();
        for query in queries(&defined.kind, defined.from) {
            let watch = wait_for(&query, PATIENCE, async || {
                let watch = Stream::open(&defined.proxied, &query).await;
                // The kind may not be served yet.
                if watch.status == 200 {
                    Ok(watch)
                } else {
                    Err(watch.status)
                }
            });
            watches.push((query.clone(), watch.await.unwrap()));
        }
        let made = wait_for("the kind to take an object", PATIENCE, async || {
            defined
                .direct
                .create(&path, &defined.kind.object("a", &word))
                .await?
                .ok()
        });
        made.await.unwrap();
        for (query, watch) in &watches {
            wait_for(query, PATIENCE, async || {
                if watch.end().is_some() || watch.text().contains(&word) {
                    Ok(())
                } else {
                    Err(watch.text())
                }
            })
            .await
            .unwrap();
        }
        // An informer looks again at a kind that it could not list after a minute.
        defined
            .new_watches_are_the_servers("v1", &word, false)
            .await;
    }
}
