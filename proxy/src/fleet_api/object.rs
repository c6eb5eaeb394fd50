//! A ClusterConnection: what is told of one cluster, as an object of the API.
//!
//! Part of it moves the object's resourceVersion: what is configured, the state and its reasons, conditions, failures. The
//! rest are **figures**: times of probes, what informers hold. They are always those of the moment in which somebody is
//! told, and move nothing, or a fleet at rest would keep all who watch it busy.
//!
//! Keys are in the order of the alphabet, as in all objects without a Go type. No address and no credential is ever shown:
//! whoever may know that a cluster exists need not know where it is.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fleetcache_cache::cluster_accessor::{ClusterAccessor, May, Right};
use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::cluster_config::{ClusterConfig, ConnectPolicy};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::conditions::{self, Condition};
use super::figures::{Figures, InformerFigures, Totals};
use super::{API_VERSION, GROUP, KIND, RESOURCE};
use crate::status::as_go_writes;

/// One cluster and its state.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClusterConnection {
    api_version: String,
    kind: String,
    /// What every object has.
    pub metadata: Metadata,
    /// What is configured.
    pub spec: Spec,
    /// How it is.
    pub status: Status,
}

/// `metav1.ObjectMeta`, as far as it is used.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    /// Those of a bookmark; no object has any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// When the proxy took the cluster in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    /// The cluster's, from its source.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The cluster's, as in `/clusters/<name>`.
    pub name: String,
    /// The version of the object.
    pub resource_version: String,
    /// The same for the same cluster out of the same source, in any replica and after a restart too.
    pub uid: String,
}

/// What is configured of a cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    /// `Always` or `OnDemand`.
    pub connect: String,
    /// The kubeconfig context that it came from.
    pub context: String,
    /// Who named it.
    pub source: Source,
}

/// Who named a cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Source {
    /// `Kubeconfig`, `Directory`, `ClusterAPI` or `Secret`.
    pub kind: String,
    /// The file, or `namespace/name`.
    pub name: String,
}

/// How a cluster is.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    /// `Connected`, `RemoteConnectionProbe`, `ConfigurationAccepted`, and one for each right that the proxy's credential needs.
    pub conditions: Vec<Condition>,
    /// Failed connects or probes in a row.
    pub consecutive_failures: u32,
    /// Counts the clusters that were behind the name.
    pub epoch: u64,
    /// Counts the connections.
    pub generation: u64,
    /// What may help against what is wrong.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// Each kind that is kept in memory, or known not to be.
    pub informers: Vec<InformerFigures>,
    /// When the last probe succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_success_time: Option<Timestamp>,
    /// When the last probe ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Timestamp>,
    /// What is wrong, in a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When the next connect is tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_time: Option<Timestamp>,
    /// What is wrong, in a word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the server called its version when it was asked last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_version: String,
    /// `Pending`, `Connecting` (for the first time), `Connected`, `Degraded` or `Disconnected`.
    pub state: String,
    /// Over all informers.
    pub totals: Totals,
}

impl ClusterConnection {
    /// What is to be told of a cluster now, without figures and version. `rights` are those that the proxy's credential needs
    /// there, and `before` what was told last.
    pub(super) fn of(
        cluster: &ClusterAccessor,
        rights: &[(Right, May)],
        now: SystemTime,
        before: Option<&Self>,
    ) -> Self {
        let (config, status) = (cluster.config(), cluster.status());
        let trouble = status.trouble();
        let trouble = trouble.map(|(reason, message)| (reason.as_str(), message.to_owned()));
        let hint = status.hint.filter(|_| trouble.is_some());
        let refused = rights.iter().find(|(_, may)| *may == May::No);
        let (reason, message, hint) = match (&trouble, refused) {
            (Some((reason, message)), _) => (*reason, message.clone(), hint),
            // It is reached all the same, so the condition `Connected` knows nothing of it.
            (None, Some((right, _))) => (
                right.reason(),
                right.refused().to_owned(),
                Some(right.hint()),
            ),
            (None, None) => Default::default(),
        };
        let before = before.map_or(&[][..], |before| &before.status.conditions);
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            metadata: Metadata {
                creation_timestamp: seconds(status.added),
                labels: config.labels.clone(),
                name: cluster.name().to_owned(),
                uid: uid(&config),
                ..Metadata::default()
            },
            spec: Spec {
                connect: match config.connect {
                    ConnectPolicy::Always => "Always",
                    ConnectPolicy::OnDemand => "OnDemand",
                }
                .to_owned(),
                context: config.context.clone(),
                source: Source {
                    kind: config.source.kind.as_str().to_owned(),
                    name: config.source.name.clone(),
                },
            },
            status: Status {
                conditions: conditions::of(&config, &status, trouble.as_ref(), rights, now, before),
                consecutive_failures: status.consecutive_failures,
                epoch: status.epoch,
                generation: status.generation,
                hint: hint.unwrap_or_default().to_owned(),
                server_version: server_version(cluster),
                state: status.state.as_str().to_owned(),
                reason: reason.to_owned(),
                message,
                ..Status::default()
            },
        }
    }

    /// Reads an object that was written by [`Self::to_json`].
    pub(super) fn from_json(object: &[u8]) -> Option<Self> {
        serde_json::from_slice(object).ok()
    }

    /// With the figures of this moment.
    #[must_use]
    pub(super) fn with_figures(mut self, figures: Figures) -> Self {
        self.status.informers = figures.informers;
        self.status.last_probe_success_time = figures.last_probe_success.and_then(seconds);
        self.status.last_probe_time = figures.last_probe.and_then(seconds);
        self.status.next_attempt_time = figures.next_attempt.and_then(seconds);
        self.status.totals = figures.totals;
        self
    }

    /// With its cluster's figures of this moment; those that it was told with, where the cluster is gone.
    #[must_use]
    pub(super) fn with_figures_of(self, clusters: &ClusterCache) -> Self {
        match clusters.get(&self.metadata.name) {
            Some(cluster) => self.with_figures(Figures::of(&cluster)),
            None => self,
        }
    }

    /// As an object is written in lists and events.
    pub(super) fn to_json(&self) -> Bytes {
        let json = serde_json::to_string(self).expect("strings and numbers always serialise");
        as_go_writes(json).into()
    }
}

/// What the server last called its version.
fn server_version(cluster: &ClusterAccessor) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        git_version: String,
    }
    let held = cluster.documents().of_path("/version");
    let newest = held.into_iter().min_by_key(|held| held.age);
    let version = newest.and_then(|held| {
        let version: Version = serde_json::from_slice(&held.document.body()).ok()?;
        Some(version.git_version)
    });
    version.unwrap_or_default()
}

/// A uid (in the form of RFC 9562's version 8) of the cluster and where it came from.
fn uid(config: &ClusterConfig) -> String {
    let parts = [
        RESOURCE,
        GROUP,
        &config.name,
        config.source.kind.as_str(),
        &config.source.name,
        &config.context,
    ];
    let hash = Sha256::digest(parts.join("\0"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    let bits = u128::from_be_bytes(bytes);
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x8 << 76) | (0x2 << 62);
    crate::status::uuid(bits)
}

/// A time as the API writes it: whole seconds.
pub(super) fn seconds(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let whole = Duration::from_secs(since.as_secs());
    Timestamp::try_from(SystemTime::UNIX_EPOCH + whole).ok()
}
