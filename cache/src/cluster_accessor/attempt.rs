//! One connect: credential, handles, the first probe, which cluster it is.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::NotConnectedReason;
use super::health::Probe;
use super::limit::{ConnectLimit, Turn};
use super::progress::Progress;
use super::view::Trouble;
use crate::cluster_config::{ClusterConfig, EndpointConfig};
use crate::connection::Connection;
use crate::credential::{Credential, CredentialError, CredentialSource};
use crate::upstream::connector::first_sign;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::{BoxError, UpstreamError};

/// A server that has just started has not read its roles yet, and answers 403 to all that they allow. Whoever does not know
/// that this is what it always says asks again for so long.
const ROLES_ARE_READ: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// What a connect gave.
pub(super) struct Connected {
    pub(super) connection: Connection,
    pub(super) credential: Credential,
    /// The probe was answered 403.
    pub(super) forbidden: bool,
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
}

impl Failure {
    fn new(reason: NotConnectedReason, message: impl Into<String>) -> Self {
        Self {
            trouble: Trouble::new(reason, message),
            error: None,
            credential: None,
            refused: false,
        }
    }

    pub(super) fn from_probe(probe: Probe, endpoint: &EndpointConfig) -> Self {
        let mut trouble = probe.trouble().unwrap_or_else(|| {
            Trouble::new(
                NotConnectedReason::InternalError,
                "the server was reachable",
            )
        });
        trouble.hint = probe.hint(endpoint).unwrap_or(trouble.hint);
        Self {
            trouble,
            refused: matches!(probe, Probe::Unauthorized),
            error: match probe {
                Probe::Failed(error) => Some(error.into()),
                _ => None,
            },
            credential: None,
        }
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
/// answered to anybody, whatever the credential, and 404 is an answer too. Tells the uid of `kube-system` too, where it can be read.
pub(super) async fn probe_credential(
    connection: &Connection,
    path: &str,
    limit: Duration,
) -> (Probe, Option<String>) {
    let outcome = probe(connection, path, limit).await;
    if !outcome.is_reachable() {
        return (outcome, None);
    }
    match timeout(limit, connection.identify()).await {
        Ok(Ok(identity)) if identity.unauthorized => (Probe::Unauthorized, None),
        Ok(Ok(identity)) if !identity.kubernetes => (Probe::NotKubernetes, None),
        Ok(Ok(identity)) => (outcome, identity.uid),
        // Says nothing about the credential. A cluster whose uid cannot be read is served all the same; its epochs then
        // rest on resourceVersions.
        Ok(Err(_)) | Err(_) => (outcome, None),
    }
}

/// What an attempt has of its owner: all that it needs, so that the owner is free meanwhile.
pub(super) struct Attempt {
    pub(super) config: Arc<ClusterConfig>,
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) credentials: Arc<CredentialSource>,
    pub(super) limit: ConnectLimit,
    /// The one before failed.
    pub(super) failed_before: bool,
    /// A fresh start: a plugin runs again, and the informers list anew.
    pub(super) refresh: bool,
    /// It never was connected, or the uid of `kube-system` could be read once: a 403 to all may be that of a server which has
    /// just started.
    pub(super) may_be_told_more: bool,
    pub(super) progress: Progress,
}

/// Connects. A credential that the server rejects is loaded again and tried once more at once.
pub(super) async fn connect(attempt: Attempt) -> Result<Connected, Failure> {
    #[cfg(test)]
    crate::panics::planned::here("connect");
    let missing = |error: CredentialError| Failure {
        error: error.detail().map(Into::into),
        ..Failure::new(error.reason(), error.to_string())
    };
    let unusable = |error: BoxError| Failure {
        error: Some(error),
        ..Failure::new(
            NotConnectedReason::CredentialInvalid,
            "the client certificate or the CA cannot be used",
        )
    };
    let (endpoint, timing) = (&attempt.endpoint, &attempt.config.timing);
    let loaded = attempt.credentials.load(attempt.refresh).await;
    let mut credential = loaded.map_err(missing)?;
    attempt.progress.credential_loaded();
    // After the credential: a plugin may take its time, and it burdens neither DNS nor TLS.
    let mut turn = Turn::take(attempt.limit.clone(), attempt.failed_before).await;
    attempt.progress.has_its_turn(true);
    let connect_timeout = timing.connect_timeout;
    let mut connection =
        Connection::new(endpoint, &credential, connect_timeout, Some(&turn)).map_err(unusable)?;
    connection.lists_anew = attempt.refresh;
    let ask = || probe_credential(&connection, &timing.probe_path, timing.connect_timeout);
    let (mut outcome, mut uid) = turn.while_waiting(ask()).await;
    if matches!(outcome, Probe::Unauthorized) {
        drop(turn);
        attempt.progress.has_its_turn(false);
        let renewed = attempt.credentials.load(true).await.map_err(missing)?;
        turn = Turn::take(attempt.limit, attempt.failed_before).await;
        attempt.progress.has_its_turn(true);
        connection.rotate(&credential, &renewed).map_err(unusable)?;
        credential = renewed;
        (outcome, uid) = ask().await;
    }
    // To believe it would mean to keep nothing in memory for a while, and to know another cluster for the same.
    // Others connect meanwhile: a fleet of clusters that always say so would come one after the other.
    drop(turn);
    let until = Instant::now() + ROLES_ARE_READ;
    while attempt.may_be_told_more
        && uid.is_none()
        && matches!(outcome, Probe::Forbidden)
        && Instant::now() < until
    {
        sleep(ASK_AGAIN).await;
        (outcome, uid) = ask().await;
    }
    // Whichever of the two timers was first, it is one timeout to whoever reads of it.
    if matches!(outcome, Probe::TimedOut) {
        outcome = Probe::Failed(UpstreamError::ConnectTimeout);
    }
    if !outcome.is_reachable() {
        let mut failure = Failure::from_probe(outcome, endpoint.config());
        failure.credential = Some(credential);
        return Err(failure);
    }
    Ok(Connected {
        connection,
        credential,
        forbidden: matches!(outcome, Probe::Forbidden),
        uid,
    })
}

/// Returns when the server, of which nothing was heard, is there again: its address is dialled once more, and the kernel goes
/// on asking until `until`. A stopped process answers the handshake that waits for it as soon as it goes on; so its return
/// is not a matter of when the next attempt is due. The connection itself is of no use, since nothing was asked on it.
///
/// Hundreds of clusters may wait so at once. None costs more than a socket: TLS is not begun before somebody accepts, in a
/// turn among the connects, and goes no further than its first message.
pub(super) async fn answered(endpoint: Arc<Endpoint>, limit: ConnectLimit, until: Instant) {
    let patience = until.saturating_duration_since(Instant::now());
    let hello = async {
        let _permit = limit.acquire(true).await;
        endpoint.hello()
    };
    if first_sign(endpoint.config(), patience, hello)
        .await
        .is_err()
    {
        // Then the next attempt tells why.
        std::future::pending().await
    }
}
