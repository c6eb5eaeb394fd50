//! What an informer publishes, for who looks on without reading.

use std::sync::Arc;

use tokio::sync::watch;

use super::{Informer, Published};
use crate::store::Snapshot;

/// The snapshots that an informer publishes.
pub(crate) struct Publications(watch::Receiver<Published>);

impl Informer {
    /// What it publishes from now on, the newest first.
    pub(crate) fn publications(&self) -> Publications {
        Publications(self.published.subscribe())
    }

    /// Readers who wait look at what is published once more: something else that they wait for has changed.
    pub(crate) fn wake_readers(&self) {
        self.published.send_modify(|_| {});
    }
}

impl Publications {
    /// The newest, if it is known to be the cluster's on this connection generation.
    pub(crate) fn newest(&mut self, generation: u64) -> Option<Arc<Snapshot>> {
        let published = self.0.borrow_and_update();
        let snapshot = published.snapshot.as_ref();
        snapshot
            .filter(|_| published.generation == generation)
            .cloned()
    }

    /// Waits for the next one on this generation; `None` once there is one of a later generation.
    pub(crate) async fn next(&mut self, generation: u64) -> Option<Arc<Snapshot>> {
        loop {
            self.0.changed().await.ok()?;
            if self.0.borrow().generation > generation {
                return None;
            }
            if let Some(snapshot) = self.newest(generation) {
                return Some(snapshot);
            }
        }
    }
}
