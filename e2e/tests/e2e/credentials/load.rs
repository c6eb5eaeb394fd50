//! Clients that forgive nothing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::Proxy;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::SECRETS;
use crate::fleet::{CONFIGMAPS, configmap};
use crate::pair::{connected, warm};

/// Clients of one cluster that read from memory, read live, write and watch, without a pause and without forgiveness.
pub(super) struct Load {
    stop: CancellationToken,
    clients: Vec<JoinHandle<()>>,
    watch: JoinHandle<BTreeSet<String>>,
    answers: Arc<AtomicU64>,
    client: Client,
}

/// What a client waits after an answer, so that one machine can bear them all.
const PACE: Duration = Duration::from_millis(5);

impl Load {
    pub(super) async fn start(proxy: &Proxy, cluster: &str) -> Self {
        let client = || proxy.client(cluster).unwrap();
        connected(&client()).await;
        let first = configmap("first", "0");
        client()
            .create(CONFIGMAPS, &first)
            .await
            .unwrap()
            .ok()
            .unwrap();
        warm(&client(), CONFIGMAPS).await;
        let (stop, answers) = (CancellationToken::new(), Arc::new(AtomicU64::new(0)));
        let mut clients = Vec::new();
        for (path, from_memory) in [
            (CONFIGMAPS.to_owned(), true),
            (format!("{CONFIGMAPS}/first"), true),
            (SECRETS.to_owned(), false),
            (format!("{SECRETS}?limit=1"), false),
        ] {
            let (client, stop, answers) = (client(), stop.clone(), Arc::clone(&answers));
            clients.push(tokio::spawn(async move {
                while !stop.is_cancelled() {
                    let answer = client.get(&path).await.unwrap().ok().unwrap();
                    // Just after a change of the address an informer makes sure of the cluster first.
                    let is_live = answer.cache_status().contains("fwd=");
                    assert!(from_memory || is_live, "{path}: {}", answer.cache_status());
                    answers.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(PACE).await;
                }
            }));
        }
        let mut lines = client()
            .lines(&format!("{CONFIGMAPS}?watch=true"))
            .await
            .unwrap();
        let watch = tokio::spawn(async move {
            let mut names = BTreeSet::new();
            while let Some(line) = lines.next().await.unwrap() {
                let event: Value = serde_json::from_slice(&line).unwrap();
                assert_eq!(event["type"], "ADDED", "{event}");
                let name = event["object"]["metadata"]["name"].as_str().unwrap();
                assert!(names.insert(name.to_owned()), "{name} came twice");
                if name == "last" {
                    break;
                }
            }
            names
        });
        Self {
            stop,
            clients,
            watch,
            answers,
            client: client(),
        }
    }

    /// A write, which the watch has to tell of.
    pub(super) async fn write(&self, name: &str) {
        let created = self.client.create(CONFIGMAPS, &configmap(name, "0")).await;
        created.unwrap().ok().unwrap();
    }

    /// More answers than now.
    pub(super) async fn goes_on(&self) {
        let before = self.answers.load(Ordering::Relaxed);
        wait_for("more answers", PATIENCE, async || {
            let now = self.answers.load(Ordering::Relaxed);
            assert!(!self.clients.iter().any(JoinHandle::is_finished));
            anyhow::ensure!(now >= before + 100, "{now}");
            Ok(())
        })
        .await
        .unwrap();
    }

    /// Nothing failed, and the one watch was told of each of these writes once.
    pub(super) async fn assert_unharmed(self, written: &[String]) {
        self.write("last").await;
        let told = self.watch.await.unwrap();
        for name in written {
            assert!(told.contains(name), "the watch was not told of {name}");
        }
        self.stop.cancel();
        for client in self.clients {
            client.await.unwrap();
        }
        println!("{} answers", self.answers.load(Ordering::Relaxed));
    }
}
