//! Who may come in, and how: TLS, authentication and authorization.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::authorization::{AuthorizationMode, AuthorizationSettings};

use super::ListenAddress;
pub use crate::fleet_api::FleetReaders;

/// How HTTPS is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// The serving certificate; the proxy's own where none is given.
    pub serving: Option<ServingFiles>,
    /// The authorities whose client certificates are users.
    pub client_ca: Option<PathBuf>,
}

/// A serving certificate and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingFiles {
    /// The certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// How users are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationConfig {
    /// Static tokens.
    pub token_file: Option<PathBuf>,
    /// kube-apiserver's `AuthenticationConfiguration`.
    pub config_file: Option<PathBuf>,
    /// Tokens that clusters are asked about.
    pub token_review: Option<TokenReviewConfig>,
    /// Whether a request without any credential has a user, too.
    pub anonymous: bool,
    /// Names and groups that begin with `system:` and may come from outside all the same.
    pub allow_system_names: BTreeSet<String>,
    /// Whether nobody needs a credential.
    pub disabled: bool,
}

/// Which clusters are asked about tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenReviewConfig {
    /// The name of the one that is asked about all tokens that nobody else knows.
    pub cluster: Option<String>,
    /// For whom tokens must be; for that cluster's own apiserver where there are none.
    pub audiences: Vec<String>,
    /// Whether each cluster is asked about the tokens that it has issued itself, for requests to it.
    pub target_cluster: bool,
}

/// Who may read what is in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationConfig {
    /// What holds for every cluster that says nothing else.
    pub settings: AuthorizationSettings,
    /// Who may read what the proxy says of the fleet; all who are authenticated, where nobody is named.
    pub fleet_readers: Option<FleetReaders>,
}

/// The words for [`AuthorizationMode`].
pub(super) const MODES: [(&str, AuthorizationMode); 2] = [
    (
        "SubjectAccessReview",
        AuthorizationMode::SubjectAccessReview,
    ),
    ("AlwaysAllow", AuthorizationMode::AlwaysAllow),
];

impl TlsConfig {
    /// The files that it names.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let serving = self.serving.iter();
        let serving = serving.flat_map(|it| [&it.certificate, &it.key]);
        serving.chain(&self.client_ca).map(PathBuf::as_path)
    }
}

impl AuthenticationConfig {
    /// The files that it names.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let files = self.token_file.iter().chain(&self.config_file);
        files.map(PathBuf::as_path)
    }

    /// Why it cannot be that nobody needs a credential at this address, where that is so.
    pub fn disabled_there(&self, listen: &ListenAddress) -> Option<String> {
        let exposed = self.disabled && !listen.is_loopback();
        exposed.then(|| {
            format!(
                "true is for a loopback address alone, and the proxy listens on {listen}: whoever reaches it would be \
                 an administrator of every cluster"
            )
        })
    }
}

/// The keys by which users are known; the proxy's own token counts where there is none.
pub(super) fn authenticators(
    tls: &TlsConfig,
    authentication: &AuthenticationConfig,
) -> Vec<&'static str> {
    let all = [
        ("tls.clientCAFile", tls.client_ca.is_some()),
        (
            "authentication.tokenFile",
            authentication.token_file.is_some(),
        ),
        (
            "authentication.configFile",
            authentication.config_file.is_some(),
        ),
        (
            "authentication.tokenReview",
            authentication.token_review.is_some(),
        ),
    ];
    all.into_iter()
        .filter_map(|(key, is_there)| is_there.then_some(key))
        .collect()
}
