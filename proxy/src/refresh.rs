//! `fleetcache refresh`: one cluster is connected and listed anew at once, and who asked is told what became of it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, anyhow, bail};
use fleetcache_cache::cluster_accessor::{ClusterAccessor, ClusterStatus, May, Right};
use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::connection::Connection;
use fleetcache_cache::informer::Informer;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use crate::admin_client::{self, AdminPort, escaped};
use crate::config::parse_duration;
use crate::limits::Limits;
use crate::query::query_pairs;
use crate::why::known_names;

/// What a request has to carry: its name and its value.
pub const HEADER: (&str, &str) = ("x-fleetcache", "refresh");

/// Longest wait for what becomes of it.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Time between two looks at what has become of it.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Longest wait for what the cluster says of a right.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// What begins the answer where there is no such cluster, as opposed to no such path.
const NO_CLUSTER: &str = "there is no cluster ";

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The cluster's name.
    pub cluster: String,
    /// How long to wait for the outcome; zero: not at all.
    pub wait: Duration,
}

/// There is no such cluster.
#[derive(Debug, thiserror::Error)]
#[error("{NO_CLUSTER}{cluster:?}; there are: {known}")]
pub struct UnknownCluster {
    cluster: String,
    known: String,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The cluster's name.
    pub cluster: String,
    /// How far it has come.
    pub end: End,
    /// Seconds since it was asked for.
    pub elapsed_seconds: f64,
    /// Why the cluster is not connected, if it is not: the machine-readable reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What may help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Seconds to the next connect, where one is planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_seconds: Option<f64>,
    /// Counts the cluster's connections.
    pub generation: u64,
    /// Informers that ran when it was asked for, and run still.
    pub informers: usize,
    /// How many of them have listed anew.
    pub listed: usize,
    /// What the proxy's credential may not do in the cluster and has to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_rights: Vec<MissingRight>,
}

/// A right that the proxy's credential lacks in a cluster, which is served without it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MissingRight {
    /// As the reason of the clusterconnection.
    pub reason: String,
    /// What does not work without it, and what to do.
    pub message: String,
}

/// How far a refresh has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum End {
    /// Nobody waited for it.
    Asked,
    /// The connect is under way.
    Connecting,
    /// The cluster is connected anew, and not all informers have listed.
    Listing,
    /// The cluster is connected anew, and its informers have listed.
    Refreshed,
    /// The connect failed, and the connection from before has not answered a probe since.
    Doubtful,
    /// The connect failed, and the connection from before has answered a probe since.
    AsBefore,
    /// The connect failed.
    NotConnected,
    /// The cluster was removed meanwhile.
    Removed,
}

impl Wish {
    /// From the query of `/refresh`: `cluster`, and `wait` as a duration, none where it is left out.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_query(query: &str) -> Result<Self, String> {
        let (mut cluster, mut wait_for) = (None, Duration::ZERO);
        for (key, value) in query_pairs(query) {
            match &*key {
                "cluster" => cluster = Some(value.into_owned()),
                "wait" => wait_for = wait(&value)?,
                other => return Err(format!("{other:?} is not \"cluster\" or \"wait\"")),
            }
        }
        let cluster = cluster.ok_or("cluster is missing: the name of the one to refresh")?;
        let wait = wait_for;
        Ok(Self { cluster, wait })
    }
}

/// A wait as it is given.
///
/// # Errors
/// It is none, or too long.
pub fn wait(given: &str) -> Result<Duration, String> {
    let wait = parse_duration(given).map_err(|problem| format!("wait: {problem}"))?;
    if wait > LONGEST_WAIT {
        return Err(format!(
            "wait: {given} is more than {}s",
            LONGEST_WAIT.as_secs()
        ));
    }
    Ok(wait)
}

