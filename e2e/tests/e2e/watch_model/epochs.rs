//! The cluster's data are replaced: by a backup, or by another cluster.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::sim::{Checkpoint, Fault};
use serde_json::{Value, json};

use super::World;
use super::kinds::Kind;
use super::log::Log;
use super::told::Moment;

/// What the log has when the cluster is found to be of another epoch.
pub(super) const BEGINS: &str = "a new epoch starts";

impl World {
    /// How many epochs the proxy has begun since its first.
    pub(super) fn epochs_begun(&self) -> usize {
        self.proxy.log().matches(BEGINS).count()
    }

    /// Whether a version was told in an epoch that is over.
    pub(super) fn is_former(&self, at: Moment) -> bool {
        at.epoch < self.log(|log| log.current())
    }

    /// The version of the first list of a kind, in whichever of its epochs the proxy was since it had begun so many; 0 where
    /// there is none yet.
    pub(super) fn listed_since(&self, epochs: usize, kind: &Kind) -> u64 {
        let gvr = format!(r#""gvr":"{}.v1"#, kind.plural);
        let log = self.proxy.log();
        let first = |epoch: &str| {
            let synced = epoch
                .lines()
                .filter(|line| line.contains("informer synced") && line.contains(&gvr));
            let versions = synced.filter_map(|line| {
                let line: Value = serde_json::from_str(line).ok()?;
                line["rv"].as_str()?.parse::<u64>().ok()
            });
            versions.min().unwrap_or_default()
        };
        let firsts = log.split(BEGINS).skip(epochs).map(first);
        firsts.min().unwrap_or_default()
    }

    /// From a backup. Its version, which is lower than what memory holds, is all that tells.
    pub(super) async fn restored(&self, client: &Client, backup: &mut Checkpoint) {
        self.all_held(client).await;
        let epochs = self.epochs_begun();
        let cluster = self.cluster();
        cluster.kill();
        self.noticed(client).await;
        // Writes went on until now. From here on they would bring the version to where it was, and a busy proxy may look later.
        let nobody_writes = self.writing.lock().await;
        cluster.store().restore(backup);
        self.new_epoch();
        *backup = cluster.store().checkpoint();
        cluster.heal().unwrap();
        wait_for("the proxy to begin another epoch", PATIENCE, async || {
            let log = self.proxy.log();
            anyhow::ensure!(self.epochs_begun() > epochs, "it has begun {epochs}");
            let since = log.rfind(BEGINS).unwrap_or_default();
            anyhow::ensure!(log[since..].contains(r#""connected""#), "not connected");
            Ok(())
        })
        .await
        .unwrap_or_else(|error| self.fail(&format!("{error:#}")));
        drop(nobody_writes);
    }

    /// From a backup, and ahead of what was before the clients see it. With the uid of before and a later version nothing
    /// tells it from the cluster that was, but that its history is gone, as etcd's guide to restoring has it done.
    pub(super) async fn restored_ahead(&self, client: &Client, backup: &mut Checkpoint) {
        let cluster = self.cluster();
        cluster.kill();
        self.noticed(client).await;
        let nobody_asks = self.turns.write().await;
        let before = cluster.store().revision();
        cluster.store().restore(backup);
        self.overtake(before);
        cluster.store().compact();
        self.log_mut(Log::rebase);
        *backup = cluster.store().checkpoint();
        cluster.heal().unwrap();
        // Memory goes on where it was until its watches are told so.
        self.all_held(client).await;
        drop(nobody_asks);
    }

    /// Another cluster, whose uid tells.
    pub(super) async fn rebuilt(&self, client: &Client, backup: &mut Checkpoint, ahead: bool) {
        let cluster = self.cluster();
        cluster.kill();
        self.noticed(client).await;
        // Writes went on until now.
        let before = cluster.store().revision();
        cluster.fault(Fault::Rebuild);
        if ahead {
            self.overtake(before);
        }
        self.new_epoch();
        *backup = cluster.store().checkpoint();
    }

    /// Writes to a kind that nobody reads until the history is longer than the one before.
    fn overtake(&self, before: u64) {
        let store = self.cluster().store();
        let object = json!({"metadata": {"namespace": "other", "name": "n"}});
        drop(store.create("secrets", object));
        while store.revision() <= before {
            let n = store.revision().to_string();
            let changed = store.modify("secrets", "other", "n", |object| {
                object["data"] = json!({"n": n});
            });
            changed.unwrap();
        }
    }
}
