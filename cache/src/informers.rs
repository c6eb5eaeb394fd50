//! Which informers one cluster runs.

use std::sync::Arc;

use tokio::sync::watch;

use crate::connection::Connection;

/// The informers of one cluster. They outlive a connection: each waits for the next one and resumes.
#[derive(Debug)]
pub struct Informers {}

impl Informers {
    /// None running yet; `connection` tells when the cluster is connected.
    pub fn new(_cluster: &str, _connection: watch::Receiver<Option<Arc<Connection>>>) -> Arc<Self> {
        Arc::new(Self {})
    }
}