/// Refreshes a cluster, and waits for what becomes of it for as long as is wished.
///
/// # Errors
/// There is no such cluster.
pub async fn refresh(
    clusters: &ClusterCache,
    limits: &Limits,
    wish: &Wish,
) -> Result<Outcome, UnknownCluster> {
    let cluster = clusters.get(&wish.cluster).ok_or_else(|| UnknownCluster {
        cluster: wish.cluster.clone(),
        known: known_names(clusters),
    })?;
    let before = Before::of(cluster);
    before.cluster.refresh();
    if wish.wait.is_zero() {
        return Ok(Outcome {
            end: End::Asked,
            ..before.look()
        });
    }
    let mut outcome = loop {
        let outcome = before.look();
        if outcome.end.is_final() || before.at.elapsed() >= wish.wait {
            break outcome;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    };
    if matches!(outcome.end, End::Listing | End::Refreshed) {
        outcome.missing_rights = missing_rights(&before.cluster, limits).await;
    }
    Ok(outcome)
}

/// What the cluster does not let the proxy do. It is asked anew: its roles may be what was put right.
async fn missing_rights(cluster: &ClusterAccessor, limits: &Limits) -> Vec<MissingRight> {
    let Some(limits) = limits.get(cluster.name()) else {
        return Vec::new();
    };
    if let Some(connection) = cluster.current() {
        if limits.settings.asks_about_users() {
            limits.decisions.try_again(cluster, &*connection).await;
        }
        for right in [Right::Impersonation, Right::TokenReviews] {
            if cluster.may(right) == May::No && has_it_now(right, &connection).await {
                cluster.granted(right);
            }
        }
    }
    let rights = limits.rights(cluster).into_iter();
    let missing = rights.filter(|(_, may)| *may == May::No);
    missing
        .map(|(right, _)| MissingRight {
            reason: right.reason().to_owned(),
            message: right.refused().to_owned(),
        })
        .collect()
}

/// Whether the cluster says that the proxy's own credential has a right. That it has not is no news: roles may name whom it may
/// impersonate, and then nobody may be impersonated whoever it is.
async fn has_it_now(right: Right, connection: &Connection) -> bool {
    #[derive(Deserialize)]
    struct Review {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        allowed: bool,
    }
    const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (verb, group, resource) = match right {
        Right::Impersonation => ("impersonate", "", "users"),
        Right::TokenReviews => ("create", "authentication.k8s.io", "tokenreviews"),
        Right::AccessReviews => ("create", "authorization.k8s.io", "subjectaccessreviews"),
    };
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": verb, "group": group, "resource": resource}},
    });
    let asked = connection.review(PATH, review.to_string().into());
    let answer = tokio::time::timeout(ASK_TIMEOUT, asked).await;
    let Ok(Ok((_, body))) = answer else {
        return false;
    };
    serde_json::from_slice(&body).is_ok_and(|it: Review| it.status.allowed)
}

/// How a cluster stood when it was asked for.
struct Before {
    cluster: Arc<ClusterAccessor>,
    at: Instant,
    status: ClusterStatus,
    /// How often each informer had listed.
    lists: Vec<(Arc<Informer>, u64)>,
}

impl Before {
    fn of(cluster: Arc<ClusterAccessor>) -> Self {
        let informers = cluster.informers().all().into_iter();
        Self {
            at: Instant::now(),
            status: cluster.status(),
            lists: informers.map(|it| (Arc::clone(&it), it.lists())).collect(),
            cluster,
        }
    }

    /// What has become of it by now.
    fn look(&self) -> Outcome {
        let status = self.cluster.status();
        let running = self.lists.iter().filter(|(informer, _)| informer.runs());
        let informers = running.clone().count();
        let listed = running
            .filter(|(informer, before)| informer.lists() > *before)
            .count();
        let end = if self.cluster.removed().is_cancelled() {
            End::Removed
        } else if status.connects.succeeded > self.status.connects.succeeded {
            match listed < informers {
                true => End::Listing,
                false => End::Refreshed,
            }
        } else if status.connects.failed == self.status.connects.failed {
            End::Connecting
        } else if status.not_connected.is_some() {
            End::NotConnected
        } else if status.probes_ok == self.status.probes_ok {
            End::Doubtful
        } else {
            End::AsBefore
        };
        let why = status.trouble();
        let hint = status.hint.filter(|_| why.is_some());
        let next = status.next_attempt;
        let next = next.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        Outcome {
            cluster: self.cluster.name().to_owned(),
            end,
            elapsed_seconds: seconds(self.at.elapsed()),
            reason: why.map(|(reason, _)| reason.as_str().to_owned()),
            message: why.map(|(_, message)| message.to_owned()),
            hint: hint.map(str::to_owned),
            next_attempt_seconds: next.map(seconds),
            generation: status.generation,
            informers,
            listed,
            missing_rights: Vec::new(),
        }
    }
}

/// To the millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

impl End {
    fn is_final(self) -> bool {
        !matches!(self, Self::Connecting | Self::Doubtful | Self::Listing)
    }
}

