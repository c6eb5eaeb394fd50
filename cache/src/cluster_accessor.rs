//! One cluster's state machine and its owner task.

use std::sync::Arc;
use std::time::Duration;

use crate::connection::Connection;
use crate::informers::Informers;

/// Where a cluster's connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Not tried yet.
    Pending,
    /// A connect is in flight.
    Connecting,
    /// Reachable.
    Connected,
    /// Reachable, but answers 5xx to the probe: dialled anew, still served.
    Degraded,
    /// Not reachable; the next connect waits for its time.
    Disconnected,
}

/// Why a cluster is not connected, in words that a client may see: never an address or a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotConnected {
    /// One of the machine-readable reasons.
    pub reason: NotConnectedReason,
    /// What happened, such as `connection refused`.
    pub message: String,
    /// Time to the next connect, where one is planned.
    pub next_attempt: Option<Duration>,
}

/// Machine-readable reasons, as in `details.causes[].reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotConnectedReason {
    /// The first connect has not ended yet.
    ClusterStarting,
    /// It was tried and failed, or was lost.
    ClusterNotConnected,
    /// The server does not accept the credential.
    CredentialInvalid,
    /// The credential cannot be had: a file is missing, a plugin failed.
    CredentialMissing,
}

impl NotConnectedReason {
    /// The reason as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterStarting => "ClusterStarting",
            Self::ClusterNotConnected => "ClusterNotConnected",
            Self::CredentialInvalid => "CredentialInvalid",
            Self::CredentialMissing => "CredentialMissing",
        }
    }
}

/// What is known of a cluster's health, for metrics and status.
#[derive(Clone, Debug)]
pub struct ClusterStatus {
    /// Where its connection stands.
    pub state: ConnectionState,
    /// Why it is not connected, if it is not.
    pub not_connected: Option<NotConnected>,
    /// Whether the last probe succeeded.
    pub last_probe_ok: bool,
    /// Probes that succeeded, since the start.
    pub probes_ok: u64,
    /// Probes that failed, since the start.
    pub probes_failed: u64,
    /// Failed probes in a row.
    pub consecutive_failures: u32,
}

/// One cluster: its connection if there is one, and its informers.
#[derive(Debug)]
pub struct ClusterAccessor {}

impl ClusterAccessor {
    /// The name in `/clusters/<name>`.
    pub fn name(&self) -> &str {
        unimplemented!("skeleton")
    }

    /// The name of the kubeconfig context it came from.
    pub fn context(&self) -> &str {
        unimplemented!("skeleton")
    }

    /// The connection. Never dials: where a connect is in flight it may wait for its outcome, 40 ms at most (the whole
    /// first connect timeout where the cluster connects on demand).
    ///
    /// # Errors
    /// Why the cluster is not connected.
    pub async fn connected(&self) -> Result<Arc<Connection>, NotConnected> {
        unimplemented!("skeleton")
    }

    /// Its informers.
    pub fn informers(&self) -> &Arc<Informers> {
        unimplemented!("skeleton")
    }

    /// Its health.
    pub fn status(&self) -> ClusterStatus {
        unimplemented!("skeleton")
    }
}
