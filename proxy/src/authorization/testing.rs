//! Clusters that are not there, for tests of what is known of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fleetcache_auth::{Question, ResourceAttributes, UserInfo};
use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::cluster_config::{
    ClusterConfig, ClusterSource, ConnectPolicy, ConnectionTiming, EndpointConfig, SourceKind,
};
use fleetcache_cache::credential::CredentialConfig;
use fleetcache_cache::eviction::Fleet;
use fleetcache_cache::informers::InformersConfig;
use fleetcache_cache::upstream::UpstreamError;
use http::StatusCode;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{Access, AuthorizationSettings, Authorizer, Subject};
use crate::handler::ClusterSettings;
use crate::reviewer::Reviewer;

/// A cluster that nobody asks for, so it is not dialled.
pub(crate) fn idle(name: &str) -> ClusterConfig {
    ClusterConfig {
        name: name.to_owned(),
        context: name.to_owned(),
        source: ClusterSource {
            kind: SourceKind::Kubeconfig,
            name: "kubeconfig".to_owned(),
        },
        labels: BTreeMap::new(),
        endpoint: EndpointConfig {
            server: "https://127.0.0.1:1".parse().unwrap(),
            certificate_authority: None,
            insecure_skip_tls_verify: false,
            tls_server_name: None,
            proxy_url: None,
            refuse_link_local: false,
        },
        credential: CredentialConfig::Anonymous,
        timing: ConnectionTiming::default(),
        connect: ConnectPolicy::OnDemand,
        credential_withheld: false,
        rejected: None,
    }
}

/// What a cluster says of a review.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Says {
    Allow,
    Deny,
    /// Another status, with a body that would be an Allow.
    Status(u16),
    /// 201, and this.
    Body(&'static str),
    /// The connection breaks.
    Breaks,
    Nothing,
}

/// A cluster's rules: what it says to the `spec` of a review.
type Rules = Box<dyn Fn(&Value) -> Says + Send>;

/// A cluster that counts what it is asked, and answers when it is let.
pub(crate) struct Cluster {
    epoch: u64,
    pub(crate) lost: CancellationToken,
    asked: AtomicUsize,
    rules: Mutex<Rules>,
    may_answer: Semaphore,
}

impl Cluster {
    pub(crate) fn of_epoch(
        epoch: u64,
        rules: impl Fn(&Value) -> Says + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            epoch,
            lost: CancellationToken::new(),
            asked: AtomicUsize::new(0),
            rules: Mutex::new(Box::new(rules)),
            may_answer: Semaphore::new(Semaphore::MAX_PERMITS),
        })
    }

    pub(crate) fn that(rules: impl Fn(&Value) -> Says + Send + 'static) -> Arc<Self> {
        Self::of_epoch(1, rules)
    }

    pub(crate) fn now(&self, rules: impl Fn(&Value) -> Says + Send + 'static) {
        *self.rules.lock() = Box::new(rules);
    }

    /// From now on it answers only where [`Self::let_answer`] lets it.
    pub(crate) fn hold(&self) {
        self.may_answer.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(crate) fn let_answer(&self) {
        self.may_answer.add_permits(1);
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Reviewer for Cluster {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    async fn review(
        &self,
        _: &'static str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), UpstreamError> {
        let review: Value = serde_json::from_slice(&body).unwrap();
        self.asked.fetch_add(1, Ordering::Relaxed);
        // What it will say is what is so when it is asked.
        let says = (self.rules.lock())(&review["spec"]);
        self.may_answer.acquire().await.unwrap().forget();
        let answer = |allowed: bool| {
            let answer = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": {"allowed": allowed},
            });
            Bytes::from(answer.to_string())
        };
        match says {
            Says::Allow => Ok((StatusCode::CREATED, answer(true))),
            Says::Deny => Ok((StatusCode::CREATED, answer(false))),
            Says::Status(code) => Ok((StatusCode::from_u16(code).unwrap(), answer(true))),
            Says::Body(body) => Ok((StatusCode::CREATED, Bytes::from_static(body.as_bytes()))),
            Says::Breaks => Err(UpstreamError::Broken("reset".into())),
            Says::Nothing => std::future::pending().await,
        }
    }

    async fn document(&self, _: &'static str) -> Result<(StatusCode, Bytes), UpstreamError> {
        unreachable!("decisions read no document")
    }
}

/// Those who may do something in all namespaces, and nothing else.
pub(crate) fn cluster_wide(spec: &Value) -> Says {
    match spec["resourceAttributes"].get("namespace") {
        None => Says::Allow,
        Some(_) => Says::Deny,
    }
}

/// What is configured of a cluster that is asked about users.
pub(crate) fn settings() -> ClusterSettings {
    ClusterSettings {
        request_timeout: Duration::from_secs(1),
        watch_disconnect_grace: Duration::ZERO,
        max_in_flight: 1,
        reads: Default::default(),
        identity: Default::default(),
        authorization: Default::default(),
    }
}

/// Clusters that are not dialled.
pub(crate) struct Clusters {
    pub(crate) cache: Arc<ClusterCache>,
    authorizer: Authorizer,
    _shutdown: tokio_util::sync::DropGuard,
}

impl Clusters {
    pub(crate) fn start(names: &[&str]) -> Self {
        let shutdown = CancellationToken::new();
        let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &shutdown);
        let configs = names.iter().map(|name| idle(name));
        Self {
            cache: ClusterCache::start(configs.collect(), 1, &fleet, &shutdown),
            authorizer: Authorizer::default(),
            _shutdown: shutdown.drop_guard(),
        }
    }

    pub(crate) fn access(&self, cluster: &str, user: &UserInfo) -> Access {
        Access {
            cluster: self.cache.get(cluster).unwrap(),
            decisions: self.authorizer.of_cluster(),
            settings: AuthorizationSettings::default(),
            subject: Subject::User(Arc::new(user.clone())),
        }
    }
}

pub(crate) fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..UserInfo::default()
    }
}

pub(crate) fn alice() -> UserInfo {
    user("alice", &["system:authenticated"])
}

pub(crate) fn get(resource: &str, namespace: &str, name: &str) -> Question {
    Question::Resource(ResourceAttributes {
        verb: "get",
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..ResourceAttributes::default()
    })
}

pub(crate) fn pod(name: &str) -> Question {
    get("pods", "default", name)
}
