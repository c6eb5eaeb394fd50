//! The live handles of a reachable cluster.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::upstream::{RequestBody, UpstreamError};

/// One connection generation of a cluster: made by its owner task, shared by all requests, closed once.
#[derive(Debug)]
pub struct Connection {
    /// Counts the connections of this cluster in this process, from 1.
    pub generation: u64,
    /// Counts the clusters that have been behind this name: another `kube-system` uid or a resourceVersion that went
    /// back starts a new one. Nothing of an older epoch may be served.
    pub epoch: u64,
    closed: CancellationToken,
}

impl Connection {
    /// Fires when the cluster is disconnected; what waits for an answer ends then.
    pub fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// A request to this cluster: `path_and_query` as the client wrote it, byte for byte, behind the server's base
    /// path; `headers` as given plus `Host` and the connection's own `Authorization`.
    pub fn request(
        &self,
        _method: Method,
        _path_and_query: &str,
        _headers: HeaderMap,
        _body: RequestBody,
    ) -> Request<RequestBody> {
        unimplemented!("skeleton")
    }

    /// Sends a live request over HTTP/1.1; upgrades work on its response.
    ///
    /// # Errors
    /// Why no answer came. A request that was certainly not sent has been retried on a fresh connection already.
    pub async fn send_live(
        &self,
        _request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        unimplemented!("skeleton")
    }

    /// Sends an informer's request over HTTP/2 where the server speaks it.
    ///
    /// # Errors
    /// Why no answer came.
    pub async fn send_informer(
        &self,
        _shard: &InformerShard,
        _request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        unimplemented!("skeleton")
    }

    /// A place on one of the informers' HTTP/2 connections (at most 80 informers share one), given back on drop.
    pub fn informer_shard(&self) -> InformerShard {
        unimplemented!("skeleton")
    }

    /// Asks the owner for a probe now: a request was refused, TLS failed or a watch broke.
    pub fn suspect(&self) {}

    /// Tells the owner that the server answered 401 to this connection's own credential.
    pub fn credential_rejected(&self) {}

    /// Tells the owner that this is another cluster than before (another uid, or a resourceVersion that went back):
    /// it reconnects with a new epoch.
    pub fn epoch_ended(&self) {}

    /// Whether the `kube-system` namespace has the uid it had when this connection was made; true where the credential
    /// may not read it.
    ///
    /// # Errors
    /// Why no answer came.
    pub async fn is_same_cluster(&self) -> Result<bool, UpstreamError> {
        unimplemented!("skeleton")
    }

    /// Path and query with nothing of the client's headers: what informers ask.
    pub fn informer_request(
        &self,
        _path_and_query: &str,
        _accept: &'static str,
    ) -> Request<RequestBody> {
        unimplemented!("skeleton")
    }
}

/// A place on one informer HTTP/2 connection.
#[derive(Debug)]
pub struct InformerShard {}

impl InformerShard {
    /// Time since any byte came from the server on this shard's connection: events, bookmarks, ping answers.
    pub fn heard_ago(&self) -> std::time::Duration {
        unimplemented!("skeleton")
    }
}

/// An empty request body.
pub fn empty_body() -> RequestBody {
    use http_body_util::BodyExt;
    http_body_util::Empty::<Bytes>::new()
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// The current connection, or the next; `None` once the cluster is removed.
pub(crate) async fn next_connection(
    connections: &mut watch::Receiver<Option<Arc<Connection>>>,
) -> Option<Arc<Connection>> {
    loop {
        let current = connections.borrow_and_update().clone();
        // A closed connection may still be published for a moment.
        if let Some(connection) = current.filter(|connection| !connection.closed().is_cancelled()) {
            return Some(connection);
        }
        connections.changed().await.ok()?;
    }
}
