//! Credentials printed by a program (client.authentication.k8s.io).

mod places;
mod process;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;
use serde::Deserialize;

use self::places::{PATIENCE, PLACES};
use crate::credential::{ClientCertificate, CredentialError};

/// How long a plugin may run. It has no terminal, so one that waits for somebody to log in would wait for ever.
const DEADLINE: Duration = Duration::from_secs(30);

/// An `exec` entry of a kubeconfig.
#[derive(Clone, PartialEq)]
pub struct ExecPluginConfig {
    /// The program, absolute or found on `PATH`.
    pub command: std::path::PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables added to its environment.
    pub env: Vec<(String, String)>,
    /// `client.authentication.k8s.io/v1` or `v1beta1`.
    pub api_version: String,
    /// What to tell when the program is not there (`installHint`).
    pub install_hint: Option<String>,
    /// `spec.cluster` of `KUBERNETES_EXEC_INFO`, where `provideClusterInfo` is set.
    pub cluster_info: Option<serde_json::Value>,
}

impl fmt::Debug for ExecPluginConfig {
    /// Arguments and variables may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecPluginConfig")
            .field("command", &self.command)
            .field("api_version", &self.api_version)
            .finish_non_exhaustive()
    }
}

/// What a plugin printed.
#[derive(Debug)]
pub(crate) struct ExecCredential {
    pub(crate) token: Option<SecretString>,
    pub(crate) certificate: Option<ClientCertificate>,
    pub(crate) expires: Option<Timestamp>,
}

/// Runs the plugin when it has a place among those that run, of which there are fewer where the last run `failed`; this one
/// is noted there. Dropping the future ends it, and what it started.
///
/// # Errors
/// Why there is no credential, in words that a client may see.
pub(crate) async fn run(
    config: &ExecPluginConfig,
    failed: &AtomicBool,
) -> Result<ExecCredential, CredentialError> {
    let Some(_place) = PLACES.take(failed.load(Ordering::Relaxed)).await else {
        return Err(CredentialError::missing(format!(
            "the credential plugin {:?} was not started: others had not ended within {} s, and {} run at once",
            config.name(),
            PATIENCE.as_secs(),
            places::AT_ONCE,
        )));
    };
    let printed = process::run(config, DEADLINE).await;
    let credential = printed.and_then(|printed| config.parse(&printed));
    failed.store(credential.is_err(), Ordering::Relaxed);
    RUNS[usize::from(credential.is_err())].fetch_add(1, Ordering::Relaxed);
    credential
}

/// Runs that gave a credential, and that did not. Plugins are processes of this machine, so their count is the process's.
static RUNS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// How often plugins have run since the process started: with a credential as the outcome, and without.
pub fn runs() -> (u64, u64) {
    let [good, bad] = RUNS.each_ref().map(|it| it.load(Ordering::Relaxed));
    (good, bad)
}

impl ExecPluginConfig {
    /// The program's file name.
    pub(crate) fn name(&self) -> String {
        let name = self.command.file_name().unwrap_or(self.command.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// The variable is always set, as by client-go: plugins take the version to answer in from it. Only `cluster` hangs on
    /// `provideClusterInfo`.
    fn exec_info(&self) -> String {
        let mut spec = serde_json::json!({ "interactive": false });
        if let Some(cluster) = &self.cluster_info {
            spec["cluster"] = cluster.clone();
        }
        serde_json::json!({
            "kind": "ExecCredential",
            "apiVersion": self.api_version,
            "spec": spec,
        })
        .to_string()
    }

    fn parse(&self, stdout: &[u8]) -> Result<ExecCredential, CredentialError> {
        let name = self.name();
        // The parser's error may quote the credential: only its place is told.
        let answer: Answer = serde_json::from_slice(stdout).map_err(|error| {
            CredentialError::missing(format!(
                "the credential plugin {name:?} printed no ExecCredential (line {}, column {})",
                error.line(),
                error.column()
            ))
        })?;
        if answer.api_version != self.api_version {
            return Err(CredentialError::missing(format!(
                "the credential plugin {name:?} answered in {:?} instead of {:?}",
                answer.api_version, self.api_version
            )));
        }
        let Some(status) = answer.status else {
            return Err(CredentialError::missing(format!(
                "the credential plugin {name:?} printed an ExecCredential without status"
            )));
        };
        let certificate = match (
            non_empty(status.client_certificate_data),
            non_empty(status.client_key_data),
        ) {
            (Some(certificate), Some(key)) => Some(ClientCertificate::new(
                certificate.into_bytes(),
                SecretString::from(key),
            )),
            (None, None) => None,
            _ => {
                return Err(CredentialError::missing(format!(
                    "the credential plugin {name:?} printed only one of clientCertificateData and clientKeyData"
                )));
            }
        };
        let token = non_empty(status.token).map(SecretString::from);
        if token.is_none() && certificate.is_none() {
            return Err(CredentialError::missing(format!(
                "the credential plugin {name:?} printed neither a token nor a client certificate"
            )));
        }
        Ok(ExecCredential {
            token,
            certificate,
            expires: status.expiration_timestamp,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    api_version: String,
    status: Option<AnswerStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerStatus {
    expiration_timestamp: Option<Timestamp>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
pub(crate) mod tests;
