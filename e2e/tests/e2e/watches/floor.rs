//! What an event told somebody, every later read of anybody knows.

use fleetcache_e2e::client::{Answer, Client};
use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};

use super::cluster::{Kind, create, delete, patch, plain, version};
use super::rounds;
use crate::pair::{connect, warm};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// A way to read: which path, and with which headers.
struct Reading {
    how: &'static str,
    client: Client,
    path: String,
    headers: Vec<(&'static str, &'static str)>,
}

impl Reading {
    async fn read(&self) -> Answer {
        let answer = self.client.send(Method::GET, &self.path, &self.headers, "");
        answer.await.unwrap()
    }

    /// The version of the object in the answer, and 0 if it is not there.
    fn version(answer: &Answer) -> u64 {
        let body = answer.json().unwrap();
        let rows = body["rows"].as_array().into_iter().flatten();
        let objects = rows.map(|row| &row["object"]);
        let items = body["items"].as_array().into_iter().flatten();
        let mut found = objects.chain(items).chain([&body]);
        found
            .find(|object| object["metadata"]["name"] == "told")
            .map_or(0, version)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_is_behind_an_event_that_anybody_was_told() {
    let cluster = plain().await;
    let (direct, proxied, proxy) = connect(cluster).await;
    let kind = Kind::define(&direct).await;
    let path = kind.path("v1");
    create(&direct, &path, &kind.object("told", "first")).await;
    create(&direct, &path, &kind.object("other", "0")).await;
    for version in ["v1", "v2"] {
        warm(&proxied, &kind.path(version)).await;
    }
    let json = ("accept", "application/json");
    let readings: Vec<Reading> = [
        ("list", path.clone(), vec![json]),
        ("get", format!("{path}/told"), vec![json]),
        ("list of another version", kind.path("v2"), vec![json]),
        (
            "get of another version",
            format!("{}/told", kind.path("v2")),
            vec![json],
        ),
        (
            "list by a label",
            format!("{path}?labelSelector=of%3Dtest"),
            vec![json],
        ),
        ("table", path.clone(), vec![("accept", TABLE)]),
        ("metadata", path.clone(), vec![("accept", METADATA)]),
        (
            "live list",
            path.clone(),
            vec![json, ("cache-control", "no-store")],
        ),
    ]
    .into_iter()
    .map(|(how, path, headers)| {
        let client = proxy.client(cluster.name()).unwrap();
        Reading {
            how,
            client,
            path,
            headers,
        }
    })
    .collect();

    let watch = |query: String| {
        let proxied = proxied.clone();
        async move { proxied.lines(&query).await.unwrap() }
    };
    let now = super::cluster::list_version(&direct, &path).await;
    // One from memory where watches are, one of another version, one that is live in any case.
    let mut watches = [
        watch(format!("{path}?watch=1&resourceVersion={now}")).await,
        watch(format!("{}?watch=1&resourceVersion={now}", kind.path("v2"))).await,
        watch(format!(
            "{path}?watch=1&resourceVersion={now}&shardSelector=x"
        ))
        .await,
    ];
    let mut hits = 0;
    for round in 0..rounds(200) {
        let (expected, gone) = if round % 10 == 9 {
            delete(&direct, &format!("{path}/told")).await;
            (0, true)
        } else if round % 10 == 0 && round > 0 {
            let made = create(&direct, &path, &kind.object("told", "again")).await;
            (version(&made), false)
        } else {
            let spec = json!({"spec": {"value": round.to_string()}});
            (
                version(&patch(&direct, &format!("{path}/told"), &spec).await),
                false,
            )
        };
        // The one that is asked tells first; the others read theirs later.
        let teller = round % watches.len();
        let line = watches[teller]
            .next()
            .await
            .unwrap()
            .expect("the watch goes on");
        let event: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(event["type"] == "DELETED", gone, "{event}");
        let answers = join_all(readings.iter().map(Reading::read)).await;
        for (reading, answer) in readings.iter().zip(&answers) {
            let seen = Reading::version(answer);
            hits += usize::from(answer.is_hit());
            let right = if gone { seen == 0 } else { seen >= expected };
            assert!(
                right,
                "{} shows {seen} after {expected} ({}): {}",
                reading.how,
                answer.cache_status(),
                answer.text()
            );
        }
        for (n, lines) in watches.iter_mut().enumerate() {
            if n != teller {
                lines.next().await.unwrap().expect("the watch goes on");
            }
        }
    }
    println!("{hits} reads came from memory");
    assert!(hits > rounds(200), "only {hits} reads came from memory");
    let watchers = proxy.metrics().unwrap().get("fleetcache_watchers");
    assert_eq!(watchers, Some(2.0));
}
