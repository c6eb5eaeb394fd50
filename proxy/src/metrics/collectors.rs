//! Values that are read at each scrape instead of counted.

use std::fmt;
use std::sync::Arc;

use fleetcache_cache::cluster_accessor::ConnectionState;
use fleetcache_cache::cluster_cache::ClusterCache;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric as _,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::InformerTotalsFn;
use crate::telemetry;

/// The state of each cluster, read at the scrape: a cluster that is gone has no series.
#[derive(Debug)]
pub(super) struct ClusterCollector(pub(super) Arc<ClusterCache>);

impl Collector for ClusterCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let clusters: Vec<_> = self
            .0
            .all()
            .into_iter()
            .map(|it| (it.status(), it))
            .collect();
        let up = clusters.iter().map(|(status, it)| {
            let up = match status.state {
                ConnectionState::Connected | ConnectionState::Degraded => 1_u64,
                ConnectionState::Pending
                | ConnectionState::Connecting
                | ConnectionState::Disconnected => 0,
            };
            (vec![("cluster", it.name())], up)
        });
        encode_family(
            &mut encoder,
            Kind::Gauge,
            "cluster_connection_up",
            "Whether the cluster is connected",
            up,
        )?;
        let healthy = clusters.iter().map(|(status, it)| {
            (
                vec![("cluster", it.name())],
                u64::from(status.last_probe_ok),
            )
        });
        encode_family(
            &mut encoder,
            Kind::Gauge,
            "cluster_healthcheck",
            "Whether the last probe succeeded",
            healthy,
        )?;
        let probes = clusters.iter().flat_map(|(status, it)| {
            let labels = |status| vec![("cluster", it.name()), ("status", status)];
            [
                (labels("success"), status.probes_ok),
                (labels("error"), status.probes_failed),
            ]
        });
        encode_family(
            &mut encoder,
            Kind::Counter,
            "cluster_healthchecks",
            "Probes, by outcome",
            probes,
        )?;
        let offsets = clusters.iter().filter_map(|(_, it)| {
            let ahead = it.clock_offset()?.as_secs_f64();
            Some((vec![("cluster", it.name())], ahead))
        });
        encode_family(
            &mut encoder,
            Kind::Gauge,
            "cluster_clock_offset_seconds",
            "Seconds that the cluster's clock is ahead of this process's",
            offsets,
        )
    }
}

/// What informers hold together, and what the process counts for itself.
pub(super) struct TotalsCollector(pub(super) InformerTotalsFn);

impl fmt::Debug for TotalsCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TotalsCollector").finish_non_exhaustive()
    }
}

impl Collector for TotalsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let totals = (self.0)();
        let mut one = |kind, name, help, value| {
            encode_family(&mut encoder, kind, name, help, [(Vec::new(), value)])
        };
        one(
            Kind::Gauge,
            "informers",
            "Informers that run",
            totals.informers as u64,
        )?;
        one(
            Kind::Gauge,
            "objects",
            "Objects kept in memory",
            totals.objects as u64,
        )?;
        one(
            Kind::Gauge,
            "store_bytes",
            "Bytes of the objects and of the recent changes kept in memory",
            totals.bytes as u64,
        )?;
        one(
            Kind::Gauge,
            "watchers",
            "Open watches served from memory",
            totals.watchers as u64,
        )?;
        one(
            Kind::Counter,
            "cache_mismatch",
            "Comparisons that found an informer to hold something else than its cluster",
            totals.self_checks.mismatches,
        )?;
        one(
            Kind::Counter,
            "panics",
            "Panics; each is a bug",
            telemetry::panics(),
        )?;
        let tasks = tokio::runtime::Handle::try_current()
            .map_or(0, |runtime| runtime.metrics().num_alive_tasks());
        one(Kind::Gauge, "tasks", "Tasks of the runtime", tasks as u64)?;
        let found = |outcome| vec![("outcome", outcome)];
        encode_family(
            &mut encoder,
            Kind::Counter,
            "cache_checks",
            "Comparisons of an informer with its cluster, by outcome",
            [
                (found("equal"), totals.self_checks.equal),
                (found("mismatch"), totals.self_checks.mismatches),
                (found("skipped"), totals.self_checks.skipped),
            ],
        )
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// Writes one family whose values are known only now.
fn encode_family<'a, V: EncodeGaugeValue + EncodeCounterValue>(
    encoder: &mut DescriptorEncoder<'_>,
    kind: Kind,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (Vec<(&'a str, &'a str)>, V)>,
) -> fmt::Result {
    let metric_type = match kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
    };
    // The registry ends the help of registered metrics with a full stop; a collector's is written as it is.
    let help = format!("{help}.");
    let mut family = encoder.encode_descriptor(name, &help, None, metric_type)?;
    for (labels, value) in series {
        let encoder = family.encode_family(&labels)?;
        match kind {
            Kind::Counter => ConstCounter::new(value).encode(encoder)?,
            Kind::Gauge => ConstGauge::new(value).encode(encoder)?,
        }
    }
    Ok(())
}
