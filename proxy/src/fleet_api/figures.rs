//! What moves all the time: it is filled in when somebody is told.

use std::time::SystemTime;

use fleetcache_cache::cluster_accessor::ClusterAccessor;
use fleetcache_cache::informers::{InformerReport, InformerState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::object::seconds;

/// The figures of a cluster at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) informers: Vec<InformerFigures>,
    pub(super) last_probe_success: Option<SystemTime>,
    pub(super) last_probe: Option<SystemTime>,
    pub(super) next_attempt: Option<SystemTime>,
    pub(super) totals: Totals,
}

/// One kind in memory.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct InformerFigures {
    /// Bytes of its objects, of their recent changes and of what is kept for pages.
    pub bytes: usize,
    /// In which encoding its objects are held: `json` or `protobuf`.
    pub encoding: String,
    /// The API group; absent for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ErrorFigures>,
    /// When the server was last heard on its connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heard_time: Option<Timestamp>,
    /// Objects held.
    pub objects: usize,
    /// Why the kind stays live.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The plural name.
    pub resource: String,
    /// The version through which it is complete.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// `Syncing`, `Synced`, `Resuming` or `Refused`.
    pub state: String,
    /// The API version.
    pub version: String,
    /// Open watches.
    pub watchers: usize,
}

/// What went wrong, and when.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ErrorFigures {
    /// In words.
    pub message: String,
    /// When.
    pub time: Option<Timestamp>,
}

/// All informers of a cluster together.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Totals {
    /// Their bytes.
    pub bytes: usize,
    /// Informers that run.
    pub informers: usize,
    /// The same bytes as a quantity for people, upwards.
    pub memory: String,
    /// Objects held.
    pub objects: usize,
    /// Open watches.
    pub watchers: usize,
}

impl Figures {
    /// Those of a cluster now.
    pub(super) fn of(cluster: &ClusterAccessor) -> Self {
        let (status, report) = (cluster.status(), cluster.informers().report());
        let mut totals = Totals::default();
        for it in &report {
            totals.informers += usize::from(!matches!(it.state, InformerState::Refused(_)));
            totals.bytes += it.bytes;
            totals.objects += it.objects;
            totals.watchers += it.watchers;
        }
        totals.memory = quantity(totals.bytes);
        Self {
            informers: report.into_iter().map(InformerFigures::from).collect(),
            last_probe_success: status.last_probe_success,
            last_probe: status.last_probe,
            next_attempt: status.next_attempt,
            totals,
        }
    }
}

impl From<InformerReport> for InformerFigures {
    fn from(report: InformerReport) -> Self {
        let reason = match report.state {
            InformerState::Refused(refusal) => refusal.as_str(),
            InformerState::Resuming | InformerState::Synced | InformerState::Syncing => "",
        };
        let version = report.resource_version;
        Self {
            bytes: report.bytes,
            encoding: report.holding.as_str().to_owned(),
            group: report.gvr.group.to_string(),
            last_error: report.last_error.map(|error| ErrorFigures {
                message: error.message,
                time: seconds(error.at),
            }),
            last_heard_time: report.last_heard.and_then(seconds),
            objects: report.objects,
            reason: reason.to_owned(),
            resource: report.gvr.resource.to_string(),
            resource_version: version.map(|it| it.to_string()).unwrap_or_default(),
            state: report.state.as_str().to_owned(),
            version: report.gvr.version.to_string(),
            watchers: report.watchers,
        }
    }
}

/// Bytes as a quantity of at most four digits, upwards.
fn quantity(bytes: usize) -> String {
    const KI: usize = 1 << 10;
    match bytes {
        0 => "0".to_owned(),
        _ if bytes <= 9999 * KI => format!("{}Ki", bytes.div_ceil(KI)),
        _ if bytes <= 9999 * KI * KI => format!("{}Mi", bytes.div_ceil(KI * KI)),
        _ => format!("{}Gi", bytes.div_ceil(KI * KI * KI)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_a_few_digits() {
        for (bytes, expected) in [
            (0, "0"),
            (1, "1Ki"),
            (1024, "1Ki"),
            (1025, "2Ki"),
            (9999 << 10, "9999Ki"),
            ((9999 << 10) + 1, "10Mi"),
            (9999 << 20, "9999Mi"),
            (20 << 30, "20Gi"),
        ] {
            assert_eq!(quantity(bytes), expected, "{bytes}");
        }
    }
}
