//! Loads a credential: from its configuration, from files, from a plugin.

use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use super::{ClientCertificate, Credential, CredentialConfig, CredentialError};
use crate::exec_plugin::{self, ExecCredential};
use crate::upstream::connector::basic_header;

/// How often files are read again. Kubelet renews a projected token at 80 % of its life, an hour by default: any pause of
/// seconds will do. By content, since a swapped symbolic link keeps times that tell nothing.
const FILE_INTERVAL: Duration = Duration::from_secs(10);

/// While a credential in files is missing or rejected, how often to look for another one.
const FILE_LOOK: Duration = Duration::from_secs(2);

/// Least time between two runs of a plugin that are not asked for by a 401.
const EXEC_MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Where a cluster's credential comes from. Only the cluster's owner task loads, one load at a time: so a plugin never
/// runs twice at once for a cluster.
#[derive(Debug)]
pub(crate) struct CredentialSource {
    config: CredentialConfig,
    /// What a plugin printed last, good until its refresh time.
    printed: Mutex<Option<Credential>>,
}

impl CredentialSource {
    pub(crate) fn new(config: CredentialConfig) -> Self {
        Self {
            config,
            printed: Mutex::new(None),
        }
    }

    /// Whether loading again can give another credential.
    pub(crate) fn can_change(&self) -> bool {
        self.config.can_change()
    }

    /// How long a credential usually takes, for whoever waits for the first connect on demand.
    pub(crate) fn usual_time(config: &CredentialConfig) -> Duration {
        if config.runs_plugin() {
            Duration::from_secs(10)
        } else {
            Duration::ZERO
        }
    }

    /// Whether it lies in files, so that looking for a new one costs nothing.
    pub(crate) fn is_in_files(&self) -> bool {
        self.can_change() && !self.config.runs_plugin()
    }

    /// Ends when the files hold a credential that is not `last`.
    pub(crate) async fn another_in_files(&self, last: &Credential) {
        loop {
            tokio::time::sleep(FILE_LOOK).await;
            if let Ok(found) = self.load(false).await
                && !found.same(last)
            {
                return;
            }
        }
    }

    /// The credential. With `rejected` a plugin runs even if what it printed last should still be good.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn load(&self, rejected: bool) -> Result<Credential, CredentialError> {
        match &self.config {
            CredentialConfig::Both {
                certificate,
                authorization,
            } => {
                let mut credential = self.load_one(certificate, rejected).await?;
                let other = self.load_one(authorization, rejected).await?;
                credential.authorization = other.authorization;
                credential.refresh_at = match (credential.refresh_at, other.refresh_at) {
                    (Some(one), Some(two)) => Some(one.min(two)),
                    (one, two) => one.or(two),
                };
                Ok(credential)
            }
            one => self.load_one(one, rejected).await,
        }
    }

    async fn load_one(
        &self,
        config: &CredentialConfig,
        rejected: bool,
    ) -> Result<Credential, CredentialError> {
        let mut credential = Credential::default();
        match config {
            CredentialConfig::Anonymous | CredentialConfig::Both { .. } => {}
            CredentialConfig::ClientCertificate { certificate, key } => {
                let pair = ClientCertificate::new(certificate.clone(), key.clone());
                credential.certificate = Some(pair);
            }
            CredentialConfig::ClientCertificateFiles { certificate, key } => {
                let certificate = read(certificate, "client certificate").await?;
                let key = read(key, "client key").await?;
                let key = SecretString::from(String::from_utf8_lossy(&key).into_owned());
                credential.certificate = Some(ClientCertificate::new(certificate, key));
                credential.refresh_at = Some(Instant::now() + FILE_INTERVAL);
            }
            CredentialConfig::Token(token) => {
                credential.authorization = Some(bearer(token.expose_secret())?);
            }
            CredentialConfig::TokenFile(path) => {
                let token = read(path, "token").await?;
                let token = SecretString::from(String::from_utf8_lossy(&token).into_owned());
                let token = token.expose_secret().trim();
                if token.is_empty() {
                    return Err(CredentialError::missing(
                        "the token file is empty".to_owned(),
                    ));
                }
                credential.authorization = Some(bearer(token)?);
                credential.refresh_at = Some(Instant::now() + FILE_INTERVAL);
            }
            CredentialConfig::Basic { username, password } => {
                let header = basic_header(username, password.expose_secret());
                credential.authorization = Some(header.map_err(|_| not_a_header())?);
            }
            CredentialConfig::Exec(plugin) => {
                if !rejected && let Some(printed) = self.still_good() {
                    return Ok(printed);
                }
                credential = from_plugin(exec_plugin::run(plugin).await?)?;
                *self.printed.lock() = Some(credential.clone());
            }
        }
        Ok(credential)
    }

    fn still_good(&self) -> Option<Credential> {
        let printed = self.printed.lock().clone()?;
        let good = printed.refresh_at.is_none_or(|at| Instant::now() < at);
        good.then_some(printed)
    }
}

