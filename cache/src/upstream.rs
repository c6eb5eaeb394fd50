//! HTTP clients of one cluster: how they dial, what they verify, and what their errors mean.

pub(crate) mod connector;
pub(crate) mod endpoint;
pub(crate) mod error;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod heard;
pub(crate) mod informer_shard;
pub(crate) mod live;
pub(crate) mod resolver;
pub(crate) mod tls;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;

pub use self::error::UpstreamError;

/// Any error of a body or a connector.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A request's body on its way to a cluster.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;
