//! As whom the proxy speaks to a cluster.

mod file;
mod now;
mod reads;
mod source;

use std::fmt;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::sign::CertifiedKey;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

pub(crate) use self::source::CredentialSource;
pub use self::source::RENEWAL_PATIENCE;
use crate::cluster_accessor::NotConnectedReason;
use crate::cluster_config::{ClusterSource, SourceKind};
use crate::error_chain::error_chain;
use crate::exec_plugin::ExecPluginConfig;
use crate::upstream::{BoxError, tls};

/// A user entry of a kubeconfig, checked at load.
#[derive(Clone, Debug)]
pub enum CredentialConfig {
    /// None: anonymous.
    Anonymous,
    /// There should be one, and its source has none now: why, in words that a client may see. Nothing is dialled.
    Missing(String),
    /// A client certificate and its key, PEM.
    ClientCertificate {
        /// The certificate chain.
        certificate: Vec<u8>,
        /// Its private key.
        key: SecretString,
    },
    /// Files holding a client certificate and its key, PEM, read again.
    ClientCertificateFiles {
        /// The certificate chain.
        certificate: PathBuf,
        /// Its private key.
        key: PathBuf,
    },
    /// A fixed bearer token.
    Token(SecretString),
    /// A file holding a bearer token, read again and trimmed.
    TokenFile(PathBuf),
    /// A user name and password.
    Basic {
        /// The user name.
        username: String,
        /// The password.
        password: SecretString,
    },
    /// A program that prints a token or a client certificate.
    Exec(ExecPluginConfig),
    /// A client certificate and something for the `Authorization` header: the server sees both, as from kubectl.
    Both {
        /// The client certificate.
        certificate: Box<Self>,
        /// The token or password.
        authorization: Box<Self>,
    },
}

/// Why there is no credential, in words that a client may see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct CredentialError {
    message: String,
    /// For the log: may name a path.
    detail: Option<String>,
    /// There is one, which no server would take.
    invalid: bool,
}

impl CredentialError {
    pub(crate) fn missing(message: String) -> Self {
        Self {
            message,
            detail: None,
            invalid: false,
        }
    }

    fn unreadable(what: &str, path: &Path, error: &str) -> Self {
        Self {
            detail: Some(format!("{}: {error}", path.display())),
            ..Self::missing(format!("the {what} file cannot be read"))
        }
    }

    /// The same of what this file holds.
    fn in_file(self, path: &Path) -> Self {
        let why = self.detail.as_ref().unwrap_or(&self.message);
        Self {
            detail: Some(format!("{}: {why}", path.display())),
            ..self
        }
    }

    fn unusable(error: &(dyn std::error::Error + 'static)) -> Self {
        Self {
            detail: Some(error_chain(error)),
            invalid: true,
            ..Self::missing("the client certificate cannot be used".to_owned())
        }
    }

    /// Whether there is none, or one that cannot be used.
    pub(crate) fn reason(&self) -> NotConnectedReason {
        if self.invalid {
            NotConnectedReason::CredentialInvalid
        } else {
            NotConnectedReason::CredentialMissing
        }
    }

    /// What the log tells beyond the message.
    pub(crate) fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }
}

/// A client certificate chain and its private key, PEM.
#[derive(Clone)]
pub(crate) struct ClientCertificate {
    certificate: Vec<u8>,
    key: SecretString,
}

impl ClientCertificate {
    pub(crate) fn new(certificate: Vec<u8>, key: SecretString) -> Self {
        Self { certificate, key }
    }

    /// What rustls takes.
    ///
    /// # Errors
    /// One of them is not PEM, or they do not belong together.
    pub(crate) fn certified(&self, provider: &CryptoProvider) -> Result<CertifiedKey, BoxError> {
        let chain = tls::certificates(&self.certificate)?;
        if chain.is_empty() {
            return Err("there is no certificate in PEM form in the client certificate".into());
        }
        let key = tls::private_key(self.key.expose_secret().as_bytes())?;
        let pair = CertifiedKey::from_der(chain, key, provider);
        pair.map_err(|error| {
            format!("the client certificate and its key do not fit: {error}").into()
        })
    }

    /// Whether it can be used.
    fn check(&self) -> Result<(), CredentialError> {
        match self.certified(&aws_lc_rs::default_provider()) {
            Ok(_) => Ok(()),
            Err(error) => Err(CredentialError::unusable(&*error)),
        }
    }
}

impl PartialEq for ClientCertificate {
    fn eq(&self, other: &Self) -> bool {
        self.certificate == other.certificate
            && self.key.expose_secret() == other.key.expose_secret()
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCertificate")
    }
}

