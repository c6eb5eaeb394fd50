//! What is known of a cluster for a while: asked once, whoever asks, and forgotten with the cluster.

mod shares;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use moka::Expiry;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::shares::Shares;

/// The facts of one purpose about all clusters of the process, such as who may do what. One for each purpose and not for
/// each cluster: an empty cache costs 33 kB.
///
/// `K` is what is known within a cluster, `V` the fact and `E` why a question had no answer.
pub struct Facts<K, V, E> {
    known: Cache<Key<K>, Fact<V>>,
    /// The questions under way. Held for a look-up, never across an await.
    asked: Mutex<HashMap<Key<K>, Asked<V, E>>>,
    instances: AtomicU64,
    weigh: fn(&K, &V) -> u32,
    shares: Option<Arc<Shares<K>>>,
}

/// Why there is no fact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFact<E> {
    /// The question failed; the next one asks anew.
    #[error("{0}")]
    Failed(E),
    /// The cluster went, or its facts were flushed, before there was an answer; or the question panicked.
    #[error("the question ended without an answer")]
    Ended,
}

/// The facts about one cluster. They go when this is dropped, and what comes later under the cluster's name has its own.
pub struct ClusterFacts<K, V, E>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    facts: Arc<Facts<K, V, E>>,
    /// In the keys, so that a flush is done with one store: what is known or being asked under another is not found.
    instance: AtomicU64,
    /// Something was put or asked under this instance. Changed together with it, under the lock of the questions.
    used: AtomicBool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key<K> {
    instance: u64,
    key: K,
}

#[derive(Clone)]
struct Fact<V> {
    value: V,
    /// By tokio's clock, which decides. moka's own frees the memory.
    good_until: Option<Instant>,
}

/// A question under way.
struct Asked<V, E> {
    answer: Answer<V, E>,
    ended: CancellationToken,
}

/// What those who asked the same wait for.
type Answer<V, E> = Shared<BoxFuture<'static, Result<V, NoFact<E>>>>;

impl<K, V, E> Facts<K, V, E>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// Facts that weigh no more than `max_weight` together, by `weigh`; past that the least recently read are forgotten.
    pub fn new(max_weight: u64, weigh: fn(&K, &V) -> u32) -> Arc<Self> {
        Self::with(max_weight, weigh, None)
    }

    /// The same, where no `holder`'s weigh more than a share of that: what is beyond is not kept, and pushes nobody else's out.
    pub fn in_shares(
        max_weight: u64,
        weigh: fn(&K, &V) -> u32,
        share: u64,
        holder: fn(&K) -> u64,
    ) -> Arc<Self> {
        let shares = Shares {
            most: share,
            holder,
            held: Mutex::default(),
        };
        Self::with(max_weight, weigh, Some(Arc::new(shares)))
    }

    fn with(
        max_weight: u64,
        weigh: fn(&K, &V) -> u32,
        shares: Option<Arc<Shares<K>>>,
    ) -> Arc<Self> {
        let known = Cache::builder()
            .max_capacity(max_weight)
            .weigher(move |key: &Key<K>, fact: &Fact<V>| weigh(&key.key, &fact.value))
            // moka's default may drop what is new for what was read more often: it would be asked for again and again.
            .eviction_policy(EvictionPolicy::lru())
            .expire_after(UntilThen)
            .support_invalidation_closures();
        let known = match shares.clone() {
            None => known.build(),
            Some(shares) => {
                let gone = move |key: Arc<Key<K>>, fact: Fact<V>, _| {
                    shares.give_back(&key.key, weigh(&key.key, &fact.value));
                };
                known.eviction_listener(gone).build()
            }
        };
        Arc::new(Self {
            known,
            asked: Mutex::default(),
            instances: AtomicU64::new(0),
            weigh,
            shares,
        })
    }

    /// Facts about another cluster.
    pub fn of_cluster(self: &Arc<Self>) -> ClusterFacts<K, V, E> {
        ClusterFacts {
            facts: Arc::clone(self),
            instance: AtomicU64::new(self.next_instance()),
            used: AtomicBool::new(false),
        }
    }

    fn next_instance(&self) -> u64 {
        self.instances.fetch_add(1, Ordering::Relaxed)
    }

    fn insert(&self, key: Key<K>, fact: Fact<V>) {
        if let Some(shares) = &self.shares {
            // What it replaces has no part in what there is room for.
            self.known.invalidate(&key);
            let weight = (self.weigh)(&key.key, &fact.value);
            let mut is_room = shares.take(&key.key, weight);
            if !is_room {
                // What has expired is counted until moka drops it.
                self.known.run_pending_tasks();
                is_room = shares.take(&key.key, weight);
            }
            if !is_room {
                return;
            }
        }
        self.known.insert(key, fact);
    }

    fn look_up(&self, key: &Key<K>) -> Option<V> {
        let fact = self.known.get(key)?;
        fact.is_good(Instant::now()).then_some(fact.value)
    }
}

