//! Loads a credential: from its configuration, from files, from a plugin.

use std::fmt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use super::file::{read, settled};
use super::{ClientCertificate, Credential, CredentialConfig, CredentialError};
use crate::exec_plugin::{self, ExecCredential, ExecPluginConfig};
use crate::facts::{ClusterFacts, Facts, NoFact};
use crate::upstream::connector::basic_header;

/// How often files are read again. Kubelet renews a projected token at 80 % of its life, an hour by default: any pause of
/// seconds will do. By content, since a swapped symbolic link keeps times that tell nothing.
const FILE_INTERVAL: Duration = Duration::from_secs(10);

/// While a credential in files is missing, damaged or rejected, how often to look for another one.
const FILE_LOOK: Duration = Duration::from_secs(2);

/// How long another one is waited for when the server refuses the one in use, before that is believed to be the last word:
/// who revokes a token and writes the next one does not do both at once, and a kubeconfig is looked at each second.
pub const RENEWAL_PATIENCE: Duration = Duration::from_secs(2);

/// How often the files are looked at meanwhile.
const RENEWAL_LOOK: Duration = Duration::from_millis(100);

/// Least time between two runs of a plugin, and the pause after its first failure. A 401 to a connection in use waits for
/// it only where the last one was as recent: servers behind one address may disagree.
const EXEC_MIN_INTERVAL: Duration = Duration::from_secs(10);

/// The longest pause after failures of a plugin: twice as long after each, since what it lacks is a person as a rule.
const EXEC_MAX_PAUSE: Duration = Duration::from_secs(160);

/// What the plugins of all clusters printed, each good until its time to be renewed. None is forgotten before: there is one
/// of each cluster at most.
static PRINTED: LazyLock<Arc<Facts<(), Credential, CredentialError>>> =
    LazyLock::new(|| Facts::new(u64::MAX, |(), _| 1));

/// Where a cluster's credential comes from. A cluster has one source at a time, and only its owner task loads.
pub(crate) struct CredentialSource {
    config: CredentialConfig,
    /// What a plugin printed last. Its run is a question: one at a time, it goes on when the load that began it is cut short
    /// by a changed configuration, and ends with the source.
    printed: Option<ClusterFacts<(), Credential, CredentialError>>,
    plugin_failed: Arc<AtomicBool>,
    seen: Mutex<Seen>,
}

/// What loading has seen so far.
#[derive(Default)]
struct Seen {
    /// The certificate and key that were found to fit last.
    certificate: Option<ClientCertificate>,
    token: Option<Vec<u8>>,
    /// Loads that failed one after the other, and how the last one did.
    failures: u32,
    error: Option<CredentialError>,
    is_same_error: bool,
    /// When a plugin ran for a 401 to a connection in use.
    ran_rejected: Option<Instant>,
}

impl CredentialSource {
    pub(crate) fn new(config: CredentialConfig) -> Self {
        Self {
            printed: config.runs_plugin().then(|| PRINTED.of_cluster()),
            config,
            plugin_failed: Arc::default(),
            seen: Mutex::default(),
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

    /// How long to wait before the next load, after one that failed while the credential from before is in use.
    pub(crate) fn retry_in(&self) -> Duration {
        if self.is_in_files() {
            return FILE_LOOK;
        }
        let failures = self.seen.lock().failures;
        let doubled = EXEC_MIN_INTERVAL * (1 << failures.saturating_sub(1).min(10));
        doubled.min(EXEC_MAX_PAUSE)
    }

    /// Whether the last load failed as the one before.
    pub(crate) fn failed_as_before(&self) -> bool {
        self.seen.lock().is_same_error
    }

    /// The credential, which can be used as far as this side can tell. With `rejected` a plugin runs even if what it printed
    /// last should still be good.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn load(&self, rejected: bool) -> Result<Credential, CredentialError> {
        self.note(self.look(rejected).await)
    }

    /// Another credential than the one that the server refuses, which is waited for a little where a look costs nothing or
    /// the configuration may still bring one; else what there is.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn renew(&self, refused: &Credential) -> Result<Credential, CredentialError> {
        if self.config.runs_plugin() {
            return self.load(self.may_run_again()).await;
        }
        let until = Instant::now() + RENEWAL_PATIENCE;
        loop {
            let found = self.look(true).await;
            let is_another = found.as_ref().is_ok_and(|found| !found.same(refused));
            if is_another || Instant::now() >= until {
                return self.note(found);
            }
            tokio::time::sleep(RENEWAL_LOOK).await;
        }
    }

    async fn look(&self, rejected: bool) -> Result<Credential, CredentialError> {
        match &self.config {
            CredentialConfig::Both {
                certificate,
                authorization,
            } => self.load_both(certificate, authorization, rejected).await,
            one => self.load_one(one, rejected).await,
        }
    }

    /// Remembers how a load has ended.
    fn note(
        &self,
        loaded: Result<Credential, CredentialError>,
    ) -> Result<Credential, CredentialError> {
        let mut seen = self.seen.lock();
        match &loaded {
            Ok(_) => (seen.failures, seen.error) = (0, None),
            Err(error) => {
                seen.failures = seen.failures.saturating_add(1);
                seen.is_same_error = seen.error.as_ref() == Some(error);
                seen.error = Some(error.clone());
            }
        }
        loaded
    }

