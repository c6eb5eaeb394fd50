//! The clusters, read at each scrape: one that is gone has no series.
//!
//! At most twelve series a cluster: ten at any time, and two more, others for one that is connected than for one that is
//! not.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use fleetcache_cache::cluster_accessor::{
    ClusterAccessor, ClusterStatus, ConnectTimeTotals, May, Right,
};
use fleetcache_cache::cluster_cache::ClusterCache;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::collectors::{Kind, encode_family};
use crate::limits::Limits;

/// The state of each cluster.
#[derive(Debug)]
pub(super) struct ClusterCollector {
    pub(super) clusters: Arc<ClusterCache>,
    pub(super) limits: Arc<Limits>,
}

/// One cluster at a scrape.
struct Seen {
    cluster: Arc<ClusterAccessor>,
    status: ClusterStatus,
    /// That the cluster refuses.
    right: Option<Right>,
}

impl Seen {
    fn label(&self) -> [(&'static str, &str); 1] {
        [("cluster", self.cluster.name())]
    }

    fn labels<'a>(&'a self, name: &'static str, value: &'a str) -> [(&'static str, &'a str); 2] {
        [("cluster", self.cluster.name()), (name, value)]
    }

    fn is_up(&self) -> bool {
        self.status.not_connected.is_none()
    }

    /// Its state, and why it is not as it should be.
    fn state(&self) -> (&'static str, &'static str) {
        let why = self.status.trouble();
        let reason = match why {
            Some((reason, _)) => reason.as_str(),
            None => self.right.map_or("", Right::reason),
        };
        (self.status.state.as_str(), reason)
    }
}

/// Seconds since 1970, to the millisecond.
fn timestamp(at: SystemTime) -> f64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    (since.unwrap_or_default().as_secs_f64() * 1000.0).round() / 1000.0
}

impl Collector for ClusterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let refused = |cluster: &ClusterAccessor| {
            let rights = self.limits.get(cluster.name())?.rights(cluster);
            let mut refused = rights.into_iter().filter(|(_, may)| *may == May::No);
            refused.next().map(|(right, _)| right)
        };
        let clusters = self.clusters.all().into_iter().map(|cluster| Seen {
            status: cluster.status(),
            right: refused(&cluster),
            cluster,
        });
        let clusters: Vec<Seen> = clusters.collect();
        encode_fleet(&mut encoder, &clusters)?;
        encode_connect_times(&mut encoder, &self.clusters.connect_times())?;
        encode_health(&mut encoder, &clusters)?;
        encode_life(&mut encoder, &clusters)
    }
}

/// How many there are, by state and reason.
fn encode_fleet(encoder: &mut DescriptorEncoder<'_>, clusters: &[Seen]) -> fmt::Result {
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for seen in clusters {
        *counts.entry(seen.state()).or_default() += 1;
    }
    let counts = counts
        .into_iter()
        .map(|((state, reason), count)| ([("state", state), ("reason", reason)], count));
    encode_family(
        encoder,
        Kind::Gauge,
        "clusters",
        "Clusters, by the state of their connection and why they have none",
        counts,
    )
}

fn encode_connect_times(
    encoder: &mut DescriptorEncoder<'_>,
    times: &ConnectTimeTotals,
) -> fmt::Result {
    let (name, kind) = ("connect_duration_seconds", MetricType::Histogram);
    let help = "How long connects took, of all clusters, well or not.";
    let mut histogram = encoder.encode_descriptor(name, help, None, kind)?;
    histogram.encode_histogram::<NoLabelSet>(times.seconds, times.count, &times.buckets, None)
}

/// Whether each is there, and why not.
fn encode_health(encoder: &mut DescriptorEncoder<'_>, clusters: &[Seen]) -> fmt::Result {
    encode_family(
        encoder,
        Kind::Gauge,
        "cluster_connection_up",
        "Whether the cluster is connected",
        clusters
            .iter()
            .map(|it| (it.label(), u64::from(it.is_up()))),
    )?;
    encode_family(
        encoder,
        Kind::Gauge,
        "cluster_not_connected",
        "1 for the reason why the cluster is not connected",
        clusters.iter().filter_map(|it| {
            let why = it.status.not_connected.as_ref()?;
            Some((it.labels("reason", why.reason.as_str()), 1_u64))
        }),
    )?;
    encode_family(
        encoder,
        Kind::Gauge,
        "cluster_next_attempt_timestamp_seconds",
        "When the next connect is planned, while the cluster is not connected",
        clusters.iter().filter_map(|it| {
            let next = it.status.next_attempt.filter(|_| !it.is_up())?;
            Some((it.label(), timestamp(next)))
        }),
    )?;
    encode_family(
        encoder,
        Kind::Gauge,
        "cluster_healthcheck",
        "Whether the last probe succeeded",
        clusters
            .iter()
            .map(|it| (it.label(), u64::from(it.status.last_probe_ok))),
    )?;
    encode_family(
        encoder,
        Kind::Counter,
        "cluster_healthchecks",
        "Probes, by outcome",
        clusters.iter().flat_map(|it| {
            [
                (it.labels("status", "success"), it.status.probes_ok),
                (it.labels("status", "error"), it.status.probes_failed),
            ]
        }),
    )?;
    encode_family(
        encoder,
        Kind::Gauge,
        "cluster_last_probe_success_timestamp_seconds",
        "When the last probe that succeeded ended",
        clusters.iter().filter_map(|it| {
            let last = it.status.last_probe_success?;
            Some((it.label(), timestamp(last)))
        }),
    )
}

