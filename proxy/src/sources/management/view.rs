//! What the objects of a management cluster say of clusters. No I/O: events and answers in, clusters out.

use std::collections::{BTreeMap, BTreeSet};

use fleetcache_cache::cluster_config::{
    ClusterConfig, ClusterSource, ConnectPolicy, ConnectionTiming, EndpointConfig, Rejection,
    RejectionReason, SourceKind,
};
use fleetcache_cache::credential::CredentialConfig;
use fleetcache_cache::kubeconfig;
use k8s_openapi::api::core::v1::Secret;

use super::key;
use super::listed::{Listed, Metadata, ObjectName};
use crate::sources::{Candidate, Known, Unusable};

/// What Cluster API's contract says of a control plane's kubeconfig Secret.
pub(super) const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";
pub(super) const CLUSTER_NAME_LABEL: &str = "cluster.x-k8s.io/cluster-name";
const CONTRACT_KEY: &str = "value";

/// The keys of a Secret that may hold a kubeconfig, the first that is there.
const KEYS: &[&str] = &["kubeconfig", CONTRACT_KEY];

/// Which objects are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Clusters,
    Secrets,
}

/// The objects, as far as they are known.
#[derive(Debug)]
pub(super) struct View {
    source: SourceKind,
    /// Namespace and list; one list of all where no namespace is named. None of Clusters where Secrets alone are followed.
    clusters: Vec<(Option<String>, Listed)>,
    secrets: Vec<(Option<String>, Listed)>,
    /// Of the Secrets that are wanted, what was read.
    held: BTreeMap<ObjectName, Held>,
    /// Those that are being asked for, or will be again after a while.
    asked: BTreeSet<ObjectName>,
    /// What else is wrong.
    pub(super) trouble: Option<String>,
}

/// What was read of a Secret.
#[derive(Debug, Default)]
struct Held {
    /// The version in its metadata when it was read.
    resource_version: String,
    /// Its cluster; none where it was not there.
    cluster: Option<Result<ClusterConfig, String>>,
    /// Where the cluster was when that was last known.
    endpoint: Option<EndpointConfig>,
    /// Why it could not be read the last time.
    failure: Option<String>,
}

/// A cluster that is to be served.
struct Wanted<'a> {
    object: &'a ObjectName,
    metadata: &'a Metadata,
    secret: ObjectName,
}

impl Wanted<'_> {
    fn name(&self) -> String {
        format!("{}.{}", self.object.namespace, self.object.name)
    }
}

impl View {
    pub(super) fn new(source: SourceKind, namespaces: &[String]) -> Self {
        let lists = || -> Vec<_> {
            if namespaces.is_empty() {
                return vec![(None, Listed::default())];
            }
            let named = namespaces.iter().map(|it| Some(it.clone()));
            named.map(|it| (it, Listed::default())).collect()
        };
        Self {
            source,
            clusters: match source {
                SourceKind::ClusterApi => lists(),
                SourceKind::Kubeconfig | SourceKind::Directory | SourceKind::Secret => Vec::new(),
            },
            secrets: lists(),
            held: BTreeMap::new(),
            asked: BTreeSet::new(),
            trouble: None,
        }
    }

    /// The namespaces whose objects are listed, none for all, each with the list's number.
    pub(super) fn lists(&self, kind: Kind) -> impl Iterator<Item = (usize, Option<&str>)> {
        let lists = match kind {
            Kind::Clusters => &self.clusters,
            Kind::Secrets => &self.secrets,
        };
        let named = lists.iter().map(|(namespace, _)| namespace.as_deref());
        named.enumerate()
    }

    /// One of the lists.
    pub(super) fn list(&mut self, kind: Kind, number: usize) -> Option<&mut Listed> {
        let lists = match kind {
            Kind::Clusters => &mut self.clusters,
            Kind::Secrets => &mut self.secrets,
        };
        lists.get_mut(number).map(|(_, listed)| listed)
    }

