//! The connections that an owner publishes, one after the other.

use std::sync::Arc;

use tokio::sync::watch;

use super::Connection;

/// The current connection, or the next; `None` once the cluster is removed.
pub(crate) async fn next_connection(
    connections: &mut watch::Receiver<Option<Arc<Connection>>>,
) -> Option<Arc<Connection>> {
    loop {
        let current = connections.borrow_and_update().clone();
        // A closed connection may still be published for a moment.
        if let Some(connection) = current.filter(|connection| !connection.closed().is_cancelled()) {
            return Some(connection);
        }
        connections.changed().await.ok()?;
    }
}
