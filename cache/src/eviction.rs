//! What all clusters' informers share: one budget of memory, one look at who is idle.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::informer::Informer;
use crate::informers::{Informers, InformersConfig};

/// Time between two looks.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The informers of all clusters.
#[derive(Debug)]
pub struct Fleet {
    config: InformersConfig,
    tasks: TaskTracker,
    /// Held while the list is copied, never across an await.
    clusters: Mutex<Vec<Weak<Informers>>>,
}

/// What informers hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InformerTotals {
    /// Informers that run.
    pub informers: usize,
    /// Objects in memory.
    pub objects: usize,
    /// Their bytes, estimated from their lengths.
    pub bytes: usize,
}

impl Fleet {
    /// Starts looking after the informers of all clusters; ends when `shutdown` fires.
    pub fn start(
        config: InformersConfig,
        tasks: &TaskTracker,
        shutdown: &CancellationToken,
    ) -> Arc<Self> {
        let fleet = Arc::new(Self {
            config,
            tasks: tasks.clone(),
            clusters: Mutex::default(),
        });
        let (sweeping, shutdown) = (Arc::clone(&fleet), shutdown.clone());
        tasks.spawn(async move {
            let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
            while shutdown.run_until_cancelled(ticks.tick()).await.is_some() {
                sweeping.sweep();
            }
        });
        fleet
    }

    pub(crate) fn config(&self) -> &InformersConfig {
        &self.config
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    pub(crate) fn enroll(&self, informers: &Arc<Informers>) {
        let mut clusters = self.clusters.lock();
        clusters.retain(|known| known.strong_count() > 0);
        clusters.push(Arc::downgrade(informers));
    }

    /// Whether another informer may start.
    pub(crate) fn has_room(&self) -> bool {
        (self.totals().bytes as u64) < self.config.memory_limit
    }

    /// What all informers hold together.
    pub fn totals(&self) -> InformerTotals {
        let mut totals = InformerTotals::default();
        for (_, informer) in self.all() {
            let (objects, bytes) = informer.size();
            totals.informers += 1;
            totals.objects += objects;
            totals.bytes += bytes;
        }
        totals
    }

    /// Stops who is idle, and while the memory limit is passed the least recently read.
    fn sweep(&self) {
        let mut all = self.all();
        all.sort_by_key(|(_, informer)| std::cmp::Reverse(informer.idle_for()));
        let mut bytes: u64 = all
            .iter()
            .map(|(_, informer)| informer.size().1 as u64)
            .sum();
        for (informers, informer) in all {
            if informer.idle_for() >= self.config.idle_timeout {
                informers.stop(&informer, "idle");
            } else if bytes > self.config.memory_limit {
                informers.stop(&informer, "memory-limit");
            } else {
                continue;
            }
            bytes -= informer.size().1 as u64;
        }
    }

    fn all(&self) -> Vec<(Arc<Informers>, Arc<Informer>)> {
        let clusters: Vec<Arc<Informers>> = self
            .clusters
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        clusters
            .into_iter()
            .flat_map(|informers| {
                let all = informers.all();
                all.into_iter()
                    .map(move |informer| (Arc::clone(&informers), informer))
            })
            .collect()
    }
}
