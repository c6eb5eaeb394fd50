//! The documents that every client asks for first, fetched as soon as a cluster is connected: whoever comes while it is
//! down, and for the first time, is still told what it serves.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{DocumentKey, Documents, MAX_BODY};
use crate::backoff::Backoff;
use crate::connection::{Connection, empty_body, next_connection};
use crate::error_chain::error_chain;
use crate::panics::run_again;
use crate::upstream::BoxError;

/// Where a server tells its version.
pub(super) const VERSION: &str = "/version";

/// What client-go asks for since 1.27, so that a client finds under its own words what was fetched for it.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// What `kubectl version` asks for.
const JSON: &str = "application/json, */*";

/// Time for all of them.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The document of the server's version as it is fetched here.
pub(super) fn version() -> DocumentKey {
    key(VERSION, JSON)
}

/// What is fetched here.
pub(super) fn fetched() -> [DocumentKey; 3] {
    [key("/api", AGGREGATED), key("/apis", AGGREGATED), version()]
}

/// Fetches on each connection, and again when the server's version changes, until the cluster is removed.
pub(crate) async fn keep_fetched(
    documents: Arc<Documents>,
    cluster: String,
    connections: watch::Receiver<Option<Arc<Connection>>>,
) {
    run_again("document fetcher", || {
        fetch_on_each(&documents, &cluster, connections.clone())
    })
    .await;
}

async fn fetch_on_each(
    documents: &Documents,
    cluster: &str,
    mut connections: watch::Receiver<Option<Arc<Connection>>>,
) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
    while let Some(connection) = next_connection(&mut connections).await {
        // In a box: most of the time nothing is fetched, and a thousand of these wait.
        let fetching = Box::pin(timeout(FETCH_TIMEOUT, documents.fetch_all(&connection)));
        let closed = connection.closed().run_until_cancelled(fetching);
        let error = match closed.await {
            Some(Ok(Ok(()))) => None,
            Some(Ok(Err(error))) => Some(error),
            Some(Err(elapsed)) => Some(elapsed.into()),
            None => continue,
        };
        // Or it would live until the next one.
        drop(connection);
        let Some(error) = error else {
            tracing::debug!(cluster, "documents fetched");
            backoff.reset();
            tokio::select! {
                changed = connections.changed() => drop(changed),
                () = documents.version_changed.notified() => {}
            }
            continue;
        };
        tracing::debug!(
            cluster,
            error = error_chain(&*error),
            "documents not fetched"
        );
        tokio::select! {
            changed = connections.changed() => drop(changed),
            () = tokio::time::sleep(backoff.next_pause()) => {}
        }
    }
}

impl Documents {
    async fn fetch_all(&self, connection: &Connection) -> Result<(), BoxError> {
        #[cfg(test)]
        crate::panics::planned::here("documents");
        for key in fetched() {
            self.fetch(connection, &key).await?;
        }
        Ok(())
    }

    /// Fetches a document, or hears that the one that is held is still it. One that the server does not give is none.
    async fn fetch(&self, connection: &Connection, key: &DocumentKey) -> Result<(), BoxError> {
        let epoch = connection.epoch;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_str(&key.accept)?);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let held = self.get(epoch, key);
        if let Some(etag) = held.as_ref().and_then(|held| held.etag()) {
            headers.insert(IF_NONE_MATCH, etag.clone());
        }
        let asked = Instant::now();
        let request = connection.request(Method::GET, &key.path, headers, empty_body());
        let answer = connection.send_live(request).await?;
        let (parts, body) = answer.into_parts();
        // To its end, so that the connection can be used again.
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            // Nor will it be shorter next time.
            Err(error) if error.is::<LengthLimitError>() => return Ok(()),
            Err(error) => return Err(error),
        };
        match parts.status {
            StatusCode::OK => self.keep(epoch, key, asked, &parts.headers, &body),
            StatusCode::NOT_MODIFIED => self.confirm(epoch, key, asked),
            StatusCode::UNAUTHORIZED => {
                connection.credential_rejected();
                return Err("unauthorized".into());
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(format!("the server answered {status}").into());
            }
            _ => {}
        }
        Ok(())
    }
}

fn key(path: &str, accept: &str) -> DocumentKey {
    DocumentKey {
        path: path.to_owned(),
        accept: accept.to_owned(),
        indented: false,
    }
}