    /// The clusters that are to be served.
    fn wanted(&self) -> impl Iterator<Item = Wanted<'_>> {
        let (lists, suffix) = match self.source {
            SourceKind::ClusterApi => (&self.clusters, "-kubeconfig"),
            SourceKind::Kubeconfig | SourceKind::Directory | SourceKind::Secret => {
                (&self.secrets, "")
            }
        };
        let objects = lists.iter().filter_map(|(_, listed)| listed.objects());
        objects.flatten().map(move |(object, metadata)| Wanted {
            object,
            metadata,
            secret: ObjectName {
                namespace: object.namespace.clone(),
                name: format!("{}{suffix}", object.name),
            },
        })
    }

    fn secrets_of(&self, namespace: &str) -> Option<&Listed> {
        let is_of = |it: &Option<String>| it.as_deref().is_none_or(|it| it == namespace);
        let found = self.secrets.iter().find(|(it, _)| is_of(it));
        found.map(|(_, listed)| listed)
    }

    fn metadata_of(&self, secret: &ObjectName) -> Option<&Metadata> {
        let objects = self.secrets_of(&secret.namespace)?.objects()?;
        objects.get(secret)
    }

    /// The Secrets that are to be asked for now, each with the version for which it is. They count as asked for until
    /// [`View::answered`] or, after a failure, [`View::may_be_asked`].
    pub(super) fn due(&mut self) -> Vec<(ObjectName, String)> {
        let mut due = Vec::new();
        let mut wanted = BTreeSet::new();
        for Wanted { secret, .. } in self.wanted() {
            if let Some(metadata) = self.metadata_of(&secret)
                && !self.asked.contains(&secret)
            {
                let held = self.held.get(&secret);
                let version = &metadata.resource_version;
                if held.is_none_or(|held| held.resource_version != *version) {
                    due.push((secret.clone(), version.clone()));
                }
            }
            wanted.insert(secret);
        }
        self.held.retain(|secret, _| wanted.contains(secret));
        self.asked
            .extend(due.iter().map(|(secret, _)| secret.clone()));
        due
    }

    /// A Secret as it was when it was asked for; none where it was not there.
    pub(super) fn answered(
        &mut self,
        secret: &ObjectName,
        version: String,
        found: Option<&Secret>,
    ) {
        let cluster = found.and_then(|found| self.read(secret, found));
        let held = self.held.entry(secret.clone()).or_default();
        held.resource_version = version;
        held.failure = None;
        if let Some(Ok(cluster)) = &cluster {
            held.endpoint = Some(cluster.endpoint.clone());
        }
        held.cluster = cluster;
        self.asked.remove(secret);
    }

    /// A Secret could not be read.
    pub(super) fn failed(&mut self, secret: &ObjectName, why: String) {
        self.held.entry(secret.clone()).or_default().failure = Some(why);
    }

    /// After a failure: it may be asked for again.
    pub(super) fn may_be_asked(&mut self, secret: &ObjectName) {
        self.asked.remove(secret);
    }

    /// What was asked for will not be answered any more.
    pub(super) fn interrupted(&mut self) {
        self.asked.clear();
    }

    /// The cluster of a Secret; none where it is none that is meant.
    fn read(&self, name: &ObjectName, secret: &Secret) -> Option<Result<ClusterConfig, String>> {
        let (of_contract, suffix) = match self.source {
            SourceKind::ClusterApi => (true, "-kubeconfig"),
            SourceKind::Kubeconfig | SourceKind::Directory | SourceKind::Secret => (false, ""),
        };
        if of_contract && secret.type_.as_deref() != Some(SECRET_TYPE) {
            return None;
        }
        let keys = if of_contract { &[CONTRACT_KEY] } else { KEYS };
        let data = secret.data.iter().flatten();
        let data: BTreeMap<_, _> = data.map(|(key, it)| (key.clone(), it.0.clone())).collect();
        let origin = format!("Secret {name}");
        let Some(text) = keys.iter().find_map(|key| data.get(*key)) else {
            let keys: Vec<_> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Some(Err(format!(
                "{origin}: it has no key {}, which would hold the kubeconfig",
                keys.join(" or ")
            )));
        };
        let Ok(text) = std::str::from_utf8(text) else {
            return Some(Err(format!("{origin}: its kubeconfig is no text")));
        };
        let object = name.name.strip_suffix(suffix).unwrap_or(&name.name);
        let cluster = format!("{}.{object}", name.namespace);
        let source = ClusterSource {
            kind: self.source,
            name: format!("{}/{object}", name.namespace),
        };
        Some(kubeconfig::from_secret(
            &origin, text, &data, &cluster, source,
        ))
    }

    /// What there is to know.
    pub(super) fn known(&self) -> Known {
        let subjects = match self.source {
            SourceKind::ClusterApi => &self.clusters,
            SourceKind::Kubeconfig | SourceKind::Directory | SourceKind::Secret => &self.secrets,
        };
        let has_told = subjects.iter().all(|(_, listed)| listed.has_told());
        let mut troubles: Vec<_> = self.trouble.iter().cloned().collect();
        for (what, lists) in [("Clusters", &self.clusters), ("Secrets", &self.secrets)] {
            for (namespace, listed) in lists {
                let where_to_look = match namespace {
                    Some(namespace) => format!(" in the namespace {namespace:?}"),
                    None => String::new(),
                };
                let told = |why| format!("{what}{where_to_look} cannot be followed: {why}");
                troubles.extend(listed.refused().map(told));
            }
        }
        let key = key(self.source);
        Known {
            clusters: has_told.then(|| self.wanted().map(|it| self.candidate(&it)).collect()),
            troubles: troubles.iter().map(|it| format!("{key}: {it}")).collect(),
            ..Known::default()
        }
    }

    fn candidate(&self, wanted: &Wanted<'_>) -> Candidate {
        let what = match self.source {
            SourceKind::ClusterApi => "Cluster",
            SourceKind::Kubeconfig | SourceKind::Directory | SourceKind::Secret => "Secret",
        };
        let origin = format!("{what} {}", wanted.object);
        let name = wanted.name();
        let cluster = if kubeconfig::is_cluster_name(&name) {
            self.cluster(wanted)
        } else {
            Err(Unusable::told(
                RejectionReason::Invalid,
                format!("{origin}: {name:?} is too long a name for a cluster"),
            ))
        };
        Candidate {
            name,
            origin,
            identity: wanted.metadata.uid.clone(),
            cluster,
        }
    }

    /// How a cluster is reached. Without a credential there is a cluster all the same, of which clients are told why it is
    /// not connected.
    fn cluster(&self, wanted: &Wanted<'_>) -> Result<ClusterConfig, Unusable> {
        let secret = &wanted.secret;
        let held = self.held.get(secret);
        let instead = |why: String| {
            let endpoint = held.and_then(|held| held.endpoint.clone());
            self.without_credential(wanted, endpoint, why)
        };
        // What is not known yet, or cannot be.
        let unknown = |why: Option<String>| Unusable {
            reason: None,
            instead: why.clone().map(|why| Box::new(instead(why))),
            rejection: why.map(|message| Rejection {
                reason: RejectionReason::Unreadable,
                message,
            }),
        };
        let listed = self.secrets_of(&secret.namespace);
        if self.metadata_of(secret).is_none() {
            return match listed.map(|it| (it.objects(), it.refused())) {
                Some((Some(_), _)) => Ok(instead(format!(
                    "there is no Secret {secret} of type {SECRET_TYPE} with the label {CLUSTER_NAME_LABEL}"
                ))),
                Some((None, Some(_))) => Err(unknown(Some(format!(
                    "its Secret {secret} cannot be looked for; the log says why"
                )))),
                Some((None, None)) | None => Err(unknown(None)),
            };
        }
        let Some(held) = held else {
            return Err(unknown(None));
        };
        let usable = match &held.cluster {
            Some(Ok(cluster)) => Some(ClusterConfig {
                labels: wanted.metadata.labels.clone(),
                ..cluster.clone()
            }),
            Some(Err(_)) | None => None,
        };
        if let Some(why) = &held.failure {
            let told = format!("its Secret {secret} cannot be read; the log says why");
            let mut unusable = unknown(Some(told));
            let key = key(self.source);
            unusable.reason = Some(format!("{key}: the Secret {secret} cannot be read: {why}"));
            // What it held before is not known to be wrong.
            unusable.instead = usable.map(Box::new).or(unusable.instead);
            return Err(unusable);
        }
        match (usable, &held.cluster) {
            (Some(cluster), _) => Ok(cluster),
            (None, Some(Err(why))) => Err(Unusable {
                instead: Some(Box::new(instead(why.clone()))),
                ..Unusable::told(RejectionReason::Invalid, why.clone())
            }),
            (None, _) => Ok(instead(format!(
                "there is no Secret {secret} of type {SECRET_TYPE}"
            ))),
        }
    }

    fn without_credential(
        &self,
        wanted: &Wanted<'_>,
        endpoint: Option<EndpointConfig>,
        why: String,
    ) -> ClusterConfig {
        ClusterConfig {
            name: wanted.name(),
            context: wanted.object.to_string(),
            source: ClusterSource {
                kind: self.source,
                name: wanted.object.to_string(),
            },
            labels: wanted.metadata.labels.clone(),
            // Nothing is dialled without a credential.
            endpoint: endpoint.unwrap_or_else(EndpointConfig::unknown),
            credential: CredentialConfig::Missing(why),
            timing: ConnectionTiming::default(),
            connect: ConnectPolicy::Always,
            credential_withheld: false,
            rejected: None,
        }
    }
}
#[cfg(test)]
mod tests;