    async fn load_both(
        &self,
        certificate: &CredentialConfig,
        authorization: &CredentialConfig,
        rejected: bool,
    ) -> Result<Credential, CredentialError> {
        let mut credential = self.load_one(certificate, rejected).await?;
        let other = self.load_one(authorization, rejected).await?;
        credential.authorization = other.authorization;
        credential.refresh_at = match (credential.refresh_at, other.refresh_at) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        Ok(credential)
    }

    async fn load_one(
        &self,
        config: &CredentialConfig,
        rejected: bool,
    ) -> Result<Credential, CredentialError> {
        let mut credential = Credential::default();
        match config {
            CredentialConfig::Anonymous | CredentialConfig::Both { .. } => {}
            CredentialConfig::Missing(why) => return Err(CredentialError::missing(why.clone())),
            CredentialConfig::ClientCertificate { certificate, key } => {
                let pair = ClientCertificate::new(certificate.clone(), key.clone());
                pair.check()?;
                credential.certificate = Some(pair);
            }
            CredentialConfig::ClientCertificateFiles { certificate, key } => {
                credential.certificate = Some(self.read_pair(certificate, key).await?);
                credential.refresh_at = Some(Instant::now() + FILE_INTERVAL);
            }
            CredentialConfig::Token(token) => {
                credential.authorization = Some(bearer(token.expose_secret())?);
            }
            CredentialConfig::TokenFile(path) => {
                credential.authorization = Some(self.read_token(path).await?);
                credential.refresh_at = Some(Instant::now() + FILE_INTERVAL);
            }
            CredentialConfig::Basic { username, password } => {
                let header = basic_header(username, password.expose_secret());
                credential.authorization = Some(header.map_err(|_| not_a_header())?);
            }
            CredentialConfig::Exec(plugin) => return self.run_plugin(plugin, rejected).await,
        }
        Ok(credential)
    }

    /// The certificate and the key, if they belong together: who writes them writes one after the other.
    async fn read_pair(
        &self,
        certificate: &Path,
        key: &Path,
    ) -> Result<ClientCertificate, CredentialError> {
        let look = || async {
            let certificate = read(certificate, "client certificate").await?;
            let key = read(key, "client key").await?;
            let key = SecretString::from(String::from_utf8_lossy(&key).into_owned());
            Ok(ClientCertificate::new(certificate, key))
        };
        let before = self.seen.lock().certificate.clone();
        let pair = settled(before.as_ref(), look).await?;
        if before.as_ref() != Some(&pair) {
            pair.check().map_err(|error| error.in_file(certificate))?;
            self.seen.lock().certificate = Some(pair.clone());
        }
        Ok(pair)
    }

    async fn read_token(&self, path: &Path) -> Result<HeaderValue, CredentialError> {
        let before = self.seen.lock().token.clone();
        let bytes = settled(before.as_ref(), || read(path, "token")).await?;
        let header = {
            let token = SecretString::from(String::from_utf8_lossy(&bytes).into_owned());
            let token = token.expose_secret().trim();
            if token.is_empty() {
                let message = "the token file is empty".to_owned();
                return Err(CredentialError::missing(message).in_file(path));
            }
            bearer(token).map_err(|error| error.in_file(path))?
        };
        self.seen.lock().token = Some(bytes);
        Ok(header)
    }

    /// Whether a 401 to a connection in use may start a plugin that has printed something.
    fn may_run_again(&self) -> bool {
        let mut seen = self.seen.lock();
        let ran = seen.ran_rejected;
        let may = ran.is_none_or(|ran| ran.elapsed() >= EXEC_MIN_INTERVAL);
        if may {
            seen.ran_rejected = Some(Instant::now());
        }
        may
    }

    async fn run_plugin(
        &self,
        plugin: &ExecPluginConfig,
        rejected: bool,
    ) -> Result<Credential, CredentialError> {
        // There are always facts where there is a plugin.
        let Some(printed) = &self.printed else {
            return Ok(Credential::default());
        };
        if rejected {
            printed.forget(&());
        }
        let (plugin, failed) = (plugin.clone(), Arc::clone(&self.plugin_failed));
        let run = async move {
            let credential = from_plugin(exec_plugin::run(&plugin, &failed).await?)?;
            let good_until = credential.refresh_at;
            Ok((credential, good_until))
        };
        let answer = printed.get_or_ask((), run).await;
        answer.map_err(|none| match none {
            NoFact::Failed(error) => error,
            NoFact::Ended => CredentialError::missing("the credential plugin was ended".to_owned()),
        })
    }
}

impl fmt::Debug for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialSource").finish_non_exhaustive()
    }
}

fn from_plugin(printed: ExecCredential) -> Result<Credential, CredentialError> {
    let authorization = match &printed.token {
        Some(token) => Some(bearer(token.expose_secret())?),
        None => None,
    };
    if let Some(certificate) = &printed.certificate {
        certificate.check()?;
    }
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

pub(super) fn bearer(token: &str) -> Result<HeaderValue, CredentialError> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| not_a_header())?;
    value.set_sensitive(true);
    Ok(value)
}

fn not_a_header() -> CredentialError {
    CredentialError::missing("the credential holds characters that no header may hold".to_owned())
}

#[cfg(test)]
mod tests;
