//! Who answers the proxy's questions about users: a cluster's connection. A seam, so that tests can answer, and count.

use std::future::Future;

use bytes::Bytes;
use fleetcache_cache::connection::Connection;
use fleetcache_cache::upstream::UpstreamError;
use http::StatusCode;
use tokio_util::sync::CancellationToken;

/// See the methods of [`Connection`].
pub(crate) trait Reviewer: Send + Sync + 'static {
    fn epoch(&self) -> u64;

    /// Fires when no answer comes any more.
    fn lost(&self) -> &CancellationToken;

    /// Sends a question that is put as an object.
    fn review(
        &self,
        path: &'static str,
        body: Bytes,
    ) -> impl Future<Output = Result<(StatusCode, Bytes), UpstreamError>> + Send;

    /// Reads a document.
    fn document(
        &self,
        path: &'static str,
    ) -> impl Future<Output = Result<(StatusCode, Bytes), UpstreamError>> + Send;
}

impl Reviewer for Connection {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn lost(&self) -> &CancellationToken {
        self.lost()
    }

    async fn review(
        &self,
        path: &'static str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), UpstreamError> {
        self.review(path, body).await
    }

    async fn document(&self, path: &'static str) -> Result<(StatusCode, Bytes), UpstreamError> {
        self.document(path).await
    }
}
