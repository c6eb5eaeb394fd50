//! What the end-to-end tests stand on: real control planes, the proxy's own binary, kubectl, and the means to compare.
//!
//! A test starts (or shares) a [`control_plane::ControlPlane`], puts a [`proxy::Proxy`] in front of it, and asks both the same
//! question with a [`client::Client`] or a [`kubectl::Kubectl`]. Everything that can be waited for is waited for with
//! [`poll::wait_for`].

pub mod binaries;
pub mod child;
pub mod client;
pub mod client_go;
pub mod cluster_api;
pub mod control_plane;
pub mod fault;
pub mod fleet_box;
pub mod kubeconfig;
pub mod kubectl;
pub mod least_privilege;
pub mod measure;
pub mod names;
pub mod oidc_issuer;
pub mod open_files;
pub mod poll;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod sim;
