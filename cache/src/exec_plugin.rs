//! Credentials printed by a program (client.authentication.k8s.io).

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

use crate::credential::{ClientCertificate, CredentialError};

/// How long a plugin may run. It has no terminal, so one that waits for somebody to log in would wait for ever.
const DEADLINE: Duration = Duration::from_secs(30);

/// What a plugin may print; a token or a certificate is a few kilobytes.
const MAX_OUTPUT: u64 = 1 << 20;

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

/// Runs the plugin. Dropping the future kills it.
///
/// # Errors
/// Why there is no credential, in words that a client may see.
pub(crate) async fn run(config: &ExecPluginConfig) -> Result<ExecCredential, CredentialError> {
    run_within(config, DEADLINE).await
}

async fn run_within(
    config: &ExecPluginConfig,
    deadline: Duration,
) -> Result<ExecCredential, CredentialError> {
    let name = config.name();
    let mut child = config.spawn()?;
    let Ok(outcome) = tokio::time::timeout(deadline, outcome(&mut child)).await else {
        // The child is killed and reaped as it is dropped.
        return Err(CredentialError::missing(format!(
            "the credential plugin {name:?} did not end within {} s",
            deadline.as_secs_f32()
        )));
    };
    let (status, stdout, stderr) = outcome.map_err(|error| {
        CredentialError::missing(format!("the credential plugin {name:?} failed: {error}"))
    })?;
    if !status.success() {
        let status = match status.code() {
            Some(code) => format!("exit code {code}"),
            None => "killed by a signal".to_owned(),
        };
        let said = last_line(&stderr).map_or_else(String::new, |line| format!(": {line}"));
        return Err(CredentialError::missing(format!(
            "the credential plugin {name:?} failed ({status}){said}"
        )));
    }
    config.parse(&stdout)
}

async fn outcome(
    child: &mut Child,
) -> std::io::Result<(std::process::ExitStatus, Vec<u8>, Vec<u8>)> {
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let (stdout, stderr, status) =
        tokio::try_join!(read_some(stdout), read_some(stderr), child.wait())?;
    Ok((status, stdout, stderr))
}

