//! The data path: one request, read top to bottom.

use std::sync::Arc;
use std::time::Duration;

use fleetcache_auth::Authenticator;
use fleetcache_cache::cluster_cache::ClusterCache;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body::Body;
use crate::metrics::Metrics;

/// What the data path is told by the configuration, per cluster.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Time until response headers of a live request.
    pub request_timeout: Duration,
    /// Time open watches stay silent after a disconnect.
    pub watch_disconnect_grace: Duration,
    /// Requests in flight to the cluster, watches, exec and logs apart.
    pub max_in_flight: usize,
}

/// Answers requests.
pub struct Handler {
    #[expect(dead_code, reason = "skeleton")]
    parts: HandlerParts,
}

/// What a handler needs.
pub struct HandlerParts {
    /// All clusters.
    pub clusters: Arc<ClusterCache>,
    /// Who is asking.
    pub authenticator: Authenticator,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The settings of a cluster, by its name.
    pub settings: Box<dyn Fn(&str) -> ClusterSettings + Send + Sync>,
    /// Tunnels outlive their request; they are counted here.
    pub tunnels: TaskTracker,
    /// Fires when the process drains: open watches and streams end.
    pub draining: CancellationToken,
}

impl Handler {
    /// A handler over its parts.
    pub fn new(parts: HandlerParts) -> Self {
        Self { parts }
    }

    /// Answers one request; never fails and never panics outwards.
    pub async fn handle(&self, _request: Request<Incoming>) -> Response<Body> {
        unimplemented!("skeleton")
    }
}
