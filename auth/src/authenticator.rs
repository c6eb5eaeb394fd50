//! A request's credentials → its user, or nobody.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::bearer_token;
use crate::certificate::ClientCertificates;
use crate::fault::{Fault, FaultSort};
use crate::jwt::JwtAuthenticator;
use crate::token_file::TokenFile;
use crate::token_review::ReviewTokens;
use crate::token_user::{TokenError, TokenUser, Unavailable};
use crate::user::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, UserInfo, may_come_from_outside};

/// What a request shows of who sent it.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The certificates of the handshake, the client's own first; nothing but the possession of its key is known.
    pub certificates: Option<&'a [CertificateDer<'static>]>,
}

/// The ways to be somebody: by default there is none. In the order in which they are tried, but for
/// [`Methods::anonymous`], which is last.
#[derive(Default)]
pub struct Methods {
    /// Client certificates.
    pub certificates: Option<ClientCertificates>,
    /// The one token of [`UserInfo::admin`].
    pub generated_token: Option<String>,
    /// Static tokens.
    pub token_file: Option<TokenFile>,
    /// Tokens of OpenID Connect issuers.
    pub jwt: Option<Arc<JwtAuthenticator>>,
    /// Tokens that a cluster is asked about.
    pub token_review: Option<Arc<dyn ReviewTokens>>,
    /// Whether a request without any credential is [`UserInfo::anonymous`].
    pub anonymous: bool,
    /// The names and groups that begin with `system:` and may come from outside all the same.
    pub allow_system_names: BTreeSet<String>,
}

/// Who a request is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The user.
    pub user: Arc<UserInfo>,
    /// When the credential stops being good, where it says so: what lasts longer must ask again then.
    pub expires: Option<SystemTime>,
    /// Until then the same credential is judged the same, whatever happens meanwhile; `None` where it is judged each time.
    pub known_until: Option<Instant>,
    /// How the user was known.
    pub method: Method,
}

/// A way to be somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// No credential.
    Anonymous,
    /// A client certificate.
    Certificate,
    /// Nothing: authentication is disabled, and everybody is who has the generated token.
    Disabled,
    /// The generated token.
    Generated,
    /// A token of an OpenID Connect issuer.
    Jwt,
    /// A token of the token file.
    TokenFile,
    /// A token that a cluster knows.
    TokenReview,
}

impl Method {
    /// Its name in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Certificate => "certificate",
            Self::Disabled => "disabled",
            Self::Generated => "generated",
            Self::Jwt => "jwt",
            Self::TokenFile => "tokenFile",
            Self::TokenReview => "tokenReview",
        }
    }
}

/// Why a request is from nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthenticationError {
    /// No credential that is known: 401. Why, where there is one.
    Unauthenticated(Option<Refusal>),
    /// None that can be judged now, and why: 503.
    Unavailable(Unavailable),
}

/// Why a credential is nobody's. For logs: a client is told nothing about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The way to be somebody that it was meant for, as far as is known.
    pub method: Option<Method>,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is said of a token that no way to be somebody knows.
const UNKNOWN: &str = "nobody knows the token";

/// Says who is asking.
///
/// A token comes as `Authorization: Bearer <token>` or, from a browser that cannot set headers, as the WebSocket
/// subprotocol `base64url.bearer.authorization.k8s.io.<token in base64url>` beside at least one other. Neither may
/// travel on to a cluster, which could read it or choose the subprotocol and so echo it: whoever forwards a request takes
/// both out.
///
/// As in kube-apiserver a method that refuses or fails does not stop the next one, and a credential that nobody takes
/// makes no anonymous user. Stricter than there: two `Authorization` headers are nobody, and names of the system come
/// from outside only where they are allowed one by one.
pub struct Authenticator {
    methods: Methods,
    // Digests are compared instead of tokens: how long a comparison takes then says nothing about the token.
    generated: Option<[u8; 32]>,
    admin: Arc<UserInfo>,
    anonymous: Arc<UserInfo>,
}

/// What became of the credentials that were not taken.
#[derive(Default)]
struct Failures {
    /// Of the one that was looked at last.
    refusal: Option<Refusal>,
    unavailable: Option<Unavailable>,
}

impl Failures {
    /// Nobody knows a token. What was wrong with a certificate beside it is not why.
    fn token(&mut self, sort: FaultSort, why: &str) {
        let of_token = |it: &Refusal| it.method != Some(Method::Certificate);
        if !self.refusal.as_ref().is_some_and(of_token) {
            let (method, fault) = (None, sort.because(why));
            self.refusal = Some(Refusal { method, fault });
        }
    }
}

impl Authenticator {
    /// Knows whom these methods know.
    pub fn new(mut methods: Methods) -> Self {
        let generated = methods.generated_token.take();
        Self {
            generated: generated.map(|token| Sha256::digest(token).into()),
            methods,
            admin: Arc::new(UserInfo::admin()),
            anonymous: Arc::new(UserInfo::anonymous()),
        }
    }

