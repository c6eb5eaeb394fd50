//! The cluster, the objects that change, and the event that a change makes.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, ensure};
use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, Options, Server, User};
use fleetcache_e2e::kubeconfig::Context;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{self, Proxy};
use serde_json::{Value, json};

/// With it an event is about 5 kB.
const PAYLOAD: usize = 4_500;

/// Each has one ConfigMap that changes, so that a round of one server is no work for the clients of the other.
pub(crate) const PROXIED: &str = "proxied";
pub(crate) const DIRECT: &str = "direct";

/// What all measurements share.
pub(crate) struct Setup {
    cluster: ControlPlane,
    direct: Client,
    /// Numbers the changes, so that each is one.
    changes: AtomicUsize,
    /// What the kube-apiserver sends for a change, with its newline.
    pub(crate) event: String,
}

impl Setup {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let cluster = ControlPlane::start(Options::named("bench")).await?;
        let direct = cluster.client()?;
        for namespace in [PROXIED, DIRECT] {
            let object = json!({"metadata": {"name": namespace}});
            direct.create("/api/v1/namespaces", &object).await?.ok()?;
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            direct.create(&path, &config_map(0)).await?.ok()?;
        }
        let mut setup = Self {
            cluster,
            direct,
            changes: AtomicUsize::new(0),
            event: String::new(),
        };
        let path = format!("/api/v1/namespaces/{DIRECT}/configmaps?watch=true");
        let mut events = setup.cluster.client()?.lines(&path).await?;
        events.next().await?.context("the object as it is")?;
        setup.update(DIRECT).await?;
        let event = events.next().await?.context("the change")?;
        setup.event = String::from_utf8(event.into())? + "\n";
        Ok(setup)
    }

    /// A proxy that has not served anybody yet, with its informer synced.
    pub(crate) async fn proxy(&self) -> anyhow::Result<Proxy> {
        let proxy = Proxy::start(proxy::Options {
            kubeconfigs: vec![self.cluster.kubeconfig()],
            // As users have it, and not as tests do.
            self_check_interval: Some("5m".to_owned()),
            ..proxy::Options::default()
        })
        .await?;
        let client = proxy.client("bench")?;
        wait_for("the informer to sync", PATIENCE, || async {
            match client.get("/api/v1/configmaps").await {
                Ok(answer) if answer.is_hit() => Ok(()),
                Ok(answer) => Err(answer.cache_status().to_owned()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await?;
        Ok(proxy)
    }

    /// The kube-apiserver itself.
    pub(crate) fn endpoint(&self) -> anyhow::Result<Context> {
        self.cluster.context(User::Admin)
    }

    /// The process id of kube-apiserver.
    pub(crate) fn apiserver(&self) -> anyhow::Result<u32> {
        let pid = self.cluster.pid(Server::Apiserver);
        pid.context("kube-apiserver runs")
    }

    /// Changes the ConfigMap of a namespace, at the kube-apiserver.
    pub(crate) async fn update(&self, namespace: &str) -> anyhow::Result<()> {
        let number = self.changes.fetch_add(1, Ordering::Relaxed) + 1;
        let path = format!("/api/v1/namespaces/{namespace}/configmaps/changing");
        let answer = self.direct.update(&path, &config_map(number)).await?;
        ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    }
}

fn config_map(number: usize) -> Value {
    json!({
        "metadata": {"name": "changing"},
        "data": {"number": format!("{number:08}"), "payload": "p".repeat(PAYLOAD)},
    })
}
