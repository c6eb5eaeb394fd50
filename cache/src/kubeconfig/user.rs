//! The `user` entry of a kubeconfig.

use std::path::PathBuf;

use kube::config::{AuthInfo, Cluster, ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use secrecy::{ExposeSecret, SecretString};

use super::endpoint::{decoded, non_empty};
use crate::bounded_file;
use crate::credential::CredentialConfig;
use crate::exec_plugin::ExecPluginConfig;

const EXEC_VERSIONS: &[&str] = &[
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

/// As whom to speak. None, and at least one problem more, where the entry cannot be used.
pub(super) fn credential(
    name: &str,
    user: &AuthInfo,
    cluster: Option<&Cluster>,
    problems: &mut Vec<String>,
) -> Option<CredentialConfig> {
    let before = problems.len();
    for field in user.other.keys() {
        problems.push(format!(
            "user {name:?} has the unknown field {field:?}; remove it or correct its name"
        ));
    }
    if let Some(provider) = &user.auth_provider {
        problems.push(format!(
            "user {name:?} has the auth-provider {:?}, which Kubernetes removed in 1.26; use an exec plugin or a token",
            provider.name
        ));
    }
    for (field, is_set) in [
        ("as", user.impersonate.is_some()),
        ("as-uid", user.impersonate_uid.is_some()),
        ("as-groups", user.impersonate_groups.is_some()),
        ("as-user-extra", user.impersonate_user_extra.is_some()),
    ] {
        if is_set {
            problems.push(format!(
                "user {name:?} impersonates with {field}, which is not supported; use a credential of that identity"
            ));
        }
    }
    let certificate = or_problem(certificate(name, user), problems);
    let token = token(user);
    let basic = basic(user);
    if token.is_some() && basic.is_some() {
        problems.push(format!(
            "user {name:?} has both a token and a username; remove one of them"
        ));
    }
    let exec = match &user.exec {
        Some(exec) => or_problem(plugin(name, exec, cluster).map(Some), problems),
        None => None,
    };
    if problems.len() > before {
        return None;
    }
    // As client-go: what is written in the file comes before what a plugin would print.
    let authorization = token.or(basic).or_else(|| match certificate {
        Some(_) => None,
        None => exec,
    });
    Some(match (certificate, authorization) {
        (None, None) => CredentialConfig::Anonymous,
        (Some(one), None) | (None, Some(one)) => one,
        (Some(certificate), Some(authorization)) => CredentialConfig::Both {
            certificate: Box::new(certificate),
            authorization: Box::new(authorization),
        },
    })
}

fn or_problem<T>(found: Result<Option<T>, String>, problems: &mut Vec<String>) -> Option<T> {
    found.unwrap_or_else(|problem| {
        problems.push(problem);
        None
    })
}

/// A token file is read again and comes before a token in the kubeconfig, as in client-go.
fn token(user: &AuthInfo) -> Option<CredentialConfig> {
    if let Some(path) = non_empty(user.token_file.as_deref()) {
        return Some(CredentialConfig::TokenFile(path.into()));
    }
    let token = user.token.as_ref()?;
    let text = token.expose_secret().trim();
    (!text.is_empty()).then(|| CredentialConfig::Token(text.into()))
}

fn basic(user: &AuthInfo) -> Option<CredentialConfig> {
    let username = non_empty(user.username.as_deref())?;
    Some(CredentialConfig::Basic {
        username: username.to_owned(),
        password: user.password.clone().unwrap_or_default(),
    })
}

/// Data comes before files, as in client-go.
fn certificate(name: &str, user: &AuthInfo) -> Result<Option<CredentialConfig>, String> {
    let key_data = user.client_key_data.as_ref().map(|key| key.expose_secret());
    let certificate = Pem::of(
        "client-certificate",
        user.client_certificate_data.as_deref(),
        user.client_certificate.as_deref(),
    )
    .map_err(|problem| format!("user {name:?}: {problem}"))?;
    let key = Pem::of("client-key", key_data, user.client_key.as_deref())
        .map_err(|problem| format!("user {name:?}: {problem}"))?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(format!(
            "user {name:?} has a client certificate without a key; set client-key or client-key-data"
        )),
        (None, Some(_)) => Err(format!(
            "user {name:?} has a client key without a certificate; set client-certificate or client-certificate-data"
        )),
        (Some(Pem::File(certificate)), Some(Pem::File(key))) => {
            Ok(Some(CredentialConfig::ClientCertificateFiles {
                certificate,
                key,
            }))
        }
        (Some(certificate), Some(key)) => {
            let certificate = certificate.bytes("client-certificate", name)?;
            let key = key.bytes("client-key", name)?;
            let key = String::from_utf8(key)
                .map_err(|_| format!("user {name:?}: client-key is not PEM; encode it anew"))?;
            Ok(Some(CredentialConfig::ClientCertificate {
                certificate,
                key: SecretString::from(key),
            }))
        }
    }
}

enum Pem {
    Data(Vec<u8>),
    File(PathBuf),
}

impl Pem {
    fn of(field: &str, data: Option<&str>, file: Option<&str>) -> Result<Option<Self>, String> {
        if let Some(data) = non_empty(data) {
            let data = decoded(data)
                .ok_or_else(|| format!("{field}-data is not base64; encode it anew"))?;
            return Ok(Some(Self::Data(data)));
        }
        Ok(non_empty(file).map(|path| Self::File(path.into())))
    }

    fn bytes(self, field: &str, name: &str) -> Result<Vec<u8>, String> {
        match self {
            Self::Data(data) => Ok(data),
            Self::File(path) => bounded_file::read(&path, bounded_file::SMALL).map_err(|error| {
                format!(
                    "user {name:?}: {field} {} cannot be read: {error}; check the path and its permissions",
                    path.display()
                )
            }),
        }
    }
}

fn plugin(
    name: &str,
    exec: &ExecConfig,
    cluster: Option<&Cluster>,
) -> Result<CredentialConfig, String> {
    let Some(command) = non_empty(exec.command.as_deref()) else {
        return Err(format!("user {name:?}: exec has no command; set it"));
    };
    let version = exec.api_version.as_deref().unwrap_or_default();
    if !EXEC_VERSIONS.contains(&version) {
        return Err(format!(
            "user {name:?}: exec has apiVersion {version:?}, which is not supported; use client.authentication.k8s.io/v1"
        ));
    }
    if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
        return Err(format!(
            "user {name:?}: exec has interactiveMode Always, but there is nobody to ask; use a plugin that works without a terminal"
        ));
    }
    let mut env = Vec::new();
    for entry in exec.env.iter().flatten() {
        let (Some(name), Some(value)) = (entry.get("name"), entry.get("value")) else {
            return Err(format!(
                "user {name:?}: an entry of exec.env lacks its name or value; set both"
            ));
        };
        env.push((name.clone(), value.clone()));
    }
    let cluster_info = match cluster {
        Some(cluster) if exec.provide_cluster_info => {
            let told = ExecAuthCluster::try_from(cluster).map_err(|_| {
                format!("user {name:?}: exec asks for the cluster's CA, which cannot be read; correct it")
            })?;
            serde_json::to_value(told).ok()
        }
        _ => None,
    };
    Ok(CredentialConfig::Exec(ExecPluginConfig {
        command: command.into(),
        args: exec.args.clone().unwrap_or_default(),
        env,
        api_version: version.to_owned(),
        install_hint: exec.install_hint.clone(),
        cluster_info,
    }))
}
