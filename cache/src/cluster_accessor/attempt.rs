//! One connect: credential, handles, the first probe, which cluster it is.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::NotConnectedReason;
use super::health::Probe;
use super::limit::ConnectLimit;
use super::view::Trouble;
use crate::cluster_config::ClusterConfig;
use crate::connection::Connection;
use crate::credential::{Credential, CredentialSource};
use crate::upstream::BoxError;

/// What a connect gave.
pub(super) struct Connected {
    pub(super) connection: Connection,
    pub(super) credential: Credential,
    /// The uid of `kube-system`, where it can be read.
    pub(super) uid: Option<String>,
}

/// Why a connect failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) trouble: Trouble,
    /// For the log; may hold an address.
    pub(super) error: Option<BoxError>,
    /// What was shown to the server, if it got that far.
    pub(super) credential: Option<Credential>,
}

impl Failure {
    fn new(reason: NotConnectedReason, message: impl Into<String>) -> Self {
        Self {
            trouble: Trouble::new(reason, message),
            error: None,
            credential: None,
        }
    }

    pub(super) fn from_probe(probe: Probe) -> Self {
        let reason = match probe {
            Probe::Unauthorized => NotConnectedReason::CredentialInvalid,
            Probe::Reachable | Probe::ServerError(_) | Probe::TimedOut | Probe::Failed(_) => {
                NotConnectedReason::ClusterNotConnected
            }
        };
        let mut failure = Self::new(reason, probe.describe());
        if let Probe::Failed(error) = probe {
            failure.error = Some(error.into());
        }
        failure
    }
}

/// Probes once within `limit`.
pub(super) async fn probe(connection: &Connection, path: &str, limit: Duration) -> Probe {
    match timeout(limit, connection.probe(path)).await {
        Ok(Ok(status)) => Probe::from_status(status),
        Ok(Err(error)) => Probe::Failed(error),
        Err(_elapsed) => Probe::TimedOut,
    }
}

/// Connects. A credential that the server rejects is loaded again and tried once more at once.
pub(super) async fn connect(
    config: &ClusterConfig,
    credentials: &Arc<CredentialSource>,
    limit: &ConnectLimit,
    failed_before: bool,
    generation: u64,
    epoch: u64,
) -> Result<Connected, Failure> {
    let missing = |error: crate::credential::CredentialError| {
        Failure::new(NotConnectedReason::CredentialMissing, error.to_string())
    };
    let unusable = |error: BoxError| Failure {
        trouble: Trouble::new(
            NotConnectedReason::CredentialInvalid,
            "the client certificate or the CA cannot be used",
        ),
        error: Some(error),
        credential: None,
    };
    let timing = &config.timing;
    let mut credential = credentials.load(false).await.map_err(missing)?;
    // After the credential: a plugin may take its time, and it burdens neither DNS nor TLS.
    let _permit = limit.acquire(failed_before).await;
    let connection = Connection::new(
        &config.endpoint,
        &credential,
        timing.connect_timeout,
        generation,
        epoch,
    )
    .map_err(unusable)?;
    let mut outcome = probe(&connection, &timing.probe_path, timing.connect_timeout).await;
    if matches!(outcome, Probe::Unauthorized) {
        let renewed = credentials.load(true).await.map_err(missing)?;
        connection.rotate(&credential, &renewed).map_err(unusable)?;
        credential = renewed;
        outcome = probe(&connection, &timing.probe_path, timing.connect_timeout).await;
    }
    if !matches!(outcome, Probe::Reachable) {
        let mut failure = Failure::from_probe(outcome);
        failure.credential = Some(credential);
        return Err(failure);
    }
    // A cluster whose uid cannot be read is served all the same; its epochs then rest on resourceVersions.
    let uid = timeout(timing.connect_timeout, connection.read_kube_system_uid()).await;
    let uid = uid.ok().and_then(Result::ok).flatten();
    Ok(Connected {
        connection,
        credential,
        uid,
    })
}
