//! Informers are compared with their clusters: what differs is found, told and healed, and what only looks like it is not
//! taken for it. All other modules run with self-checks too, and fail where one finds a difference.

use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use fleetcache_e2e::sim::{Fault, SimCluster, SimConfig};
use serde_json::{Value, json};

use crate::pair::{connected, warm};
use crate::replicas::{LAG, Replicas};

const LIST: &str = "/api/v1/configmaps";

/// Outcomes of self-checks so far.
fn checks(proxy: &Proxy, outcome: &str) -> u64 {
    let metrics = proxy.metrics().unwrap();
    let count = metrics.sum("fleetcache_cache_checks_total", &[("outcome", outcome)]);
    count.unwrap() as u64
}

/// Waits for so many more self-checks with this outcome.
async fn checked(proxy: &Proxy, outcome: &str, more: u64) {
    let wanted = checks(proxy, outcome) + more;
    let what = format!("{more} checks to be {outcome}");
    wait_for(&what, PATIENCE, async || {
        let found = checks(proxy, outcome);
        if found < wanted {
            return Err(format!("{found} of {wanted}"));
        }
        Ok(())
    })
    .await
    .unwrap();
}

/// A simulated cluster with ConfigMaps, behind a proxy that checks itself all the time.
struct Sim {
    cluster: SimCluster,
    proxied: Client,
    proxy: Proxy,
}

impl Sim {
    async fn start(objects: usize) -> Self {
        let mut config = SimConfig::new("sim");
        // Memory stands at the version of a bookmark soon, whatever became of the events before it.
        config.bookmark_interval = Duration::from_millis(50);
        let cluster = SimCluster::start(config).await.unwrap();
        for n in 0..objects {
            create(&cluster, &format!("c{n:05}"));
        }
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.kubeconfig()).unwrap();
        let proxy = Proxy::start(Options {
            kubeconfigs: vec![kubeconfig],
            self_check_interval: Some("100ms".to_owned()),
            ..Options::default()
        })
        .await
        .unwrap()
        .keeping(dir);
        let proxied = proxy.client(cluster.name()).unwrap();
        connected(&proxied).await;
        warm(&proxied, LIST).await;
        Self {
            cluster,
            proxied,
            proxy,
        }
    }

    /// Waits until a mismatch was found, and then for the right list from memory. From when it was found on no list is
    /// another one.
    async fn healed(&self, key: &str, difference: &str) {
        let direct = Client::new(&self.cluster.context()).unwrap();
        let right = identities(&direct.get(LIST).await.unwrap().json().unwrap());
        wait_for("the right list from memory", PATIENCE, async || {
            let found = checks(&self.proxy, "mismatch");
            let answer = self.proxied.get(LIST).await?.ok()?;
            let told = identities(&answer.json()?);
            assert!(found == 0 || told == right, "{}", answer.cache_status());
            anyhow::ensure!(
                found > 0 && answer.is_hit(),
                "{found} mismatches, {}",
                answer.cache_status()
            );
            anyhow::Ok(())
        })
        .await
        .unwrap();
        let log = self.proxy.log();
        let lines = log.lines();
        let told: Vec<_> = lines
            .filter(|line| line.contains("memory differs"))
            .collect();
        assert_eq!(told.len(), 1, "{told:?}");
        for text in [
            key,
            difference,
            "WARN",
            "\"cluster\":\"sim\"",
            "configmaps.v1",
        ] {
            assert!(told[0].contains(text), "{text} is missing in {}", told[0]);
        }
        // It was right before and is right now: nothing more is found.
        checked(&self.proxy, "equal", 5).await;
        assert_eq!(checks(&self.proxy, "mismatch"), 1);
    }
}

fn create(cluster: &SimCluster, name: &str) {
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}});
    cluster.store().create("configmaps", object).unwrap();
}

/// Name, uid and version of each object of a list.
fn identities(list: &Value) -> Vec<[String; 3]> {
    let items = list["items"].as_array().unwrap();
    let text = |item: &Value, field: &str| item["metadata"][field].as_str().unwrap().to_owned();
    let of = |item| ["name", "uid", "resourceVersion"].map(|field| text(item, field));
    items.iter().map(of).collect()
}

