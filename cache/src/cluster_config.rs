//! What is configured for one cluster: where it is, as whom, and its timings.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::credential::CredentialConfig;

/// One cluster, checked at load.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterConfig {
    /// The name in `/clusters/<name>`: a DNS-1123 subdomain.
    pub name: String,
    /// The name of the kubeconfig context it came from, as written there.
    pub context: String,
    /// Who named it.
    pub source: ClusterSource,
    /// The labels it is shown with.
    pub labels: BTreeMap<String, String>,
    /// Where it is and how its TLS is checked.
    pub endpoint: EndpointConfig,
    /// As whom the proxy speaks to it.
    pub credential: CredentialConfig,
    /// Its timings.
    pub timing: ConnectionTiming,
    /// When it is connected.
    pub connect: ConnectPolicy,
    /// Its credential is left out, since its server is reached over plain http.
    pub credential_withheld: bool,
    /// Why what its source says now is not what is here, where it is not.
    pub rejected: Option<Rejection>,
}

/// Why what a source says of a cluster is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// In a word.
    pub reason: RejectionReason,
    /// In a sentence that names the file or the object. It is shown to clients: no address, no credential.
    pub message: String,
}

/// Kinds of [`Rejection`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionReason {
    /// It was read, and cannot be used.
    Invalid,
    /// It cannot be read.
    Unreadable,
}

impl RejectionReason {
    /// The reason as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid",
            Self::Unreadable => "Unreadable",
        }
    }
}

/// Who named a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSource {
    /// What kind of source.
    pub kind: SourceKind,
    /// The file's path, or `namespace/name` of the object.
    pub name: String,
}

/// The kinds of things that name clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceKind {
    /// A kubeconfig file, each context a cluster.
    Kubeconfig,
    /// A directory of kubeconfig files, each file a cluster.
    Directory,
    /// `Cluster` objects of Cluster API.
    ClusterApi,
    /// Secrets that hold a kubeconfig.
    Secret,
}

impl SourceKind {
    /// The kind as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kubeconfig => "Kubeconfig",
            Self::Directory => "Directory",
            Self::ClusterApi => "ClusterAPI",
            Self::Secret => "Secret",
        }
    }
}

/// Where a cluster's kube-apiserver is.
#[derive(Clone, PartialEq)]
pub struct EndpointConfig {
    /// `https://host:port/base/path`, as the kubeconfig's `server`.
    pub server: http::Uri,
    /// PEM bundle of the CAs that sign its certificate; the system's where absent.
    pub certificate_authority: Option<Vec<u8>>,
    /// Accept any certificate (`insecure-skip-tls-verify`).
    pub insecure_skip_tls_verify: bool,
    /// The name to ask for and to check instead of the host (`tls-server-name`).
    pub tls_server_name: Option<String>,
    /// An HTTP CONNECT or SOCKS5 proxy to dial through (`proxy-url`).
    pub proxy_url: Option<http::Uri>,
    /// A name that leads to a link-local address is not followed: whoever wrote it is not trusted to know what is there.
    pub refuse_link_local: bool,
}

impl EndpointConfig {
    /// Where a cluster is of which nobody has said where: a name that no DNS knows.
    pub fn unknown() -> Self {
        Self {
            server: http::Uri::from_static("https://unknown.invalid"),
            certificate_authority: None,
            insecure_skip_tls_verify: false,
            tls_server_name: None,
            proxy_url: None,
            refuse_link_local: false,
        }
    }

    /// Whether it is reached over TLS. Over plain http no credential is sent, as in client-go.
    pub fn is_tls(&self) -> bool {
        self.server.scheme() != Some(&http::uri::Scheme::HTTP)
    }
}

impl fmt::Debug for EndpointConfig {
    /// Without the password that `proxy-url` may hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointConfig")
            .field("server", &self.server)
            .field("insecure_skip_tls_verify", &self.insecure_skip_tls_verify)
            .field("tls_server_name", &self.tls_server_name)
            .field("proxy", &self.proxy_url.as_ref().and_then(http::Uri::host))
            .finish_non_exhaustive()
    }
}

/// When a cluster is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectPolicy {
    /// From the start, and again after each loss.
    Always,
    /// At the first request; that request may wait for the whole connect timeout.
    OnDemand,
}

impl ConnectPolicy {
    /// Where nobody says: on demand where a plugin runs for the credential, which may ask a person to log in.
    pub(crate) fn usual(credential: &CredentialConfig) -> Self {
        if credential.runs_plugin() {
            Self::OnDemand
        } else {
            Self::Always
        }
    }
}

/// The timings of one cluster's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionTiming {
    /// Path of the probe, such as `/readyz`.
    pub probe_path: String,
    /// Time between two probes.
    pub probe_interval: Duration,
    /// Time a probe may take.
    pub probe_timeout: Duration,
    /// Failed probes in a row that disconnect.
    pub probe_failure_threshold: u32,
    /// Time one connect may take, DNS to the first answer.
    pub connect_timeout: Duration,
    /// First pause after a failed connect.
    pub backoff_min: Duration,
    /// Longest pause between connects.
    pub backoff_max: Duration,
    /// Time without a successful probe after which the cluster's health counts as unknown to whoever reads its conditions.
    pub remote_connection_grace_period: Duration,
}

impl Default for ConnectionTiming {
    fn default() -> Self {
        Self {
            probe_path: "/readyz".to_owned(),
            probe_interval: Duration::from_secs(10),
            probe_timeout: Duration::from_secs(5),
            probe_failure_threshold: 3,
            connect_timeout: Duration::from_secs(3),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            remote_connection_grace_period: Duration::from_secs(50),
        }
    }
}
