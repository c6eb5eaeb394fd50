//! A real apiserver that is stopped for two minutes and goes on: its connections stay open, and nobody may notice more than
//! that it was away.

use std::sync::Arc;
use std::time::Duration;

use fleetcache_e2e::client::{Client, Lines};
use fleetcache_e2e::control_plane::{ControlPlane, Options, Server, User};
use fleetcache_e2e::kubeconfig::Context;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::Signal;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::bed::{Bed, CONFIGMAPS, assert_unavailable, configmap};
use crate::pair::{Comparable, compare, warm};
use crate::watches::stream::Stream;

const STOPPED_FOR: Duration = Duration::from_secs(120);

/// As the design promises: a black hole is noticed within this.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// Writes right before the stop, and right after it.
const WRITES: u64 = 20;

/// Between attempts of a client at a cluster that is away.
const PAUSE: Duration = Duration::from_millis(50);

/// What a watch told of changes: kind of event, name and version. Bookmarks are the server's choice.
fn changes(events: &[Value]) -> Vec<(String, String, u64)> {
    let changes = events.iter().filter(|event| event["type"] != "BOOKMARK");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    changes
        .map(|event| {
            let metadata = &event["object"]["metadata"];
            let version = text(&metadata["resourceVersion"])
                .parse()
                .unwrap_or_default();
            (text(&event["type"]), text(&metadata["name"]), version)
        })
        .collect()
}

/// A client whose watch ends with the grace: it watches again from the last version that it was told.
struct Resumer {
    events: Arc<Mutex<Vec<Value>>>,
    watches: Arc<Mutex<u32>>,
    task: JoinHandle<()>,
}

impl Resumer {
    fn start(client: Client, from: u64) -> Self {
        let (events, watches) = (Arc::new(Mutex::default()), Arc::new(Mutex::default()));
        let task = tokio::spawn(resume(
            client,
            from,
            Arc::clone(&events),
            Arc::clone(&watches),
        ));
        Self {
            events,
            watches,
            task,
        }
    }
}

async fn resume(
    client: Client,
    mut from: u64,
    events: Arc<Mutex<Vec<Value>>>,
    watches: Arc<Mutex<u32>>,
) {
    loop {
        let path = format!("{CONFIGMAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={from}");
        let lines = client.lines(&path).await;
        let Ok(mut lines): Result<Lines, _> = lines else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        *watches.lock() += 1;
        while let Ok(Some(line)) = lines.next().await {
            let event: Value = serde_json::from_slice(&line).unwrap();
            let version = event["object"]["metadata"]["resourceVersion"].as_str();
            from = version
                .and_then(|version| version.parse().ok())
                .unwrap_or(from);
            events.lock().push(event);
        }
    }
}

