//! As whom requests reach clusters must fit how users are known: the proxy's own rights are for who has its own token, and
//! nobody else is known by a name that a cluster knows.

use crate::config::users::authenticators;
use crate::config::{AuthenticationConfig, ClusterOverride, TlsConfig};
use crate::identity::Identity;

/// The words for [`Identity`].
pub(super) const WORDS: [(&str, Identity); 3] = [
    ("impersonate", Identity::Impersonate),
    ("token", Identity::Token),
    ("proxy", Identity::Proxy),
];

/// What holds where nothing is said.
pub(super) fn default(tls: &TlsConfig, authentication: &AuthenticationConfig) -> Identity {
    match authenticators(tls, authentication).is_empty() {
        true => Identity::Proxy,
        false => Identity::Impersonate,
    }
}

/// What does not fit, with the path of the key to blame. `said` is what the file says of `defaults`.
pub(super) fn mistakes(
    tls: &TlsConfig,
    authentication: &AuthenticationConfig,
    said: &ClusterOverride,
    overrides: &[ClusterOverride],
) -> Vec<(String, String)> {
    let known_by = authenticators(tls, authentication);
    let mut mistakes = Vec::new();
    let overrides = overrides.iter().enumerate();
    let overrides = overrides.map(|(i, over)| (format!("overrides[{i}]"), over));
    for (path, said) in [("defaults".to_owned(), said)].into_iter().chain(overrides) {
        if let Some(identity) = said.identity
            && let Some(problem) = problem(identity, &known_by)
        {
            mistakes.push((format!("{path}.identity"), problem));
        }
    }
    if authentication.disabled && !known_by.is_empty() {
        let problem = format!("true, and users are known by {}", known_by.join(", "));
        mistakes.push(("authentication.disabled".to_owned(), problem));
    }
    if authentication.anonymous && known_by.is_empty() {
        let problem = "true is for requests beside those of known users, and none are: configure tls.clientCAFile, \
                       authentication.tokenFile, authentication.configFile or authentication.tokenReview";
        mistakes.push(("authentication.anonymous".to_owned(), problem.to_owned()));
    }
    mistakes
}

fn problem(identity: Identity, known_by: &[&str]) -> Option<String> {
    match (identity, known_by) {
        (Identity::Proxy, []) => None,
        (Identity::Proxy, known_by) => Some(format!(
            "\"proxy\" would give every user the rights of the cluster's credential, and users are known by {}; make it \
             \"impersonate\" or \"token\"",
            known_by.join(", ")
        )),
        (Identity::Impersonate | Identity::Token, []) => {
            let (word, _) = WORDS.iter().find(|(_, it)| *it == identity)?;
            Some(format!(
                "{word:?} needs users, and only the proxy's own token is known: configure tls.clientCAFile, \
                 authentication.tokenFile, authentication.configFile or authentication.tokenReview, or make it \"proxy\""
            ))
        }
        (Identity::Impersonate | Identity::Token, _) => None,
    }
}
