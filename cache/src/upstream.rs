//! HTTP clients of one cluster: how they dial, what they verify, and what their errors mean.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

/// Any error of a body or a connector.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request's body on its way to a cluster.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Why a request got no answer from a cluster.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The name did not resolve.
    #[error("the name of the server did not resolve")]
    Dns(#[source] BoxError),
    /// Nobody listens.
    #[error("connection refused")]
    Refused(#[source] BoxError),
    /// No answer in time while dialling.
    #[error("timed out while connecting")]
    ConnectTimeout,
    /// TLS failed: another certificate, another protocol.
    #[error("TLS failed")]
    Tls(#[source] BoxError),
    /// Another failure to dial.
    #[error("could not connect")]
    Connect(#[source] BoxError),
    /// The request was sent, at least in part, and no answer came.
    #[error("the connection broke before an answer")]
    Broken(#[source] BoxError),
}

impl UpstreamError {
    /// Whether the server may have seen the request.
    pub fn sent(&self) -> bool {
        matches!(self, Self::Broken(_))
    }
}
