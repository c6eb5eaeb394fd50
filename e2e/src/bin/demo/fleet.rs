//! The clusters of the demo: what is in them, how it changes, and how they fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleetcache_e2e::kubeconfig::Context;
use fleetcache_e2e::sim::{SimCluster, SimConfig, Status, Store};
use rand::Rng as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The first clusters have names that are easy to tell apart; the others are numbered.
const NAMES: [&str; 8] = [
    "oslo", "lima", "kyoto", "cairo", "quito", "perth", "turin", "delhi",
];

const NAMESPACES: [&str; 3] = ["shop", "payments", "search"];

const NODES: usize = 3;

/// How long all clusters are up between two outages.
pub(crate) const UP: Duration = Duration::from_secs(15);

/// How long an outage lasts: long enough to try kubectl on it.
pub(crate) const DOWN: Duration = Duration::from_secs(20);

/// How often something changes in a cluster.
const CHANGE_EVERY: Duration = Duration::from_millis(250);

/// All clusters.
pub(crate) struct Fleet {
    clusters: Vec<SimCluster>,
    objects: usize,
    changes: Arc<AtomicU64>,
}

impl Fleet {
    /// Starts the clusters and fills them.
    pub(crate) async fn start(count: usize, objects: usize) -> anyhow::Result<Self> {
        let mut clusters = Vec::with_capacity(count);
        for index in 0..count {
            let cluster = SimCluster::start(SimConfig::new(name(index))).await?;
            fill(cluster.store(), objects)?;
            clusters.push(cluster);
        }
        Ok(Self {
            clusters,
            objects,
            changes: Arc::default(),
        })
    }

    /// The clusters' names.
    pub(crate) fn names(&self) -> Vec<String> {
        self.clusters
            .iter()
            .map(|cluster| cluster.name().to_owned())
            .collect()
    }

    /// How many objects each was filled with.
    pub(crate) fn objects(&self) -> usize {
        self.objects
    }

    /// How many changes there were so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// How to reach each of them.
    pub(crate) fn contexts(&self) -> Vec<Context> {
        self.clusters.iter().map(SimCluster::context).collect()
    }

