//! One cluster goes away, in every way a cluster can: the others do not notice, its clients are told at once, and nothing
//! it serves afterwards is older than what the apiserver itself says.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::{ControlPlane, Options, Server};
use fleetcache_e2e::kubectl::{Kubectl, Output};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::Signal;
use fleetcache_e2e::proxy::Proxy;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::pair::{Comparable, compare, connect, warm};
use crate::reads::define_widgets;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

fn configmap(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}})
}

/// Two clusters behind one proxy; `alpha` is the one that goes away.
struct Fleet {
    alpha: ControlPlane,
    beta: ControlPlane,
    proxy: Proxy,
    /// kubectl on alpha through the proxy, with its discovery cache filled.
    kubectl: Kubectl,
}

impl Fleet {
    async fn start() -> Self {
        let (alpha, beta) = tokio::join!(
            ControlPlane::start(Options::named("alpha")),
            ControlPlane::start(Options::named("beta"))
        );
        let (alpha, beta) = (alpha.unwrap(), beta.unwrap());
        let proxy = Proxy::for_kubeconfigs(&[alpha.kubeconfig(), beta.kubeconfig()])
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

    fn client(&self) -> Client {
        self.proxy.client("alpha").unwrap()
    }

    /// Returns when the proxy has noticed that alpha is away.
    async fn wait_until_unavailable(&self) {
        let client = self.client();
        wait_for("the proxy to notice", PATIENCE, async || {
            let answer = client.get(CONFIGMAPS).await?;
            anyhow::ensure!(
                answer.status == 503,
                "still {} ({})",
                answer.status,
                answer.cache_status()
            );
            Ok(())
        })
        .await
        .unwrap();
    }

    /// What every client of alpha is told while it is away: one sentence, at once.
    async fn assert_fails_fast(&self) {
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
        let message = client.get(CONFIGMAPS).await.unwrap().json().unwrap()["message"]
            .as_str()
            .unwrap()
            .to_owned();
        let beginning = message.split(';').next().unwrap_or(&message);
        assert!(
            stderr.contains(beginning),
            "'{stderr}' is not our sentence '{message}'"
        );
        assert!(
            elapsed < Duration::from_secs(1),
            "kubectl took {elapsed:?}: {stderr}"
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
    fn watch_beta(&self) -> Bystander {
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
    async fn assert_equal_to_the_server(&self) {
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
struct Bystander {
    stop: CancellationToken,
    reading: tokio::task::JoinHandle<(u64, Duration)>,
}

impl Bystander {
    async fn assert_unharmed(self) {
        self.stop.cancel();
        let (reads, slowest) = self.reading.await.unwrap();
        println!("beta: {reads} reads, the slowest took {slowest:?}");
        assert!(reads > 0);
    }
}

#[tokio::test]
async fn a_killed_apiserver_is_told_at_once_and_nobody_else_notices() {
    let mut fleet = Fleet::start().await;
    let beta = fleet.watch_beta();
    let killed = Instant::now();
    fleet.alpha.kill(Server::Apiserver);
    fleet.wait_until_unavailable().await;
    println!("noticed after {:?}", killed.elapsed());
    fleet.assert_fails_fast().await;

    // Back, and changed before the proxy can have seen it: a deletion, and a name that is another object now.
    fleet.alpha.start_server(Server::Apiserver).await.unwrap();
    change_past_the_proxy(&fleet.alpha).await;
    fleet.assert_equal_to_the_server().await;
    let recreated = fleet
        .client()
        .get(&format!("{CONFIGMAPS}/recreated"))
        .await
        .unwrap()
        .json()
        .unwrap();
    assert_eq!(recreated["data"]["value"], "after");
    fleet
        .kubectl
        .run(&["get", "pods"])
        .await
        .unwrap()
        .ok()
        .unwrap();
    beta.assert_unharmed().await;
    assert_eq!(
        fleet
            .beta
            .client()
            .unwrap()
            .get("/readyz")
            .await
            .unwrap()
            .status,
        200
    );
}

async fn change_past_the_proxy(cluster: &ControlPlane) {
    let direct = cluster.client().unwrap();
    for name in ["deleted", "recreated"] {
        direct
            .delete(&format!("{CONFIGMAPS}/{name}"))
            .await
            .unwrap()
            .ok()
            .unwrap();
    }
    direct
        .create(CONFIGMAPS, &configmap("recreated", "after"))
        .await
        .unwrap()
        .ok()
        .unwrap();
}

#[tokio::test]
async fn a_stopped_apiserver_is_noticed_although_its_connections_stay_open() {
    let fleet = Fleet::start().await;
    let beta = fleet.watch_beta();
    let stopped = Instant::now();
    fleet.alpha.signal(Server::Apiserver, Signal::Stop);
    fleet.wait_until_unavailable().await;
    println!("noticed after {:?}", stopped.elapsed());
    fleet.assert_fails_fast().await;
    fleet.alpha.signal(Server::Apiserver, Signal::Continue);
    fleet.assert_equal_to_the_server().await;
    beta.assert_unharmed().await;
}

#[tokio::test]
async fn another_etcd_at_the_same_address_is_another_cluster() {
    let mut fleet = Fleet::start().await;
    let proxied = fleet.client();
    let beta = fleet.watch_beta();
    // Fewer writes than before, so that the new history is still behind the old one when the proxy comes back to it.
    fleet.alpha.replace_etcd().await.unwrap();
    let direct = fleet.alpha.client().unwrap();
    direct
        .create(CONFIGMAPS, &configmap("kept", "new"))
        .await
        .unwrap()
        .ok()
        .unwrap();

    let mut seen_new = false;
    wait_for("the new cluster", PATIENCE, async || {
        let answer = proxied.get(CONFIGMAPS).await?.ok()?;
        let values = values(&answer);
        if values.get("kept").is_some_and(|value| value == "new") {
            seen_new = true;
        } else {
            assert!(
                !seen_new,
                "the old cluster is back: {values:?} ({})",
                answer.cache_status()
            );
        }
        anyhow::ensure!(
            seen_new && answer.is_hit(),
            "{values:?} ({})",
            answer.cache_status()
        );
        Ok(())
    })
    .await
    .unwrap();
    fleet.assert_equal_to_the_server().await;

    // A watch that resumed with a version from the old history would be accepted, and stay mute until that is reached.
    direct
        .create(CONFIGMAPS, &configmap("later", "new"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    wait_for("a later object", PATIENCE, async || {
        let answer = proxied.get(CONFIGMAPS).await?.ok()?;
        anyhow::ensure!(
            values(&answer).contains_key("later"),
            "{}",
            answer.cache_status()
        );
        Ok(())
    })
    .await
    .unwrap();
    beta.assert_unharmed().await;
}

/// The same, but the proxy sleeps until the new history is longer than the old one was: only the identity of the cluster
/// tells that a version means something else now, and a watch from the old version would be told events of the new one.
#[tokio::test]
async fn another_etcd_with_a_longer_history_is_another_cluster() {
    let mut fleet = Fleet::start().await;
    let proxied = fleet.client();
    let old = proxied.get(CONFIGMAPS).await.unwrap().json().unwrap();
    let old_version = list_version(&old);
    fleet.proxy.signal(Signal::Stop);
    fleet.alpha.replace_etcd().await.unwrap();
    let direct = fleet.alpha.client().unwrap();
    direct
        .create(CONFIGMAPS, &configmap("kept", "new"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    let path = format!("{CONFIGMAPS}/kept");
    for round in 0.. {
        let object = direct
            .patch(&path, &json!({"data": {"round": round.to_string()}}))
            .await
            .unwrap()
            .ok()
            .unwrap()
            .json()
            .unwrap();
        let version: u64 = object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        if version > old_version + 100 {
            break;
        }
    }
    fleet.proxy.signal(Signal::Continue);
    fleet.assert_equal_to_the_server().await;
    let values = values(&proxied.get(CONFIGMAPS).await.unwrap());
    assert!(
        !values.contains_key("recreated"),
        "an object of the old cluster is still served: {values:?}"
    );
}

fn list_version(list: &Value) -> u64 {
    list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

fn values(list: &Answer) -> BTreeMap<String, String> {
    let list = list.json().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| {
            (
                text(&item["metadata"]["name"]),
                text(&item["data"]["value"]),
            )
        })
        .collect()
}

#[tokio::test]
async fn a_default_added_to_a_schema_changes_what_is_served() {
    let cluster = ControlPlane::start(Options::named("alpha")).await.unwrap();
    let (direct, proxied, _proxy) = connect(&cluster).await;
    let definition = define_widgets(&direct, "outage.example.com").await;
    let path = "/apis/outage.example.com/v1/namespaces/default/widgets";
    let widget = json!({"apiVersion": "outage.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}});
    direct.create(path, &widget).await.unwrap().ok().unwrap();
    let before = warm(&proxied, path).await;

    let property = json!({"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"colour": {"type": "string", "default": "blue"}}}});
    let patch = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties", "value": property}]);
    let definition =
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition}");
    let headers = [("content-type", "application/json-patch+json")];
    direct
        .send(
            http::Method::PATCH,
            &definition,
            &headers,
            patch.to_string(),
        )
        .await
        .unwrap()
        .ok()
        .unwrap();

    for path in [path.to_owned(), format!("{path}/w")] {
        wait_for(
            "the default to be served from memory",
            PATIENCE,
            async || {
                let (direct, proxied) = (
                    direct.get(&path).await?.ok()?,
                    proxied.get(&path).await?.ok()?,
                );
                anyhow::ensure!(
                    direct.text().contains("blue"),
                    "the server does not serve it yet"
                );
                compare(&Comparable::from(&direct), &Comparable::from(&proxied))
                    .map_err(anyhow::Error::msg)?;
                anyhow::ensure!(
                    proxied.is_hit(),
                    "not from memory: {}",
                    proxied.cache_status()
                );
                Ok(())
            },
        )
        .await
        .unwrap();
    }
    let version =
        |list: &Answer| list.json().unwrap()["items"][0]["metadata"]["resourceVersion"].clone();
    assert_eq!(
        version(&before),
        version(&proxied.get(path).await.unwrap()),
        "the object was written, so this proved nothing"
    );
}
