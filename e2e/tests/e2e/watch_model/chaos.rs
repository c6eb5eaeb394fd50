//! What goes wrong meanwhile.

use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::sim::{BadBytes, Checkpoint, Fault};
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::World;
use super::kinds::KINDS;

/// One trouble, from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    WatchesEnd,
    ResumesExpire,
    BytesAreBad(BadBytes),
    NoStreamingLists,
    ConnectionsBreak,
    ShortOutage,
    LongOutage,
    Compaction,
    Slowness,
    Silence,
    HalfOpen,
    /// From a backup; `true` where it is ahead of what was before the clients see it.
    Restored(bool),
    /// Another cluster; as above.
    Rebuilt(bool),
}

const TROUBLES: [Trouble; 18] = [
    Trouble::WatchesEnd,
    Trouble::WatchesEnd,
    Trouble::ResumesExpire,
    Trouble::ResumesExpire,
    Trouble::BytesAreBad(BadBytes::InvalidJson),
    Trouble::BytesAreBad(BadBytes::Truncated),
    Trouble::BytesAreBad(BadBytes::Reset),
    Trouble::NoStreamingLists,
    Trouble::ConnectionsBreak,
    Trouble::ConnectionsBreak,
    Trouble::ShortOutage,
    Trouble::LongOutage,
    Trouble::Compaction,
    Trouble::Compaction,
    Trouble::Slowness,
    Trouble::Silence,
    Trouble::HalfOpen,
    Trouble::Restored(false),
];

/// Each of them once in a run.
const EPOCHS: [Trouble; 4] = [
    Trouble::Restored(false),
    Trouble::Restored(true),
    Trouble::Rebuilt(false),
    Trouble::Rebuilt(true),
];

impl World {
    /// One trouble after the other.
    pub(super) async fn trouble(&self, mut rng: StdRng, client: Client, total: u64) {
        let mut backup = self.cluster().store().checkpoint();
        let mut epochs = EPOCHS.iter();
        let mut next_epoch = total / 5;
        while !self.is_over() {
            self.steps(rng.random_range(20..250)).await;
            let trouble = if self.steps_taken() > next_epoch {
                next_epoch += total / 5;
                epochs.next()
            } else {
                TROUBLES.choose(&mut rng)
            };
            let Some(&trouble) = trouble else { continue };
            if trouble == Trouble::NoStreamingLists && !self.older {
                continue;
            }
            self.note(&format!("{trouble:?}"));
            self.disturb();
            self.happens(&mut rng, &client, trouble, &mut backup).await;
            self.cluster().heal().unwrap();
            self.note("healed");
            // Until the proxy knows the cluster again, and what epoch it is in, answers may break.
            tokio::select! {
                () = self.recovered(&client) => {}
                () = self.over() => {}
            }
            self.disturb();
            self.tally().count("troubles");
            if !self.is_over() {
                self.quiet_now(&mut rng, &client).await;
            }
            if rng.random_bool(0.2) {
                backup = self.cluster().store().checkpoint();
            }
        }
    }

    async fn happens(
        &self,
        rng: &mut StdRng,
        client: &Client,
        trouble: Trouble,
        backup: &mut Checkpoint,
    ) {
        let cluster = self.cluster();
        let broken =
            |rng: &mut StdRng| [Fault::EndWatches, Fault::Cut].choose(rng).unwrap().clone();
        match trouble {
            Trouble::WatchesEnd => cluster.fault(Fault::EndWatches),
            Trouble::ConnectionsBreak => cluster.fault(Fault::Cut),
            Trouble::Compaction => {
                cluster.store().compact();
                if rng.random_bool(0.5) {
                    cluster.fault(broken(rng));
                }
            }
            Trouble::ResumesExpire => {
                cluster.fault(Fault::ExpireWatches);
                cluster.fault(broken(rng));
                self.steps(rng.random_range(20..100)).await;
            }
            Trouble::NoStreamingLists => {
                cluster.fault(Fault::NoWatchList);
                cluster.fault(Fault::ExpireWatches);
                cluster.fault(Fault::Cut);
                self.steps(rng.random_range(20..100)).await;
            }
            Trouble::BytesAreBad(bytes) => {
                self.garble();
                cluster.fault(Fault::BadBytes(bytes));
                self.steps(rng.random_range(5..100)).await;
                cluster.heal().unwrap();
                self.garble();
            }
            Trouble::Slowness => {
                cluster.fault(Fault::Slow(Duration::from_millis(30)));
                self.steps(50).await;
            }
            Trouble::Silence => {
                cluster.fault(Fault::Stall);
                self.steps(rng.random_range(5..50)).await;
            }
            Trouble::HalfOpen => {
                cluster.fault(Fault::HalfOpen);
                self.steps(rng.random_range(5..50)).await;
            }
            Trouble::ShortOutage => {
                cluster.kill();
                self.steps(rng.random_range(1..30)).await;
            }
            Trouble::LongOutage => {
                cluster.kill();
                self.noticed(client).await;
                self.outlast_open_watches().await;
            }
            Trouble::Restored(false) => self.restored(client, backup).await,
            Trouble::Restored(true) => self.restored_ahead(client, backup).await,
            Trouble::Rebuilt(ahead) => self.rebuilt(client, backup, ahead).await,
        }
    }

    /// Every kind comes from memory again.
    pub(super) async fn recovered(&self, client: &Client) {
        for kind in &KINDS {
            let path = kind.collection(None);
            wait_for("memory to be right again", PATIENCE, async || {
                let answer = client.get(&path).await?.ok()?;
                anyhow::ensure!(answer.is_hit(), "{}", answer.cache_status());
                Ok(())
            })
            .await
            .unwrap();
        }
    }

    /// The proxy knows that the cluster is away: what memory has is not told any more.
    pub(super) async fn noticed(&self, client: &Client) {
        for kind in &KINDS {
            let path = format!("{}?resourceVersion=0", kind.collection(None));
            wait_for("the outage to be noticed", PATIENCE, async || {
                let answer = client.get(&path).await?;
                anyhow::ensure!(answer.status == 503, "{}", answer.status);
                Ok(())
            })
            .await
            .unwrap();
        }
    }
}
