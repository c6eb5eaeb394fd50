//! Connections of clients, what lasts long of their requests, and the certificate that they are shown.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::collectors::{Kind, NO_LABELS, encode_family};
use crate::entrance::ServingCertificate;
use crate::limits::Limits;
use crate::listener::Places;

/// Read at each scrape.
#[derive(Debug)]
pub(super) struct EntranceCollector {
    pub(super) places: Arc<Places>,
    pub(super) limits: Arc<Limits>,
    pub(super) certificate: Arc<ServingCertificate>,
}

impl Collector for EntranceCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode_family(
            &mut encoder,
            Kind::Gauge,
            "connections",
            "Open connections of clients",
            [(NO_LABELS, self.places.taken() as u64)],
        )?;
        let refused = self.places.refused();
        let limit = |name| [("limit", name)];
        encode_family(
            &mut encoder,
            Kind::Counter,
            "connections_refused",
            "Connections of clients that were closed because there were too many, by the limit that they met",
            [
                (limit("total"), refused.total),
                (limit("address"), refused.address),
            ],
        )?;
        encode_family(
            &mut encoder,
            Kind::Gauge,
            "longrunning_requests",
            "Open live watches, logs, tunnels and proxied requests",
            [(NO_LABELS, self.limits.long_running.taken() as u64)],
        )?;
        let expires = u64::try_from(self.certificate.expires()).unwrap_or_default();
        encode_family(
            &mut encoder,
            Kind::Gauge,
            "serving_certificate_expiration_timestamp_seconds",
            "When the certificate that clients are shown ceases to be good",
            [(NO_LABELS, expires)],
        )
    }
}
