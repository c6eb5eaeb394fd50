//! The conditions of a ClusterConnection, in the form and the words of Cluster API's.

use std::time::{Duration, SystemTime};

use fleetcache_cache::cluster_accessor::{ClusterStatus, ConnectionState, May, Right};
use fleetcache_cache::cluster_config::{ClusterConfig, Rejection};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::object::seconds;

/// Whether requests reach the cluster.
const CONNECTED: &str = "Connected";

/// Whether a probe has succeeded lately: the same name and the same meaning as Cluster API's condition.
const PROBE: &str = "RemoteConnectionProbe";

/// Whether what its source says of it now is what is in force.
const ACCEPTED: &str = "ConfigurationAccepted";

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

/// All of them, at a time. `trouble` is why the cluster is not as it should be, `rights` are those that the proxy's credential
/// needs there, and `before` what was told last.
pub(super) fn of(
    config: &ClusterConfig,
    status: &ClusterStatus,
    trouble: Option<&(&'static str, String)>,
    rights: &[(Right, May)],
    now: SystemTime,
    before: &[Condition],
) -> Vec<Condition> {
    let grace = config.timing.remote_connection_grace_period;
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
    let mut all = vec![
        connected,
        probe(status, grace, now, before),
        accepted(config.rejected.as_ref(), now, before),
    ];
    let of_right = |&(right, may)| of_right(right, may, now, before);
    all.extend(rights.iter().map(of_right));
    all
}

/// Whether the proxy's credential has a right that it needs.
fn of_right(right: Right, may: May, now: SystemTime, before: &[Condition]) -> Condition {
    let (value, reason, message) = match may {
        May::Unknown => ("Unknown", "NotAsked", right.not_asked()),
        May::Yes => ("True", "Answered", ""),
        May::No => ("False", "Forbidden", right.refused()),
    };
    let message = message.to_owned();
    since(before, now, right.as_str(), value, reason, message)
}

fn accepted(rejection: Option<&Rejection>, now: SystemTime, before: &[Condition]) -> Condition {
    let (value, reason, message) = match rejection {
        None => ("True", "Accepted", String::new()),
        Some(it) => ("False", it.reason.as_str(), it.message.clone()),
    };
    since(before, now, ACCEPTED, value, reason, message)
}

/// A condition that begins now where its status is not what was told before.
fn since(
    before: &[Condition],
    now: SystemTime,
    condition_type: &str,
    status: &str,
    reason: &str,
    message: String,
) -> Condition {
    let before = before
        .iter()
        .find(|it| it.condition_type == condition_type && it.status == status);
    Condition {
        last_transition_time: match before {
            Some(before) => before.last_transition_time,
            None => seconds(now),
        },
        message,
        reason: reason.to_owned(),
        status: status.to_owned(),
        condition_type: condition_type.to_owned(),
    }
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
    since(before, now, PROBE, value, reason, message)
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

#[cfg(test)]
mod tests {
    use fleetcache_cache::cluster_cache::ClusterCache;
    use fleetcache_cache::eviction::Fleet;
    use fleetcache_cache::informers::InformersConfig;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::authorization::testing::idle;

    #[tokio::test]
    async fn whether_the_credential_has_a_right_is_told_where_it_needs_it() {
        let shutdown = CancellationToken::new();
        let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &shutdown);
        let clusters = ClusterCache::start(vec![idle("a")], 1, &fleet, &shutdown);
        let cluster = clusters.get("a").unwrap();
        let now = SystemTime::now();
        let mut before = Vec::new();
        let mut told = |may: Option<May>, after: u64| {
            let (config, status) = (cluster.config(), cluster.status());
            let now = now + Duration::from_secs(after);
            let right = may.map(|may| (Right::AccessReviews, may));
            before = of(&config, &status, None, right.as_slice(), now, &before);
            let mut reviews = before
                .iter()
                .filter(|it| it.condition_type == "AccessReviews");
            let since = |it: &Condition| it.last_transition_time == seconds(now);
            reviews
                .next()
                .map(|it| (it.status.clone(), it.message.clone(), since(it)))
        };
        let no = || Some(May::No);
        assert_eq!(told(None, 0), None);
        let unknown = told(Some(May::Unknown), 1).unwrap();
        assert_eq!((&*unknown.0, unknown.2), ("Unknown", true));
        let refused = told(no(), 2).unwrap();
        assert_eq!((&*refused.0, refused.2), ("False", true));
        assert!(refused.1.contains("`fleetcache rbac`"), "{refused:?}");
        assert_eq!(
            told(no(), 3).unwrap(),
            ("False".to_owned(), refused.1, false)
        );
        assert_eq!(
            told(Some(May::Yes), 4).unwrap(),
            ("True".to_owned(), String::new(), true)
        );
        shutdown.cancel();
    }
}
