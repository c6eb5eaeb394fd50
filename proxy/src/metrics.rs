//! All metric names, and what counts under them.

mod clusters;
mod collectors;
mod entrance;
mod process;
mod resources;
mod sources;

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::eviction::InformerTotals;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use clusters::ClusterCollector;
use collectors::TotalsCollector;
use entrance::EntranceCollector;
use resources::Resources;
use sources::SourceCollector;

use crate::entrance::ServingCertificate;
use crate::limits::Limits;
use crate::listener::Places;
use crate::sources::Reports;

/// From half a millisecond, which a cached GET stays far below, to the default request timeout.
const DURATION_BUCKETS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// From memory.
    Cached,
    /// From its cluster.
    Live,
    /// From the proxy itself: its own errors and its own API.
    Local,
}

impl Source {
    /// The source as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::Live => "live",
            Self::Local => "local",
        }
    }
}

impl EncodeLabelValue for Source {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    resource: Arc<str>,
    source: Source,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    verb: &'static str,
    source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabels {
    verb: &'static str,
}

/// What the data path counts. Cheap to clone parts of it; one per proxy.
#[derive(Debug)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    live: Family<ReasonLabels, Counter>,
    fast_fails: Family<ReasonLabels, Counter>,
    upstream_requests: Family<VerbLabels, Counter>,
    audit_events: Family<OutcomeLabels, Counter>,
    audit_waits: Counter,
    resources: Resources,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)),
            live: Family::default(),
            fast_fails: Family::default(),
            upstream_requests: Family::default(),
            audit_events: Family::default(),
            audit_waits: Counter::default(),
            resources: Resources::default(),
        }
    }
}

impl Metrics {
    /// One request was answered. `verb` is the Kubernetes verb, `resource` the name in the path (empty where there is none).
    pub fn request(
        &self,
        verb: &str,
        resource: &str,
        source: Source,
        code: u16,
        elapsed: Duration,
    ) {
        let verb = known_verb(verb);
        let served = (200..300).contains(&code) && source != Source::Local;
        let labels = RequestLabels {
            verb,
            resource: self.resources.label(resource, served),
            source,
            code,
        };
        self.requests.get_or_create_owned(&labels).inc();
        let labels = DurationLabels { verb, source };
        self.durations
            .get_or_create_owned(&labels)
            .observe(elapsed.as_secs_f64());
    }

    /// A request was not served from memory.
    pub fn live(&self, reason: &'static str) {
        self.live
            .get_or_create_owned(&ReasonLabels { reason })
            .inc();
    }

    /// A request was answered 503 by the proxy itself, since its cluster cannot be used.
    pub fn fast_fail(&self, reason: &'static str) {
        self.fast_fails
            .get_or_create_owned(&ReasonLabels { reason })
            .inc();
    }

    /// A request of a client went to a cluster.
    pub fn upstream_request(&self, verb: &str) {
        let verb = known_verb(verb);
        self.upstream_requests
            .get_or_create_owned(&VerbLabels { verb })
            .inc();
    }

    /// So many lines of the audit log were written, and so many could not be.
    pub fn audited(&self, written: usize, lost: usize) {
        for (outcome, count) in [("written", written), ("lost", lost)] {
            let labels = OutcomeLabels { outcome };
            let counter = self.audit_events.get_or_create_owned(&labels);
            counter.inc_by(count as u64);
        }
    }

    /// A request waited for room in the audit log.
    pub fn audit_wait(&self) {
        self.audit_waits.inc();
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "request",
            "Requests answered, by Kubernetes verb, resource, where the answer came from and HTTP status code",
            self.requests.clone(),
        );
        registry.register(
            "request_duration_seconds",
            "Time until the headers of an answer were there",
            self.durations.clone(),
        );
        registry.register(
            "live",
            "Requests not served from memory, by reason",
            self.live.clone(),
        );
        registry.register(
            "fast_fail",
            "Requests answered 503 by the proxy itself because their cluster cannot be used, by reason",
            self.fast_fails.clone(),
        );
        registry.register(
            "upstream_requests",
            "Requests of clients sent to clusters",
            self.upstream_requests.clone(),
        );
        registry.register(
            "audit_events",
            "Lines of the audit log, by whether they were written",
            self.audit_events.clone(),
        );
        registry.register(
            "audit_waits",
            "Requests that waited because the audit log was behind",
            self.audit_waits.clone(),
        );
    }
}

/// Sums up what informers hold, at each scrape.
pub type InformerTotalsFn = Box<dyn Fn() -> InformerTotals + Send + Sync>;

/// Everything that `/metrics` shows. A clone shows the same.
#[derive(Clone, Debug)]
pub struct Scrape {
    registry: Arc<Registry>,
}

