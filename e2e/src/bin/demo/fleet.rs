//! The clusters of the demo: what is in them, and how it changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleetcache_e2e::fleet_box::FleetBox;
use fleetcache_e2e::kubeconfig::Context;
use fleetcache_e2e::sim::{Filling, SimCluster, SimConfig, Status, Store};
use rand::Rng as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::outages::{FEW, Outages};

/// The first clusters have names that are easy to tell apart; the others are numbered.
const NAMES: [&str; 8] = [
    "oslo", "lima", "kyoto", "cairo", "quito", "perth", "turin", "delhi",
];

const NAMESPACES: [&str; 3] = ["shop", "payments", "search"];

const NODES: usize = 3;

/// How often something changes in a cluster, of few.
const CHANGE_EVERY: Duration = Duration::from_millis(250);

/// All clusters.
pub(crate) struct Fleet {
    clusters: FleetBox,
    objects: usize,
    changes: Arc<AtomicU64>,
}

impl Fleet {
    /// Starts the clusters and fills them. Those that are down from the start are.
    pub(crate) async fn start(
        count: usize,
        objects: usize,
        outages: &Outages,
    ) -> anyhow::Result<Self> {
        let few = count <= FEW;
        let filling = Filling::new(move |store| {
            // The store is new, and its names are all different.
            let _ = fill(store, objects);
        });
        let clusters = FleetBox::start((0..count).map(name), |config| SimConfig {
            filling: (!few).then(|| filling.clone()),
            ..config
        });
        let clusters = clusters.await?;
        for cluster in clusters.clusters() {
            for namespace in NAMESPACES {
                let namespace = json!({"metadata": {"name": namespace}});
                cluster.store().create("namespaces", namespace)?;
            }
            if few {
                fill(cluster.store(), objects)?;
            }
        }
        outages.begin(&clusters)?;
        Ok(Self {
            clusters,
            objects,
            changes: Arc::default(),
        })
    }

    /// The clusters' names.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.all().iter().map(|cluster| cluster.name().to_owned());
        names.collect()
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
        self.clusters.contexts(0..self.all().len())
    }

    fn all(&self) -> &[SimCluster] {
        self.clusters.clusters()
    }

    /// Keeps changing objects, down or not, until `stop`.
    pub(crate) fn change(&self, tasks: &TaskTracker, stop: &CancellationToken) {
        let every = CHANGE_EVERY * u32::try_from(self.all().len() / FEW).unwrap_or(1).max(1);
        for cluster in self.all() {
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
                        () = tokio::time::sleep(every) => {}
                        () = stop.cancelled() => return,
                    }
                    // Of many, nobody may have looked at this one; and the user may have deleted what was to be changed.
                    if !changing.store.is_empty("nodes") && changing.change_one().is_ok() {
                        changes.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    }

    /// Takes clusters down and brings them back, for ever.
    pub(crate) async fn fail(&self, outages: &Outages) -> anyhow::Result<()> {
        outages.play(&self.clusters).await
    }

    /// Ends the clusters.
    pub(crate) async fn stop(self) {
        self.clusters.stop().await;
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
