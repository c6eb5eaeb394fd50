//! What is counted and logged of a request.

use std::time::Duration;

use http::HeaderValue;

use super::outcome::Outcome;
use crate::fleet_api::FleetRequest;
use crate::metrics::{Metrics, Source};
use crate::request_info::RequestInfo;

/// What a request asked for, in words for metrics and the log; "" where it asked for no such thing.
pub(super) struct Asked<'a> {
    pub(super) cluster: &'a str,
    pub(super) verb: &'static str,
    resource: &'a str,
}

impl<'a> Asked<'a> {
    pub(super) fn of(info: Option<&'a RequestInfo<'_>>, root: Option<&FleetRequest<'_>>) -> Self {
        let Some(info) = info else {
            return Self {
                cluster: "",
                verb: root.map_or("get", |root| root.verb.as_str()),
                resource: root.map_or("", FleetRequest::resource),
            };
        };
        let resource = info.resource.as_ref();
        Self {
            cluster: info.cluster,
            verb: info.verb.as_str(),
            resource: resource.map_or("", |resource| &resource.gvr.resource),
        }
    }

    /// Counts what became of it, and writes its line in the access log.
    pub(super) fn record(
        &self,
        outcome: &Outcome,
        metrics: &Metrics,
        target: &str,
        audit_id: &HeaderValue,
        elapsed: Duration,
    ) {
        let Self {
            cluster,
            verb,
            resource,
        } = *self;
        let code = outcome.response.status();
        metrics.request(verb, resource, outcome.source, code.as_u16(), elapsed);
        if outcome.source == Source::Live {
            metrics.live(outcome.reason);
        }
        tracing::debug!(
            target: "fleetcache::access",
            cluster,
            verb,
            // The path alone: a query may carry what a log should not.
            path = target.split('?').next().unwrap_or_default(),
            code = code.as_u16(),
            source = outcome.source.as_str(),
            reason = outcome.reason,
            audit_id = audit_id.to_str().unwrap_or_default(),
            elapsed = ?elapsed,
            "request"
        );
    }
}