    /// The user of a request.
    ///
    /// # Errors
    /// None of its credentials is known, or none that is known can be judged now.
    pub async fn authenticate(
        &self,
        credentials: Credentials<'_>,
    ) -> Result<Authenticated, AuthenticationError> {
        let headers = credentials.headers;
        // Whoever reads the request elsewhere may take the other one.
        if headers.get_all(AUTHORIZATION).iter().nth(1).is_some() {
            return Err(AuthenticationError::Unauthenticated(Some(Refusal {
                method: None,
                fault: FaultSort::Form.because("more than one Authorization header"),
            })));
        }
        let mut failures = Failures::default();
        if let Some(user) = self.by_certificate(credentials.certificates, &mut failures) {
            return Ok(user);
        }
        if let Some(token) = bearer_token::from_authorization(headers) {
            if let Some(user) = self.by_token(token, &mut failures).await {
                return Ok(user);
            }
            failures.token(FaultSort::Unknown, UNKNOWN);
        }
        match bearer_token::from_websocket(headers) {
            Ok(Some(token)) => {
                if let Some(user) = self.by_token(token.as_bytes(), &mut failures).await {
                    return Ok(user);
                }
                failures.token(FaultSort::Unknown, UNKNOWN);
            }
            Ok(None) => {}
            Err(_) => {
                failures.token(
                    FaultSort::Form,
                    "a WebSocket's subprotocol that is no token",
                );
            }
        }
        if let Some(why) = failures.unavailable {
            return Err(AuthenticationError::Unavailable(why));
        }
        if self.methods.anonymous && failures.refusal.is_none() {
            return Ok(Authenticated {
                user: Arc::clone(&self.anonymous),
                expires: None,
                known_until: None,
                method: Method::Anonymous,
            });
        }
        Err(AuthenticationError::Unauthenticated(failures.refusal))
    }

    fn by_certificate(
        &self,
        sent: Option<&[CertificateDer<'static>]>,
        failures: &mut Failures,
    ) -> Option<Authenticated> {
        let certificates = self.methods.certificates.as_ref()?;
        let user = certificates.user(sent.filter(|sent| !sent.is_empty())?);
        self.judge(
            Method::Certificate,
            user.map_err(TokenError::Invalid),
            failures,
        )
    }

    async fn by_token(&self, token: &[u8], failures: &mut Failures) -> Option<Authenticated> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        if self.generated == Some(digest) {
            return Some(Authenticated {
                user: Arc::clone(&self.admin),
                expires: None,
                known_until: None,
                method: Method::Generated,
            });
        }
        if let Some(user) = self
            .methods
            .token_file
            .as_ref()
            .and_then(|it| it.user(&digest))
        {
            let user = TokenUser {
                user,
                expires: None,
                known_until: None,
            };
            let user = self.judge(Method::TokenFile, Ok(Some(user)), failures);
            if user.is_some() {
                return user;
            }
        }
        // The others know only tokens that are text.
        let token = std::str::from_utf8(token).ok()?;
        if let Some(jwt) = &self.methods.jwt {
            let user = self.judge(Method::Jwt, jwt.authenticate(token).await, failures);
            if user.is_some() {
                return user;
            }
        }
        let reviewer = self.methods.token_review.as_ref()?;
        self.judge(Method::TokenReview, reviewer.review(token).await, failures)
    }

    fn judge(
        &self,
        method: Method,
        outcome: Result<Option<TokenUser>, TokenError>,
        failures: &mut Failures,
    ) -> Option<Authenticated> {
        let outcome = outcome.and_then(|found| {
            let Some(found) = found else { return Ok(None) };
            let user = self.admit(found.user);
            let user = user.map_err(|why| TokenError::Invalid(FaultSort::Name.because(why)))?;
            Ok(Some(Authenticated {
                user: Arc::new(user),
                expires: found.expires,
                known_until: found.known_until,
                method,
            }))
        });
        match outcome {
            Ok(Some(authenticated)) => Some(authenticated),
            Ok(None) => None,
            Err(error) => {
                tracing::debug!(method = method.as_str(), %error, "credential refused");
                match error {
                    TokenError::Invalid(fault) => {
                        let method = Some(method);
                        failures.refusal = Some(Refusal { method, fault });
                    }
                    TokenError::Unavailable(why) => failures.unavailable = Some(why),
                }
                None
            }
        }
    }

    /// The user as it may be: with no names of the system but those that are allowed, and in the group of all who were
    /// authenticated.
    fn admit(&self, mut user: UserInfo) -> Result<UserInfo, String> {
        user.check()?;
        let allowed = |name: &str| may_come_from_outside(name, &self.methods.allow_system_names);
        if !allowed(&user.name) {
            return Err(format!("user name {:?} is the system's own", user.name));
        }
        let ours = |group: &str| group == AUTHENTICATED || group == UNAUTHENTICATED;
        user.groups.retain(|group| allowed(group) && !ours(group));
        let group = match user.name == ANONYMOUS {
            true => UNAUTHENTICATED,
            false => AUTHENTICATED,
        };
        user.groups.push(group.to_owned());
        Ok(user)
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
