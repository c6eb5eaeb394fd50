//! `fleetcache refresh`: one cluster is connected and listed anew, and no client notices.

use anyhow::ensure;
use fleetcache_e2e::client::Client;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::Proxy;
use fleetcache_e2e::sim::{Fault, SimCluster, SimConfig};
use tokio_util::sync::CancellationToken;

use crate::fleet::{CONFIGMAPS, configmap};
use crate::pair::{connected, warm};
use crate::reload::fleetcache;

const PODS: &str = "/api/v1/pods";

struct Fleet {
    alpha: SimCluster,
    beta: SimCluster,
    proxy: Proxy,
}

impl Fleet {
    async fn start() -> Self {
        let start = async |name: &str| SimCluster::start(SimConfig::new(name)).await.unwrap();
        let (alpha, beta) = (start("alpha").await, start("beta").await);
        let dir = tempfile::tempdir().unwrap();
        let files = [&alpha, &beta].map(|cluster| {
            let path = dir.path().join(cluster.name());
            std::fs::write(&path, cluster.kubeconfig()).unwrap();
            path
        });
        let proxy = Proxy::for_kubeconfigs(&files).await.unwrap().keeping(dir);
        for cluster in [&alpha, &beta] {
            let client = proxy.client(cluster.name()).unwrap();
            connected(&client).await;
            warm(&client, CONFIGMAPS).await;
            warm(&client, PODS).await;
        }
        Self { alpha, beta, proxy }
    }

    fn client(&self) -> Client {
        self.proxy.client("alpha").unwrap()
    }

    async fn refresh(&self, args: &[&str]) -> (Option<i32>, String) {
        let admin = self.proxy.admin();
        fleetcache(&[&["refresh", "--admin", admin], args].concat()).await
    }

    /// Connects that went well and that failed, connections lost, lists of informers.
    fn counts(&self, cluster: &str) -> [f64; 4] {
        let metrics = self.proxy.metrics().unwrap();
        let count = |name: &str, labels: &[(&str, &str)]| {
            let labels = [&[("cluster", cluster)], labels].concat();
            metrics
                .sum(&format!("fleetcache_cluster_{name}_total"), &labels)
                .unwrap()
        };
        [
            count("connects", &[("outcome", "success")]),
            count("connects", &[("outcome", "error")]),
            count("disconnects", &[]),
            count("informer_lists", &[]),
        ]
    }
}

/// Reads from memory, reads live and writes, until told to stop; how many there were.
async fn use_it(client: Client, user: usize, stop: CancellationToken) -> anyhow::Result<usize> {
    let mut done = 0;
    while !stop.is_cancelled() {
        let name = format!("user-{user}-{done}");
        client
            .create(CONFIGMAPS, &configmap(&name, "x"))
            .await?
            .ok()?;
        for path in [
            CONFIGMAPS,
            PODS,
            "/api/v1/secrets",
            "/version",
            &format!("{CONFIGMAPS}/{name}"),
        ] {
            let answer = client.get(path).await?.ok()?;
            ensure!(
                path != CONFIGMAPS || answer.text().contains(&name),
                "{path} lacks {name}"
            );
        }
        done += 1;
    }
    Ok(done)
}

