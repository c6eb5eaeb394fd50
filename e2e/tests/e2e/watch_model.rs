//! Watches, lists, reads and pages in any order, over a simulated cluster on which everything goes wrong, against a record of all
//! that ever happened in it. What is told is what happened, byte for byte and once; it never goes back; and nobody who
//! follows is left behind without a word.

mod chaos;
mod epochs;
mod kinds;
mod log;
mod pages;
mod quiet;
mod reads;
mod reflectors;
mod replay;
mod selection;
mod stream;
mod tally;
mod told;
mod watchers;
mod writes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{self, Proxy};
use fleetcache_e2e::sim::{SimCluster, SimConfig};
use futures_util::future::{LocalBoxFuture, join_all};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::{Mutex as AsyncMutex, RwLock, watch};
use tokio::time::Instant;

use crate::model::number_of;
use crate::pair::connected;
use kinds::{KINDS, Kind};
use log::Log;
use reflectors::Way;
use selection::Selection;
use tally::Tally;
use told::{Moment, Told};

/// Steps of one run. `FLEETCACHE_E2E_STEPS` makes it more for a night.
const STEPS: u64 = 2_500;

/// Watches that come and go.
const WATCHERS: usize = 14;

/// Clients that read and walk through pages.
const READERS: usize = 3;

/// How long a cluster may be away before open watches end: less than an outage of the longer kind.
const CONFIG: &str = "
apiVersion: fleetcache.dev/v1alpha1
kind: Configuration
defaults: { watchDisconnectGrace: 2s, probe: { interval: 1s, timeout: 1s } }
connections: { backoffMin: 100ms, backoffMax: 200ms }
";

/// How long nobody may go without hearing a word from anybody else, so that a run moves on through an outage.
const STANDSTILL: Duration = Duration::from_millis(700);

/// The cluster, what happened in it, and what was told of it.
struct World {
    cluster: SimCluster,
    proxy: Proxy,
    log: Mutex<Log>,
    told: Mutex<Told>,
    tally: Tally,
    seed: u64,
    total: u64,
    steps: watch::Sender<u64>,
    /// When nothing happens any more: until when everything must have been told.
    settled: watch::Sender<Option<Instant>>,
    writes: AtomicU64,
    /// Held by who writes, and while nobody may.
    writing: AsyncMutex<()>,
    /// How often the cluster began or ceased to send bad bytes.
    garbled: AtomicU64,
    /// How often a trouble began or ended.
    disturbed: AtomicU64,
    /// Whether the server does not know streaming lists, or may not for a while.
    older: bool,
    open: Arc<Mutex<BTreeSet<u64>>>,
    notes: Mutex<Vec<String>>,
    /// Held for reading by who asks or writes.
    turns: RwLock<()>,
    /// All are to be quiet.
    hushed: watch::Sender<bool>,
    /// What memory did not answer since all are quiet.
    missed: Mutex<Vec<String>>,
}

/// Counts a watch as open.
struct OpenWatch {
    id: u64,
    open: Arc<Mutex<BTreeSet<u64>>>,
}