impl<K, V, E> ClusterFacts<K, V, E>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// What is known, if it is still good.
    pub fn get(&self, key: &K) -> Option<V> {
        self.facts.look_up(&self.key(key.clone()))
    }

    /// From now on this is known, until then; without a time until it is forgotten.
    pub fn put(&self, key: K, value: V, good_until: Option<Instant>) {
        let _no_flush_meanwhile = self.facts.asked.lock();
        self.used.store(true, Ordering::Relaxed);
        self.facts.insert(self.key(key), Fact { value, good_until });
    }

    /// Nothing is known about it any more. A question under way goes on.
    pub fn forget(&self, key: &K) {
        self.facts.known.invalidate(&self.key(key.clone()));
    }

    /// What is known, or else what `question` finds and until when that is good. Whoever asks the same meanwhile waits for
    /// the same answer. The question runs in a task of its own: a caller that goes away neither ends nor fails it for the
    /// others, and what it finds is kept. Waits as long as the question takes.
    ///
    /// # Errors
    /// Why there is no answer: told to all who wait for it, and kept for nobody.
    pub async fn get_or_ask<Q>(&self, key: K, question: Q) -> Result<V, NoFact<E>>
    where
        Q: Future<Output = Result<(V, Option<Instant>), E>> + Send + 'static,
    {
        if let Some(known) = self.get(&key) {
            return Ok(known);
        }
        let (answer, to_ask) = {
            let mut asked = self.facts.asked.lock();
            let key = self.key(key);
            // An answer is put before its question is taken away: what is in neither place now is to be asked.
            if let Some(known) = self.facts.look_up(&key) {
                return Ok(known);
            }
            if let Some(asked) = asked.get(&key) {
                (asked.answer.clone(), None)
            } else {
                self.used.store(true, Ordering::Relaxed);
                let (under_way, answer) = UnderWay::begin(&self.facts, &key);
                let ended = under_way.ended.clone();
                asked.insert(
                    key,
                    Asked {
                        answer: answer.clone(),
                        ended,
                    },
                );
                (answer, Some(under_way))
            }
        };
        // Not under the lock: a runtime that shuts down drops the task here, which takes the question from the list.
        if let Some(under_way) = to_ask {
            tokio::spawn(under_way.run(question));
        }
        answer.await
    }

    /// Nothing is known about the cluster any more; questions under way end without an answer.
    pub fn flush(&self) {
        let old = {
            let mut asked = self.facts.asked.lock();
            let next = self.facts.next_instance();
            let old = self.instance.swap(next, Ordering::Relaxed);
            if !self.used.swap(false, Ordering::Relaxed) {
                return;
            }
            asked.retain(|key, asked| {
                let stays = key.instance != old;
                if !stays {
                    asked.ended.cancel();
                }
                stays
            });
            old
        };
        let known = &self.facts.known;
        // It cannot fail: the builder was asked to support it. What were not dropped would be found by nobody.
        let dropped = known.invalidate_entries_if(move |key, _| key.instance == old);
        debug_assert!(dropped.is_ok());
        known.run_pending_tasks();
    }

    fn key(&self, key: K) -> Key<K> {
        Key {
            instance: self.instance.load(Ordering::Relaxed),
            key,
        }
    }
}

