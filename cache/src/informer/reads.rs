//! What a reader may have of an informer, and how long it waits for it.
//!
//! How new a read is:
//! - *any*: whatever is held.
//! - *latest*: at or above the floor as it stood when the reader arrived; 200 ms are waited for it.
//! - *not older*: at or above a version; 200 ms are waited for it.
//! - *consistent*: at or above a version that the cluster told in answer to a question sent after the reader arrived. The
//!   question is one for all who wait (`questions.rs`); the informer is brought there by its own watch, or by what a second
//!   one attests (`reflector/attestation.rs`). Nobody waits longer than 3 s.
//! - *last known*: what was held when the cluster was lost, for whoever prefers that to an error.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Informer, Published};
use crate::resource_version::ResourceVersion;
use crate::store::Snapshot;

/// How long a read waits for a state that is new enough before it goes live.
const READ_WAIT: Duration = Duration::from_millis(200);

/// How long a consistent read waits: a bookmark takes up to 1.3 s, and a reader may have to wait for two.
const CONSISTENT_WAIT: Duration = Duration::from_secs(3);

/// Why a read cannot be served by an informer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotServable {
    /// It has not synced, or not resumed on this connection yet.
    NotSynced,
    /// Something newer than what it holds is known.
    BelowFloor,
    /// It has not reached the version asked for.
    TooOld,
    /// Whether it is what the cluster holds now could not be found out in time.
    Unproven,
    /// A write's effect is not known yet.
    Unconfirmed,
    /// The request names a namespace for a cluster-scoped kind, or none for an object of a namespaced one.
    OtherScope,
    /// The state at that version is not held.
    NotHeld,
    /// The version is one of the cluster that was there before.
    FormerEpoch,
}

/// Whether a request names a namespace and an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// It names a namespace.
    pub namespace: bool,
    /// It names an object.
    pub name: bool,
}

impl Published {
    fn held(&self, scope: Scope) -> Result<Arc<Snapshot>, NotServable> {
        let held = self.snapshot.as_ref().ok_or(NotServable::NotSynced)?;
        let fits = match (self.namespaced, scope.namespace, scope.name) {
            (true, namespace, name) => namespace || !name,
            (false, namespace, _) => !namespace,
        };
        if fits {
            Ok(Arc::clone(held))
        } else {
            Err(NotServable::OtherScope)
        }
    }
}

impl Informer {
    /// What this informer holds, for a read with resourceVersion 0: any state the cluster has been in, once synced.
    ///
    /// # Errors
    /// Why it cannot serve.
    pub fn read_any(
        &self,
        (generation, epoch): (u64, u64),
        scope: Scope,
    ) -> Result<Arc<Snapshot>, NotServable> {
        self.touch();
        let snapshot = self.current(generation, scope)?;
        // Whoever reads another version of the resource next is told nothing older.
        self.floor.raise(epoch, snapshot.last_event);
        Ok(snapshot)
    }

    /// What this informer holds, for a read with resourceVersion unset: at or above the floor as it stands now. Waits
    /// up to 200 ms for it.
    ///
    /// # Errors
    /// Why it cannot serve.
    pub async fn read_latest(
        &self,
        connection: (u64, u64),
        scope: Scope,
    ) -> Result<Arc<Snapshot>, NotServable> {
        self.touch();
        let (generation, epoch) = connection;
        // Before the snapshot: see `Needed`.
        let needed = self.floor.needed().ok_or(NotServable::Unconfirmed)?;
        let snapshot = self.current(generation, scope)?;
        let snapshot = if needed.admits(&snapshot) {
            snapshot
        } else {
            let stands_at = snapshot.resource_version.get();
            if self.waited_in_vain_at.load(Ordering::Relaxed) == stands_at {
                return Err(NotServable::BelowFloor);
            }
            let reached = self.reach(generation, scope, |held| needed.admits(held));
            let Some(reached) = reached.await else {
                self.waited_in_vain_at.store(stands_at, Ordering::Relaxed);
                self.catch_up();
                return Err(NotServable::BelowFloor);
            };
            reached?
        };
        self.floor.raise(epoch, snapshot.last_event);
        Ok(snapshot)
    }

