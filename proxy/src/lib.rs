//! One HTTPS endpoint in front of many Kubernetes clusters.

pub mod body;
pub mod error;
pub mod forwarded_headers;
pub mod handler;
pub mod live;
pub mod location;
pub mod metrics;
pub mod status;
pub mod upgrade;