/// An event that the server keeps to itself leaves memory wrong, and nothing but a comparison tells.
#[tokio::test]
async fn what_a_watch_did_not_tell_is_found_and_healed() {
    type Write = fn(&SimCluster);
    let modify: Write = |cluster| {
        let store = cluster.store();
        let changed = store.modify("configmaps", "default", "c00003", |object| {
            object["data"] = json!({"a": "b"});
        });
        changed.unwrap();
    };
    let delete: Write = |cluster| {
        let gone = cluster.store().delete("configmaps", "default", "c00003");
        gone.unwrap();
    };
    let recreate: Write = |cluster| {
        cluster
            .store()
            .delete("configmaps", "default", "c00003")
            .unwrap();
        create(cluster, "c00003");
    };
    for (write, key, difference) in [
        (
            (|cluster| create(cluster, "c00003a")) as Write,
            "default/c00003a",
            "the cluster has it, memory has not",
        ),
        (
            delete,
            "default/c00003",
            "memory has it, the cluster has not",
        ),
        (modify, "default/c00003", "memory has resourceVersion"),
        (recreate, "default/c00003", "memory has uid"),
    ] {
        let mut sim = Sim::start(20).await;
        sim.proxy.expect_mismatches();
        checked(&sim.proxy, "equal", 2).await;
        sim.cluster.fault(Fault::LoseEvents);
        write(&sim.cluster);
        sim.healed(key, difference).await;
    }
}

/// All tests rely on it.
#[tokio::test]
async fn a_difference_fails_the_test_that_it_is_found_in() {
    let sim = Sim::start(20).await;
    sim.cluster.fault(Fault::LoseEvents);
    create(&sim.cluster, "lost");
    checked(&sim.proxy, "mismatch", 1).await;
    let Sim { proxy, .. } = sim;
    let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(proxy)));
    let message = *end.unwrap_err().downcast::<String>().unwrap();
    assert!(
        message.contains("memory differed from a cluster 1 times")
            && message.contains("default/lost"),
        "{message}"
    );
}

/// Of a kind with many objects a round looks at a part, and the next ones at the rest.
#[tokio::test]
async fn a_difference_far_back_in_a_large_kind_is_found() {
    let mut sim = Sim::start(5_000).await;
    sim.proxy.expect_mismatches();
    sim.cluster.fault(Fault::LoseEvents);
    let gone = sim
        .cluster
        .store()
        .delete("configmaps", "default", "c04800");
    gone.unwrap();
    sim.healed("default/c04800", "memory has it, the cluster has not")
        .await;
}

/// The same uid and a version that did not go back: all that a resume can ask is right.
#[tokio::test]
async fn a_restored_cluster_that_has_overtaken_the_old_one_is_found_out() {
    let mut sim = Sim::start(20).await;
    sim.proxy.expect_mismatches();
    let checkpoint = sim.cluster.store().checkpoint();
    sim.cluster
        .store()
        .delete("configmaps", "default", "c00003")
        .unwrap();
    create(&sim.cluster, "lost");
    wait_for("the state that will be lost", PATIENCE, async || {
        let list = sim.proxied.get(LIST).await?.ok()?;
        anyhow::ensure!(
            list.is_hit() && list.text().contains("lost"),
            "{}",
            list.cache_status()
        );
        Ok(())
    })
    .await
    .unwrap();
    sim.cluster.kill();
    sim.cluster.store().restore(&checkpoint);
    for n in 0..20 {
        create(&sim.cluster, &format!("new{n}"));
    }
    sim.cluster.heal().unwrap();
    connected(&sim.proxied).await;
    sim.healed("default/c00003", "the cluster has it, memory has not")
        .await;
}

#[tokio::test]
async fn what_is_no_answer_is_no_difference() {
    let sim = Sim::start(20).await;
    checked(&sim.proxy, "equal", 1).await;
    for code in [400, 403, 404, 406, 410, 429, 500, 503, 504] {
        sim.cluster.fault(Fault::Answer {
            code,
            paths: vec![LIST.to_owned()],
        });
        checked(&sim.proxy, "skipped", 2).await;
        sim.cluster.heal().unwrap();
        // The watch was not touched by that.
        assert!(sim.proxied.get(LIST).await.unwrap().is_hit(), "{code}");
        checked(&sim.proxy, "equal", 1).await;
    }
    // An answer that does not come is given up.
    sim.cluster.fault(Fault::Slow(Duration::from_secs(15)));
    checked(&sim.proxy, "skipped", 1).await;
}