fn from_plugin(printed: ExecCredential) -> Result<Credential, CredentialError> {
    let authorization = match &printed.token {
        Some(token) => Some(bearer(token.expose_secret())?),
        None => None,
    };
    Ok(Credential {
        authorization,
        certificate: printed.certificate,
        refresh_at: printed.expires.map(refresh_time),
    })
}

/// When to renew what ends at `expires`: 60 s ahead, or after four fifths of a short life.
fn refresh_time(expires: Timestamp) -> Instant {
    let left = expires.duration_since(Timestamp::now());
    let left = Duration::try_from(left).unwrap_or(Duration::ZERO);
    let ahead = Duration::from_secs(60).min(left / 5);
    Instant::now() + left.saturating_sub(ahead).max(EXEC_MIN_INTERVAL)
}

fn bearer(token: &str) -> Result<HeaderValue, CredentialError> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| not_a_header())?;
    value.set_sensitive(true);
    Ok(value)
}

fn not_a_header() -> CredentialError {
    CredentialError::missing("the credential holds characters that no header may hold".to_owned())
}

async fn read(path: &Path, what: &str) -> Result<Vec<u8>, CredentialError> {
    let found = tokio::fs::read(path).await;
    found.map_err(|error| CredentialError::unreadable(what, path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec_plugin::ExecPluginConfig;

    fn header(credential: &Credential) -> &str {
        let value = credential.authorization.as_ref().unwrap();
        assert!(value.is_sensitive());
        value.to_str().unwrap()
    }

    #[tokio::test]
    async fn a_token_file_is_read_again_and_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let source = CredentialSource::new(CredentialConfig::TokenFile(path.clone()));
        let missing = source.load(false).await.unwrap_err();
        assert_eq!(missing.to_string(), "the token file cannot be read");
        let detail = format!("{}: No such file or directory (os error 2)", path.display());
        assert_eq!(missing.detail(), Some(&*detail));
        std::fs::write(&path, " one\n").unwrap();
        assert_eq!(header(&source.load(false).await.unwrap()), "Bearer one");
        std::fs::write(&path, "two\r\n\n").unwrap();
        assert_eq!(header(&source.load(false).await.unwrap()), "Bearer two");
        std::fs::write(&path, "\n").unwrap();
        let empty = source.load(false).await.unwrap_err();
        assert_eq!(empty.to_string(), "the token file is empty");
    }

    #[tokio::test]
    async fn fixed_credentials_become_headers() {
        let token = CredentialSource::new(CredentialConfig::Token("t".into()));
        assert_eq!(header(&token.load(false).await.unwrap()), "Bearer t");
        let basic = CredentialSource::new(CredentialConfig::Basic {
            username: "u".to_owned(),
            password: "p:w".into(),
        });
        assert_eq!(header(&basic.load(false).await.unwrap()), "Basic dTpwOnc=");
        let broken = CredentialSource::new(CredentialConfig::Token("a\nb".into()));
        assert_eq!(
            broken.load(false).await.unwrap_err().to_string(),
            "the credential holds characters that no header may hold"
        );
    }

    #[tokio::test]
    async fn a_plugin_runs_again_only_when_rejected_or_due() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("runs");
        let script = format!(
            r#"echo x >> {0}; n=$(wc -l < {0}); printf '{{"apiVersion":"client.authentication.k8s.io/v1","status":{{"token":"t%s"}}}}' $n"#,
            runs.display()
        );
        let source = CredentialSource::new(CredentialConfig::Exec(ExecPluginConfig {
            command: "sh".into(),
            args: vec!["-c".to_owned(), script],
            env: Vec::new(),
            api_version: "client.authentication.k8s.io/v1".to_owned(),
            install_hint: None,
            cluster_info: None,
        }));
        assert_eq!(header(&source.load(false).await.unwrap()), "Bearer t1");
        assert_eq!(header(&source.load(false).await.unwrap()), "Bearer t1");
        assert_eq!(header(&source.load(true).await.unwrap()), "Bearer t2");
    }

    #[tokio::test(start_paused = true)]
    async fn what_expires_is_renewed_ahead_of_time() {
        for (life, renewed_after) in [(3600_u64, 3540_u64), (100, 80), (5, 10), (0, 10)] {
            let expires = Timestamp::now() + Duration::from_secs(life);
            let after = refresh_time(expires) - Instant::now();
            let after = after.as_millis().div_ceil(1000);
            assert_eq!(u64::try_from(after).unwrap(), renewed_after, "{life}");
        }
    }
}
