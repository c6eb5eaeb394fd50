//! One HTTPS endpoint in front of many Kubernetes clusters.

pub mod admin;
pub mod app;
pub mod args;
pub mod body;
pub mod clusters;
pub mod config;
pub mod error;
pub mod handler;
pub mod listener;
pub mod live;
pub mod metrics;
pub mod serving_kubeconfig;
pub mod state_dir;
pub mod status;
pub mod telemetry;
