//! As whom the proxy speaks to a cluster.

use std::path::PathBuf;

use secrecy::SecretString;

use crate::exec_plugin::ExecPluginConfig;

/// A user entry of a kubeconfig, checked at load.
#[derive(Clone, Debug)]
pub enum CredentialConfig {
    /// None: anonymous.
    Anonymous,
    /// A client certificate and its key, PEM.
    ClientCertificate {
        /// The certificate chain.
        certificate: Vec<u8>,
        /// Its private key.
        key: SecretString,
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
}
