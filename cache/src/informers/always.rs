//! Kinds that are always kept: started without a reader, and missed where they are not served.

use std::sync::Arc;
use std::time::Duration;

use super::{CachePolicy, Informers, Refusal};
use crate::backoff::Backoff;
use crate::connection::next_connection;
use crate::error_chain::error_chain;
use crate::gvr::Gvr;
use crate::holding::Holding;
use crate::panics::run_again;
use crate::reflector::preferred_version;

impl Informers {
    /// Starts the informers of kinds that are always kept, on the first connection.
    pub(super) fn warm(self: &Arc<Self>, always: Vec<(String, String)>) {
        if always.is_empty() {
            return;
        }
        let informers = Arc::clone(self);
        self.fleet.tasks().spawn(async move {
            let removed = informers.removed.clone();
            let started = run_again("informers that are always kept", || {
                informers.start_all(always.clone())
            });
            removed.run_until_cancelled(started).await;
        });
    }

    async fn start_all(self: &Arc<Self>, mut left: Vec<(String, String)>) {
        #[cfg(test)]
        crate::panics::planned::here("always");
        let mut connections = self.connections.clone();
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        while !left.is_empty() {
            let Some(connection) = next_connection(&mut connections).await else {
                return;
            };
            let shard = connection.informer_shard();
            let mut failed = Vec::new();
            // It may have changed meanwhile.
            let config = self.fleet.config();
            left.retain(|kind| config.policy_of(kind) == CachePolicy::Always);
            for (group, resource) in left {
                match preferred_version(&connection, &shard, &group).await {
                    Ok(version) => {
                        self.start(&Gvr::new(&group, &version, &resource), Holding::Objects)
                    }
                    Err(error) => {
                        tracing::debug!(
                            cluster = self.cluster,
                            group,
                            resource,
                            error = error_chain(&error),
                            "kind not started yet"
                        );
                        if error.refusal() == Some(Refusal::NotListable) {
                            self.tell_unserved(&group, &resource);
                        }
                        failed.push((group, resource));
                    }
                }
            }
            left = failed;
            if !left.is_empty() {
                tokio::time::sleep(backoff.next_pause()).await;
            }
        }
    }

    /// Warns, once, of a kind that is to be kept always and cannot be: whoever wrote the rule believes that it is.
    pub(super) fn tell_unserved(&self, group: &str, resource: &str) {
        let kind = (group.to_owned(), resource.to_owned());
        if self.state.lock().told_unserved.insert(kind) {
            tracing::warn!(
                cluster = self.cluster,
                group,
                resource,
                "kind of a rule with `cache: always` is not served by the cluster, or not with list and watch: compare the \
                 rule with `kubectl api-resources`; once it is served, it is kept from the first read at the latest"
            );
        }
    }
}