impl Scrape {
    /// Shows what is counted, the state of clusters, sources, informers and the entrance at each scrape, and the process.
    pub fn new(
        metrics: &Metrics,
        clusters: Arc<ClusterCache>,
        limits: &Arc<Limits>,
        sources: Arc<Reports>,
        places: &Arc<Places>,
        certificate: Arc<ServingCertificate>,
        totals: InformerTotalsFn,
    ) -> Self {
        let mut registry = registry(metrics, totals);
        let fleetcache = registry.sub_registry_with_prefix("fleetcache");
        fleetcache.register_collector(Box::new(ClusterCollector {
            clusters,
            limits: Arc::clone(limits),
        }));
        fleetcache.register_collector(Box::new(SourceCollector(sources)));
        fleetcache.register_collector(Box::new(EntranceCollector {
            places: Arc::clone(places),
            limits: Arc::clone(limits),
            certificate,
        }));
        Self {
            registry: Arc::new(registry),
        }
    }

    #[cfg(test)]
    pub(crate) fn without_clusters(metrics: &Metrics, totals: InformerTotalsFn) -> Self {
        let registry = Arc::new(registry(metrics, totals));
        Self { registry }
    }

    /// The Prometheus text format. Takes milliseconds where there are a thousand clusters.
    pub fn text(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, &self.registry)
            .expect("writing to a string does not fail");
        text
    }
}

/// What there is without any cluster.
fn registry(metrics: &Metrics, totals: InformerTotalsFn) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(process::ProcessCollector));
    let fleetcache = registry.sub_registry_with_prefix("fleetcache");
    metrics.register(fleetcache);
    fleetcache.register_collector(Box::new(TotalsCollector(totals)));
    registry
}

/// The verb itself where it is one of Kubernetes', since a method is what a client writes.
fn known_verb(verb: &str) -> &'static str {
    const VERBS: [&str; 12] = [
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
        "connect",
        "head",
        "options",
        "post",
    ];
    VERBS.into_iter().find(|it| *it == verb).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use fleetcache_cache::self_checks::SelfCheckTotals;

    use super::*;

    #[test]
    fn everything_has_its_name() {
        let metrics = Metrics::default();
        metrics.request(
            "list",
            "pods",
            Source::Cached,
            200,
            Duration::from_millis(2),
        );
        metrics.request(
            "list",
            "pods",
            Source::Cached,
            200,
            Duration::from_millis(2),
        );
        metrics.request("FROB", "other", Source::Live, 405, Duration::from_secs(90));
        metrics.live("request");
        metrics.fast_fail("ClusterNotConnected");
        metrics.upstream_request("create");
        metrics.audited(3, 1);
        metrics.audit_wait();
        let totals = InformerTotals {
            informers: 3,
            objects: 10_000,
            bytes: 109_000_000,
            watchers: 1,
            self_checks: SelfCheckTotals {
                equal: 7,
                skipped: 2,
                mismatches: 1,
            },
        };
        let text = Scrape::without_clusters(&metrics, Box::new(move || totals)).text();
        for line in [
            "# TYPE fleetcache_request_total counter",
            r#"fleetcache_request_total{verb="list",resource="pods",source="cached",code="200"} 2"#,
            r#"fleetcache_request_total{verb="other",resource="other",source="live",code="405"} 1"#,
            r#"fleetcache_request_duration_seconds_bucket{verb="list",source="cached",le="0.0025"} 2"#,
            r#"fleetcache_request_duration_seconds_bucket{verb="other",source="live",le="60"} 0"#,
            r#"fleetcache_request_duration_seconds_bucket{verb="other",source="live",le="+Inf"} 1"#,
            r#"fleetcache_live_total{reason="request"} 1"#,
            r#"fleetcache_fast_fail_total{reason="ClusterNotConnected"} 1"#,
            r#"fleetcache_upstream_requests_total{verb="create"} 1"#,
            r#"fleetcache_audit_events_total{outcome="written"} 3"#,
            r#"fleetcache_audit_events_total{outcome="lost"} 1"#,
            "fleetcache_audit_waits_total 1",
            "fleetcache_watchers 1",
            "# HELP fleetcache_informers Informers that run.",
            "fleetcache_informers 3",
            "fleetcache_objects 10000",
            "fleetcache_store_bytes 109000000",
            "# TYPE fleetcache_cache_mismatch_total counter",
            "fleetcache_cache_mismatch_total 1",
            r#"fleetcache_cache_checks_total{outcome="equal"} 7"#,
            r#"fleetcache_cache_checks_total{outcome="skipped"} 2"#,
            "# TYPE fleetcache_panics_total counter",
            "fleetcache_tasks 0",
            r#"fleetcache_exec_plugin_runs_total{outcome="error"} 0"#,
            "# TYPE process_resident_memory_bytes gauge",
            "# TYPE process_open_fds gauge",
            "# TYPE process_cpu_seconds_total counter",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line} is missing in\n{text}"
            );
        }
    }
}
