//! Values that are read at each scrape instead of counted.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, EncodeMetric as _,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::InformerTotalsFn;
use crate::telemetry;

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
            encode_family(&mut encoder, kind, name, help, [(NO_LABELS, value)])
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
        let outcomes = fleetcache_cache::exec_plugin::runs();
        let tasks = tokio::runtime::Handle::try_current()
            .map_or(0, |runtime| runtime.metrics().num_alive_tasks());
        one(Kind::Gauge, "tasks", "Tasks of the runtime", tasks as u64)?;
        let found = |outcome| [("outcome", outcome)];
        encode_family(
            &mut encoder,
            Kind::Counter,
            "exec_plugin_runs",
            "Runs of credential plugins, by outcome",
            [(found("success"), outcomes.0), (found("error"), outcomes.1)],
        )?;
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
pub(super) enum Kind {
    Counter,
    Gauge,
}

pub(super) const NO_LABELS: [(&str, &str); 0] = [];

/// Writes one family whose values are known only now.
pub(super) fn encode_family<L, V>(
    encoder: &mut DescriptorEncoder<'_>,
    kind: Kind,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (L, V)>,
) -> fmt::Result
where
    L: EncodeLabelSet,
    V: EncodeGaugeValue + EncodeCounterValue,
{
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