impl<K, V, E> Drop for ClusterFacts<K, V, E>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    fn drop(&mut self) {
        self.flush();
    }
}

impl<K, V, E> fmt::Debug for ClusterFacts<K, V, E>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// Facts may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterFacts")
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

impl<K, V, E> fmt::Debug for Facts<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").finish_non_exhaustive()
    }
}

impl<V> Fact<V> {
    fn is_good(&self, now: Instant) -> bool {
        self.good_until.is_none_or(|until| now < until)
    }
}

/// A question's place in the list. However the question ends, it leaves it.
struct UnderWay<K: Eq + Hash, V, E> {
    facts: Arc<Facts<K, V, E>>,
    key: Key<K>,
    ended: CancellationToken,
    /// Dropped without a word it tells that there is no answer.
    tell: Option<oneshot::Sender<Result<V, NoFact<E>>>>,
}

impl<K, V, E> UnderWay<K, V, E>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    fn begin(facts: &Arc<Facts<K, V, E>>, key: &Key<K>) -> (Self, Answer<V, E>) {
        let (tell, told) = oneshot::channel();
        let under_way = Self {
            facts: Arc::clone(facts),
            key: key.clone(),
            ended: CancellationToken::new(),
            tell: Some(tell),
        };
        let answer = told.map(|told| told.unwrap_or(Err(NoFact::Ended)));
        (under_way, answer.boxed().shared())
    }

    async fn run<Q>(mut self, question: Q)
    where
        Q: Future<Output = Result<(V, Option<Instant>), E>>,
    {
        let ended = self.ended.clone();
        let Some(answer) = ended.run_until_cancelled(question).await else {
            return;
        };
        let answer = match answer {
            Ok((value, good_until)) if self.keep(&value, good_until) => Ok(value),
            // Of what was before the flush.
            Ok(_) => Err(NoFact::Ended),
            Err(error) => Err(NoFact::Failed(error)),
        };
        let tell = self.tell.take();
        // Out of the list first: who hears of a failure and asks again is not to be told of it again.
        drop(self);
        // Nobody may wait any more.
        let _ = tell.map(|tell| tell.send(answer));
    }

    /// False where the facts were flushed meanwhile.
    fn keep(&self, value: &V, good_until: Option<Instant>) -> bool {
        let asked = self.facts.asked.lock();
        let is_wanted = asked.contains_key(&self.key);
        if is_wanted {
            let value = value.clone();
            let fact = Fact { value, good_until };
            self.facts.insert(self.key.clone(), fact);
        }
        is_wanted
    }
}

impl<K: Eq + Hash, V, E> Drop for UnderWay<K, V, E> {
    fn drop(&mut self) {
        self.facts.asked.lock().remove(&self.key);
    }
}

/// Tells moka how long a fact is good.
struct UntilThen;

impl UntilThen {
    fn left<V>(fact: &Fact<V>) -> Option<Duration> {
        let until = fact.good_until?;
        Some(until.saturating_duration_since(Instant::now()))
    }
}

impl<K, V> Expiry<Key<K>, Fact<V>> for UntilThen {
    fn expire_after_create(
        &self,
        _: &Key<K>,
        fact: &Fact<V>,
        _: std::time::Instant,
    ) -> Option<Duration> {
        Self::left(fact)
    }

    fn expire_after_update(
        &self,
        _: &Key<K>,
        fact: &Fact<V>,
        _: std::time::Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Self::left(fact)
    }
}

#[cfg(test)]
mod tests;
