//! What all clusters' informers share: one budget of memory, one look at who is idle.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::documents::Bodies;
use crate::informer::Informer;
use crate::informers::{CachePolicy, Informers, InformersConfig, Refusal, Refused, none_refused};
use crate::panics::run_again;
use crate::self_checks::{SelfCheckTotals, SelfChecks};

/// Time between two looks.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Why an informer is stopped that would else be kept.
const MEMORY_LIMIT: &str = Refusal::MemoryLimit.as_str();

/// The informers of all clusters.
#[derive(Debug)]
pub struct Fleet {
    /// Read by all informers; replaced as a whole.
    config: ArcSwap<InformersConfig>,
    tasks: TaskTracker,
    bodies: Arc<Bodies>,
    refused: Arc<Refused>,
    self_checks: Arc<SelfChecks>,
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
    /// Their bytes and those of their recent changes, estimated from their lengths.
    pub bytes: usize,
    /// Open watches.
    pub watchers: usize,
    /// What comparing them with their servers has found.
    pub self_checks: SelfCheckTotals,
}

impl Fleet {
    /// Starts looking after the informers of all clusters; ends when `shutdown` fires.
    pub fn start(
        config: InformersConfig,
        tasks: &TaskTracker,
        shutdown: &CancellationToken,
    ) -> Arc<Self> {
        let fleet = Arc::new(Self {
            self_checks: Arc::new(SelfChecks::new(config.self_check_interval)),
            config: ArcSwap::from_pointee(config),
            tasks: tasks.clone(),
            bodies: Arc::default(),
            refused: none_refused(),
            clusters: Mutex::default(),
        });
        let (sweeping, shutdown) = (Arc::clone(&fleet), shutdown.clone());
        tasks.spawn(async move {
            let swept = run_again("informer sweeper", || async {
                let mut ticks = tokio::time::interval(SWEEP_INTERVAL);
                loop {
                    ticks.tick().await;
                    sweeping.sweep();
                }
            });
            shutdown.run_until_cancelled(swept).await;
        });
        fleet
    }

    pub(crate) fn config(&self) -> Arc<InformersConfig> {
        self.config.load_full()
    }

    /// From now on this holds: informers of kinds that are never kept stop, those of kinds that are always kept now start.
    pub fn reconfigure(&self, config: InformersConfig) {
        let before = self.config.swap(Arc::new(config));
        let now = self.config();
        self.self_checks.set_interval(now.self_check_interval);
        let clusters: Vec<_> = self
            .clusters
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for informers in clusters {
            informers.reconfigured(&before, &now);
        }
        self.sweep();
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    pub(crate) fn bodies(&self) -> &Arc<Bodies> {
        &self.bodies
    }

    pub(crate) fn refused(&self) -> &Arc<Refused> {
        &self.refused
    }

    pub(crate) fn self_checks(&self) -> &Arc<SelfChecks> {
        &self.self_checks
    }

    pub(crate) fn enroll(&self, informers: &Arc<Informers>) {
        let mut clusters = self.clusters.lock();
        clusters.retain(|known| known.strong_count() > 0);
        clusters.push(Arc::downgrade(informers));
    }

    /// Whether another informer may start.
    pub(crate) fn has_room(&self) -> bool {
        (self.totals().bytes as u64) < self.config().memory_limit
    }

    /// What all informers hold together.
    pub fn totals(&self) -> InformerTotals {
        let mut totals = InformerTotals {
            self_checks: self.self_checks.totals(),
            ..InformerTotals::default()
        };
        for (_, informer) in self.all() {
            let (objects, bytes) = informer.size();
            totals.informers += 1;
            totals.objects += objects;
            totals.bytes += bytes;
            totals.watchers += informer.history().watchers();
        }
        totals
    }

    /// Lets go of what is kept for pages in vain; stops who is not to be kept, who is idle, and while the memory limit is passed the least recently read.
    fn sweep(&self) {
        #[cfg(test)]
        crate::panics::planned::here("sweep");
        // Readers and reflectors go on meanwhile: idleness and size are looked at once, or the order would be none and
        // the sum not that of its parts.
        let config = self.config();
        let looked_at = self.all().into_iter().map(|(informers, informer)| {
            informer.history().trim();
            informer.trim_pages();
            Running {
                policy: config.policy_of_informer(&informer),
                idle: informer.idle_for(),
                bytes: informer.size().1 as u64,
                stop: move |reason| {
                    // Its next read would start it again, and list the whole kind to stop it once more.
                    if reason == MEMORY_LIMIT {
                        let (gvr, holding) = (&informer.gvr, informer.holding);
                        informers.refuse(gvr, holding, Refusal::MemoryLimit);
                    }
                    informers.stop(&informer, reason);
                },
            }
        });
        for (running, reason) in to_stop(looked_at.collect(), &config) {
            (running.stop)(reason);
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

/// An informer at the moment of a look.
struct Running<S> {
    /// What the configuration says now of its kind.
    policy: CachePolicy,
    idle: Duration,
    bytes: u64,
    stop: S,
}

/// Who is to be stopped, and why.
fn to_stop<S>(
    mut running: Vec<Running<S>>,
    config: &InformersConfig,
) -> Vec<(Running<S>, &'static str)> {
    running.sort_by_key(|running| std::cmp::Reverse(running.idle));
    let mut bytes: u64 = running.iter().map(|running| running.bytes).sum();
    let mut stopped = Vec::new();
    for running in running {
        let reason = if running.policy == CachePolicy::Never {
            "never"
        } else if running.policy != CachePolicy::Always && running.idle >= config.idle_timeout {
            "idle"
        } else if bytes > config.memory_limit {
            MEMORY_LIMIT
        } else {
            continue;
        };
        bytes -= running.bytes;
        stopped.push((running, reason));
    }
    stopped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panics::planned;

    #[test]
    fn who_is_idle_stops_and_past_the_limit_who_is_read_least() {
        let config = InformersConfig {
            idle_timeout: Duration::from_secs(60),
            memory_limit: 100,
            ..InformersConfig::default()
        };
        let check = |looked_at: &[(u64, u64)], expected: &[(u64, &str)]| {
            let running = looked_at.iter().map(|&(idle, bytes)| Running {
                policy: match bytes {
                    7 => CachePolicy::Never,
                    8 => CachePolicy::Always,
                    _ => CachePolicy::OnDemand,
                },
                idle: Duration::from_secs(idle),
                bytes,
                stop: (),
            });
            let stopped: Vec<(u64, &str)> = to_stop(running.collect(), &config)
                .into_iter()
                .map(|(running, reason)| (running.idle.as_secs(), reason))
                .collect();
            assert_eq!(stopped, expected, "{looked_at:?}");
        };
        check(&[(1, 50), (2, 50)], &[]);
        check(&[(1, 50), (60, 1), (59, 1)], &[(60, "idle")]);
        check(&[(1, 90), (3, 10), (2, 10)], &[(3, "memory-limit")]);
        check(&[(1, 90), (70, 20), (2, 10)], &[(70, "idle")]);
        check(&[(1, 200)], &[(1, "memory-limit")]);
        check(&[(1, 7), (2, 10)], &[(1, "never")]);
        check(&[(90, 8), (60, 9)], &[(60, "idle")]);
        check(&[(90, 8), (1, 99)], &[(90, "memory-limit")]);
    }

    #[tokio::test(start_paused = true)]
    async fn looking_goes_on_after_a_panic() {
        planned::plan("sweep", 1);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let _fleet = Fleet::start(InformersConfig::default(), &tasks, &stop);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(planned::visits("sweep") > 10);
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
}
