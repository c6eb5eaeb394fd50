//! What a cluster holds, and whether it is reachable.
//!
//! This crate knows clusters, connections, informers, snapshots and watches. It never sees a user or a client's HTTP request and
//! never writes a Status.
//!
//! ```text
//! kubeconfig ─► cluster_config ─► cluster_cache ─► cluster_accessor ─► connection ─► upstream
//!                                                        │                 │
//!                                                    informers ─► informer ◄── reflector
//!                                                               │  │    │
//!                                             watcher ─► history  floor  store ◄── envelope, object, frame
//! ```
//! - One owner task a cluster connects, probes and disconnects; everybody else takes the published connection or the reason
//!   why there is none.
//! - Objects are kept as the bytes that the server sent. A snapshot never changes.
//! - No read with resourceVersion unset is served below the floor of its storage.

pub mod backoff;
pub mod bookmark;
pub mod bounded_file;
mod clock;
pub mod cluster_accessor;
pub mod cluster_cache;
pub mod cluster_config;
pub mod connection;
pub mod continue_token;
pub mod credential;
pub mod documents;
pub mod envelope;
mod error_chain;
pub mod eviction;
pub mod exec_plugin;
pub mod facts;
pub mod fields;
pub mod floor;
pub mod form;
pub mod frame;
pub mod gvr;
pub mod history;
pub mod holding;
pub mod informer;
pub mod informers;
pub mod key_range;
pub mod kubeconfig;
pub mod label_selector;
mod link_local;
mod metadata;
pub mod object;
pub mod own_kind;
pub mod panics;
pub mod protobuf;
mod reflector;
pub mod resource_version;
pub mod secret_file;
pub mod selector;
pub mod self_checks;
pub mod store;
pub mod table;
pub mod told_list;
#[cfg(test)]
mod turns;
pub mod upstream;
pub mod watcher;
