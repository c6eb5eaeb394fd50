//! The client of live requests: HTTP/1.1, pooled.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connector::Connector;
use super::{RequestBody, UpstreamError};

/// How long a pooled connection may be idle: half of what kube-apiserver allows (90 s), so that a request seldom meets a
/// connection which the server is just closing.
const POOL_IDLE: Duration = Duration::from_secs(45);

/// Idle connections kept for a cluster; more come and go with the load.
const POOL_MAX_IDLE: usize = 64;

/// Sends live requests. Its connections die with it, those in use when their exchange ends.
#[derive(Clone, Debug)]
pub(crate) struct LiveClient(Arc<Client<Connector, RequestBody>>);

impl LiveClient {
    /// A client with an empty pool.
    pub(crate) fn new(connector: Connector) -> Self {
        // `Host` is ours: byte for byte the kubeconfig's authority.
        Self(Arc::new(
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .timer(TokioTimer::new())
                .pool_idle_timeout(POOL_IDLE)
                .pool_max_idle_per_host(POOL_MAX_IDLE)
                .retry_canceled_requests(true)
                .set_host(false)
                .build(connector),
        ))
    }

    /// Sends a request; upgrades work on its response.
    ///
    /// # Errors
    /// No answer came. What was certainly not sent has been tried again on another connection.
    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        self.0
            .request(request)
            .await
            .map_err(UpstreamError::from_client)
    }
}
