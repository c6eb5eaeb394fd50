//! The conditions of a ClusterConnection, in the form and the words of Cluster API's.

use std::time::{Duration, SystemTime};

use fleetcache_cache::cluster_accessor::{ClusterStatus, ConnectionState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::object::seconds;

/// Whether requests reach the cluster.
const CONNECTED: &str = "Connected";

/// Whether a probe has succeeded lately: the same name and the same meaning as Cluster API's condition.
const PROBE: &str = "RemoteConnectionProbe";

/// `metav1.Condition`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    /// When it last became what it is.
    pub last_transition_time: Option<Timestamp>,
    /// For people.
    pub message: String,
    /// For machines.
    pub reason: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Its name.
    #[serde(rename = "type")]
    pub condition_type: String,
}

/// Both, at a time. `trouble` is why the cluster is not as it should be, and `before` what was told last.
pub(super) fn of(
    status: &ClusterStatus,
    trouble: Option<&(&'static str, String)>,
    grace: Duration,
    now: SystemTime,
    before: &[Condition],
) -> Vec<Condition> {
    let (reason, message) = match trouble {
        Some((reason, message)) => (*reason, message.clone()),
        None => (CONNECTED, String::new()),
    };
    let connected = match status.state {
        ConnectionState::Connected | ConnectionState::Degraded => "True",
        // Never tried, or for the first time: neither is known.
        ConnectionState::Pending | ConnectionState::Connecting => "Unknown",
        ConnectionState::Disconnected => "False",
    };
    let connected = Condition {
        last_transition_time: seconds(status.last_transition),
        message,
        reason: reason.to_owned(),
        status: connected.to_owned(),
        condition_type: CONNECTED.to_owned(),
    };
    vec![connected, probe(status, grace, now, before)]
}

fn probe(
    status: &ClusterStatus,
    grace: Duration,
    now: SystemTime,
    before: &[Condition],
) -> Condition {
    let (value, reason, message) = match (status.last_probe_success, probe_expires(status, grace)) {
        (Some(_), Some(at)) if now < at => ("True", "ProbeSucceeded", String::new()),
        (None, Some(at)) if now < at => ("Unknown", "NotProbed", "no probe has ended yet".into()),
        (None, None) => ("Unknown", "NotProbed", "nobody has asked for it yet".into()),
        (Some(_), _) => {
            let message = format!("no probe has succeeded for {}s", grace.as_secs());
            ("False", "ProbeFailed", message)
        }
        (None, Some(_)) => ("False", "ProbeFailed", "no probe has succeeded yet".into()),
    };
    let before = before.iter().find(|it| it.condition_type == PROBE);
    let since = before.filter(|it| it.status == value);
    Condition {
        last_transition_time: match since {
            Some(before) => before.last_transition_time,
            None => seconds(now),
        },
        message,
        reason: reason.to_owned(),
        status: value.to_owned(),
        condition_type: PROBE.to_owned(),
    }
}

/// When the last successful probe is too long ago, or the cluster has waited too long for its first one; `None` of a
/// cluster that nobody has asked for.
pub(super) fn probe_expires(status: &ClusterStatus, grace: Duration) -> Option<SystemTime> {
    match status.last_probe_success {
        Some(at) => at.checked_add(grace),
        None if status.state == ConnectionState::Pending => None,
        None => status.added.checked_add(grace),
    }
}
