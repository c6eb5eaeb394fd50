//! Tokens that an OpenID Connect issuer has signed → their users.
//!
//! ```text
//! configuration   whose tokens are believed, and what in them names the user
//! claim_path      the part of CEL that is understood
//! issuer_keys     when an issuer's keys are fetched
//! fetch           how they are fetched
//! key_set         which keys there are; has one of them signed a token
//! claims          is a token for us, is it now, and who is it
//! ```

mod claim_path;
mod claims;
mod configuration;
mod fetch;
mod issuer_keys;
mod key_set;
#[cfg(test)]
mod signer;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moka::sync::Cache;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use configuration::IssuerConfig;
pub use configuration::{AuthenticationConfiguration, Mistake};
use fetch::Fetch;
pub use issuer_keys::KeyTiming;
use issuer_keys::{IssuerKeys, Waited};
use key_set::NotSigned;

use crate::fault::FaultSort;
use crate::token_review::unverified_issuer;
use crate::token_user::{TokenError, TokenUser, Unavailable};

/// How long a token that was good is not looked at again.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Bytes of users that are remembered.
const MEMORY: u64 = 16 << 20;

/// No token is longer: one with a thousand groups has some 50 KiB.
const MAX_TOKEN: usize = 256 << 10;

/// Knows the users of tokens that the issuers of an [`AuthenticationConfiguration`] have signed.
///
/// A token is judged with the keys that are known. One by an unknown key lets them be fetched once, at most every
/// [`KeyTiming::interval`] for an issuer, and is judged after that; everything else happens in the background.
pub struct JwtAuthenticator {
    issuers: HashMap<String, Issuer>,
    /// By the digest of the token, so that no token lies in memory. Only those that were good.
    remembered: Cache<[u8; 32], Arc<Remembered>>,
}

struct Issuer {
    config: IssuerConfig,
    keys: Arc<IssuerKeys>,
}

struct Remembered {
    user: TokenUser,
    /// By the wall clock, which `exp` is about. The cache's own time ends it, too, should that clock be set back.
    until: SystemTime,
}

impl JwtAuthenticator {
    /// Begins to fetch the keys of all issuers; until an issuer's are there its tokens cannot be judged. Runs in a runtime.
    /// Reads the system's CAs from files where an issuer names none.
    ///
    /// # Errors
    /// An issuer cannot be asked with this configuration, and why.
    pub fn new(
        configuration: &AuthenticationConfiguration,
        timing: KeyTiming,
    ) -> Result<Self, String> {
        Self::made(configuration, timing, &HashMap::new())
    }

    /// As [`JwtAuthenticator::new`], for a configuration that replaces this one's: the keys of an issuer whose server is the
    /// same stay known, so that an issuer that is down just now is no matter. Users are not remembered, since what names
    /// them may have changed.
    ///
    /// # Errors
    /// An issuer cannot be asked with this configuration, and why.
    pub fn reconfigured(
        &self,
        configuration: &AuthenticationConfiguration,
        timing: KeyTiming,
    ) -> Result<Self, String> {
        Self::made(configuration, timing, &self.issuers)
    }

    fn made(
        configuration: &AuthenticationConfiguration,
        timing: KeyTiming,
        before: &HashMap<String, Issuer>,
    ) -> Result<Self, String> {
        let mut issuers = HashMap::new();
        for config in &configuration.issuers {
            let same = before.get(&config.url);
            let same = same.filter(|it| it.config.has_server_of(config) && it.keys.are_by(timing));
            let keys = match same {
                Some(issuer) => issuer.keys.clone(),
                None => {
                    let fetch = Fetch::new(config);
                    let fetch = fetch.map_err(|error| format!("{}: {error}", config.url))?;
                    IssuerKeys::start(fetch, timing)
                }
            };
            let config = config.clone();
            issuers.insert(config.url.clone(), Issuer { config, keys });
        }
        Ok(Self::of(issuers))
    }

    fn of(issuers: HashMap<String, Issuer>) -> Self {
        let remembered = Cache::builder()
            .max_capacity(MEMORY)
            .weigher(|_, it: &Arc<Remembered>| weight(&it.user))
            .time_to_live(REMEMBERED)
            .build();
        Self {
            issuers,
            remembered,
        }
    }

    /// The user of a token; none where it is no JWT, or of no issuer of ours.
    ///
    /// # Errors
    /// The token is not good, or cannot be judged now.
    pub async fn authenticate(&self, token: &str) -> Result<Option<TokenUser>, TokenError> {
        self.authenticate_at(token, SystemTime::now()).await
    }

    async fn authenticate_at(
        &self,
        token: &str,
        now: SystemTime,
    ) -> Result<Option<TokenUser>, TokenError> {
        if token.len() > MAX_TOKEN {
            let why = format!("longer than {MAX_TOKEN} bytes");
            return Err(TokenError::Invalid(FaultSort::Form.because(why)));
        }
        let digest: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.remembered.get(&digest)
            && now < known.until
        {
            return Ok(Some(known.user.clone()));
        }
        let issuer = unverified_issuer(token).and_then(|url| self.issuers.get(&url));
        let Some(issuer) = issuer else {
            return Ok(None);
        };
        let mut user = issuer.judge(token, now).await?;
        user.known_until = Some(Instant::now() + REMEMBERED);
        let until = now + REMEMBERED;
        let until = user.expires.map_or(until, |expires| expires.min(until));
        let known = Remembered {
            user: user.clone(),
            until,
        };
        self.remembered.insert(digest, Arc::new(known));
        Ok(Some(user))
    }
}

impl fmt::Debug for JwtAuthenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtAuthenticator")
            .field("issuers", &self.issuers.keys())
            .finish_non_exhaustive()
    }
}

impl Issuer {
    async fn judge(&self, token: &str, now: SystemTime) -> Result<TokenUser, TokenError> {
        let invalid = TokenError::Invalid;
        let unavailable = |why: String| {
            let judge = format!("issuer {:?}", self.config.url);
            TokenError::Unavailable(Unavailable { judge, why })
        };
        let not_signed = |problem| match problem {
            NotSigned::ByTheseKeys => {
                invalid(FaultSort::Signature.because("no key of its issuer has signed it"))
            }
            NotSigned::AtAll(problem) => invalid(FaultSort::Form.because(problem)),
        };
        let header = key_set::header(token).map_err(not_signed)?;
        let known = self.keys.current().map(|keys| keys.claims(token, &header));
        let claims = match known {
            // A key may also have been replaced under its name.
            None | Some(Err(NotSigned::ByTheseKeys)) => match (self.keys.newer().await, known) {
                (Waited::Failed(problem), _) => return Err(unavailable(problem)),
                (Waited::TooEarly, Some(known)) => known,
                (Waited::TooEarly, None) | (Waited::Fetched, _) => match self.keys.current() {
                    Some(keys) => keys.claims(token, &header),
                    None => {
                        let problem = "its issuer's keys are not known yet".to_owned();
                        return Err(unavailable(problem));
                    }
                },
            },
            Some(known) => known,
        };
        claims
            .map_err(not_signed)?
            .user(&self.config, now)
            .map_err(invalid)
    }
}

/// About how many bytes a user takes.
fn weight(user: &TokenUser) -> u32 {
    let user = &user.user;
    let extra = user.extra.iter();
    let extra = extra.flat_map(|(key, values)| values.iter().chain([key]));
    let texts = user
        .groups
        .iter()
        .chain([&user.name, &user.uid])
        .chain(extra);
    let bytes: usize = texts.map(|text| text.len() + size_of::<String>()).sum();
    u32::try_from(bytes + 256).unwrap_or(u32::MAX)
}
