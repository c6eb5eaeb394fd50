//! The end-to-end tests: one binary, so that one control plane serves them all. `docs/TESTING.md` says what each module proves.
#![allow(
    clippy::print_stdout,
    reason = "what a test counted is shown with --nocapture"
)]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should stop, and say where"
)]

mod aborts;
mod access_review;
mod audit;
mod auth;
mod authentication;
mod authorization;
mod clients;
mod control_plane;
mod counts;
mod credentials;
mod dashboard;
mod demo;
mod deploy;
mod differential;
mod discovery;
mod epochs;
mod fleet;
mod fleet_api;
mod fleet_box;
mod forward;
mod freshness;
mod gone_writers;
mod hostile;
mod jwt;
mod kubectl;
mod least_privilege;
mod limits;
mod metrics;
mod model;
mod never_the_past;
mod outage;
mod pages;
mod pair;
mod protobuf;
mod reads;
mod reflector;
mod refresh;
mod reload;
mod replicas;
mod revocation;
mod scenarios;
mod self_check;
mod sources;
mod transcript;
mod unauthorized;
mod user_matrix;
mod watch_model;
mod watches;
