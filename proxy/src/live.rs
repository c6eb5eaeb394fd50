//! A request that goes to its cluster and its answer, both streamed.

use std::sync::Arc;
use std::time::Duration;

use fleetcache_cache::connection::Connection;
use http::{Request, Response};
use hyper::body::Incoming;
use tokio_util::task::TaskTracker;

use crate::body::Body;
use crate::error::Error;

/// A live request, told apart by what may be done with it.
#[derive(Debug)]
pub struct LiveRequest<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// What follows `/clusters/<name>` in the request's target, byte for byte (`/` where nothing follows).
    pub path_and_query: &'a str,
    /// Watches, logs, exec, attach, port-forward and proxy: no timeout until headers.
    pub long_running: bool,
    /// A watch: it stays silent for `watch_disconnect_grace` after a disconnect, then ends cleanly.
    pub watch: bool,
    /// GET, HEAD or OPTIONS: it changes nothing, so a lost answer is a 503 and not a 504 "outcome unknown".
    pub read_only: bool,
    /// Time until response headers.
    pub request_timeout: Duration,
    /// See `watch`.
    pub watch_disconnect_grace: Duration,
}

/// Sends a request to its cluster and streams the answer back; upgrades become tunnels, tasks of `tunnels`.
///
/// # Errors
/// What the proxy answers instead.
pub async fn forward(
    _connection: &Arc<Connection>,
    _live: LiveRequest<'_>,
    _request: Request<Incoming>,
    _tunnels: &TaskTracker,
) -> Result<Response<Body>, Error> {
    unimplemented!("skeleton")
}
