//! kubeconfig files, written the way kubectl writes them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How a client proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A client certificate and its key, as PEM.
    Certificate {
        /// The certificate.
        cert_pem: String,
        /// Its private key.
        key_pem: String,
    },
    /// Nothing at all.
    None,
    /// A bearer token.
    Token(String),
}

/// One endpoint and who asks there; the name is that of the context, the cluster and the user alike.
#[derive(Clone, Debug)]
pub struct Context {
    /// The name of the context.
    pub name: String,
    /// The URL of the server, with any path prefix.
    pub server: String,
    /// The CA that signed the server's certificate.
    pub ca_pem: String,
    /// Who asks.
    pub credential: Credential,
}

/// Writes a kubeconfig with these contexts, the first of them current.
pub fn write(path: &Path, contexts: &[Context]) -> anyhow::Result<PathBuf> {
    let mut clusters = String::new();
    let mut users = String::new();
    let mut list = String::new();
    for Context {
        name,
        server,
        ca_pem,
        credential,
    } in contexts
    {
        let ca = STANDARD.encode(ca_pem);
        write!(
            clusters,
            "- cluster:\n    certificate-authority-data: {ca}\n    server: {server}\n  name: {name}\n"
        )?;
        write!(
            list,
            "- context:\n    cluster: {name}\n    user: {name}\n  name: {name}\n"
        )?;
        match credential {
            Credential::Certificate { cert_pem, key_pem } => write!(
                users,
                "- name: {name}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n",
                STANDARD.encode(cert_pem),
                STANDARD.encode(key_pem)
            )?,
            Credential::None => write!(users, "- name: {name}\n  user: {{}}\n")?,
            Credential::Token(token) => {
                write!(users, "- name: {name}\n  user:\n    token: {token}\n")?
            }
        }
    }
    let current = contexts.first().map_or("", |context| &context.name);
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n{clusters}contexts:\n{list}current-context: {current}\npreferences: {{}}\nusers:\n{users}"
    );
    // There are credentials in it.
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)?.write_all(text.as_bytes())?;
    Ok(path.to_owned())
}
