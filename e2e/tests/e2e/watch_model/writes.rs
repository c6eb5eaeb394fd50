//! Writes: past the proxy, which learns of them by watching, and through it.

use std::sync::atomic::Ordering;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::sim::Store;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use super::World;
use super::kinds::{APPS, KINDS, Kind, NAMES, NAMESPACES};

/// Of an object that no socket holds many of.
const LARGE: usize = 64 * 1024;

impl World {
    /// Writes until the run is over.
    pub(super) async fn write(&self, mut rng: StdRng, client: Client) {
        while !self.is_over() {
            let _turn = self.turn().await;
            let _writing = self.writing.lock().await;
            self.step().await;
            match rng.random_range(0..100) {
                0..2 => self.burst(&mut rng).await,
                2..20 => self.write_through(&mut rng, &client).await,
                _ => self.write_past(&mut rng),
            }
            // The watches shall keep up most of the time.
            tokio::time::sleep(std::time::Duration::from_millis(rng.random_range(0..8))).await;
        }
    }

    /// One write to the store itself. It fails where there is nothing to change, which is no matter.
    pub(super) fn write_past(&self, rng: &mut StdRng) {
        let kind = KINDS.choose(rng).unwrap();
        let (store, n) = (self.cluster().store(), self.next());
        let (namespace, name) = (
            *NAMESPACES.choose(rng).unwrap(),
            *NAMES.choose(rng).unwrap(),
        );
        let app = rng.random_bool(0.7).then(|| *APPS.choose(rng).unwrap());
        let size = match rng.random_range(0..40) {
            0 => LARGE,
            1..8 => 2_000,
            _ => 10,
        };
        let object = kind.object(namespace, name, n, app, size);
        let gone = || store.delete(kind.plural, namespace, name).is_ok();
        match rng.random_range(0..10) {
            0..2 => {
                gone();
            }
            2 => {
                gone();
                drop(store.create(kind.plural, object));
            }
            3..5 => label(store, kind, namespace, name, n, app),
            _ => put(store, kind, object),
        }
        self.tally().count("writes");
    }

    /// Many in a row, so that watches fall behind and events come in one piece.
    async fn burst(&self, rng: &mut StdRng) {
        for _ in 0..rng.random_range(10..150) {
            self.write_past(rng);
            if rng.random_bool(0.05) {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn write_through(&self, rng: &mut StdRng, client: &Client) {
        let kind = KINDS.choose(rng).unwrap();
        let (namespace, name) = (
            *NAMESPACES.choose(rng).unwrap(),
            *NAMES.choose(rng).unwrap(),
        );
        let app = rng.random_bool(0.7).then(|| *APPS.choose(rng).unwrap());
        let collection = kind.collection(Some(namespace));
        let path = format!("{collection}/{name}");
        let (n, disturbed) = (self.next(), self.disturbed());
        let answer = match rng.random_range(0..4) {
            0 => client.delete(&path).await,
            1 => {
                let object = kind.object(namespace, name, n, app, 10);
                client.create(&collection, &object).await
            }
            _ => {
                let metadata = json!({"annotations": {"n": n.to_string()}, "labels": {"app": app}});
                client.patch(&path, &json!({"metadata": metadata})).await
            }
        };
        match answer {
            Ok(answer) => {
                let usual = matches!(
                    answer.status.as_u16(),
                    200 | 201 | 404 | 409 | 500 | 503 | 504
                );
                self.check(usual, || format!("{path}: {}", answer.text()));
                self.tally().count("writes through the proxy");
                if answer.status == 503 {
                    self.pause().await;
                }
            }
            Err(error) => self.check(self.disturbed_since(disturbed), || format!("{error:#}")),
        }
    }

    /// A number that no other write has.
    fn next(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::Relaxed)
    }
}

pub(super) fn put(store: &Store, kind: &Kind, object: Value) {
    if store.create(kind.plural, object.clone()).is_err() {
        drop(store.update(kind.plural, object));
    }
}

/// Moves an object from one selection to another.
fn label(store: &Store, kind: &Kind, namespace: &str, name: &str, n: u64, app: Option<&str>) {
    let changed = store.modify(kind.plural, namespace, name, |object| {
        object["metadata"]["annotations"]["n"] = n.to_string().into();
        match app {
            Some(app) => object["metadata"]["labels"] = json!({"app": app}),
            None => object["metadata"]["labels"] = json!({}),
        }
    });
    drop(changed);
}
