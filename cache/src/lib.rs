//! What a cluster holds, and whether it is reachable.
//!
//! This crate knows clusters, connections, informers and snapshots. It never sees a user or a client's HTTP request and
//! never writes a Status.

pub mod backoff;
pub mod cluster_accessor;
pub mod cluster_cache;
pub mod cluster_config;
pub mod connection;
pub mod credential;
pub mod envelope;
pub mod eviction;
pub mod exec_plugin;
pub mod floor;
pub mod frame;
pub mod gvr;
pub mod informer;
pub mod informers;
pub mod kubeconfig;
pub mod object;
mod reflector;
pub mod resource_version;
pub mod store;
pub mod upstream;