    /// Keeps changing objects, down or not, until `stop`.
    pub(crate) fn change(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        for cluster in &self.clusters {
            let (store, changes, stop) =
                (cluster.store().clone(), self.changes.clone(), stop.clone());
            let mut changing = Changing {
                store,
                objects: self.objects,
                jobs: 0,
            };
            tasks.spawn(async move {
                loop {
                    tokio::select! {
                        () = tokio::time::sleep(CHANGE_EVERY) => {}
                        () = stop.cancelled() => return,
                    }
                    // The user may have deleted what was to be changed.
                    if changing.change_one().is_ok() {
                        changes.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    }

    /// Takes clusters down and brings them back, in turn, for ever. The first, which the lines to try name, is the last.
    pub(crate) async fn fail(&self, down: usize) -> anyhow::Result<()> {
        let mut turn = self.clusters.iter().rev().cycle();
        loop {
            tokio::time::sleep(UP).await;
            let failing: Vec<&SimCluster> = turn.by_ref().take(down).collect();
            for cluster in &failing {
                cluster.kill();
            }
            tokio::time::sleep(DOWN).await;
            for cluster in &failing {
                cluster.heal()?;
            }
        }
    }

    /// Ends the clusters.
    pub(crate) async fn stop(self) {
        for cluster in self.clusters {
            cluster.stop().await;
        }
    }
}

fn name(index: usize) -> String {
    NAMES.get(index).map_or_else(
        || format!("edge-{:03}", index + 1),
        |name| (*name).to_owned(),
    )
}

/// What the object of this number is. Of twenty, fourteen are pods.
enum Kind {
    Pod,
    Configmap,
    Deployment,
    Widget,
}

impl Kind {
    fn of(index: usize) -> Self {
        match index % 20 {
            0..14 => Self::Pod,
            14..18 => Self::Configmap,
            18 => Self::Deployment,
            _ => Self::Widget,
        }
    }
}

fn fill(store: &Store, objects: usize) -> Result<(), Status> {
    for node in 0..NODES {
        store.create("nodes", node_object(node))?;
    }
    for namespace in NAMESPACES {
        store.create("namespaces", json!({"metadata": {"name": namespace}}))?;
    }
    for index in 0..objects {
        let namespace = NAMESPACES[index % NAMESPACES.len()];
        match Kind::of(index) {
            Kind::Pod => store.create("pods", pod(namespace, &format!("web-{index}")))?,
            Kind::Configmap => store.create(
                "configmaps",
                configmap(namespace, &format!("settings-{index}")),
            )?,
            Kind::Deployment => store.create(
                "deployments",
                deployment(namespace, &format!("web-{index}")),
            )?,
            Kind::Widget => {
                store.create("widgets", widget(namespace, &format!("widget-{index}")))?
            }
        };
    }
    Ok(())
}

/// What keeps happening in one cluster.
struct Changing {
    store: Store,
    objects: usize,
    /// The pods made after the start; only the newest is there.
    jobs: u64,
}

impl Changing {
    fn change_one(&mut self) -> Result<(), Status> {
        let (index, replace) = {
            let mut rng = rand::rng();
            (
                rng.random_range(0..self.objects.max(1)),
                rng.random_bool(0.25),
            )
        };
        if replace {
            return self.replace_job();
        }
        let namespace = NAMESPACES[index % NAMESPACES.len()];
        let count = |value: &mut Value| *value = (value.as_u64().unwrap_or_default() + 1).into();
        match Kind::of(index) {
            Kind::Pod => self
                .store
                .modify("pods", namespace, &format!("web-{index}"), |pod| {
                    count(&mut pod["status"]["containerStatuses"][0]["restartCount"]);
                })?,
            Kind::Configmap => self.store.modify(
                "configmaps",
                namespace,
                &format!("settings-{index}"),
                |configmap| {
                    configmap["data"]["level"] =
                        rand::rng().random_range(1..100).to_string().into();
                },
            )?,
            Kind::Deployment => self.store.modify(
                "deployments",
                namespace,
                &format!("web-{index}"),
                |deployment| {
                    deployment["status"]["readyReplicas"] = rand::rng().random_range(1..=2).into();
                },
            )?,
            Kind::Widget => {
                self.store
                    .modify("widgets", namespace, &format!("widget-{index}"), |widget| {
                        count(&mut widget["status"]["observed"]);
                    })?
            }
        };
        Ok(())
    }

    fn replace_job(&mut self) -> Result<(), Status> {
        let name = |number: u64| format!("job-{number}");
        let old = name(self.jobs);
        self.jobs += 1;
        self.store
            .create("pods", pod(NAMESPACES[0], &name(self.jobs)))?;
        if self.jobs > 1 {
            self.store.delete("pods", NAMESPACES[0], &old)?;
        }
        Ok(())
    }
}

fn pod(namespace: &str, name: &str) -> Value {
    let node = rand::rng().random_range(0..NODES);
    json!({
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": format!("node-{node}"),
            "containers": [{"name": "web", "image": "registry.example/web:1.4", "ports": [{"containerPort": 8080}]}],
        },
        "status": {
            "phase": "Running",
            "podIP": format!("10.0.{node}.{}", rand::rng().random_range(1..255)),
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "web", "ready": true, "restartCount": 0, "image": "", "imageID": ""}],
        },
    })
}

fn configmap(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "data": {"level": "1", "mode": "fast"}})
}

fn deployment(namespace: &str, name: &str) -> Value {
    let container = json!({"name": "web", "image": "registry.example/web:1.4"});
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
        "status": {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
    })
}

fn widget(namespace: &str, name: &str) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"size": 3}, "status": {"observed": 0}})
}

fn node_object(index: usize) -> Value {
    json!({
        "metadata": {"name": format!("node-{index}"), "labels": {"kubernetes.io/os": "linux"}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
            "addresses": [{"type": "InternalIP", "address": format!("10.1.0.{index}")}],
        },
    })
}
