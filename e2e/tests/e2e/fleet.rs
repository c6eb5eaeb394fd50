//! Two clusters behind one proxy, of which one goes away.

use std::time::Duration;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options};
use fleetcache_e2e::kubectl::{Kubectl, Output};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::Proxy;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::pair::{Comparable, compare, warm};

pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

pub(crate) fn configmap(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

/// Two clusters behind one proxy; `alpha` is the one that goes away.
pub(crate) struct Fleet {
    pub(crate) alpha: ControlPlane,
    pub(crate) beta: ControlPlane,
    pub(crate) proxy: Proxy,
    /// kubectl on alpha through the proxy, with its discovery cache filled.
    pub(crate) kubectl: Kubectl,
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        let (alpha, beta) = tokio::join!(
            ControlPlane::start(Options::named("alpha")),
            ControlPlane::start(Options::named("beta"))
        );
        let (alpha, beta) = (alpha.unwrap(), beta.unwrap());
        let proxy = Proxy::for_kubeconfigs(&[alpha.proxy_kubeconfig(), beta.proxy_kubeconfig()])
            .await
            .unwrap();
        for cluster in [&alpha, &beta] {
            let client = proxy.client(cluster.name()).unwrap();
            wait_for("both clusters", PATIENCE, async || {
                client.get("/version").await?.ok()
            })
            .await
            .unwrap();
            for name in ["kept", "deleted", "recreated"] {
                client
                    .create(CONFIGMAPS, &configmap(name, "before"))
                    .await
                    .unwrap()
                    .ok()
                    .unwrap();
            }
            warm(&client, CONFIGMAPS).await;
            warm(&client, "/api/v1/namespaces/default/pods").await;
        }
        let kubectl = proxy.kubectl("alpha").await.unwrap();
        kubectl.run(&["get", "pods"]).await.unwrap().ok().unwrap();
        Self {
            alpha,
            beta,
            proxy,
            kubectl,
        }
    }

    pub(crate) fn client(&self) -> Client {
        self.proxy.client("alpha").unwrap()
    }

    /// Returns when the proxy has noticed that alpha is away. Until then a request that is sent there anyway is refused
    /// too, with what became of it.
    pub(crate) async fn wait_until_unavailable(&self) {
        let client = self.client();
        wait_for("the proxy to notice", PATIENCE, async || {
            let answer = client.get(CONFIGMAPS).await?;
            let noticed = answer.status == 503 && answer.text().contains("is not connected");
            anyhow::ensure!(noticed, "{}: {}", answer.status, answer.text());
            Ok(())
        })
        .await
        .unwrap();
    }

    /// What every client of alpha is told while it is away: one sentence, at once.
    pub(crate) async fn assert_fails_fast(&self) {
        let client = self.client();
        // A cluster that is dialled just now may hold a request for up to 40 ms; once two dials failed it holds none.
        let mut elapsed = Vec::new();
        for path in [
            CONFIGMAPS,
            "/api/v1/namespaces/default/configmaps/kept",
            "/api/v1/secrets",
            "/apis/apps/v1/deployments",
        ]
        .repeat(5)
        {
            let answer = client.get(path).await.unwrap();
            let status = answer.json().unwrap();
            assert_eq!(
                (answer.status.as_u16(), &status["reason"]),
                (503, &json!("ServiceUnavailable")),
                "{path}: {status}"
            );
            assert!(
                status["message"].as_str().unwrap().contains("alpha"),
                "{status}"
            );
            assert!(
                !answer.headers.contains_key("retry-after"),
                "client-go would retry ten times"
            );
            elapsed.push(answer.elapsed);
        }
        let write = client
            .create(CONFIGMAPS, &configmap("never", "written"))
            .await
            .unwrap();
        assert_eq!(write.status, 503);
        // The median, because this machine may be busy with other tests; a proxy that waits for anything fails all of them.
        elapsed.sort();
        assert!(
            elapsed[elapsed.len() / 2] < Duration::from_millis(50),
            "{elapsed:?}"
        );

        let Output {
            stdout,
            stderr,
            code,
            elapsed,
        } = self.quickest_get_pods().await;
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
        let sentence = "cluster \"alpha\" is not connected: ";
        assert!(stderr.contains(sentence), "not our sentence: {stderr}");
        assert!(
            elapsed < Duration::from_secs(3),
            "kubectl took {elapsed:?}: {stderr}"
        );

        // Also who has yet to ask what is served.
        let newcomer = self.proxy.kubectl("alpha").await.unwrap();
        let cold = newcomer.run(&["get", "pods"]).await.unwrap();
        assert!(
            cold.stderr.contains(sentence),
            "not our sentence: {}",
            cold.stderr
        );
    }

    /// The quickest of three, since what is asked is whether kubectl waits, and not whether the machine is busy.
    async fn quickest_get_pods(&self) -> Output {
        let mut outputs = Vec::new();
        for _ in 0..3 {
            outputs.push(self.kubectl.run(&["get", "pods"]).await.unwrap());
        }
        outputs
            .into_iter()
            .min_by_key(|output| output.elapsed)
            .unwrap()
    }

    /// Reads beta without pause until told to stop. Every answer must be right and come from memory.
    pub(crate) fn watch_beta(&self) -> Bystander {
        let client = self.proxy.client("beta").unwrap();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let reading = tokio::spawn(async move {
            let (mut reads, mut slowest) = (0, Duration::ZERO);
            while !stopped.is_cancelled() {
                let answer = client.get(CONFIGMAPS).await.unwrap();
                assert!(
                    answer.status == 200 && answer.is_hit(),
                    "beta: {} ({})",
                    answer.status,
                    answer.cache_status()
                );
                reads += 1;
                slowest = slowest.max(answer.elapsed);
                tokio::task::yield_now().await;
            }
            (reads, slowest)
        });
        Bystander { stop, reading }
    }

    /// Returns when the proxy's answers are the server's again, for the list and for each object, and from memory.
    pub(crate) async fn assert_equal_to_the_server(&self) {
        let (direct, proxied) = (self.alpha.client().unwrap(), self.client());
        for path in [
            CONFIGMAPS.to_owned(),
            format!("{CONFIGMAPS}/kept"),
            format!("{CONFIGMAPS}/deleted"),
            format!("{CONFIGMAPS}/recreated"),
        ] {
            wait_for(
                &format!("{path} to be what the server says"),
                PATIENCE,
                async || {
                    let (direct, proxied) = (direct.get(&path).await?, proxied.get(&path).await?);
                    compare(&Comparable::from(&direct), &Comparable::from(&proxied))
                        .map_err(anyhow::Error::msg)?;
                    anyhow::ensure!(
                        direct.status == 404 || proxied.is_hit(),
                        "not from memory: {}",
                        proxied.cache_status()
                    );
                    Ok(())
                },
            )
            .await
            .unwrap();
        }
    }
}

/// A client of the cluster that nothing happens to.
pub(crate) struct Bystander {
    stop: CancellationToken,
    reading: tokio::task::JoinHandle<(u64, Duration)>,
}

impl Bystander {
    pub(crate) async fn assert_unharmed(self) {
        self.stop.cancel();
        let (reads, slowest) = self.reading.await.unwrap();
        println!("beta: {reads} reads, the slowest took {slowest:?}");
        assert!(reads > 0);
    }
}
