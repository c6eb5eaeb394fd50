//! What a live request needs of a connection: a seam, so that tests can see what the owner is told.

use std::future::Future;
use std::sync::Arc;

use fleetcache_cache::connection::Connection;
use fleetcache_cache::upstream::{RequestBody, UpstreamError};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

/// See the methods of [`Connection`].
pub(crate) trait Upstream: Send + Sync + 'static {
    fn request(
        &self,
        method: Method,
        path_and_query: &str,
        headers: HeaderMap,
        body: RequestBody,
    ) -> Request<RequestBody>;

    fn request_of_caller(
        &self,
        method: Method,
        path_and_query: &str,
        headers: HeaderMap,
        body: RequestBody,
        authorization: HeaderValue,
    ) -> Request<RequestBody>;

    fn send_live(
        &self,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Result<Response<Incoming>, UpstreamError>> + Send;

    fn closed(&self) -> &CancellationToken;

    fn lost(&self) -> &CancellationToken;

    fn replaced(&self) -> &CancellationToken;

    fn suspect(&self);

    fn credential_rejected(&self);

    fn credential_number(&self) -> u64;

    fn another_credential(&self, refused: u64) -> impl Future<Output = bool> + Send;

    fn successor(&self) -> Option<Arc<Self>>;
}

impl Upstream for Connection {
    fn request(
        &self,
        method: Method,
        path_and_query: &str,
        headers: HeaderMap,
        body: RequestBody,
    ) -> Request<RequestBody> {
        self.request(method, path_and_query, headers, body)
    }

    fn request_of_caller(
        &self,
        method: Method,
        path_and_query: &str,
        headers: HeaderMap,
        body: RequestBody,
        authorization: HeaderValue,
    ) -> Request<RequestBody> {
        self.request_of_caller(method, path_and_query, headers, body, authorization)
    }

    async fn send_live(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        self.send_live(request).await
    }

    fn closed(&self) -> &CancellationToken {
        self.closed()
    }

    fn lost(&self) -> &CancellationToken {
        self.lost()
    }

    fn replaced(&self) -> &CancellationToken {
        self.replaced()
    }

    fn suspect(&self) {
        self.suspect();
    }

    fn credential_rejected(&self) {
        self.credential_rejected();
    }

    fn credential_number(&self) -> u64 {
        self.credential_number()
    }

    async fn another_credential(&self, refused: u64) -> bool {
        self.another_credential(refused).await
    }

    fn successor(&self) -> Option<Arc<Self>> {
        self.successor()
    }
}