/// What is sent and shown to the server now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credential {
    /// `Authorization`, marked as sensitive.
    pub(crate) authorization: Option<HeaderValue>,
    /// Shown in the TLS handshake.
    pub(crate) certificate: Option<ClientCertificate>,
    /// When to load it again, a 401 apart.
    pub(crate) refresh_at: Option<Instant>,
}

impl Credential {
    /// Whether both say the same to the server.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.authorization == other.authorization && self.certificate == other.certificate
    }
}

impl PartialEq for CredentialConfig {
    fn eq(&self, other: &Self) -> bool {
        let same =
            |one: &SecretString, two: &SecretString| one.expose_secret() == two.expose_secret();
        match (self, other) {
            (Self::Anonymous, Self::Anonymous) => true,
            (Self::Missing(one), Self::Missing(two)) => one == two,
            (
                Self::ClientCertificate { certificate, key },
                Self::ClientCertificate {
                    certificate: other,
                    key: other_key,
                },
            ) => certificate == other && same(key, other_key),
            (
                Self::ClientCertificateFiles { certificate, key },
                Self::ClientCertificateFiles {
                    certificate: other,
                    key: other_key,
                },
            ) => certificate == other && key == other_key,
            (Self::Token(one), Self::Token(two)) => same(one, two),
            (Self::TokenFile(one), Self::TokenFile(two)) => one == two,
            (
                Self::Basic { username, password },
                Self::Basic {
                    username: other,
                    password: other_password,
                },
            ) => username == other && same(password, other_password),
            (Self::Exec(one), Self::Exec(two)) => one == two,
            (
                Self::Both {
                    certificate,
                    authorization,
                },
                Self::Both {
                    certificate: other,
                    authorization: other_authorization,
                },
            ) => certificate == other && authorization == other_authorization,
            _ => false,
        }
    }
}

impl CredentialConfig {
    fn can_change(&self) -> bool {
        match self {
            Self::Anonymous
            | Self::Missing(_)
            | Self::ClientCertificate { .. }
            | Self::Token(_)
            | Self::Basic { .. } => false,
            Self::ClientCertificateFiles { .. } | Self::TokenFile(_) | Self::Exec(_) => true,
            Self::Both {
                certificate,
                authorization,
            } => certificate.can_change() || authorization.can_change(),
        }
    }

    /// Where it comes from: what a person renews when the server refuses it. For the log, since it may name a path.
    pub(crate) fn origin(&self, context: &str, source: &ClusterSource) -> String {
        // A context is known by its name to people only where a file may have several.
        let kubeconfig = || match source.kind {
            SourceKind::Kubeconfig => format!("context {context:?} of {}", source.name),
            SourceKind::Directory => source.name.clone(),
            SourceKind::ClusterApi => format!("the kubeconfig of Cluster {}", source.name),
            SourceKind::Secret => format!("the kubeconfig in Secret {}", source.name),
        };
        match self {
            Self::Anonymous => format!("{}, whose user has no credential", kubeconfig()),
            Self::Missing(why) => format!("{why}: {}", kubeconfig()),
            Self::ClientCertificate { .. } => format!("the client certificate in {}", kubeconfig()),
            Self::ClientCertificateFiles { certificate, .. } => {
                format!("the client certificate file {}", certificate.display())
            }
            Self::Token(_) => format!("the token in {}", kubeconfig()),
            Self::TokenFile(path) => format!("the token file {}", path.display()),
            Self::Basic { .. } => format!("the password in {}", kubeconfig()),
            Self::Exec(plugin) => format!("the login of the credential plugin {:?}", plugin.name()),
            Self::Both {
                certificate,
                authorization,
            } => format!(
                "{} or {}",
                authorization.origin(context, source),
                certificate.origin(context, source)
            ),
        }
    }

    /// Whether a program runs for it.
    pub fn runs_plugin(&self) -> bool {
        self.plugin_name().is_some()
    }

    /// The file name of the program that runs for it, if one does.
    pub(crate) fn plugin_name(&self) -> Option<String> {
        match self {
            Self::Exec(plugin) => Some(plugin.name()),
            Self::Both {
                certificate,
                authorization,
            } => certificate
                .plugin_name()
                .or_else(|| authorization.plugin_name()),
            Self::Anonymous
            | Self::Missing(_)
            | Self::ClientCertificate { .. }
            | Self::ClientCertificateFiles { .. }
            | Self::Token(_)
            | Self::TokenFile(_)
            | Self::Basic { .. } => None,
        }
    }
}
