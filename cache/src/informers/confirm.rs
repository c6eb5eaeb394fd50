//! Floors that do not know yet what a write did: the cluster's newest version tells.
//!
//! However many writes wait for it, one question at a time is asked for a storage. What it tells becomes the floor; an
//! informer of a quiet kind would reach that only with its next bookmark, up to a minute later, so it is made to catch up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Informers;
use crate::backoff::Backoff;
use crate::connection::next_connection;
use crate::error_chain::error_chain;
use crate::floor::Floor;
use crate::gvr::{Gvr, Storage};
use crate::panics::run_again;
use crate::reflector::latest_resource_version;
use crate::resource_version::ResourceVersion;

/// Time after which the floor is checked against the cluster where a DELETED event has not come.
const GONE_CHECKED_AFTER: Duration = Duration::from_secs(10);

impl Informers {
    /// A write whose effect is not known: reads of the storage go live until a version taken live from now on is in
    /// its floor.
    pub fn unconfirmed(self: &Arc<Self>, storage: &Storage, epoch: u64) {
        let Some(floor) = self.floor(storage) else {
            return;
        };
        if floor.unconfirmed(epoch) {
            let informers = Arc::clone(self);
            self.look(run_again("confirmation of writes", move || {
                let (informers, floor) = (Arc::clone(&informers), Arc::clone(&floor));
                async move { informers.confirm(&floor, epoch).await }
            }));
        }
    }

    /// An object is known to be deleted, though its answer told no version. Where its DELETED event does not come, a
    /// version taken live tells whether it will.
    pub fn gone(self: &Arc<Self>, storage: &Storage, epoch: u64, key: &str, uid: &str) {
        let Some(floor) = self.floor(storage) else {
            return;
        };
        if floor.gone(epoch, key, uid) {
            let informers = Arc::clone(self);
            self.look(run_again("check of deletions", move || {
                let (informers, floor) = (Arc::clone(&informers), Arc::clone(&floor));
                async move { informers.check_gone(&floor, epoch).await }
            }));
        }
    }

    /// A floor was raised to a version that may be no event of its kinds (a LIST's, a confirmation's): its informers are
    /// brought there in the background, so that reads come from memory again within a second or two rather than with the
    /// next bookmark. Costs one short watch for each informer that is below and does not get there by itself; calls for a
    /// floor that is being caught up with, or was in vain, cost nothing. Raise the floor first.
    pub(super) fn catch_up(&self, floor: &Arc<Floor>) {
        for informer in self.state.lock().all() {
            if Arc::ptr_eq(informer.floor(), floor) {
                informer.catch_up();
            }
        }
    }

    /// Runs until the cluster is removed.
    fn look(&self, looking: impl Future<Output = Option<()>> + Send + 'static) {
        let removed = self.removed.clone();
        self.fleet.tasks().spawn(async move {
            removed.run_until_cancelled(looking).await;
        });
    }

    /// Confirms until there is nothing left to; `None` where nobody waits for it any more.
    async fn confirm(&self, floor: &Arc<Floor>, epoch: u64) -> Option<()> {
        while let Some(waiting) = floor.to_confirm(epoch) {
            let now = self.latest_version(floor, epoch).await?;
            floor.confirmed(epoch, waiting, now);
            self.catch_up(floor);
        }
        Some(())
    }

    /// Checks until no deletion waits for its event unchecked.
    async fn check_gone(&self, floor: &Arc<Floor>, epoch: u64) -> Option<()> {
        loop {
            tokio::time::sleep(GONE_CHECKED_AFTER).await;
            if !floor.has_gone_to_check(epoch) {
                return Some(());
            }
            let asked = Instant::now();
            let now = self.latest_version(floor, epoch).await?;
            floor.gone_checked(epoch, asked, now);
            self.catch_up(floor);
        }
    }

    /// The newest version of a floor's storage, tried until it is known; `None` where the epoch is over, or the floor
    /// has no informer left and so no reader.
    async fn latest_version(&self, floor: &Arc<Floor>, epoch: u64) -> Option<ResourceVersion> {
        #[cfg(test)]
        crate::panics::planned::here("confirm");
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let mut connections = self.connections.clone();
        loop {
            let connection = next_connection(&mut connections).await?;
            if connection.epoch != epoch {
                return None;
            }
            let gvr = self.gvr_of(floor)?;
            let shard = connection.informer_shard();
            let asked = latest_resource_version(&connection, &shard, &gvr);
            match connection.closed().run_until_cancelled(asked).await {
                Some(Ok(now)) => return Some(now),
                Some(Err(error)) => {
                    tracing::debug!(cluster = self.cluster, gvr = %gvr, error = error_chain(&error), "newest version not known yet");
                    tokio::time::sleep(backoff.next_pause()).await;
                }
                None => {}
            }
        }
    }

    /// The kind of one of the informers that read this floor.
    fn gvr_of(&self, floor: &Arc<Floor>) -> Option<Gvr> {
        let state = self.state.lock();
        let mut informers = state.all();
        let found = informers.find(|informer| Arc::ptr_eq(informer.floor(), floor))?;
        Some(found.gvr.clone())
    }
}
