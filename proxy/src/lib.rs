//! One HTTPS endpoint in front of many Kubernetes clusters.

pub mod answer;
pub mod body;
pub mod cached;
pub mod decision;
pub mod draining;
pub mod error;
pub mod forwarded_headers;
pub mod handler;
pub mod live;
pub mod location;
pub mod metrics;
pub mod observe;
pub mod protobuf;
pub mod request_info;
pub mod status;
pub mod upgrade;
