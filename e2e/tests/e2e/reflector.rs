//! What an informer does when its server does not do as it should. The clusters are simulated, so that they can be made to.

mod fields;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::fault::Relay;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::Proxy;
use fleetcache_e2e::sim::{BadBytes, Fault, SimCluster, SimConfig};
use serde_json::{Value, json};

use crate::pair::{Comparable, compare, connected, warm};

const LIST: &str = "/api/v1/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/widgets";

/// A simulated cluster, asked directly and through a proxy.
struct Sim {
    cluster: SimCluster,
    direct: Client,
    proxied: Client,
    proxy: Proxy,
}

impl Sim {
    async fn start(config: SimConfig) -> Self {
        let cluster = SimCluster::start(config).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        std::fs::write(&kubeconfig, cluster.kubeconfig()).unwrap();
        for n in 0..20 {
            create(&cluster, n);
        }
        let proxy = Proxy::for_kubeconfigs(&[kubeconfig])
            .await
            .unwrap()
            .keeping(dir);
        let direct = Client::new(&cluster.context()).unwrap();
        let proxied = proxy.client(cluster.name()).unwrap();
        let sim = Self {
            cluster,
            direct,
            proxied,
            proxy,
        };
        sim.connected().await;
        sim
    }

    async fn connected(&self) {
        connected(&self.proxied).await;
    }

    /// Waits until a read comes from memory and is what the cluster itself says.
    async fn equal_from_memory(&self, path: &str) {
        wait_for(
            &format!("{path} from memory to be equal"),
            PATIENCE,
            async || {
                let proxied = self.proxied.get(path).await?.ok()?;
                anyhow::ensure!(proxied.is_hit(), "{}", proxied.cache_status());
                let direct = self.direct.get(path).await?.ok()?;
                compare(&Comparable::from(&direct), &Comparable::from(&proxied))
                    .map_err(anyhow::Error::msg)
            },
        )
        .await
        .unwrap();
    }

    async fn list(&self) -> Answer {
        self.proxied.get(LIST).await.unwrap()
    }
}

fn configmap(n: usize) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": format!("c{n}"), "namespace": "default"}, "data": {"n": n.to_string()}})
}

fn create(cluster: &SimCluster, n: usize) {
    cluster.store().create("configmaps", configmap(n)).unwrap();
}

