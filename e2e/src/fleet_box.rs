//! A fleet in a box: thousands of simulated clusters in one process, each at a loopback address of its own, healthy, broken
//! or gone as a script says.
//!
//! A cluster takes two descriptors, four while it is a black hole, and one for each connection. They share a CA, a key, TLS
//! settings and what discovery says; of the objects there are only the first namespaces until somebody looks.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use rand::Rng as _;

use crate::kubeconfig::Context;
use crate::sim::{Authority, Probes, SimCluster, SimConfig};

mod script;

pub use script::{Change, Script, Step, Which};

/// Clusters in the last byte of an address: neither 0 nor 255.
const PER_NETWORK: usize = 254;

/// All of them.
#[derive(Debug)]
pub struct FleetBox {
    clusters: Vec<SimCluster>,
    authority: Arc<Authority>,
}

impl FleetBox {
    /// Starts a cluster for each name, set up as `configure` says.
    ///
    /// # Errors
    /// If an address cannot be bound, as where the process may not open so many files.
    pub async fn start(
        names: impl IntoIterator<Item = String>,
        configure: impl Fn(SimConfig) -> SimConfig,
    ) -> anyhow::Result<Self> {
        let authority = Arc::new(Authority::new("fleet")?);
        // Others on this machine may have a box too. Were they to meet, the kernel would still give each its own ports.
        let network = rand::rng().random_range(1..=254);
        let mut clusters = Vec::new();
        for (index, name) in names.into_iter().enumerate() {
            let config = SimConfig {
                listen: address(network, index),
                authority: Some(authority.clone()),
                ..SimConfig::new(name)
            };
            clusters.push(SimCluster::start(configure(config)).await?);
        }
        Ok(Self {
            clusters,
            authority,
        })
    }

    /// The clusters, in the order of their names as they were given.
    pub fn clusters(&self) -> &[SimCluster] {
        &self.clusters
    }

    /// How to reach some of them.
    pub fn contexts(&self, which: Range<usize>) -> Vec<Context> {
        self.clusters[which]
            .iter()
            .map(SimCluster::context)
            .collect()
    }

    /// Does one step of a script now. It holds when this returns.
    ///
    /// # Errors
    /// If the kernel has no socket left.
    pub fn apply(&self, step: &Step) -> io::Result<()> {
        for index in step.which.indices() {
            let Some(cluster) = self.clusters.get(index) else {
                break;
            };
            match &step.change {
                Change::Fault(fault) => cluster.fault(fault.clone()),
                Change::Kill => cluster.kill(),
                Change::Vanish => cluster.vanish()?,
                Change::Heal => cluster.heal()?,
            }
        }
        Ok(())
    }

    /// Plays a script in its time, from now on.
    ///
    /// # Errors
    /// As of a step.
    pub async fn play(&self, script: &Script) -> io::Result<()> {
        script.play(|step| self.apply(step)).await
    }

    /// Expects probes of some of them from now on, and of no others.
    pub fn expect_probes(&self, which: Range<usize>, interval: Duration) {
        for (index, cluster) in self.clusters.iter().enumerate() {
            cluster.expect_probes(which.contains(&index).then_some(interval));
        }
    }

    /// The probes since they are expected, of all together.
    pub fn probes(&self) -> Probes {
        let probes = self.clusters.iter().map(SimCluster::probes);
        probes.fold(Probes::default(), |sum, probes| Probes {
            on_time: sum.on_time + probes.on_time,
            late: sum.late + probes.late,
        })
    }

    /// The most handshakes that were in flight at once, since it was last asked.
    pub fn take_most_handshakes(&self) -> usize {
        self.authority.take_most_handshakes()
    }

    /// Ends all of them.
    pub async fn stop(self) {
        stream::iter(self.clusters)
            .for_each_concurrent(None, SimCluster::stop)
            .await;
    }
}

fn address(network: u8, index: usize) -> SocketAddr {
    let byte = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
    let (third, fourth) = (byte(index / PER_NETWORK), byte(index % PER_NETWORK + 1));
    (Ipv4Addr::new(127, network, third, fourth), 0).into()
}

#[cfg(test)]
mod tests;
