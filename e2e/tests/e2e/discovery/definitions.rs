//! Kinds that come and go: a CustomResourceDefinition is usable when discovery shows it, and gone with all it held when it
//! is deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::random_name;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{CLIENT_GO, check, headers};
use crate::pair::{Comparable, Pair, assert_same, warm};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Rounds of making a kind anew.
const ROUNDS: u32 = 6;

fn definition(group: &str, default: &str) -> Value {
    let spec = json!({
        "type": "object", "default": {},
        "properties": {"made": {"type": "string", "default": default}},
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("gadgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    })
}

fn gadget(group: &str, name: &str) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Gadget", "metadata": {"name": name}})
}

fn gadgets(group: &str) -> String {
    format!("/apis/{group}/v1/namespaces/default/gadgets")
}

/// Defines gadgets whose `spec.made` has a default, and returns the definition's name when they are served.
pub(super) async fn define(client: &Client, group: &str, default: &str) -> String {
    let definition = definition(group, default);
    client
        .create(DEFINITIONS, &definition)
        .await
        .unwrap()
        .ok()
        .unwrap();
    let path = gadgets(group);
    wait_for("the kind to be served", PATIENCE, async || {
        client.get(&path).await?.ok()
    })
    .await
    .unwrap();
    format!("gadgets.{group}")
}

/// Deletes a definition.
pub(super) async fn remove(client: &Client, name: &str) {
    let path = format!("{DEFINITIONS}/{name}");
    client.delete(&path).await.unwrap().ok().unwrap();
}

/// Whether aggregated discovery names gadgets of this group.
fn shows(discovery: &Answer, group: &str) -> bool {
    let discovery = discovery.json().unwrap();
    let groups = discovery["items"].as_array().unwrap();
    let found = groups.iter().find(|item| item["metadata"]["name"] == group);
    found.is_some_and(|found| found["versions"][0]["resources"][0]["resource"] == "gadgets")
}

#[tokio::test]
async fn a_kind_is_usable_the_moment_discovery_shows_it() {
    let pair = Pair::shared().await;
    let client = &pair.proxied;
    for round in 0..ROUNDS {
        let group = random_name("moment") + ".example.com";
        let path = gadgets(&group);
        // Asked for before there is such a kind, as controllers that wait for their definition do.
        for _ in 0..3 {
            assert_eq!(client.get(&path).await.unwrap().status, 404);
        }
        let definition = definition(&group, "now");
        client
            .create(DEFINITIONS, &definition)
            .await
            .unwrap()
            .ok()
            .unwrap();
        wait_for("discovery to show the kind", PATIENCE, async || {
            let accept = headers(CLIENT_GO, "");
            let discovery = client.get_with("/apis?timeout=32s", &accept).await?.ok()?;
            anyhow::ensure!(shows(&discovery, &group), "it does not");
            Ok(())
        })
        .await
        .unwrap();
        // The apiserver itself may ask for a second's patience, and every client has it: 429, with a Retry-After.
        let list = wait_for("the storage to be there", PATIENCE, async || {
            let list = client.get(&path).await?;
            let patience = list.status == 429 && list.headers.contains_key("retry-after");
            anyhow::ensure!(!patience, "{}", list.text());
            Ok(list)
        })
        .await
        .unwrap();
        assert_eq!(list.status, 200, "round {round}: {}", list.text());
        let created = client.create(&path, &gadget(&group, "one")).await.unwrap();
        assert_eq!(created.status, 201, "round {round}: {}", created.text());
        let read = client.get(&format!("{path}/one")).await.unwrap();
        assert_eq!(read.body, created.body, "round {round}");
        let list = client.get(&path).await.unwrap().json().unwrap();
        assert_eq!(
            list["items"][0]["spec"]["made"], "now",
            "round {round}: {list}"
        );
        remove(client, &format!("gadgets.{group}")).await;
    }
}

#[tokio::test]
async fn a_kind_that_is_deleted_leaves_nothing_in_memory() {
    let pair = Pair::shared().await;
    let both = (&pair.direct, &pair.proxied);
    let group = random_name("leaves") + ".example.com";
    let path = gadgets(&group);
    let definition = define(&pair.direct, &group, "here").await;
    for number in 0..20 {
        let gadget = gadget(&group, &format!("g{number}"));
        pair.direct
            .create(&path, &gadget)
            .await
            .unwrap()
            .ok()
            .unwrap();
    }
    warm(&pair.proxied, &path).await;
    // The proxy is the test's own: what it holds are these.
    let held = || {
        let metrics = pair.proxy.metrics().unwrap();
        let value = |name| metrics.get(name).unwrap();
        (value("fleetcache_informers"), value("fleetcache_objects"))
    };
    wait_for("all objects to be held", PATIENCE, async || {
        if held() == (1.0, 20.0) {
            Ok(())
        } else {
            Err(format!("{:?}", held()))
        }
    })
    .await
    .unwrap();
    remove(&pair.direct, &definition).await;
    wait_for("nothing to be held", PATIENCE, async || {
        // A reader that never gives up must not keep it.
        pair.proxied
            .get(&path)
            .await
            .map_err(|error| error.to_string())?;
        if held() == (0.0, 0.0) {
            Ok(())
        } else {
            Err(format!("{:?}", held()))
        }
    })
    .await
    .unwrap();
    let list = check(both, &path, &headers("application/json", "")).await;
    assert_eq!(list.status, 404);
    check(
        both,
        &format!("{path}/g1"),
        &headers("application/json", ""),
    )
    .await;
}

/// Reads through the proxy without pause, and fails where an object of a round is shown that was known to be over before
/// the question.
struct Readers {
    /// The first round that is not over.
    since: Arc<AtomicU32>,
    stop: CancellationToken,
    reading: Vec<JoinHandle<u64>>,
}

impl Readers {
    fn start(pair: &Pair, path: &str) -> Self {
        let since = Arc::new(AtomicU32::new(0));
        let stop = CancellationToken::new();
        let one = format!("{path}/one");
        let reading = [path, &one, path].map(|path| {
            let client = pair.proxy.client(pair.cluster.name()).unwrap();
            let (path, since, stop) = (path.to_owned(), Arc::clone(&since), stop.clone());
            tokio::spawn(async move {
                let mut read = 0;
                while !stop.is_cancelled() {
                    let since = since.load(Ordering::SeqCst);
                    let answer = client.get(&path).await.unwrap();
                    assert_since(&answer, since);
                    read += u64::from(answer.is_hit());
                }
                read
            })
        });
        Self {
            since,
            stop,
            reading: reading.into(),
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        for reading in self.reading {
            let hits = reading.await.unwrap();
            println!("{hits} answers from memory");
            assert!(hits > 0);
        }
    }
}

/// Every object in an answer was made in this round or later.
#[track_caller]
fn assert_since(answer: &Answer, since: u32) {
    if answer.status != 200 {
        return;
    }
    let json = answer.json().unwrap();
    let one = [json.clone()];
    let objects = json["items"].as_array().map_or(&one[..], Vec::as_slice);
    for object in objects {
        let made = object["spec"]["made"].as_str().unwrap();
        let made: u32 = made.strip_prefix("round-").unwrap().parse().unwrap();
        let status = answer.cache_status();
        assert!(made >= since, "{since} ({status}): {object}");
    }
}

#[tokio::test]
async fn a_kind_made_again_never_shows_what_was_before() {
    let pair = Pair::shared().await;
    let both = (&pair.direct, &pair.proxied);
    let group = random_name("again") + ".example.com";
    let path = gadgets(&group);
    let one = format!("{path}/one");
    let readers = Readers::start(&pair, &path);
    for number in 0..ROUNDS {
        // Whoever writes: what is written past the proxy is not told to it.
        let writer = if number % 2 == 0 {
            &pair.direct
        } else {
            &pair.proxied
        };
        let definition = define(&pair.direct, &group, &format!("round-{number}")).await;
        assert_since(&pair.proxied.get(&path).await.unwrap(), number);
        let gadget = gadget(&group, "one");
        let created = writer.create(&path, &gadget).await.unwrap().ok().unwrap();
        wait_for("the new kind to be held", PATIENCE, async || {
            let list = pair.proxied.get(&path).await?;
            assert_since(&list, number);
            let read = pair.proxied.get(&one).await?;
            if read.status == 200 {
                assert_eq!(read.body, created.body, "{}", read.cache_status());
            }
            let status = list.cache_status();
            anyhow::ensure!(list.is_hit() && read.is_hit(), "{status}");
            Ok(())
        })
        .await
        .unwrap();
        // The version of a list is not compared: that of the server is the cluster's newest, and others write to it.
        let direct = pair.direct.get(&path).await.unwrap();
        let proxied = pair.proxied.get(&path).await.unwrap();
        assert_same(
            &path,
            &Comparable::from(&direct),
            &Comparable::from(&proxied),
        );
        check(both, &one, &headers("application/json", "")).await;

        remove(writer, &definition).await;
        wait_for("the kind to be gone", PATIENCE, async || {
            let direct = pair.direct.get(&path).await?;
            anyhow::ensure!(direct.status == 404, "{}", direct.text());
            Ok(())
        })
        .await
        .unwrap();
        readers.since.store(number + 1, Ordering::SeqCst);
        let gone = pair.proxied.get(&path).await.unwrap();
        assert_eq!(gone.status, 404, "{}: {}", gone.cache_status(), gone.text());
        assert_eq!(pair.proxied.get(&one).await.unwrap().status, 404);
    }
    readers.stop().await;
}