/// How its connections come and go.
fn encode_life(encoder: &mut DescriptorEncoder<'_>, clusters: &[Seen]) -> fmt::Result {
    encode_family(
        encoder,
        Kind::Gauge,
        "cluster_last_transition_timestamp_seconds",
        "When the cluster last became connected or ceased to be, or was added",
        clusters
            .iter()
            .map(|it| (it.label(), timestamp(it.status.last_transition))),
    )?;
    encode_family(
        encoder,
        Kind::Counter,
        "cluster_connects",
        "Connects that have ended, by outcome",
        clusters.iter().flat_map(|it| {
            let connects = &it.status.connects;
            [
                (it.labels("outcome", "success"), connects.succeeded),
                (it.labels("outcome", "error"), connects.failed),
            ]
        }),
    )?;
    encode_family(
        encoder,
        Kind::Counter,
        "cluster_disconnects",
        "Connections that were lost",
        clusters
            .iter()
            .map(|it| (it.label(), it.status.disconnects)),
    )?;
    encode_family(
        encoder,
        Kind::Gauge,
        "cluster_last_connect_duration_seconds",
        "How long the last connect took, while the cluster is connected",
        clusters.iter().filter(|it| it.is_up()).filter_map(|it| {
            let took = it.status.connects.last_duration?;
            Some((it.label(), took.as_secs_f64()))
        }),
    )?;
    encode_family(
        encoder,
        Kind::Counter,
        "cluster_informer_lists",
        "Complete lists that the cluster's informers have taken",
        clusters
            .iter()
            .map(|it| (it.label(), it.cluster.informers().lists())),
    )?;
    encode_family(
        encoder,
        Kind::Gauge,
        "cluster_clock_offset_seconds",
        "Seconds that the cluster's clock is ahead of this process's",
        clusters.iter().filter(|it| it.is_up()).filter_map(|it| {
            let ahead = it.cluster.clock_offset()?.as_secs_f64();
            Some((it.label(), ahead))
        }),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use fleetcache_cache::eviction::{Fleet, InformerTotals};
    use fleetcache_cache::informers::InformersConfig;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::authorization::testing::idle;
    use crate::listener::Places;
    use crate::metrics::{Metrics, Scrape};

    const CLUSTERS: usize = 1000;

    #[tokio::test]
    async fn a_thousand_clusters_are_told_of_and_those_that_are_gone_are_not() {
        let shutdown = CancellationToken::new();
        let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &shutdown);
        let configs = (0..CLUSTERS).map(|at| idle(&format!("c{at:04}")));
        let clusters = ClusterCache::start(configs.collect(), 8, &fleet, &shutdown);
        let totals = Box::new(InformerTotals::default);
        let scrape = Scrape::new(
            &Metrics::default(),
            Arc::clone(&clusters),
            &Arc::default(),
            Arc::default(),
            &Places::new(1, 1),
            Arc::default(),
            totals,
        );
        let text = scrape.text();
        let mut series: HashMap<&str, usize> = HashMap::new();
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once("cluster=\"") {
                let name = rest.split('"').next().unwrap();
                *series.entry(name).or_default() += 1;
            }
        }
        assert_eq!(series.len(), CLUSTERS);
        // Never probed and with no connect planned.
        assert!(series.values().all(|count| *count == 10), "{series:?}");
        let idle = r#"fleetcache_clusters{state="Pending",reason="OnDemand"} 1000"#;
        assert!(text.lines().any(|line| line == idle), "{text:.2000}");
        assert!(clusters.remove("c0007"));
        assert!(!scrape.text().contains("c0007"));
        shutdown.cancel();
    }
}
