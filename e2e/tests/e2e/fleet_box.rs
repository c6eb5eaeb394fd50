//! A hundred clusters, most of them black holes: the others do not notice, and nobody waits for what never answers.

use std::time::Duration;

use fleetcache_e2e::binaries;
use fleetcache_e2e::client::Client;
use fleetcache_e2e::fleet_box::FleetBox;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::sim::{Filling, SimConfig};
use futures_util::{StreamExt as _, stream};
use serde_json::json;

const CLUSTERS: usize = 100;
const UP: usize = 30;

/// Accepts and never answers; the others that are down are black holes.
const MUTE: usize = 30;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A dial to a black hole ends soon, so that it is tried often; the one to the mute cluster never ends.
const CONFIG: &str = "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n\
    defaults: { probe: { interval: 2s } }\n\
    overrides:\n\
    - { cluster: \"hole-*\", connectTimeout: 500ms }\n\
    - { cluster: \"mute\", connectTimeout: 24h }\n\
    connections: { backoffMax: 1s }\n";

const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// With the wait for a connect in flight halved by each that failed, nothing of it is left.
const GRACE_SPENT_AFTER: f64 = 6.0;

fn name(index: usize) -> String {
    match index {
        MUTE => "mute".to_owned(),
        ..UP => format!("edge-{index}"),
        _ => format!("hole-{index}"),
    }
}

struct Setup {
    fleet: FleetBox,
    proxy: Proxy,
    _dir: tempfile::TempDir,
}

impl Setup {
    async fn start() -> Self {
        let fleet = FleetBox::start((0..CLUSTERS).map(name), |config| SimConfig {
            filling: Some(Filling::new(|store| {
                let metadata = json!({"namespace": "default", "name": "kept"});
                store
                    .create("configmaps", json!({ "metadata": metadata }))
                    .unwrap();
            })),
            ..config
        })
        .await
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        fleetcache_e2e::kubeconfig::write(&kubeconfig, &fleet.contexts(0..CLUSTERS)).unwrap();
        let setup = |line: &str| fleet.apply(&line.parse().unwrap()).unwrap();
        setup("0s 30..31 stall");
        setup("0s 31..100 vanish");
        let proxy = Proxy::start(Options {
            kubeconfigs: vec![kubeconfig],
            config: Some(CONFIG.to_owned()),
            ..Options::default()
        })
        .await
        .unwrap();
        Self {
            fleet,
            proxy,
            _dir: dir,
        }
    }

    async fn wait_until_up(&self, count: usize) {
        wait_for(
            "the healthy clusters to be connected",
            PATIENCE,
            async || {
                let metrics = self.proxy.metrics()?;
                let up = metrics.get("fleetcache_cluster_connection_up");
                anyhow::ensure!(up == Some(count as f64), "{up:?}");
                Ok(())
            },
        )
        .await
        .unwrap();
    }

    fn client(&self, index: usize) -> Client {
        self.proxy.client(&name(index)).unwrap()
    }

    /// Connects to a cluster that have failed.
    fn failures(&self, index: usize) -> f64 {
        let name = name(index);
        let labels = [("cluster", name.as_str()), ("status", "error")];
        let metrics = self.proxy.metrics().unwrap();
        let failures = metrics.sum("fleetcache_cluster_healthchecks_total", &labels);
        failures.unwrap_or_default()
    }

    /// Returns when these clusters are served from memory.
    async fn served_from_memory(&self, indices: impl Iterator<Item = usize>) {
        stream::iter(indices)
            .for_each_concurrent(8, async |index| {
                let client = self.client(index);
                wait_for("a list from memory", PATIENCE, async || {
                    let answer = client.get(CONFIGMAPS).await?.ok()?;
                    anyhow::ensure!(answer.is_hit(), "{}", answer.cache_status());
                    let list = answer.json()?;
                    anyhow::ensure!(list["items"][0]["metadata"]["name"] == "kept", "{list}");
                    Ok(())
                })
                .await
                .unwrap();
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn seventy_black_holes_among_a_hundred_cost_the_others_nothing() {
    let setup = Setup::start().await;
    let (fleet, clusters) = (&setup.fleet, setup.fleet.clusters());
    setup.wait_until_up(UP).await;
    fleet.expect_probes(0..UP, PROBE_INTERVAL);
    setup.served_from_memory(0..UP).await;
    let asked = |clusters: &[fleetcache_e2e::sim::SimCluster]| -> u64 {
        let counts = clusters.iter().map(fleetcache_e2e::sim::SimCluster::counts);
        counts
            .map(|counts| counts.requests("get", "configmaps"))
            .sum()
    };
    for index in 0..UP {
        let client = setup.client(index);
        for _ in 0..5 {
            let answer = client.get(&format!("{CONFIGMAPS}/kept")).await.unwrap();
            assert!(answer.status == 200 && answer.is_hit(), "{}", answer.text());
        }
    }
    assert_eq!(asked(&clusters[..UP]), 0);

    // Whoever asks for a cluster that is gone waits for no dial: not for the one that never ends, and of the others fewer
    // have ended than there were requests.
    const REQUESTS: usize = 20;
    let hole = 99;
    wait_for("the grace to be spent", PATIENCE, async || {
        let failures = setup.failures(hole);
        (failures >= GRACE_SPENT_AFTER)
            .then_some(())
            .ok_or(failures)
    })
    .await
    .unwrap();
    for index in [MUTE, hole] {
        let (client, before) = (setup.client(index), setup.failures(index));
        for _ in 0..REQUESTS {
            let answer = client.get(CONFIGMAPS).await.unwrap();
            assert_eq!(answer.status, 503, "{}", answer.text());
        }
        let dials = setup.failures(index) - before;
        assert!(dials < REQUESTS as f64, "{} dials ended meanwhile", dials);
    }
    assert_eq!(
        (clusters[MUTE].counts().accepted, setup.failures(MUTE)),
        (1, 0.0)
    );

    // Each healthy cluster goes on being probed in its time.
    wait_for("probes of all healthy clusters", PATIENCE, async || {
        let late = clusters[..UP].iter().find(|it| it.probes().on_time < 3);
        late.map_or(Ok(()), |it| {
            Err(format!("{}: {:?}", it.name(), it.probes()))
        })
    })
    .await
    .unwrap();
    println!("probes: {:?}", fleet.probes());
    setup.wait_until_up(UP).await;

    fleet
        .apply(&"0s 10% of 31..91 heal".parse().unwrap())
        .unwrap();
    fleet.apply(&"0s 30..31 heal".parse().unwrap()).unwrap();
    setup.wait_until_up(UP + 7).await;
    let healed = (40..91).step_by(10).chain([MUTE]);
    setup.served_from_memory(healed).await;
}

/// What it measures on a machine that runs tests is worth nothing; that it measures all of it is.
#[tokio::test(flavor = "multi_thread")]
async fn the_benchmark_of_a_fleet_runs() {
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_bench-fleet"))
        .arg("--quick")
        .env("FLEETCACHE_BIN", binaries::fleetcache().await.unwrap())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let (printed, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{printed}");
    assert!(output.status.success(), "{printed}\n{errors}");
    for measured in [
        "60 connected after a start",
        "handshakes in flight at once",
        "with three small informers",
        "all 18 connected",
        "GET from memory, 99th percentile",
        "probes of healthy clusters",
        "until the 503, at the server",
    ] {
        assert!(printed.contains(measured), "{measured}: {printed}");
    }
}
