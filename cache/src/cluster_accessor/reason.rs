//! Machine-readable reasons why a cluster is not connected.

use crate::upstream::UpstreamError;

/// Why a cluster is not connected, as in `details.causes[].reason`, in conditions and in metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotConnectedReason {
    /// The first connect has not ended yet.
    ClusterStarting,
    /// It connects at the first request, and there was none yet.
    OnDemand,
    /// The credential cannot be had: a file is missing, a plugin failed.
    CredentialMissing,
    /// The credential is no such thing: a client certificate or a CA that cannot be read.
    CredentialInvalid,
    /// The server does not accept the credential (401).
    Unauthorized,
    /// The name of the server did not resolve.
    NameNotResolved,
    /// Nobody listens.
    ConnectionRefused,
    /// No answer in time while dialling.
    ConnectTimeout,
    /// TLS failed: another certificate, another protocol.
    TlsFailed,
    /// Another failure to dial.
    ConnectFailed,
    /// The connection broke before an answer.
    ConnectionBroken,
    /// It was dialled, but the probe was not answered in time.
    ProbeTimeout,
    /// The probe was answered 5xx.
    ServerError,
    /// Something answers that does not serve Kubernetes' API: another server, or another path of the right one.
    NotKubernetes,
    /// Another cluster is behind the name, or the same one with an older state.
    ClusterReplaced,
    /// It was removed.
    ClusterRemoved,
    /// A fault of this process.
    InternalError,
}

impl NotConnectedReason {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::ClusterStarting,
        Self::OnDemand,
        Self::CredentialMissing,
        Self::CredentialInvalid,
        Self::Unauthorized,
        Self::NameNotResolved,
        Self::ConnectionRefused,
        Self::ConnectTimeout,
        Self::TlsFailed,
        Self::ConnectFailed,
        Self::ConnectionBroken,
        Self::ProbeTimeout,
        Self::ServerError,
        Self::NotKubernetes,
        Self::ClusterReplaced,
        Self::ClusterRemoved,
        Self::InternalError,
    ];

    /// The reason as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterStarting => "ClusterStarting",
            Self::OnDemand => "OnDemand",
            Self::CredentialMissing => "CredentialMissing",
            Self::CredentialInvalid => "CredentialInvalid",
            Self::Unauthorized => "Unauthorized",
            Self::NameNotResolved => "NameNotResolved",
            Self::ConnectionRefused => "ConnectionRefused",
            Self::ConnectTimeout => "ConnectTimeout",
            Self::TlsFailed => "TLSFailed",
            Self::ConnectFailed => "ConnectFailed",
            Self::ConnectionBroken => "ConnectionBroken",
            Self::ProbeTimeout => "ProbeTimeout",
            Self::ServerError => "ServerError",
            Self::NotKubernetes => "NotKubernetes",
            Self::ClusterReplaced => "ClusterReplaced",
            Self::ClusterRemoved => "ClusterRemoved",
            Self::InternalError => "InternalError",
        }
    }

    /// What clients are told first, since it says what to do: wait for the start, mend the credential, or wait for the
    /// cluster.
    pub fn class(self) -> &'static str {
        match self {
            Self::ClusterStarting | Self::OnDemand => "ClusterStarting",
            Self::CredentialMissing => "CredentialMissing",
            Self::CredentialInvalid | Self::Unauthorized => "CredentialInvalid",
            Self::NameNotResolved
            | Self::ConnectionRefused
            | Self::ConnectTimeout
            | Self::TlsFailed
            | Self::ConnectFailed
            | Self::ConnectionBroken
            | Self::ProbeTimeout
            | Self::ServerError
            | Self::NotKubernetes
            | Self::ClusterReplaced
            | Self::ClusterRemoved
            | Self::InternalError => "ClusterNotConnected",
        }
    }

    /// Whether nothing at all was heard of the server.
    pub(super) fn is_silence(self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::ProbeTimeout)
    }

    /// Whether another credential may help.
    pub fn is_about_credential(self) -> bool {
        matches!(
            self,
            Self::CredentialMissing | Self::CredentialInvalid | Self::Unauthorized
        )
    }
}

impl From<&UpstreamError> for NotConnectedReason {
    fn from(error: &UpstreamError) -> Self {
        match error {
            UpstreamError::Dns(_) => Self::NameNotResolved,
            UpstreamError::Refused(_) => Self::ConnectionRefused,
            UpstreamError::ConnectTimeout => Self::ConnectTimeout,
            UpstreamError::Tls(_) => Self::TlsFailed,
            UpstreamError::Connect(_) => Self::ConnectFailed,
            UpstreamError::Broken(_) => Self::ConnectionBroken,
        }
    }
}