    /// What this informer holds, for a read that may not be older than a version. Waits up to 200 ms for it.
    ///
    /// # Errors
    /// Why it cannot serve.
    pub async fn read_not_older(
        &self,
        connection: (u64, u64),
        scope: Scope,
        than: ResourceVersion,
    ) -> Result<Arc<Snapshot>, NotServable> {
        self.touch();
        let (generation, epoch) = connection;
        let is_new = |held: &Snapshot| held.resource_version >= than;
        let mut snapshot = self.current(generation, scope)?;
        if !is_new(&snapshot) {
            let reached = self.reach(generation, scope, is_new).await;
            snapshot = reached.ok_or(NotServable::TooOld)??;
        }
        self.floor.raise(epoch, snapshot.last_event);
        Ok(snapshot)
    }

    /// What the cluster holds now, for a read that may miss nothing: the floor is in it, and so is every write that was
    /// answered to anybody before this call, past this proxy too. Waits up to 3 s for it.
    ///
    /// # Errors
    /// Why it cannot serve.
    pub async fn read_consistent(
        &self,
        connection: (u64, u64),
        scope: Scope,
    ) -> Result<Arc<Snapshot>, NotServable> {
        self.touch();
        let (generation, epoch) = connection;
        self.current(generation, scope)?;
        let reached = async {
            let newest = self.questions.newest(generation).await;
            let newest = newest.ok_or(NotServable::Unproven)?;
            self.until(generation, |held| held.resource_version >= newest)
                .await;
            self.current(generation, scope)
        };
        let snapshot = tokio::select! {
            snapshot = tokio::time::timeout(CONSISTENT_WAIT, reached) => {
                snapshot.map_err(|_| NotServable::Unproven)??
            }
            // What was asked on a connection that is no more is not answered.
            () = self.until(generation, |_| false) => return Err(NotServable::NotSynced),
            () = self.stop.cancelled() => return Err(NotServable::NotSynced),
        };
        self.floor.raise(epoch, snapshot.last_event);
        Ok(snapshot)
    }

    /// What this informer held last in an epoch, though the cluster is not connected now. It may be older than what was
    /// told since, and raises no floor.
    ///
    /// # Errors
    /// It has never synced in this epoch, or the request's scope is another.
    pub fn read_last_known(&self, epoch: u64, scope: Scope) -> Result<Arc<Snapshot>, NotServable> {
        self.touch();
        let published = self.published.borrow();
        if published.epoch != epoch {
            return Err(NotServable::NotSynced);
        }
        published.held(scope)
    }

    /// Waits until this informer may be read on a connection. False where it has stopped before: its kind may have turned
    /// out to be one that is not kept.
    pub async fn synced(&self, generation: u64) -> bool {
        let mut published = self.published.subscribe();
        tokio::select! {
            _ = published.wait_for(|now| now.generation == generation && now.snapshot.is_some()) => true,
            () = self.stop.cancelled() => false,
        }
    }

    /// Waits until this informer, which has listed before, may be read on a connection. Not for long: 3 s at most.
    pub(crate) async fn resumed(&self, generation: u64) {
        if self.history.has_begun() {
            // In time or not: who asks next finds out.
            let _ = tokio::time::timeout(CONSISTENT_WAIT, self.synced(generation)).await;
        }
    }

    /// Waits for a snapshot that is admitted, or for the connection to end; `None` where neither came in time.
    async fn reach(
        &self,
        generation: u64,
        scope: Scope,
        admits: impl Fn(&Snapshot) -> bool,
    ) -> Option<Result<Arc<Snapshot>, NotServable>> {
        let reached = self.until(generation, admits);
        tokio::time::timeout(READ_WAIT, reached).await.ok()?;
        Some(self.current(generation, scope))
    }

    /// Waits for a snapshot that is admitted, or for the connection to end.
    async fn until(&self, generation: u64, admits: impl Fn(&Snapshot) -> bool) {
        let mut published = self.published.subscribe();
        let reached = published.wait_for(|now| {
            now.generation != generation || now.snapshot.as_ref().is_some_and(|held| admits(held))
        });
        // Never an error: the sender is in `self`.
        let _ = reached.await;
    }

    pub(crate) fn current(
        &self,
        generation: u64,
        scope: Scope,
    ) -> Result<Arc<Snapshot>, NotServable> {
        let published = self.published.borrow();
        if published.generation != generation {
            return Err(NotServable::NotSynced);
        }
        published.held(scope)
    }
}

#[cfg(test)]
mod tests;
