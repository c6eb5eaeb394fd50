//! Versions taken live to settle what a floor cannot know from answers.

use std::sync::Arc;
use std::time::Duration;

use super::Informers;
use crate::backoff::Backoff;
use crate::connection::next_connection;
use crate::floor::Floor;
use crate::informer::Informer;
use crate::reflector::latest_resource_version;
use crate::resource_version::ResourceVersion;

impl Informers {
    /// Takes the newest version of a kind live, as soon as that is possible, and tells its floor.
    pub(super) fn check_floor(
        self: &Arc<Self>,
        informer: &Arc<Informer>,
        epoch: u64,
        after: Duration,
        tell: impl FnOnce(&Floor, ResourceVersion) + Send + 'static,
    ) {
        let (informers, informer) = (Arc::clone(self), Arc::clone(informer));
        self.fleet.tasks().spawn(async move {
            let check = async {
                tokio::time::sleep(after).await;
                if let Some(now) = informers.latest_version(&informer, epoch).await {
                    tell(informer.floor(), now);
                }
            };
            // A stopped informer's floor has no reader.
            informer.stopped().run_until_cancelled(check).await;
        });
    }

    /// The newest version of a kind, tried until it is known; `None` where the epoch is over.
    async fn latest_version(&self, informer: &Informer, epoch: u64) -> Option<ResourceVersion> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        let mut connections = self.connections.clone();
        loop {
            let connection = next_connection(&mut connections).await?;
            if connection.epoch != epoch {
                return None;
            }
            let shard = connection.informer_shard();
            let asked = latest_resource_version(&connection, &shard, &informer.gvr);
            match connection.closed().run_until_cancelled(asked).await {
                Some(Ok(now)) => return Some(now),
                Some(Err(error)) => {
                    tracing::debug!(cluster = self.cluster, gvr = %informer.gvr, error = %error.chain(), "newest version not known yet");
                    tokio::time::sleep(backoff.next_pause()).await;
                }
                None => {}
            }
        }
    }
}
