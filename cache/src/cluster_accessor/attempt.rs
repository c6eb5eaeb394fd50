//! One connect: credential, handles, the first probe, which cluster it is.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::NotConnectedReason;
use super::health::Probe;
use super::limit::ConnectLimit;
use super::view::Trouble;
use crate::cluster_config::{ClusterConfig, EndpointConfig};
use crate::connection::Connection;
use crate::credential::{Credential, CredentialError, CredentialSource};
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
    /// The server does not accept the credential.
    pub(super) refused: bool,
    /// For the log: what may help.
    pub(super) hint: Option<&'static str>,
}

impl Failure {
    fn new(reason: NotConnectedReason, message: impl Into<String>) -> Self {
        Self {
            trouble: Trouble::new(reason, message),
            error: None,
            credential: None,
            refused: false,
            hint: None,
        }
    }

    pub(super) fn from_probe(probe: Probe, endpoint: &EndpointConfig) -> Self {
        let reason = match probe {
            Probe::Unauthorized => NotConnectedReason::CredentialInvalid,
            Probe::Reachable
            | Probe::ServerError(_)
            | Probe::WantsTls
            | Probe::TimedOut
            | Probe::Failed(_) => NotConnectedReason::ClusterNotConnected,
        };
        let mut failure = Self::new(reason, probe.describe());
        failure.refused = matches!(probe, Probe::Unauthorized);
        failure.hint = probe.hint(endpoint.is_tls());
        if let Probe::Failed(error) = probe {
            failure.error = Some(error.into());
        }
        failure
    }
}

/// Probes once within `limit`.
pub(super) async fn probe(connection: &Connection, path: &str, limit: Duration) -> Probe {
    match timeout(limit, connection.probe(path)).await {
        Ok(Ok(answer)) if answer.wants_tls => Probe::WantsTls,
        Ok(Ok(answer)) => Probe::from_status(answer.status),
        Ok(Err(error)) => Probe::Failed(error),
        Err(_elapsed) => Probe::TimedOut,
    }
}

/// Probes once, and where the server is reachable asks it something that is never public: the probe's path may be
/// answered to anybody, whatever the credential. Tells the uid of `kube-system` too, where it can be read.
pub(super) async fn probe_credential(
    connection: &Connection,
    path: &str,
    limit: Duration,
) -> (Probe, Option<String>) {
    let outcome = probe(connection, path, limit).await;
    if !matches!(outcome, Probe::Reachable) {
        return (outcome, None);
    }
    match timeout(limit, connection.identify()).await {
        Ok(Ok(identity)) if identity.unauthorized => (Probe::Unauthorized, None),
        Ok(Ok(identity)) => (outcome, identity.uid),
        // Says nothing about the credential. A cluster whose uid cannot be read is served all the same; its epochs then
        // rest on resourceVersions.
        Ok(Err(_)) | Err(_) => (outcome, None),
    }
}

/// Connects. A credential that the server rejects is loaded again and tried once more at once. `credential_loaded` is
/// called when there is one to try.
pub(super) async fn connect(
    config: &ClusterConfig,
    credentials: &Arc<CredentialSource>,
    credential_loaded: impl Fn(),
    limit: &ConnectLimit,
    failed_before: bool,
    generation: u64,
    epoch: u64,
) -> Result<Connected, Failure> {
    let missing = |error: CredentialError| Failure {
        error: error.detail().map(Into::into),
        ..Failure::new(NotConnectedReason::CredentialMissing, error.to_string())
    };
    let unusable = |error: BoxError| Failure {
        error: Some(error),
        ..Failure::new(
            NotConnectedReason::CredentialInvalid,
            "the client certificate or the CA cannot be used",
        )
    };
    let timing = &config.timing;
    let mut credential = credentials.load(false).await.map_err(missing)?;
    credential_loaded();
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
    let ask = || probe_credential(&connection, &timing.probe_path, timing.connect_timeout);
    let (mut outcome, mut uid) = ask().await;
    if matches!(outcome, Probe::Unauthorized) {
        let renewed = credentials.load(true).await.map_err(missing)?;
        connection.rotate(&credential, &renewed).map_err(unusable)?;
        credential = renewed;
        (outcome, uid) = ask().await;
    }
    if !matches!(outcome, Probe::Reachable) {
        let mut failure = Failure::from_probe(outcome, &config.endpoint);
        failure.credential = Some(credential);
        return Err(failure);
    }
    Ok(Connected {
        connection,
        credential,
        uid,
    })
}
