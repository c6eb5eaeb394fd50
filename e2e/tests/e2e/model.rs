//! Random writes, reads and restarts of the apiserver against a reference: whoever reads, in whatever representation, by
//! whatever version of the kind and on whatever connection, is never told less than anybody was told before.

mod kinds;
mod reads;
mod tally;
mod watches;
pub(crate) mod wire;
mod writes;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options, Server};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{self, Proxy};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::forward::View;
use crate::pair::{Comparable, assert_same, connected};
use kinds::{KINDS, Kind};
use tally::Tally;

/// Steps of one run. `FLEETCACHE_E2E_STEPS` makes it more for a night.
const STEPS: u64 = 4000;

/// Steps after which the writers do something else.
const TURN: u64 = 60;

/// Who writes and reads at the same time.
const ACTORS: u64 = 6;

/// Of a hundred steps, how many write.
const WRITES: u32 = 35;

/// What the writers do for a while.
#[derive(Clone, Copy)]
struct Turn {
    /// The kind that is written most: the others have time to be answered from memory.
    busy: &'static Kind,
    /// All writes go past the proxy: nothing but what is read tells it of them.
    past: bool,
}

impl Turn {
    fn at(left: u64) -> Self {
        let turn = usize::try_from(left / TURN).unwrap_or(0);
        Self {
            busy: &KINDS[turn % KINDS.len()],
            past: turn.is_multiple_of(3),
        }
    }
}

pub(crate) fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// One cluster, all ways to it, and what was told of it.
pub(crate) struct World {
    direct: Client,
    proxied: Vec<Client>,
    namespaces: Vec<String>,
    view: View,
    tally: Tally,
    restarts: bool,
}

/// Both groups' events are kept too: they are one storage under two names.
pub(crate) const CACHE_EVENTS: &str = "
resources:
  - { group: \"\", resource: events, cache: onDemand }
  - { group: events.k8s.io, resource: events, cache: onDemand }
";

impl World {
    /// Namespaces and a definition in an empty cluster, and several connections through the proxy.
    pub(crate) async fn new(direct: Client, proxy: &Proxy, cluster: &str, restarts: bool) -> Self {
        let namespaces = vec!["model-a".to_owned(), "model-b".to_owned()];
        for name in &namespaces {
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let answer = direct.create("/api/v1/namespaces", &object).await.unwrap();
            answer.ok().unwrap();
        }
        kinds::define_gadgets(&direct).await;
        let context = proxy.context(cluster).unwrap();
        let mut proxied: Vec<Client> = (0..3).map(|_| Client::new(&context).unwrap()).collect();
        proxied.push(Client::http2(&context).unwrap());
        connected(&proxied[0]).await;
        Self {
            direct,
            proxied,
            namespaces,
            view: View::default(),
            tally: Tally::default(),
            restarts,
        }
    }

    /// Takes steps until there are enough or `end` fires.
    pub(crate) async fn run(&self, seed: u64, steps: u64, end: &CancellationToken) {
        let left = AtomicU64::new(steps);
        let act = async |actor: u64| {
            let mut rng = StdRng::seed_from_u64(seed ^ (actor << 32));
            let takes = |left: u64| left.checked_sub(1);
            while let Ok(left) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, takes) {
                if end.is_cancelled() {
                    break;
                }
                if rng.random_ratio(WRITES, 100) {
                    self.write(&mut rng, Turn::at(left)).await;
                } else if let Err(what) = self.read(&mut rng).await {
                    panic!("FLEETCACHE_E2E_SEED={seed}: {what}");
                }
            }
        };
        futures_util::future::join_all((0..ACTORS).map(act)).await;
    }

    /// Once nobody else writes any more, everything comes from memory and is what the cluster says.
    pub(crate) async fn assert_converged(&self) {
        let namespace = &self.namespaces[0];
        for kind in &KINDS {
            let own = kind.collection(0, Some(namespace));
            let object = kind.object(0, namespace, "nudge", 0);
            let made = self.proxied[0].create(&own, &object).await.unwrap();
            made.ok().unwrap();
            let mut nudges = 0;
            for version in 0..kind.versions.len() {
                let path = kind.collection(version, None);
                let what = format!("{path} to be the same from memory");
                wait_for(&what, PATIENCE, async || {
                    // After a write whose effect nobody was told, an informer is below its floor until something happens to
                    // its kind or the server sends a bookmark, and of events it sends none.
                    nudges += 1;
                    let nudge = json!({"metadata": {"annotations": {"nudge": nudges.to_string()}}});
                    let object = format!("{own}/nudge");
                    self.proxied[0].patch(&object, &nudge).await?.ok()?;
                    let direct = self.direct.get(&path).await?.ok()?;
                    let proxied = self.proxied[0].get(&path).await?.ok()?;
                    anyhow::ensure!(proxied.is_hit(), "{}", proxied.cache_status());
                    assert_same(
                        &path,
                        &Comparable::from(&direct),
                        &Comparable::from(&proxied),
                    );
                    Ok(())
                })
                .await
                .unwrap();
            }
        }
    }

    /// Another apiserver of the cluster has heard of everything that is asked for.
    pub(crate) async fn assert_served_by(&self, other: &Client) {
        for kind in &KINDS {
            for version in 0..kind.versions.len() {
                let path = kind.collection(version, None);
                wait_for("the other apiserver", PATIENCE, async || {
                    other.get(&path).await?.ok()
                })
                .await
                .unwrap();
            }
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_less_than_anybody_was() {
    let mut cluster = ControlPlane::start(Options::named("model")).await.unwrap();
    let proxy = Proxy::start(proxy::Options {
        kubeconfigs: vec![cluster.proxy_kubeconfig()],
        config: Some(format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n{CACHE_EVENTS}"
        )),
        ..proxy::Options::default()
    })
    .await
    .unwrap();
    let world = World::new(cluster.client().unwrap(), &proxy, "model", true).await;
    let seed = number_of("FLEETCACHE_E2E_SEED").unwrap_or_else(rand::random);
    let steps = number_of("FLEETCACHE_E2E_STEPS").unwrap_or(STEPS);
    println!("FLEETCACHE_E2E_SEED={seed}");

    // Most steps with the apiserver up, the rest while it goes away and comes back.
    let never = CancellationToken::new();
    let watched = CancellationToken::new();
    let steady = async {
        world.run(seed, steps * 2 / 3, &never).await;
        for round in 0..2 {
            let settled = CancellationToken::new();
            let restart = async {
                cluster.restart(Server::Apiserver).await.unwrap();
                // Long enough after that for whatever goes on where it stood to be read.
                world.run(seed ^ (round + 100), steps / 6, &never).await;
                settled.cancel();
            };
            let meanwhile = world.run(seed ^ (round + 200), u64::MAX, &settled);
            tokio::join!(restart, meanwhile);
        }
        watched.cancel();
    };
    tokio::join!(steady, world.watch_all(&watched));
    tokio::time::timeout(Duration::from_secs(180), world.assert_converged())
        .await
        .unwrap();
    println!("{}", world.tally());
    world.tally().assert_hits(&["json", "protobuf"]);
}