impl Outcome {
    /// Whether all that was waited for has come true, and nothing else is wrong.
    pub fn is_good(&self) -> bool {
        matches!(self.end, End::Asked | End::Refreshed) && self.missing_rights.is_empty()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster,
            elapsed_seconds: elapsed,
            generation,
            informers,
            listed,
            ..
        } = self;
        let message = self.message.as_deref().unwrap_or("connecting");
        match self.end {
            End::Asked => write!(f, "cluster {cluster:?} is being refreshed"),
            End::Refreshed => write!(
                f,
                "cluster {cluster:?} was refreshed in {elapsed} s (generation {generation}): {listed} of {informers} informers have listed anew"
            ),
            End::Listing => write!(
                f,
                "cluster {cluster:?} is connected anew (generation {generation}), but after {elapsed} s only {listed} of {informers} informers have listed anew; the others go on"
            ),
            End::Connecting => write!(
                f,
                "cluster {cluster:?} is still being connected after {elapsed} s: {message}"
            ),
            End::Doubtful => write!(
                f,
                "cluster {cluster:?}: {message}; that one (generation {generation}) has not answered a probe since"
            ),
            End::AsBefore => write!(
                f,
                "cluster {cluster:?}: {message}; that one (generation {generation}) answers, and serves on"
            ),
            End::NotConnected => write!(f, "cluster {cluster:?} is not connected: {message}"),
            End::Removed => write!(f, "cluster {cluster:?} was removed meanwhile"),
        }?;
        if matches!(self.end, End::Doubtful | End::AsBefore | End::NotConnected) {
            if let Some(next) = self.next_attempt_seconds {
                write!(f, "; next attempt in {next} s")?;
            }
            if let Some(hint) = &self.hint {
                write!(f, "\nhint: {hint}")?;
            }
        }
        let mut missing = self.missing_rights.iter();
        missing.try_for_each(|it| write!(f, "\n{}", it.message))
    }
}

/// Asks a proxy at its admin port.
///
/// # Errors
/// It does not answer, or knows no such cluster.
pub fn ask(admin: &AdminPort, cluster: &str, wait: Duration) -> anyhow::Result<Outcome> {
    let request = format!(
        "POST /refresh?cluster={}&wait={}ms",
        escaped(cluster.as_bytes()),
        wait.as_millis()
    );
    let headers = format!("Content-Length: 0\r\n{}: {}\r\n", HEADER.0, HEADER.1);
    let patience = wait + Duration::from_secs(10);
    match admin_client::ask(admin, &request, &headers, patience)? {
        (200, body) => serde_json::from_str(&body)
            .context("the proxy's answer cannot be read; is it of another version?"),
        (404, body) if body.starts_with(NO_CLUSTER) => Err(anyhow!("{}", body.trim())),
        (404, _) => Err(admin_client::unknown(admin, "/refresh")),
        (_, body) => bail!("{}", body.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_printed_for_people() {
        let outcome = |end| Outcome {
            cluster: "a".to_owned(),
            end,
            elapsed_seconds: 0.031,
            reason: Some("ConnectionRefused".to_owned()),
            message: Some("connection refused".to_owned()),
            hint: Some("check the port".to_owned()),
            next_attempt_seconds: Some(0.8),
            generation: 4,
            informers: 3,
            listed: 2,
            missing_rights: Vec::new(),
        };
        for (end, is_good, expect) in [
            (End::Asked, true, "cluster \"a\" is being refreshed"),
            (
                End::Connecting,
                false,
                "cluster \"a\" is still being connected after 0.031 s: connection refused",
            ),
            (
                End::Listing,
                false,
                "cluster \"a\" is connected anew (generation 4), but after 0.031 s only 2 of 3 informers have listed anew; the others go on",
            ),
            (
                End::Refreshed,
                true,
                "cluster \"a\" was refreshed in 0.031 s (generation 4): 2 of 3 informers have listed anew",
            ),
            (
                End::AsBefore,
                false,
                "cluster \"a\": connection refused; that one (generation 4) answers, and serves on; next attempt in 0.8 s\nhint: check the port",
            ),
            (
                End::Doubtful,
                false,
                "cluster \"a\": connection refused; that one (generation 4) has not answered a probe since; next attempt in 0.8 s\nhint: check the port",
            ),
            (
                End::NotConnected,
                false,
                "cluster \"a\" is not connected: connection refused; next attempt in 0.8 s\nhint: check the port",
            ),
            (End::Removed, false, "cluster \"a\" was removed meanwhile"),
        ] {
            let outcome = outcome(end);
            assert_eq!(
                (outcome.is_good(), outcome.to_string().as_str()),
                (is_good, expect)
            );
            let json = serde_json::to_string(&outcome).unwrap();
            assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), outcome);
        }
        let right = |reason: &str, message: &str| MissingRight {
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        let refused = Outcome {
            missing_rights: vec![
                right("OtherForbidden", "it may not do another thing"),
                right(
                    Right::AccessReviews.reason(),
                    Right::AccessReviews.refused(),
                ),
            ],
            ..outcome(End::Refreshed)
        };
        assert!(!refused.is_good());
        let text = refused.to_string();
        assert!(
            text.ends_with("have listed anew\nit may not do another thing\nthe proxy's credential may not create subjectaccessreviews, so that all reads go live: grant it the ClusterRole that `fleetcache rbac` prints"),
            "{text}"
        );
    }

    #[test]
    fn a_wish_arrives_as_it_was_made() {
        let cluster = "team a/é&b".to_owned();
        let query = format!("cluster={}&wait=1500ms", escaped(cluster.as_bytes()));
        let wait = Duration::from_millis(1500);
        assert_eq!(Wish::from_query(&query), Ok(Wish { cluster, wait }));
    }
}
