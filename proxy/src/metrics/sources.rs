//! What the configuration says and where clusters come from, read at each scrape: at most five series for each of four kinds
//! of sources.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::collectors::{Kind, NO_LABELS, encode_family};
use crate::sources::Reports;

/// The state of each source that is configured.
#[derive(Debug)]
pub(super) struct SourceCollector(pub(super) Arc<Reports>);

impl Collector for SourceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode_family(
            &mut encoder,
            Kind::Gauge,
            "config_last_reload_successful",
            "Whether what the configuration and its files say now is in force",
            [(NO_LABELS, u64::from(!self.0.is_refused()))],
        )?;
        let reports = self.0.all();
        encode_family(
            &mut encoder,
            Kind::Gauge,
            "source_up",
            "Whether the source can tell which clusters there are now",
            reports
                .iter()
                .map(|it| ([("source", it.source)], u64::from(it.up))),
        )?;
        encode_family(
            &mut encoder,
            Kind::Gauge,
            "source_entries",
            "Contexts, files and objects of the source, by what became of them",
            reports.iter().flat_map(|it| {
                let entries = it.entries.by_state();
                entries.map(|(state, count)| ([("source", it.source), ("state", state)], count))
            }),
        )
    }
}