/// Whatever becomes of watches and clusters while a kind changes all the time, memory is right.
#[tokio::test]
async fn a_moving_kind_is_equal_at_every_version() {
    let sim = Sim::start(3_000).await;
    for round in 0..60 {
        for n in 0..20 {
            let store = sim.cluster.store();
            let name = format!("c{:05}", (round * 977 + n * 131) % 3_000);
            if store.get("configmaps", "default", &name).is_some() {
                store.delete("configmaps", "default", &name).unwrap();
            } else {
                create(&sim.cluster, &name);
            }
        }
        match round {
            10 | 20 => sim.cluster.fault(Fault::Cut),
            30 => {
                sim.cluster.fault(Fault::ExpireWatches);
                sim.cluster.fault(Fault::Cut);
            }
            40 => {
                sim.cluster.heal().unwrap();
                sim.cluster.fault(Fault::Rebuild);
                sim.cluster.fault(Fault::Cut);
            }
            50 => sim.cluster.store().compact(),
            _ => {}
        }
        // One that began before a write, and ends behind it.
        wait_for("a list from memory", PATIENCE, async || {
            let list = sim.proxied.get(LIST).await?.ok()?;
            anyhow::ensure!(list.is_hit(), "{}", list.cache_status());
            anyhow::Ok(())
        })
        .await
        .unwrap();
        if round % 2 == 0 {
            checked(&sim.proxy, "equal", 1).await;
        }
    }
    assert_eq!(checks(&sim.proxy, "mismatch"), 0);
}

#[tokio::test]
async fn the_interval_holds_from_a_reload_on() {
    let cluster = SimCluster::start(SimConfig::new("sim")).await.unwrap();
    create(&cluster, "c");
    let files = tempfile::tempdir().unwrap();
    let (kubeconfig, config) = (files.path().join("kubeconfig"), files.path().join("config"));
    std::fs::write(&kubeconfig, cluster.kubeconfig()).unwrap();
    let configure = |interval: &str| {
        let text = format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\ncache: {{ selfCheckInterval: {interval} }}\n",
            kubeconfig.display()
        );
        let next = files.path().join("next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, &config).unwrap();
    };
    // The default: nothing is due before the reload, or only once.
    configure("1h");
    let proxy = Proxy::start(Options {
        args: vec!["--config".to_owned(), config.display().to_string()],
        ..Options::default()
    })
    .await
    .unwrap();
    let proxied = proxy.client("sim").unwrap();
    connected(&proxied).await;
    warm(&proxied, LIST).await;
    assert_eq!(cluster.counts().exact_lists("configmaps"), 0);
    configure("100ms");
    checked(&proxy, "equal", 10).await;
    assert!(cluster.counts().exact_lists("configmaps") >= 10);
    configure("0s");
    wait_for("an end of the checks", PATIENCE, async || {
        // Ten intervals without one.
        let before = checks(&proxy, "equal");
        tokio::time::sleep(Duration::from_secs(1)).await;
        anyhow::ensure!(checks(&proxy, "equal") == before, "they go on");
        Ok(())
    })
    .await
    .unwrap();
}

/// Thousands of comparisons with a real server, of built-in and custom kinds, while they are written at random; two
/// apiservers of which one hears late, and informers that move from one to the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_what_the_server_holds() {
    let mut replicas = Replicas::start_checked(Some("100ms")).await;
    replicas.run(400).await;
    replicas.delay(LAG);
    for to in [replicas.late, replicas.prompt] {
        replicas.move_informers(to);
        replicas.run(400).await;
    }
    let wanted = crate::model::number_of("FLEETCACHE_E2E_CHECKS").unwrap_or(1_000);
    // At the prompt one: the other answers each question seconds later.
    while checks(&replicas.proxy, "equal") < wanted {
        replicas.run(200).await;
    }
    let counts = ["equal", "skipped", "mismatch"].map(|it| checks(&replicas.proxy, it));
    println!("{counts:?} checks were equal, skipped and different");
    assert_eq!(counts[2], 0);
    replicas.finish().await;
}
