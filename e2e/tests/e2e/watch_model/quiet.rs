//! Moments at which memory must answer: nobody asks or writes but this one, nothing is wrong, and every kind shows the last
//! write. What comes from the cluster then has no excuse in the seed or the machine.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, IteratorRandom as _};
use tokio::sync::RwLockReadGuard;
use tokio::time::{Instant, timeout, timeout_at};

use super::World;
use super::kinds::{KINDS, Kind, ListMetadata, NAMES, NAMESPACES};
use super::reads::{Read, Version};
use super::selection::Selection;
use super::told::Moment;
use super::watchers::{Ended, Request};

/// How long a moment is waited for while others go on: who asked on a connection that has died may wait long for an answer.
const HUSH: Duration = Duration::from_secs(2);

/// Selections of each kind that are asked for.
const SELECTIONS: usize = 3;

/// Writes among which any state is read.
const WRITES: usize = 4;

/// How an answer from elsewhere ends that an informer without a watch, or a cluster that was not reached, may be the reason for.
const EXCUSES: [&str; 3] = [": 503", "detail=not-synced", "no answer"];

/// What tells that an informer had to begin anew, which nobody can foresee on a busy machine: a probe may come too late.
#[derive(Debug, PartialEq)]
struct Renewals {
    connects: Option<f64>,
    lists: Option<f64>,
    watches: u64,
}

