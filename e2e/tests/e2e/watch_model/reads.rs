//! Reads: what they show is a state that there was, and none that is older than what anybody was told before.

use std::sync::Arc;

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::sim::Object;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::World;
use super::kinds::{KINDS, Kind, ListMetadata, NAMES, NAMESPACES};
use super::log::Log;
use super::selection::Selection;
use super::told::Moment;

/// How new a list must be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Version {
    Unset,
    Any,
    NotOlderThan(Moment),
}

/// One list.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) selection: Selection,
    pub(super) version: Version,
}

/// What a list showed.
pub(super) struct Listed {
    pub(super) at: Moment,
    pub(super) objects: Vec<Arc<Object>>,
    pub(super) hit: bool,
}

/// What one client was told of one selection.
#[derive(Clone, Copy, Default)]
struct Before {
    at: Moment,
    hit: bool,
}

impl World {
    /// Reads until the run is over. What a list says never goes back.
    pub(super) async fn read_all(&self, mut rng: StdRng, client: Client) {
        let selections: Vec<Selection> = (0..4).map(|_| Selection::random(&mut rng)).collect();
        let mut before = [Before::default(); 4];
        while !self.is_over() {
            let _turn = self.turn().await;
            self.step().await;
            let which = rng.random_range(0..4);
            let selection = selections[which].clone();
            match rng.random_range(0..10) {
                0..3 => {
                    let kind = KINDS.choose(&mut rng).unwrap();
                    let namespace = NAMESPACES.choose(&mut rng).unwrap();
                    let name = NAMES.choose(&mut rng).unwrap();
                    self.get(&client, kind, namespace, name).await;
                }
                3..6 => self.page(&mut rng, &client, selection).await,
                6 => {
                    let known = self.told(|told| told.any_version(&mut rng, selection.kind));
                    let version = known.map_or(Version::Any, Version::NotOlderThan);
                    self.list(&client, &Read { selection, version }).await;
                }
                _ => {
                    let version = Version::Unset;
                    let read = Read { selection, version };
                    if let Some(listed) = self.list(&client, &read).await {
                        self.compare(&read.selection, before[which], &listed);
                        before[which] = Before {
                            at: listed.at,
                            hit: listed.hit,
                        };
                    }
                }
            }
        }
    }

    /// A list after another one of the same client shows nothing older. A live list says the newest version of all kinds: after it
    /// memory may say an older one, of the same state.
    fn compare(&self, selection: &Selection, before: Before, listed: &Listed) {
        let goes_back = listed.at < before.at
            && (listed.at.epoch < before.at.epoch
                || (listed.hit && before.hit)
                || self.log(|log| {
                    let history = log.history(listed.at.epoch, selection.kind);
                    let (from, to) = (
                        history.index_at(listed.at.version),
                        history.index_at(before.at.version),
                    );
                    history.events[from..to]
                        .iter()
                        .any(|event| selection.sees(event))
                }));
        self.check(!goes_back, || {
            format!("{selection:?}: {:?} after {:?}", listed.at, before.at)
        });
    }

    /// A list, held against the log; `None` where there is none as there may be.
    pub(super) async fn list(&self, client: &Client, read: &Read) -> Option<Listed> {
        let kind = read.selection.kind;
        let newest = self.told(|told| told.newest(kind));
        let garbled = self.garbled();
        let (query, not_older) = match read.version {
            Version::Unset => (None, newest),
            Version::Any => (Some("resourceVersion=0".to_owned()), Moment::default()),
            Version::NotOlderThan(at) => (Some(format!("resourceVersion={}", at.version)), at),
        };
        let target = read
            .selection
            .target(&query.into_iter().collect::<Vec<_>>());
        let answer = self.ask(client, &target).await?;
        let hit = answer.is_hit();
        let metadata = match ListMetadata::of(&answer.body) {
            Some(metadata) if answer.status == 200 => metadata,
            _ => {
                // A version of the data that was before may never come; bad bytes pass as they are.
                let other = not_older.epoch < self.log(|log| log.current());
                let passes = matches!(answer.status.as_u16(), 503)
                    || (answer.status == 504 && other)
                    || (!hit && self.garbled_since(garbled));
                self.check(passes, || {
                    format!("{target}: {}: {}", answer.status, answer.text())
                });
                return None;
            }
        };
        // Nothing of an epoch before the one that was told; of that one nothing older.
        let not_older = if not_older.epoch < newest.epoch {
            Moment {
                epoch: newest.epoch,
                version: 0,
            }
        } else {
            not_older
        };
        let listed = self.log(|log| found(log, read, not_older, &metadata, &answer.body));
        let Some((at, objects)) = listed else {
            let now = self.log(|log| log.current());
            self.fail(&format!(
                "{target} ({}): no state since {not_older:?} in epochs up to {now}: {:?}\n{}",
                answer.cache_status(),
                metadata,
                self.explain(&read.selection, &answer, metadata.version)
            ));
        };
        self.tally().read("lists", hit);
        self.all_shown(kind, at.epoch, &objects);
        self.told(|told| told.version(kind, at));
        Some(Listed { at, objects, hit })
    }

