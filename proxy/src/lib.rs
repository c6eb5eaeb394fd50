//! One HTTPS endpoint in front of many Kubernetes clusters. `handler` is the data path.

pub mod admin;
pub mod answer;
pub mod app;
pub mod args;
pub mod body;
pub mod cached;
pub mod clusters;
pub mod config;
pub mod decision;
pub mod draining;
pub mod error;
pub mod forwarded_headers;
pub mod handler;
pub mod listener;
pub mod live;
pub mod location;
pub mod metrics;
pub mod observe;
pub mod protobuf;
pub mod query;
pub mod request_info;
pub mod serving_kubeconfig;
pub mod state_dir;
pub mod status;
pub mod telemetry;
pub mod upgrade;
