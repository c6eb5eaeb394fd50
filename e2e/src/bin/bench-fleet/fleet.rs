//! The clusters, in a process of their own: their CPU and memory are not the proxy's.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use fleetcache_e2e::child::{self, Child};
use fleetcache_e2e::fleet_box::{FleetBox, Step};
use fleetcache_e2e::sim::{Filling, SimConfig, Store};
use fleetcache_e2e::{kubeconfig, measure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Mutex;

/// What each cluster has of each kind that is read.
const OBJECTS: usize = 10;

/// What an object carries beside its name.
const PAYLOAD: usize = 500;

/// The kinds that are read: small ones.
pub(crate) const KINDS: [&str; 3] = ["configmaps", "services", "pods"];

/// The object that is read by name.
pub(crate) const CONFIGMAP: &str = "api/v1/namespaces/default/configmaps/object-1";

/// The clusters, as this process speaks to them.
pub(crate) struct Fleet {
    process: Mutex<Child>,
    id: u32,
    started: Started,
    dir: tempfile::TempDir,
}

#[derive(Serialize, Deserialize)]
struct Started {
    clusters: usize,
    /// Resident memory before and after the clusters.
    empty: u64,
    full: u64,
}

#[derive(Serialize, Deserialize)]
enum Order {
    /// Write a kubeconfig of these clusters.
    Kubeconfig(PathBuf, Range<usize>),
    /// Do a step of a script.
    Apply(String),
    /// Count the probes of these clusters, which have this interval in milliseconds.
    ExpectProbes(Range<usize>, u64),
    /// Tell the probes on time, and the late ones.
    Probes,
    /// Tell the most handshakes in flight since the last time.
    MostHandshakes,
}

impl Fleet {
    pub(crate) async fn start(clusters: usize) -> anyhow::Result<Self> {
        let mut process = Child::start("fleet", &clusters).await?;
        let started = serde_json::from_str(&process.hear().await?)?;
        Ok(Self {
            id: process.id()?,
            process: Mutex::new(process),
            started,
            dir: tempfile::tempdir()?,
        })
    }

    /// Resident memory of the process in MiB, and of each cluster in KiB before anybody has connected.
    pub(crate) fn cost(&self) -> anyhow::Result<(f64, f64)> {
        let Started {
            clusters,
            empty,
            full,
        } = self.started;
        let each = full.saturating_sub(empty) as f64 / 1024.0 / clusters as f64;
        let now = measure::resident_bytes(self.id)? as f64 / f64::from(1 << 20);
        Ok((now, each))
    }

    /// A kubeconfig of these clusters, over the one before.
    pub(crate) async fn kubeconfig(&self, which: Range<usize>) -> anyhow::Result<PathBuf> {
        let path = self.dir.path().join("kubeconfig");
        let new = self.dir.path().join("kubeconfig.new");
        let () = self.ask(&Order::Kubeconfig(new.clone(), which)).await?;
        std::fs::rename(new, &path)?;
        Ok(path)
    }

    /// Does a step of a script.
    pub(crate) async fn apply(&self, step: &str) -> anyhow::Result<()> {
        self.ask(&Order::Apply(step.to_owned())).await
    }

    pub(crate) async fn expect_probes(
        &self,
        which: Range<usize>,
        interval: Duration,
    ) -> anyhow::Result<()> {
        let millis = u64::try_from(interval.as_millis())?;
        self.ask(&Order::ExpectProbes(which, millis)).await
    }

    /// The probes on time, and the late ones.
    pub(crate) async fn probes(&self) -> anyhow::Result<(u64, u64)> {
        self.ask(&Order::Probes).await
    }

    pub(crate) async fn take_most_handshakes(&self) -> anyhow::Result<usize> {
        self.ask(&Order::MostHandshakes).await
    }

    async fn ask<T: DeserializeOwned>(&self, order: &Order) -> anyhow::Result<T> {
        let mut process = self.process.lock().await;
        process.tell(&serde_json::to_string(order)?).await?;
        Ok(serde_json::from_str(&process.hear().await?)?)
    }
}

/// The process: serves until its input ends, each line of which is an order, and answers each with a line.
pub(crate) async fn run() -> anyhow::Result<()> {
    let (clusters, mut input) = child::told::<usize>().await?;
    let id = std::process::id();
    let empty = measure::resident_bytes(id)?;
    let fleet = start(clusters).await?;
    let full = measure::resident_bytes(id)?;
    let started = Started {
        clusters,
        empty,
        full,
    };
    println!("{}", serde_json::to_string(&started)?);
    while let Some(line) = input.recv().await {
        println!("{}", obey(&fleet, serde_json::from_str(&line)?)?);
    }
    Ok(())
}

async fn start(clusters: usize) -> anyhow::Result<FleetBox> {
    let names = (0..clusters).map(|index| format!("edge-{index:04}"));
    FleetBox::start(names, |config| SimConfig {
        filling: Some(Filling::new(fill)),
        ..config
    })
    .await
}

fn fill(store: &Store) {
    for kind in KINDS {
        for number in 0..OBJECTS {
            let metadata = json!({"namespace": "default", "name": format!("object-{number}")});
            let object = json!({"metadata": metadata, "data": {"payload": "x".repeat(PAYLOAD)}});
            store.create(kind, object).expect("it is empty");
        }
    }
}

fn obey(fleet: &FleetBox, order: Order) -> anyhow::Result<String> {
    Ok(match order {
        Order::Kubeconfig(path, which) => {
            kubeconfig::write(&path, &fleet.contexts(which))?;
            json!(null)
        }
        Order::Apply(step) => {
            let step: Step = step.parse()?;
            fleet.apply(&step).context("a step of the script")?;
            json!(null)
        }
        Order::ExpectProbes(which, millis) => {
            fleet.expect_probes(which, Duration::from_millis(millis));
            json!(null)
        }
        Order::Probes => {
            let probes = fleet.probes();
            json!([probes.on_time, probes.late])
        }
        Order::MostHandshakes => json!(fleet.take_most_handshakes()),
    }
    .to_string())
}