    /// What was read is told: nobody reads less.
    fn all_shown(&self, kind: &Kind, epoch: usize, objects: &[Arc<Object>]) {
        if let Some(version) = objects.iter().map(|object| object.revision).max() {
            self.shown(kind, Moment { epoch, version });
        }
    }

    /// What the list shows beside what the log has at its version.
    fn explain(&self, selection: &Selection, answer: &Answer, version: u64) -> String {
        let list = answer.json().unwrap_or_default();
        let items = list["items"].as_array().into_iter().flatten();
        let shown: Vec<String> = items
            .map(|item| {
                let metadata = &item["metadata"];
                let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
                let (namespace, name) = (text("namespace"), text("name"));
                format!("{namespace}/{name}@{}", text("resourceVersion"))
            })
            .collect();
        let expected = self.log(|log| {
            let history = log.history(log.current(), selection.kind);
            let state = &history.states[history.index_at(version)];
            let objects = selection.of(state);
            objects
                .map(|object| format!("{}@{}", super::log::key(object), object.revision))
                .collect::<Vec<_>>()
        });
        format!(
            "shown    {}\nexpected {}",
            shown.join(" "),
            expected.join(" ")
        )
    }

    /// Reads an object, which may be there or not.
    pub(super) async fn get(&self, client: &Client, kind: &Kind, namespace: &str, name: &str) {
        let newest = self.told(|told| told.newest(kind));
        let target = format!("{}/{name}", kind.collection(Some(namespace)));
        let Some(answer) = self.ask(client, &target).await else {
            return;
        };
        let key = format!("{namespace}/{name}");
        let body = answer.body.strip_suffix(b"\n").unwrap_or(&answer.body);
        let absent = match answer.status.as_u16() {
            200 => false,
            404 => true,
            _ => {
                self.check(answer.status == 503, || {
                    format!("{target}: {}: {}", answer.status, answer.text())
                });
                return;
            }
        };
        let found = self.log(|log| {
            (newest.epoch..=log.current()).find_map(|epoch| {
                let history = log.history(epoch, kind);
                let first = if epoch == newest.epoch {
                    history.index_at(newest.version)
                } else {
                    0
                };
                history.states[first..]
                    .iter()
                    .find_map(|state| match state.get(&key) {
                        None => absent.then_some((epoch, None)),
                        Some(object) => (!absent && object.json() == body)
                            .then(|| (epoch, Some(object.clone()))),
                    })
            })
        });
        let Some((epoch, object)) = found else {
            self.fail(&format!(
                "{target} ({}): no state since {newest:?}: {} {}",
                answer.cache_status(),
                answer.status,
                super::replay::shortened(body)
            ));
        };
        self.tally().read("gets", answer.is_hit());
        self.all_shown(kind, epoch, object.as_slice());
    }

    /// One question; `None` where there is no answer because the cluster is away.
    pub(super) async fn ask(&self, client: &Client, target: &str) -> Option<Answer> {
        let (garbled, disturbed) = (self.garbled(), self.disturbed());
        match client.get(target).await {
            Ok(answer) if answer.status == 503 => {
                self.tally().count("reads answered 503");
                self.miss(target, "503");
                self.pause().await;
                Some(answer)
            }
            Ok(answer) => {
                if !answer.is_hit() {
                    self.miss(target, answer.cache_status());
                }
                Some(answer)
            }
            Err(error) => {
                // The cluster's connection may break in the middle of a live answer.
                let breaks = self.garbled_since(garbled) || self.disturbed_since(disturbed);
                self.check(breaks, || format!("{error:#}"));
                self.tally().count("reads broken");
                self.miss(target, "no answer");
                self.note(&format!("{error:#}"));
                None
            }
        }
    }
}

/// The state that a list shows.
fn found(
    log: &Log,
    read: &Read,
    not_older: Moment,
    metadata: &ListMetadata,
    body: &[u8],
) -> Option<(Moment, Vec<Arc<Object>>)> {
    let version = metadata.version;
    (not_older.epoch..=log.current()).find_map(|epoch| {
        let data = log.epoch(epoch);
        if version < data.base || version > data.newest {
            return None;
        }
        let history = log.history(epoch, read.selection.kind);
        let at = history.index_at(version);
        if epoch == not_older.epoch && at < history.index_at(not_older.version) {
            return None;
        }
        let objects: Vec<_> = read.selection.of(&history.states[at]).cloned().collect();
        let expected = read
            .selection
            .kind
            .list(objects.iter().map(AsRef::as_ref), metadata);
        (metadata.token.is_none() && expected == body)
            .then_some((Moment { epoch, version }, objects))
    })
}