impl World {
    /// A turn to ask or to write something. There is none while all must be quiet.
    pub(super) async fn turn(&self) -> RwLockReadGuard<'_, ()> {
        self.turns.read().await
    }

    /// Waits until somebody wants all to be quiet.
    pub(super) async fn hushed(&self) {
        let mut hushed = self.hushed.subscribe();
        drop(hushed.wait_for(|hushed| *hushed).await);
    }

    /// A quiet moment, if all come to rest soon.
    pub(super) async fn quiet_now(&self, rng: &mut StdRng, client: &Client) {
        self.quiet_within(HUSH, rng, client).await;
    }

    /// A quiet moment when all have come to rest.
    pub(super) async fn quiet(&self, rng: &mut StdRng, client: &Client) {
        let was = self.quiet_within(PATIENCE, rng, client).await;
        self.check(was, || "somebody asks for ever".to_owned());
    }

    async fn quiet_within(&self, patience: Duration, rng: &mut StdRng, client: &Client) -> bool {
        self.hushed.send_replace(true);
        let all = timeout(patience, self.turns.write()).await;
        if all.is_ok() {
            self.must_hit(rng, client).await;
            self.tally().count("quiet moments");
        }
        self.hushed.send_replace(false);
        all.is_ok()
    }

    async fn must_hit(&self, rng: &mut StdRng, client: &Client) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let epoch = self.all_held(client).await;
            let before = self.renewals();
            self.missed.lock().clear();
            self.certain_reads(rng, client, epoch).await;
            let missed = std::mem::take(&mut *self.missed.lock());
            if missed.is_empty() {
                return;
            }
            // Only of an informer that lost its watch meanwhile, or of a cluster that was not reached.
            let excuse = |missed: &String| EXCUSES.iter().any(|excuse| missed.ends_with(excuse));
            let excused = missed.iter().all(excuse);
            self.recovered(client).await;
            let mut after = self.renewals();
            // What was missed was watched at the cluster.
            let own = missed.iter().filter(|missed| missed.contains("watch=1"));
            after.watches = after
                .watches
                .saturating_sub(own.count() as u64)
                .max(before.watches);
            let excused = excused && before != after && Instant::now() < deadline;
            self.check(excused, || {
                let missed = missed.join("\n");
                format!("memory did not answer what it must:\n{missed}\n{before:?} {after:?}")
            });
            self.tally().count("quiet moments begun anew");
        }
    }

    /// Every kind is written to, and shows it. Whatever watch an informer had before the trouble ended, it has a sound one now.
    pub(super) async fn all_held(&self, client: &Client) -> usize {
        for kind in &KINDS {
            self.put(kind, NAMESPACES[0], NAMES[0]);
        }
        let epoch = self.log(|log| log.current());
        for kind in &KINDS {
            let path = kind.collection(None);
            let last = self.last_write(epoch, kind);
            wait_for("memory to hold the last write", PATIENCE, async || {
                let answer = client.get(&path).await?.ok()?;
                let shown = ListMetadata::of(&answer.body).map(|metadata| metadata.version);
                anyhow::ensure!(
                    answer.is_hit() && shown >= Some(last),
                    "{} at {shown:?}, not {last}",
                    answer.cache_status()
                );
                Ok(())
            })
            .await
            .unwrap_or_else(|error| self.fail(&format!("{error:#}")));
        }
        epoch
    }

    fn last_write(&self, epoch: usize, kind: &Kind) -> u64 {
        self.log(|log| {
            let last = log.history(epoch, kind).events.last();
            last.map_or(0, |event| event.revision)
        })
    }

    fn renewals(&self) -> Renewals {
        let metrics = self.proxy.metrics().unwrap();
        let counts = self.cluster().counts();
        let watches = KINDS
            .iter()
            .map(|kind| counts.requests("watch", kind.plural));
        Renewals {
            connects: metrics.get("fleetcache_cluster_connects_total"),
            lists: metrics.get("fleetcache_cluster_informer_lists_total"),
            watches: watches.sum(),
        }
    }

    /// Reads of every form, of which each must come from memory: see `missed`.
    async fn certain_reads(&self, rng: &mut StdRng, client: &Client, epoch: usize) {
        for kind in &KINDS {
            let version = self.last_write(epoch, kind);
            let at = Moment { epoch, version };
            for selection in selections(rng, kind) {
                for version in [Version::Unset, Version::Any, Version::NotOlderThan(at)] {
                    let selection = selection.clone();
                    self.list(client, &Read { selection, version }).await;
                }
                for request in Request::of_every_form(self, &selection, at) {
                    self.watch_to_now(client, request).await;
                }
                if !selection.has_selector() {
                    let limit = rng.random_range(1..6);
                    self.walk(client, selection, limit, async || {}).await;
                }
            }
            for (namespace, name) in self.some_objects(rng, kind) {
                self.get(client, kind, &namespace, &name).await;
            }
            self.step().await;
        }
        for _ in 0..WRITES {
            let kind = KINDS.choose(rng).unwrap();
            self.put(
                kind,
                NAMESPACES.choose(rng).unwrap(),
                NAMES.choose(rng).unwrap(),
            );
            let selection = Selection::all(KINDS.choose(rng).unwrap());
            let version = Version::Any;
            self.list(client, &Read { selection, version }).await;
        }
    }

    /// Opens a watch and reads what there is.
    async fn watch_to_now(&self, client: &Client, request: Request) {
        let deadline = Instant::now() + PATIENCE;
        let target = request.target.clone();
        let Some(mut watch) = self.open_now(client, request).await else {
            return;
        };
        while !self.log(|log| watch.replay.complete(log)) {
            let read = timeout_at(deadline, self.read(&mut watch, None)).await;
            match read.unwrap_or(Err(Ended::Left)) {
                Ok(_) => {}
                Err(Ended::Left) => self.fail(&format!("{target} is open and mute")),
                // Whatever ended it has cost an informer its watch, or this was a miss.
                Err(_) => return self.miss(&target, "no answer"),
            }
        }
    }

    fn some_objects(&self, rng: &mut StdRng, kind: &Kind) -> Vec<(String, String)> {
        self.log(|log| {
            let objects = log.newest(kind).values();
            let some = objects.choose_multiple(rng, SELECTIONS).into_iter();
            some.map(|object| (object.namespace.clone(), object.name.clone()))
                .collect()
        })
    }

    /// Makes an object, or another one of its name.
    fn put(&self, kind: &Kind, namespace: &str, name: &str) {
        let n = self.writes.fetch_add(1, Ordering::Relaxed);
        let object = kind.object(namespace, name, n, Some("web"), 10);
        super::writes::put(self.cluster().store(), kind, object);
    }

    /// Something was not answered from memory; while all is quiet that counts.
    pub(super) fn miss(&self, target: &str, said: &str) {
        if *self.hushed.borrow() {
            self.missed.lock().push(format!("{target}: {said}"));
        }
    }
}

/// All of a kind, and some of it.
fn selections(rng: &mut StdRng, kind: &'static Kind) -> Vec<Selection> {
    let random = std::iter::repeat_with(|| Selection::of_kind(kind, rng));
    let random = random.filter(|selection| !selection.is_by_own_field());
    let all = std::iter::once(Selection::all(kind));
    all.chain(random.take(SELECTIONS)).collect()
}