#[tokio::test]
async fn a_refresh_is_one_connect_and_a_list_each_and_nobody_notices() {
    let fleet = Fleet::start().await;
    let (alpha, beta) = (fleet.counts("alpha"), fleet.counts("beta"));
    assert_eq!(alpha, [1.0, 0.0, 0.0, 2.0]);
    let mut told = fleet
        .client()
        .lines(&format!("{CONFIGMAPS}?watch=1"))
        .await
        .unwrap();
    let stop = CancellationToken::new();
    let users: Vec<_> = (0..4)
        .map(|user| tokio::spawn(use_it(fleet.client(), user, stop.clone())))
        .collect();
    let lists = fleet.alpha.counts();

    let (code, text) = fleet.refresh(&["alpha"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("cluster \"alpha\" was refreshed in "),
        "{text}"
    );
    assert!(
        text.ends_with(" s (generation 2): 2 of 2 informers have listed anew\n"),
        "{text}"
    );
    assert_eq!(fleet.counts("alpha"), [2.0, 0.0, 0.0, 4.0]);
    assert_eq!(fleet.counts("beta"), beta);
    let since = fleet.alpha.counts();
    for resource in ["configmaps", "pods"] {
        // A streaming list is a watch to the server; which of both it is does not matter here.
        let asked = |counts: &fleetcache_e2e::sim::Counts| {
            counts.requests("list", resource) + counts.requests("watch", resource)
        };
        assert!(asked(&since) > asked(&lists), "{resource}");
    }

    // From memory again, and the watch from before tells what comes now.
    warm(&fleet.client(), CONFIGMAPS).await;
    stop.cancel();
    for user in users {
        assert!(user.await.unwrap().unwrap() > 0);
    }
    fleet
        .client()
        .create(CONFIGMAPS, &configmap("after", "x"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    loop {
        let line = told.next().await.unwrap().expect("it goes on");
        if String::from_utf8_lossy(&line).contains("\"name\":\"after\"") {
            break;
        }
    }
}

#[tokio::test]
async fn a_cluster_that_is_down_is_tried_at_once() {
    let fleet = Fleet::start().await;
    fleet.alpha.kill();
    wait_for("the loss", PATIENCE, async || {
        let up = fleet
            .proxy
            .metrics()?
            .sum("fleetcache_cluster_connection_up", &[("cluster", "alpha")]);
        ensure!(up == Some(0.0), "{up:?}");
        anyhow::Ok(())
    })
    .await
    .unwrap();
    let (code, text) = fleet.refresh(&["alpha"]).await;
    assert_eq!(code, Some(1), "{text}");
    let expect = "fleetcache: cluster \"alpha\" is not connected: ";
    assert!(text.starts_with(expect), "{text}");
    let words: Vec<_> = text.lines().collect();
    assert!(
        words[0].contains("connection refused; next attempt in "),
        "{text}"
    );
    assert!(
        words[1].starts_with("hint: check that the kube-apiserver"),
        "{text}"
    );

    fleet.alpha.heal().unwrap();
    let (code, text) = fleet.refresh(&["alpha"]).await;
    assert_eq!(code, Some(0), "{text}");
    fleet.client().get(PODS).await.unwrap().ok().unwrap();
    // Beta has had no part in it.
    assert_eq!(fleet.counts("beta")[..3], [1.0, 0.0, 0.0]);
    assert_eq!(fleet.beta.counts().watches("pods"), 1);
}

#[tokio::test]
async fn what_is_found_is_told_where_another_connection_cannot_be_made() {
    let fleet = Fleet::start().await;
    fleet.alpha.fault(Fault::Refuse);
    for _ in 0..3 {
        let (code, text) = fleet.refresh(&["alpha"]).await;
        assert_eq!(code, Some(1), "{text}");
        let expect = "fleetcache: cluster \"alpha\": another connection cannot be made, and the one from before is kept: \
                      connection refused; that one (generation 1) answers, and serves on; next attempt in ";
        let next = text
            .strip_prefix(expect)
            .unwrap_or_else(|| panic!("{text}"));
        let (next, hint) = next.split_once(" s\n").unwrap();
        // As after a first failure, however often it was asked for.
        assert!(next.parse::<f64>().unwrap() <= 1.0, "{text}");
        assert!(
            hint.starts_with("hint: check that the kube-apiserver"),
            "{text}"
        );
    }
    fleet.client().get(CONFIGMAPS).await.unwrap().ok().unwrap();
    fleet.alpha.heal().unwrap();
    let (code, text) = fleet.refresh(&["alpha"]).await;
    assert_eq!(code, Some(0), "{text}");
}

#[tokio::test]
async fn what_cannot_be_refreshed_is_said() {
    let fleet = Fleet::start().await;
    for (args, code, expect) in [
        (
            &["gamma"][..],
            1,
            "fleetcache: there is no cluster \"gamma\"; there are: alpha, beta\n",
        ),
        (
            &["alpha", "--wait", "soon"],
            2,
            "fleetcache: wait: \"soon\" is not a duration",
        ),
        (
            &["alpha", "--wait", "2m"],
            2,
            "fleetcache: wait: 2m is more than 60s\n",
        ),
        (
            &["alpha", "--wait", "0s"],
            0,
            "cluster \"alpha\" is being refreshed\n",
        ),
    ] {
        let (exit, text) = fleet.refresh(args).await;
        assert_eq!(exit, Some(code), "{text}");
        assert!(text.starts_with(expect), "{text}");
    }
    let port = fleet.proxy.url().rsplit_once('/').unwrap().1;
    let (code, text) = fleetcache(&["refresh", "--admin", port, "alpha"]).await;
    assert_eq!(code, Some(1));
    assert!(text.contains("it speaks HTTPS"), "{text}");
    let (code, text) = fleetcache(&["refresh", "--admin", "127.0.0.1:1", "alpha"]).await;
    assert_eq!(code, Some(1));
    assert!(text.contains("no proxy answers at 127.0.0.1:1"), "{text}");
}
