//! When the keys of an issuer are fetched: by nobody's request, but at the word of one.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::fetch::Fetch;
use super::key_set::KeySet;

/// How often, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTiming {
    /// From the start of a fetch to the earliest start of the next. It bounds what tokens with keys that nobody knows can
    /// make the proxy ask for, and is how long a new key may be unknown in the worst case.
    pub interval: Duration,
    /// Keys that are older are fetched again when one is needed, and used until then. It is how long a key that the issuer
    /// took back may still be believed. kube-apiserver believes it until a token has a key that is unknown.
    pub max_age: Duration,
    /// For both documents together.
    pub fetch: Duration,
    /// How long a request waits for a fetch that another key may come of.
    pub wait: Duration,
}

impl Default for KeyTiming {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            max_age: Duration::from_secs(300),
            fetch: Duration::from_secs(10),
            wait: Duration::from_secs(3),
        }
    }
}

/// The keys of one issuer. Those in use stay in use when a fetch fails.
pub(super) struct IssuerKeys {
    fetch: Fetch,
    timing: KeyTiming,
    current: ArcSwapOption<KeySet>,
    // Held for a few instructions.
    state: Mutex<State>,
    /// Counts the fetches that have ended.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    is_fetching: bool,
    /// Of the last fetch, ended or not.
    started: Option<Instant>,
    /// Of the last fetch that ended well.
    fetched: Option<Instant>,
    /// Why the last fetch that ended did not end well.
    failure: Option<String>,
}

/// What came of waiting for newer keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// There may be others now.
    Fetched,
    /// They are as new as they may be.
    TooEarly,
    /// Nobody can tell what the keys are now, and why.
    Failed(String),
}

impl IssuerKeys {
    /// Fetches the first keys in the background. Runs in a runtime.
    pub(super) fn start(fetch: Fetch, timing: KeyTiming) -> Arc<Self> {
        let keys = Arc::new(Self {
            fetch,
            timing,
            current: ArcSwapOption::empty(),
            state: Mutex::default(),
            ended: watch::Sender::new(0),
        });
        keys.begin();
        keys
    }

    /// These keys are known, and nothing is fetched.
    #[cfg(test)]
    pub(super) fn known(fetch: Fetch, timing: KeyTiming, keys: KeySet) -> Arc<Self> {
        Arc::new(Self {
            fetch,
            timing,
            current: ArcSwapOption::from_pointee(keys),
            state: Mutex::default(),
            ended: watch::Sender::new(0),
        })
    }

    /// Whether they are fetched so often.
    pub(super) fn are_by(&self, timing: KeyTiming) -> bool {
        self.timing == timing
    }

    /// The keys in use; none before the first fetch that ended well. Old ones are fetched again in the background.
    pub(super) fn current(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let keys = self.current.load_full()?;
        let is_old = |at: Instant| at.elapsed() >= self.timing.max_age;
        if self.state.lock().fetched.is_some_and(is_old) {
            self.begin();
        }
        Some(keys)
    }

    /// Waits for keys that are fetched now, together with everybody else who does. Nobody waits for an issuer that failed
    /// the last time: it is asked again, but what it is asked for says so at once.
    pub(super) async fn newer(self: &Arc<Self>) -> Waited {
        let failed_before = self.state.lock().failure.clone();
        let ended = self.begin();
        if let Some(failure) = failed_before {
            return Waited::Failed(failure);
        }
        let Some(mut ended) = ended else {
            return Waited::TooEarly;
        };
        // The sender lives as long as the keys do.
        if timeout(self.timing.wait, ended.changed()).await.is_err() {
            return Waited::Failed("the issuer has not answered yet".to_owned());
        }
        match self.state.lock().failure.clone() {
            Some(failure) => Waited::Failed(failure),
            None => Waited::Fetched,
        }
    }

    /// Starts a fetch unless one is under way, and gives what ends with it. None where the last one was a moment ago.
    fn begin(self: &Arc<Self>) -> Option<watch::Receiver<u64>> {
        let mut state = self.state.lock();
        // While the lock is held, so that an end cannot be missed.
        let ended = self.ended.subscribe();
        if state.is_fetching {
            return Some(ended);
        }
        let too_early = |at: Instant| at.elapsed() < self.timing.interval;
        if state.started.is_some_and(too_early) {
            return None;
        }
        state.is_fetching = true;
        state.started = Some(Instant::now());
        drop(state);
        let mut fetching = Fetching {
            keys: self.clone(),
            failure: Some("the fetch of its keys was broken off".to_owned()),
        };
        tokio::spawn(async move { fetching.run().await });
        Some(ended)
    }
}

/// A fetch under way; ends with it, also by a panic.
struct Fetching {
    keys: Arc<IssuerKeys>,
    failure: Option<String>,
}

impl Fetching {
    async fn run(&mut self) {
        let IssuerKeys { fetch, timing, .. } = &*self.keys;
        let issuer = fetch.issuer();
        let outcome = timeout(timing.fetch, fetch.key_set()).await;
        let outcome =
            outcome.unwrap_or_else(|_| Err(format!("no answer within {:?}", timing.fetch)));
        self.failure = match outcome {
            Ok(keys) => {
                info!(issuer, keys = keys.len(), "fetched the keys of an issuer");
                self.keys.current.store(Some(Arc::new(keys)));
                self.keys.state.lock().fetched = Some(Instant::now());
                None
            }
            Err(error) => {
                warn!(issuer, error, "cannot fetch the keys of an issuer");
                Some(error)
            }
        };
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        let mut state = self.keys.state.lock();
        state.is_fetching = false;
        state.failure = self.failure.take();
        drop(state);
        self.keys.ended.send_modify(|count| *count += 1);
    }
}