async fn read_some(from: Option<impl tokio::io::AsyncRead + Unpin>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(MAX_OUTPUT).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

impl ExecPluginConfig {
    /// The program's file name.
    pub(crate) fn name(&self) -> String {
        let name = self.command.file_name().unwrap_or(self.command.as_os_str());
        name.to_string_lossy().into_owned()
    }

    fn spawn(&self) -> Result<Child, CredentialError> {
        Command::new(&self.command)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", self.exec_info())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| {
                let hint = match (&self.install_hint, error.kind()) {
                    (Some(hint), std::io::ErrorKind::NotFound) => format!("; {}", hint.trim()),
                    _ => String::new(),
                };
                CredentialError::missing(format!(
                    "the credential plugin {:?} cannot be started: {error}{hint}",
                    self.name()
                ))
            })
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

/// The last line a plugin wrote to stderr, without what looks like an address or a secret: clients see it.
fn last_line(stderr: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(stderr);
    let line = text.lines().rev().map(str::trim).find(|l| !l.is_empty())?;
    let words: Vec<_> = line.split_whitespace().map(redacted).collect();
    Some(words.join(" ").chars().take(200).collect())
}

fn redacted(word: &str) -> &str {
    const HIDDEN: &str = "[…]";
    let core = word.trim_matches(|c: char| !c.is_alphanumeric());
    let is_address = core.contains("://")
        || core.contains('@')
        || core.bytes().filter(|&b| b == b'.').count() >= 2
        || core
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    let is_assignment = core.split_once(['=', ':']).is_some_and(|(name, value)| {
        let name = name.to_ascii_lowercase();
        !value.is_empty()
            && ["token", "secret", "password", "key", "credential"]
                .iter()
                .any(|secret| name.contains(secret))
    });
    let looks_random = core.len() >= 20 && core.bytes().any(|b| b.is_ascii_digit());
    if is_address || is_assignment || looks_random || core.len() > 40 {
        HIDDEN
    } else {
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    fn shell(script: &str) -> ExecPluginConfig {
        ExecPluginConfig {
            command: "sh".into(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![("GREETING".to_owned(), "hello".to_owned())],
            api_version: "client.authentication.k8s.io/v1".to_owned(),
            install_hint: None,
            cluster_info: None,
        }
    }

    const TOKEN: &str = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t0ken","expirationTimestamp":"2030-01-02T03:04:05Z"}}"#;

    async fn reason(script: &str) -> String {
        run(&shell(script)).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_token_and_its_end_are_read() {
        let credential = run(&shell(&format!("echo '{TOKEN}'"))).await.unwrap();
        assert_eq!(credential.token.unwrap().expose_secret(), "t0ken");
        assert_eq!(
            credential.expires.unwrap().to_string(),
            "2030-01-02T03:04:05Z"
        );
    }

    #[tokio::test]
    async fn the_plugin_sees_its_variables_and_a_closed_stdin() {
        let script = r#"cat; printf '%s %s' "$GREETING" "$KUBERNETES_EXEC_INFO" >&2; exit 3"#;
        let mut child = shell(script).spawn().unwrap();
        let (_, _, stderr) = outcome(&mut child).await.unwrap();
        assert_eq!(
            String::from_utf8(stderr).unwrap(),
            r#"hello {"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#
        );
    }

    #[tokio::test]
    async fn failures_are_told_without_secrets() {
        for (script, said) in [
            (
                "echo first >&2; echo 'token has expired, log in at https://login.example.com/x' >&2; exit 2",
                r#"the credential plugin "sh" failed (exit code 2): token has expired, log in at […]"#,
            ),
            (
                "echo 'bad answer for token=abc from 10.0.0.1:443' >&2; exit 1",
                r#"the credential plugin "sh" failed (exit code 1): bad answer for […] from […]"#,
            ),
            (
                "kill -9 $$",
                r#"the credential plugin "sh" failed (killed by a signal)"#,
            ),
            (
                "echo '{\"token\": s3cret'",
                r#"the credential plugin "sh" printed no ExecCredential (line 1, column 11)"#,
            ),
            (
                "echo '{\"apiVersion\":\"client.authentication.k8s.io/v1beta1\",\"status\":{\"token\":\"x\"}}'",
                r#"the credential plugin "sh" answered in "client.authentication.k8s.io/v1beta1" instead of "client.authentication.k8s.io/v1""#,
            ),
            (
                "echo '{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{}}'",
                r#"the credential plugin "sh" printed neither a token nor a client certificate"#,
            ),
            (
                "echo '{\"apiVersion\":\"client.authentication.k8s.io/v1\"}'",
                r#"the credential plugin "sh" printed an ExecCredential without status"#,
            ),
        ] {
            assert_eq!(reason(script).await, said, "{script}");
        }
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_told_with_its_hint() {
        let mut config = shell("");
        config.command = "/no/such/dir/aws".into();
        config.install_hint = Some("install the aws cli\n".to_owned());
        assert_eq!(
            run(&config).await.unwrap_err().to_string(),
            r#"the credential plugin "aws" cannot be started: No such file or directory (os error 2); install the aws cli"#
        );
    }

    #[tokio::test]
    async fn a_plugin_that_hangs_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let pid_file = dir.path().join("pid");
        let script = format!("echo $$ > {}; exec sleep 600", pid_file.display());
        let error = run_within(&shell(&script), Duration::from_millis(300)).await;
        assert_eq!(
            error.unwrap_err().to_string(),
            r#"the credential plugin "sh" did not end within 0.3 s"#
        );
        let pid = std::fs::read_to_string(&pid_file).unwrap();
        let status = format!("/proc/{}/stat", pid.trim());
        while let Ok(stat) = std::fs::read_to_string(&status) {
            if stat.contains(") Z ") {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}