/// Writes past the proxy, one after the other.
async fn write(direct: &Client, word: &str) {
    for n in 0..WRITES {
        let value = json!({"data": {"value": format!("{word}-{n}")}});
        let path = format!("{CONFIGMAPS}/state");
        direct.patch(&path, &value).await.unwrap().ok().unwrap();
    }
    let object = configmap(&format!("made-{word}"), word);
    direct
        .create(CONFIGMAPS, &object)
        .await
        .unwrap()
        .ok()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apiserver_that_is_stopped_for_two_minutes_costs_nobody_an_event() {
    let cluster = ControlPlane::start(Options::named("frozen")).await.unwrap();
    let direct = cluster.client().unwrap();
    let object = configmap("state", "first");
    direct
        .create(CONFIGMAPS, &object)
        .await
        .unwrap()
        .ok()
        .unwrap();
    // One cluster under two names: watches of the first outlive the stop, those of the second do not.
    let contexts = ["patient", "hasty"].map(|name| Context {
        name: name.to_owned(),
        ..cluster.context(User::Proxy).unwrap()
    });
    let settings = "overrides:\n- { cluster: patient, watchDisconnectGrace: 1h }\n- { cluster: hasty, watchDisconnectGrace: 5s }";
    let bed = Bed::start(&contexts, settings).await;
    for name in ["patient", "hasty"] {
        bed.served(name, CONFIGMAPS).await;
        warm(&bed.client(name), CONFIGMAPS).await;
    }
    let list = direct.get(CONFIGMAPS).await.unwrap().json().unwrap();
    let from: u64 = list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let watch = format!("{CONFIGMAPS}?watch=1&resourceVersion={from}");
    let http2 = |name| Client::http2(&bed.context(name)).unwrap();
    let patient = [
        Stream::watch(&bed.client("patient"), &watch).await,
        Stream::watch(&http2("patient"), &watch).await,
    ];
    let hasty = [
        Stream::watch(&bed.client("hasty"), &watch).await,
        Stream::watch(&http2("hasty"), &watch).await,
    ];
    patient.iter().chain(&hasty).for_each(Stream::assert_hit);
    let resumers = ["patient", "hasty"].map(|name| Resumer::start(bed.client(name), from));

    // Not all of these may have come to the proxy when the server stops.
    write(&direct, "before").await;
    cluster.signal(Server::Apiserver, Signal::Stop);
    let stopped = Instant::now();
    for name in ["patient", "hasty"] {
        wait_for("the stop to be noticed", PATIENCE, async || {
            anyhow::ensure!(bed.is_up(name) == Some(false), "{name} is connected");
            Ok(())
        })
        .await
        .unwrap();
        let noticed = stopped.elapsed();
        println!("{name}: noticed after {noticed:?}");
        assert!(noticed < NOTICED_WITHIN, "{noticed:?}");
    }
    for watch in &hasty {
        watch.ended_clean().await;
    }
    // All the while: an answer at once, and silence for those who may wait.
    let clients = ["patient", "hasty"].map(|name| (name, bed.client(name)));
    while stopped.elapsed() < STOPPED_FOR {
        for (name, client) in &clients {
            let answer = client.get(CONFIGMAPS).await.unwrap();
            assert_unavailable(name, &answer);
        }
        assert!(patient.iter().all(|watch| watch.end().is_none()));
        sleep_until(Instant::now() + Duration::from_secs(1)).await;
    }
    cluster.signal(Server::Apiserver, Signal::Continue);
    let continued = Instant::now();
    write(&direct, "after").await;
    for name in ["patient", "hasty"] {
        bed.served(name, CONFIGMAPS).await;
        println!("{name}: served {:?} after it goes on", continued.elapsed());
    }
    for (name, client) in &clients {
        wait_for("memory to be what the server says", PATIENCE, async || {
            let (server, proxy) = (direct.get(CONFIGMAPS).await?, client.get(CONFIGMAPS).await?);
            anyhow::ensure!(proxy.is_hit(), "{name}: {}", proxy.cache_status());
            compare(&Comparable::from(&server), &Comparable::from(&proxy))
                .map_err(anyhow::Error::msg)
        })
        .await
        .unwrap();
    }
    write(&direct, "later").await;

    // The server's own history is what all of them must have been told, each change once and in order.
    let truth = Stream::watch(&direct, &watch).await;
    truth.has("\"made-later\"").await;
    let expected = changes(&truth.events());
    assert_eq!(expected.len() as u64, 3 * (WRITES + 1));
    for watch in &patient {
        watch.has("\"made-later\"").await;
        assert_eq!(changes(&watch.events()), expected);
        assert_eq!(watch.end(), None);
    }
    for watch in &hasty {
        let told = changes(&watch.events());
        assert_eq!(told, expected[..told.len()], "what came before the end");
    }
    for resumer in &resumers {
        wait_for("the last event", PATIENCE, async || {
            anyhow::ensure!(!resumer.task.is_finished(), "it has stopped");
            let told = changes(&resumer.events.lock());
            anyhow::ensure!(told.len() >= expected.len(), "{} events", told.len());
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!(changes(&resumer.events.lock()), expected);
        println!("{} watches", resumer.watches.lock());
    }
    assert!(
        *resumers[1].watches.lock() > 1,
        "it never had to watch again"
    );
}

impl Drop for Resumer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