impl World {
    async fn start(seed: u64, total: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut config = SimConfig::new("sim");
        config.bookmark_interval = Duration::from_millis(rng.random_range(50..1_000));
        config.fresh_wait = Duration::from_millis(300);
        config.history_limit = *[100, 1_000, 10_000].get(rng.random_range(0..3)).unwrap();
        let older = rng.random_bool(0.5);
        config.watch_list = !older || rng.random_bool(0.7);
        let cluster = SimCluster::start(config).await.unwrap();
        let log = Log::new(cluster.store().record());
        let files = tempfile::tempdir().unwrap();
        let kubeconfig = files.path().join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.kubeconfig()).unwrap();
        let proxy = Proxy::start(proxy::Options {
            kubeconfigs: vec![kubeconfig],
            config: Some(CONFIG.to_owned()),
            ..proxy::Options::default()
        })
        .await
        .unwrap()
        .keeping(files);
        let world = Self {
            cluster,
            proxy,
            log: Mutex::new(log),
            told: Mutex::default(),
            tally: Tally::default(),
            seed,
            total,
            steps: watch::Sender::new(0),
            settled: watch::Sender::new(None),
            writes: AtomicU64::new(1),
            writing: AsyncMutex::default(),
            garbled: AtomicU64::new(0),
            disturbed: AtomicU64::new(0),
            older,
            open: Arc::default(),
            notes: Mutex::default(),
            turns: RwLock::default(),
            hushed: watch::Sender::new(false),
            missed: Mutex::default(),
        };
        connected(&world.client()).await;
        world
    }

    /// Everybody does what they do until there were enough steps, and then gets what they have not got.
    async fn run(&self) {
        let rng = |who: u64| StdRng::seed_from_u64(self.seed ^ (who << 32));
        let (context, mut who) = (self.proxy.context("sim").unwrap(), 1..);
        let mut next = || rng(who.next().unwrap());
        let shared = Client::http2(&context).unwrap();
        let mut others: Vec<LocalBoxFuture<'_, ()>> = Vec::new();
        for _ in 0..WATCHERS {
            others.push(Box::pin(self.watch(next(), shared.clone())));
        }
        for _ in 0..READERS {
            others.push(Box::pin(self.read_all(next(), self.client())));
        }
        others.push(Box::pin(self.read_all(next(), shared.clone())));
        for way in [Way::StreamingList, Way::List, Way::OnlyAfterExpired] {
            for kind in &KINDS {
                let all = Selection::all(kind);
                others.push(Box::pin(self.keep_copy(next(), self.client(), all, way)));
            }
            let mut rng = next();
            let some = Selection::random(&mut rng);
            others.push(Box::pin(self.keep_copy(rng, shared.clone(), some, way)));
        }
        let changes = async {
            tokio::join!(
                self.write(next(), self.client()),
                self.trouble(next(), self.client(), self.total),
            );
            self.cluster.heal().unwrap();
            connected(&self.client()).await;
            self.quiet(&mut next(), &self.client()).await;
            self.note("settled");
            self.settled.send_replace(Some(Instant::now() + PATIENCE));
        };
        tokio::join!(changes, join_all(others));
    }

    fn client(&self) -> Client {
        self.proxy.client("sim").unwrap()
    }

    fn cluster(&self) -> &SimCluster {
        &self.cluster
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Looks at all that has happened until now.
    fn log<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        self.log_mut(|log| look(log))
    }

    fn log_mut<T>(&self, look: impl FnOnce(&mut Log) -> T) -> T {
        let mut log = self.log.lock();
        log.catch_up();
        look(&mut log)
    }

    /// An object of this version was shown: whoever begins to read from now on sees it, or a later state.
    fn shown(&self, kind: &Kind, at: Moment) {
        // What an epoch began with may have been there in the one before.
        if at.version > self.log(|log| log.epoch(at.epoch).base) {
            self.told(|told| told.object(kind, at));
        }
    }

    fn told<T>(&self, look: impl FnOnce(&mut Told) -> T) -> T {
        look(&mut self.told.lock())
    }

    /// From now on nothing of the data before may be told to who asks.
    fn new_epoch(&self) {
        let epoch = self.log(|log| log.current());
        for kind in &KINDS {
            self.told(|told| told.object(kind, Moment { epoch, version: 0 }));
        }
    }

    /// Takes a step.
    async fn step(&self) {
        self.steps.send_modify(|steps| *steps += 1);
        tokio::task::yield_now().await;
    }

    fn steps_taken(&self) -> u64 {
        *self.steps.borrow()
    }

    fn is_over(&self) -> bool {
        self.steps_taken() >= self.total
    }

    /// Waits until so many more steps were taken, or nobody can take one, or the run is over.
    async fn steps(&self, count: u64) {
        let until = self.steps_taken().saturating_add(count).min(self.total);
        let mut steps = self.steps.subscribe();
        while *steps.borrow_and_update() < until {
            let moved = tokio::time::timeout(STANDSTILL, steps.changed()).await;
            if moved.is_err() && count < 1_000 {
                return;
            }
        }
    }

    async fn over(&self) {
        drop(
            self.steps
                .subscribe()
                .wait_for(|steps| *steps >= self.total)
                .await,
        );
    }

    /// Waits until nothing happens any more.
    async fn settled(&self) -> Instant {
        let mut settled = self.settled.subscribe();
        let deadline = settled.wait_for(Option::is_some).await.unwrap();
        deadline.unwrap()
    }

    /// Who was refused asks again a little later, as clients do.
    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    fn garble(&self) {
        self.garbled.fetch_add(1, Ordering::SeqCst);
    }

    fn garbled(&self) -> u64 {
        self.garbled.load(Ordering::SeqCst)
    }

    /// Whether bytes were bad at any time since then.
    fn garbled_since(&self, before: u64) -> bool {
        let now = self.garbled();
        now != before || !now.is_multiple_of(2)
    }

    fn disturb(&self) {
        self.disturbed.fetch_add(1, Ordering::SeqCst);
    }

    fn disturbed(&self) -> u64 {
        self.disturbed.load(Ordering::SeqCst)
    }

    /// Whether connections may have broken at any time since then.
    fn disturbed_since(&self, before: u64) -> bool {
        let now = self.disturbed();
        now != before || !now.is_multiple_of(2)
    }

    fn opened(&self) -> OpenWatch {
        let id = self.writes.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(id);
        OpenWatch {
            id,
            open: self.open.clone(),
        }
    }

    /// An outage that is longer than the grace ends every watch.
    async fn outlast_open_watches(&self) {
        let open = self.open.lock().clone();
        let ended = wait_for("all watches to end", PATIENCE, async || {
            let left = self.open.lock().intersection(&open).count();
            anyhow::ensure!(left == 0, "{left} are open");
            Ok(())
        });
        tokio::select! {
            ended = ended => ended.unwrap(),
            () = self.over() => {}
        }
    }

    fn note(&self, what: &str) {
        let step = self.steps_taken();
        let epoch = self.log(|log| log.current());
        let revision = self.cluster.store().revision();
        self.notes.lock().push(format!(
            "step {step} epoch {epoch} revision {revision}: {what}"
        ));
    }

    fn check(&self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.fail(&what());
        }
    }

    #[track_caller]
    fn fail(&self, what: &str) -> ! {
        let notes = self.notes.lock();
        let last = notes.iter().rev().take(6).rev();
        let last: Vec<&str> = last.map(String::as_str).collect();
        panic!(
            "FLEETCACHE_E2E_SEED={} at step {}: {what}\nlately: {}\n{}",
            self.seed,
            self.steps_taken(),
            last.join("\n        "),
            self.proxy.log_tail()
        );
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.open.lock().remove(&self.id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_is_what_happened() {
    let seed = number_of("FLEETCACHE_E2E_SEED").unwrap_or_else(rand::random);
    let total = number_of("FLEETCACHE_E2E_STEPS").unwrap_or(STEPS);
    println!("FLEETCACHE_E2E_SEED={seed}");
    let world = World::start(seed, total).await;
    let began = Instant::now();
    world.run().await;
    let summary = world.log(|log| log.summary());
    println!("{:?}, {summary}\n{}", began.elapsed(), world.tally());
}