fn items(answer: &Answer) -> usize {
    answer.json().unwrap()["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn many_readers_are_one_watch() {
    let sim = Sim::start(SimConfig::new("sim")).await;
    warm(&sim.proxied, LIST).await;
    let before = sim.cluster.counts();
    for _ in 0..50 {
        assert!(sim.list().await.is_hit());
    }
    let after = sim.cluster.counts();
    assert_eq!(after.watches("configmaps"), 1);
    assert_eq!(
        after.requests("list", "configmaps"),
        before.requests("list", "configmaps")
    );
}

/// A controller that meets a hundred conflicts at once must not make a hundred lists of them.
#[tokio::test]
async fn many_writes_of_unknown_effect_are_one_question() {
    let sim = Sim::start(SimConfig::new("sim")).await;
    warm(&sim.proxied, LIST).await;
    sim.cluster.fault(Fault::Slow(Duration::from_millis(100)));
    let before = sim.cluster.counts().requests("list", "configmaps");
    let clients: Vec<Client> = (0..100)
        .map(|_| sim.proxy.client(sim.cluster.name()).unwrap())
        .collect();
    let absent = "/api/v1/namespaces/default/configmaps/absent";
    let writes = clients.iter().map(|client| client.delete(absent));
    for answer in futures_util::future::join_all(writes).await {
        assert_eq!(answer.unwrap().status, 404);
    }
    sim.cluster.heal().unwrap();
    sim.equal_from_memory(LIST).await;
    let asked = sim.cluster.counts().requests("list", "configmaps") - before;
    println!("{asked} lists for a hundred writes");
    assert!(asked < 50, "{asked} lists");
}

#[tokio::test]
async fn a_server_without_streaming_lists_is_listed_by_pages() {
    let mut config = SimConfig::new("older");
    config.watch_list = false;
    let sim = Sim::start(config).await;
    for n in 20..1_200 {
        create(&sim.cluster, n);
    }
    warm(&sim.proxied, LIST).await;
    sim.equal_from_memory(LIST).await;
    // The question is asked once for the whole cluster.
    let watches = sim.cluster.counts().requests("watch", "configmaps");
    warm(&sim.proxied, "/api/v1/namespaces").await;
    assert!(watches >= 1);
    sim.cluster.fault(Fault::Cut);
    create(&sim.cluster, 5_000);
    sim.equal_from_memory(LIST).await;
}

#[tokio::test]
async fn a_resume_that_is_too_late_lists_again() {
    let sim = Sim::start(SimConfig::new("sim")).await;
    warm(&sim.proxied, LIST).await;
    sim.cluster.fault(Fault::ExpireWatches);
    sim.cluster.fault(Fault::Cut);
    for n in 20..40 {
        create(&sim.cluster, n);
    }
    sim.cluster
        .store()
        .delete("configmaps", "default", "c0")
        .unwrap();
    sim.equal_from_memory(LIST).await;
    assert_eq!(items(&sim.list().await), 39);
}

#[tokio::test]
async fn bad_bytes_of_a_watch_lose_nothing() {
    for fault in [BadBytes::InvalidJson, BadBytes::Truncated, BadBytes::Reset] {
        let sim = Sim::start(SimConfig::new("sim")).await;
        warm(&sim.proxied, LIST).await;
        sim.cluster.fault(Fault::BadBytes(fault));
        create(&sim.cluster, 100);
        // While the bytes are bad the cluster's own answer passes, bad as it is; never an older state from memory.
        wait_for("the informer to notice", PATIENCE, async || {
            let answer = sim
                .proxied
                .get("/api/v1/namespaces/default/configmaps/c100")
                .await?;
            anyhow::ensure!(!answer.is_hit(), "from memory");
            anyhow::Ok(())
        })
        .await
        .unwrap();
        sim.cluster.heal().unwrap();
        sim.equal_from_memory(LIST).await;
        assert_eq!(items(&sim.list().await), 21, "{fault:?}");
    }
}

#[tokio::test]
async fn a_kind_that_may_not_be_listed_stays_live_and_is_not_tried_in_a_loop() {
    let sim = Sim::start(SimConfig::new("sim")).await;
    sim.cluster.fault(Fault::Forbidden(vec![LIST.to_owned()]));
    for _ in 0..20 {
        let answer = sim.list().await;
        assert_eq!(answer.status, 403, "{}", answer.text());
    }
    // Nobody was allowed, so no informer has asked.
    assert_eq!(sim.cluster.counts().requests("watch", "configmaps"), 0);

    // Single objects may be read, lists may not: the third GET starts an informer, which ends at once.
    for _ in 0..20 {
        let answer = sim
            .proxied
            .get("/api/v1/namespaces/default/configmaps/c1")
            .await
            .unwrap()
            .ok()
            .unwrap();
        assert!(!answer.is_hit());
    }
    wait_for("the refusal to be told", PATIENCE, async || {
        let answer = sim
            .proxied
            .get("/api/v1/namespaces/default/configmaps/c1")
            .await?;
        anyhow::ensure!(
            answer.cache_status().contains("forbidden"),
            "{}",
            answer.cache_status()
        );
        anyhow::Ok(())
    })
    .await
    .unwrap();
    let lists = sim.cluster.counts().requests("list", "configmaps");
    for _ in 0..20 {
        sim.proxied
            .get("/api/v1/namespaces/default/configmaps/c1")
            .await
            .unwrap()
            .ok()
            .unwrap();
    }
    assert_eq!(
        sim.cluster.counts().requests("list", "configmaps"),
        lists,
        "it is not tried again"
    );
}

#[tokio::test]
async fn no_list_is_empty_before_the_first_sync() {
    let sim = Sim::start(SimConfig::new("sim")).await;
    // The informer is started by the first answer and then finds a server that answers lists slowly.
    sim.cluster.fault(Fault::Slow(Duration::from_millis(300)));
    let mut hits = 0;
    while hits < 3 {
        let answer = sim.list().await.ok().unwrap();
        assert_eq!(items(&answer), 20, "{}", answer.cache_status());
        hits += usize::from(answer.is_hit());
    }
}

#[tokio::test]
async fn a_rebuilt_cluster_shows_nothing_of_the_old_one() {
    let sim = Sim::start(SimConfig::new("sim")).await;
    warm(&sim.proxied, LIST).await;
    sim.cluster.fault(Fault::Rebuild);
    sim.cluster.fault(Fault::Cut);
    create(&sim.cluster, 7);
    // Until the broken connection is noticed the proxy cannot know; reads may fail while it finds out. Once anybody was
    // told of the new cluster, nothing of the old one is.
    let mut noticed = false;
    wait_for(
        "reads of the new cluster from memory",
        PATIENCE,
        async || {
            let answer = sim.proxied.get(LIST).await?;
            noticed |= !answer.is_hit();
            let answer = answer.ok()?;
            assert!(
                !noticed || items(&answer) <= 1,
                "an object of the old cluster: {}",
                answer.cache_status()
            );
            anyhow::ensure!(
                answer.is_hit() && items(&answer) == 1,
                "{}",
                answer.cache_status()
            );
            anyhow::Ok(())
        },
    )
    .await
    .unwrap();
    assert!(
        sim.proxy.log().contains("new epoch"),
        "{}",
        sim.proxy.log_tail()
    );
}

/// Another version of a server may write the same objects in other bytes, at the versions they have.
#[tokio::test]
async fn an_upgraded_server_is_listed_again() {
    let older = SimCluster::start(SimConfig::new("sim")).await.unwrap();
    create(&older, 0);
    let mut config = SimConfig::new("sim");
    config.token = older.token();
    config.git_version = "v1.37.0".to_owned();
    config.store = Some(older.store().clone());
    let newer = SimCluster::start(config).await.unwrap();
    let relay = Relay::start(older.address()).unwrap();
    let both = STANDARD.encode([older.ca_pem(), newer.ca_pem()].concat());
    let kubeconfig = older
        .kubeconfig_via(relay.address())
        .replace(&STANDARD.encode(older.ca_pem()), &both);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    std::fs::write(&path, kubeconfig).unwrap();
    let proxy = Proxy::for_kubeconfigs(&[path]).await.unwrap();
    let sim = Sim {
        direct: Client::new(&newer.context()).unwrap(),
        proxied: proxy.client("sim").unwrap(),
        cluster: newer,
        proxy,
    };
    sim.connected().await;
    warm(&sim.proxied, LIST).await;
    let syncs = || sim.proxy.log().matches("informer synced").count();

    // First only the connection breaks, which is no reason to list anything again.
    relay.cut();
    create(&older, 1);
    sim.equal_from_memory(LIST).await;
    assert_eq!(syncs(), 1);
    relay.retarget(sim.cluster.address());
    relay.cut();
    wait_for("another list", PATIENCE, async || {
        anyhow::ensure!(syncs() == 2, "{}", sim.proxy.log_tail());
        Ok(())
    })
    .await
    .unwrap();
    sim.equal_from_memory(LIST).await;
}

#[tokio::test]
async fn a_restored_cluster_goes_back_and_so_do_its_readers() {
    let sim = Sim::start(SimConfig::new("sim")).await;
    warm(&sim.proxied, LIST).await;
    let checkpoint = sim.cluster.store().checkpoint();
    create(&sim.cluster, 100);
    sim.equal_from_memory(LIST).await;
    // The same cluster by its uid, from an older backup: a watch from a version of the future would stay mute for ever.
    sim.cluster.store().restore(&checkpoint);
    sim.cluster.fault(Fault::Cut);
    wait_for("the restored state", PATIENCE, async || {
        let answer = sim.list().await.ok()?;
        anyhow::ensure!(
            answer.is_hit() && items(&answer) == 20,
            "{} items, {}",
            items(&answer),
            answer.cache_status()
        );
        anyhow::Ok(())
    })
    .await
    .unwrap();
    create(&sim.cluster, 101);
    sim.equal_from_memory(LIST).await;
}

#[tokio::test]
async fn a_version_told_by_another_history_does_not_keep_readers_away_for_ever() {
    let sim = Sim::start(SimConfig::new("sim")).await;
    warm(&sim.proxied, LIST).await;
    let checkpoint = sim.cluster.store().checkpoint();
    // The informer hears nothing more, while a client of the proxy is told of something newer.
    sim.cluster.fault(Fault::Answer {
        code: 500,
        paths: vec![LIST.to_owned()],
    });
    sim.cluster.fault(Fault::Cut);
    create(&sim.cluster, 100);
    wait_for("the newer object to be told", PATIENCE, async || {
        let object = "/api/v1/namespaces/default/configmaps/c100";
        sim.proxied.get(object).await?.ok()
    })
    .await
    .unwrap();
    // What the informer holds is a state of the restored cluster too; what was told never will be.
    sim.cluster.store().restore(&checkpoint);
    sim.cluster.heal().unwrap();
    sim.equal_from_memory(LIST).await;
    assert_eq!(items(&sim.list().await), 20);
    assert!(
        sim.proxy.log().contains("new epoch"),
        "{}",
        sim.proxy.log_tail()
    );
}

#[tokio::test]
async fn a_half_open_connection_is_found_and_nothing_is_lost() {
    let sim = Sim::start(SimConfig::new("sim")).await;
    warm(&sim.proxied, LIST).await;
    sim.cluster.fault(Fault::HalfOpen);
    create(&sim.cluster, 100);
    sim.equal_from_memory(LIST).await;
    assert_eq!(items(&sim.list().await), 21);
}

#[tokio::test]
async fn custom_resources_are_kept_too() {
    let sim = Sim::start(SimConfig::new("sim")).await;
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}, "spec": {"size": 3}});
    sim.cluster.store().create("widgets", widget).unwrap();
    warm(&sim.proxied, WIDGETS).await;
    sim.equal_from_memory(WIDGETS).await;
    sim.equal_from_memory("/apis/example.com/v1/namespaces/default/widgets/w")
        .await;
}

/// Its definition may have changed meanwhile, so the kind is listed again; where nothing of what was held reads otherwise,
/// clients are not told to begin anew.
#[tokio::test]
async fn a_break_ends_no_watch_of_a_custom_resource() {
    let sim = Sim::start(SimConfig::new("sim")).await;
    let create = |name: &str| {
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "default"}, "spec": {"size": 3}});
        sim.cluster.store().create("widgets", widget).unwrap();
    };
    create("before");
    warm(&sim.proxied, WIDGETS).await;
    let path = format!("{WIDGETS}?watch=1&resourceVersion=0");
    let mut watch = sim.proxied.lines(&path).await.unwrap();
    let mut told = String::new();
    for round in 0..3 {
        sim.cluster.fault(Fault::Cut);
        let name = format!("round-{round}");
        create(&name);
        while !told.contains(&format!("\"{name}\"")) {
            let line = watch.next().await.unwrap();
            let line = line.unwrap_or_else(|| panic!("it ended in round {round}: {told}"));
            told += std::str::from_utf8(&line).unwrap();
        }
    }
    assert_eq!(told.matches(r#""type":"ADDED""#).count(), 4, "{told}");
    sim.equal_from_memory(WIDGETS).await;
}
