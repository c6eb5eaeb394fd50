//! Lists by pages: all pages of one walk are one state, or the walk is told that it is over.

use fleetcache_e2e::client::Client;
use rand::Rng as _;
use rand::rngs::StdRng;

use super::World;
use super::kinds::ListMetadata;
use super::log::{Log, key};
use super::selection::Selection;
use super::told::Moment;

/// Where a walk is.
struct Walk {
    selection: Selection,
    limit: usize,
    /// The state that all pages show; `None` before the first, and after the walk was told that it is gone.
    at: Option<Moment>,
    /// The first page must not be older.
    not_older: Moment,
    token: Option<String>,
    /// The last key shown.
    after: Option<String>,
}

impl World {
    /// Walks through a list, with pauses.
    pub(super) async fn page(&self, rng: &mut StdRng, client: &Client, selection: Selection) {
        let limit = rng.random_range(1..6);
        let slowly = rng.random_bool(0.2);
        let pause = async || {
            if slowly {
                let steps = rng.random_range(1..60);
                // Nobody takes a step while all must be quiet.
                tokio::select! {
                    () = self.steps(steps) => {}
                    () = self.hushed() => {}
                }
            }
        };
        self.walk(client, selection, limit, pause).await;
    }

    /// Walks through a list.
    pub(super) async fn walk(
        &self,
        client: &Client,
        selection: Selection,
        limit: usize,
        mut pause: impl AsyncFnMut(),
    ) {
        let mut walk = Walk {
            limit,
            at: None,
            not_older: self.told(|told| told.newest(selection.kind)),
            selection,
            token: None,
            after: None,
        };
        while self.next_page(client, &mut walk).await {
            pause().await;
        }
    }

    /// Whether there is another page.
    async fn next_page(&self, client: &Client, walk: &mut Walk) -> bool {
        let mut query = vec![format!("limit={}", walk.limit)];
        query.extend(walk.token.as_ref().map(|token| format!("continue={token}")));
        let target = walk.selection.target(&query);
        let garbled = self.garbled();
        let Some(answer) = self.ask(client, &target).await else {
            return false;
        };
        let hit = answer.is_hit();
        if answer.status == 410 {
            // The rest can be had of the newest state.
            let token = answer.json().unwrap_or_default()["metadata"]["continue"].clone();
            self.check(walk.token.is_some() && token.is_string(), || {
                format!("{target}: {}", answer.text())
            });
            self.tally().count("walks expired");
            walk.token = token.as_str().map(str::to_owned);
            walk.at = None;
            walk.not_older = Moment::default();
            return true;
        }
        let metadata = match ListMetadata::of(&answer.body) {
            Some(metadata) if answer.status == 200 => metadata,
            _ => {
                let crossed = walk
                    .at
                    .is_some_and(|at| at.epoch < self.log(|log| log.current()));
                let passes = answer.status == 503
                    || (answer.status == 504 && crossed)
                    || (!hit && self.garbled_since(garbled));
                self.check(passes, || {
                    format!("{target}: {}: {}", answer.status, answer.text())
                });
                return false;
            }
        };
        let at = self.log(|log| walk.found(log, &metadata, &answer.body));
        let Some((at, last)) = at else {
            self.fail(&format!(
                "{target} ({}): page after {:?} of {:?}, not older than {:?}, is no part of that state\n{}",
                answer.cache_status(),
                walk.after,
                walk.at,
                walk.not_older,
                answer.text()
            ));
        };
        let crossed = walk.at.is_some_and(|walk| walk.epoch < at.epoch);
        if crossed {
            // A token says nothing of the cluster that it is from: the server takes it too.
            self.tally().count("walks continued in another epoch");
        }
        self.tally().read("pages", hit);
        walk.at = Some(at);
        walk.after = last.or_else(|| walk.after.take());
        walk.token.clone_from(&metadata.token);
        walk.token.is_some()
    }
}

impl Walk {
    /// The moment of a page if it is right, and its last key.
    fn found(
        &self,
        log: &Log,
        metadata: &ListMetadata,
        body: &[u8],
    ) -> Option<(Moment, Option<String>)> {
        let version = metadata.version;
        if self.at.is_some_and(|at| at.version != version) {
            return None;
        }
        let oldest = self.at.unwrap_or(self.not_older).epoch;
        (oldest..=log.current()).find_map(|epoch| {
            let data = log.epoch(epoch);
            if version > data.newest || version < data.base {
                return None;
            }
            let history = log.history(epoch, self.selection.kind);
            let index = history.index_at(version);
            let not_older = self.not_older;
            if epoch == not_older.epoch && index < history.index_at(not_older.version) {
                return None;
            }
            let state = &history.states[index];
            let rest = self.selection.of(state).filter(|object| {
                let after = self.after.as_ref();
                after.is_none_or(|after| key(object) > *after)
            });
            let objects: Vec<_> = rest.collect();
            let shown = &objects[..objects.len().min(self.limit)];
            let more = objects.len() - shown.len();
            // With a selector the server does not look whether what follows is selected.
            let ends = match &metadata.token {
                Some(_) => shown.len() == self.limit && (more > 0 || self.selection.has_selector()),
                None => more == 0,
            };
            let counted = match metadata.remaining {
                Some(remaining) => remaining == more as u64 && !self.selection.has_selector(),
                None => metadata.token.is_none() || self.selection.has_selector(),
            };
            let objects = shown.iter().map(|object| object.as_ref());
            let expected = self.selection.kind.list(objects, metadata);
            let last = shown.last().map(|object| key(object));
            (ends && counted && expected == body).then_some((Moment { epoch, version }, last))
        })
    }
}
