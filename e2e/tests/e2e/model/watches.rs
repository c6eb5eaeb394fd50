//! Watches as readers: after an event nobody is told less.

use fleetcache_e2e::client::Client;
use rand::seq::IndexedRandom as _;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::kinds::{KINDS, Kind};
use super::{World, wire};

impl World {
    /// Watches every kind in every version, live through the proxy, until `end` fires.
    pub(super) async fn watch_all(&self, end: &CancellationToken) {
        let watches = KINDS
            .iter()
            .flat_map(|kind| (0..kind.versions.len()).map(move |version| (kind, version)));
        let watches = watches.map(|(kind, version)| async move {
            while !end.is_cancelled() {
                let watch = self.watch(kind, version);
                end.run_until_cancelled(watch).await;
            }
        });
        futures_util::future::join_all(watches).await;
    }

    /// One watch, until it ends. What is wrong with it is no concern here: the cluster comes and goes.
    async fn watch(&self, kind: &Kind, version: usize) -> Option<()> {
        // A connection of its own: an HTTP/1.1 client would give its only one to the watch anyway.
        let client: &Client = self.proxied.choose(&mut rand::rng())?;
        let path = format!(
            "{}?watch=1&timeoutSeconds=20",
            kind.collection(version, None)
        );
        let Ok(mut lines) = client.lines(&path).await else {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            return None;
        };
        while let Some(line) = lines.next().await.ok()? {
            let event: Value = serde_json::from_slice(&line).ok()?;
            let shown = wire::object(&event["object"])?;
            if !self.namespaces.contains(&shown.namespace) {
                continue;
            }
            self.tally.count_event();
            if event["type"] == "DELETED" {
                self.view
                    .deleted(&shown.key(kind.storage), &shown.uid, &path);
            } else {
                self.view.told(kind.storage, &shown, &path);
            }
        }
        None
    }
}
