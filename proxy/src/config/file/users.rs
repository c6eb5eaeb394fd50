//! The keys of `tls`, `authentication` and `authorization`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::non_empty;
use crate::authorization::AuthorizationSettings;
use crate::config::section::{Form, NON_EMPTY, Section, at_least, key};
use crate::config::users::MODES;
use crate::config::{
    AuthenticationConfig, AuthorizationConfig, FleetReaders, ServingFiles, TlsConfig,
    TokenReviewConfig, duration,
};

/// What begins with `system:`.
const SYSTEM_FORM: Form = &[r"^system:[\s\S]"];

pub(super) fn tls(mut section: Section<'_>, base: &Path) -> TlsConfig {
    let certificate = key(
        "certFile",
        "The serving certificate and those between it and its authority, PEM; one of the proxy's own CA where absent.",
    );
    let private_key = key("keyFile", "The serving certificate's key, PEM.");
    let says = [section.says("certFile"), section.says("keyFile")];
    let certificate = section.text(certificate, NON_EMPTY, non_empty);
    let private_key = section.text(private_key, NON_EMPTY, non_empty);
    if says == [true, false] {
        section.mistake("keyFile", "missing beside certFile");
    } else if says == [false, true] {
        section.mistake("certFile", "missing beside keyFile");
    }
    let client_ca = key(
        "clientCAFile",
        "The authorities whose client certificates are users, PEM; absent, no certificate is a user.",
    );
    let client_ca = section.text(client_ca, NON_EMPTY, non_empty);
    section.end();
    TlsConfig {
        serving: certificate
            .zip(private_key)
            .map(|(certificate, private_key)| ServingFiles {
                certificate: base.join(certificate),
                key: base.join(private_key),
            }),
        client_ca: client_ca.map(|it| base.join(it)),
    }
}

pub(super) fn authentication(mut section: Section<'_>, base: &Path) -> AuthenticationConfig {
    let token_file = key(
        "tokenFile",
        "Static tokens, in kube-apiserver's format: a line `token,user,uid,\"group1,group2\"` each.",
    );
    let config_file = key(
        "configFile",
        "kube-apiserver's AuthenticationConfiguration: OpenID Connect issuers.",
    );
    let file = |section: &mut Section<'_>, key| {
        let path = section.text(key, NON_EMPTY, non_empty);
        path.map(|it| base.join(it))
    };
    let token_file = file(&mut section, token_file);
    let config_file = file(&mut section, config_file);
    let about = "Which clusters are asked about tokens.";
    let token_review = section
        .optional(key("tokenReview", about))
        .map(token_review);
    let anonymous = key(
        "anonymous",
        "Whether a request without any credential is the user system:anonymous.",
    );
    let allow = key(
        "allowSystemNames",
        "Names of users and groups that begin with `system:` and may come with a credential; all others are refused.",
    );
    let disabled = key(
        "disabled",
        "That nobody needs a credential; on a loopback address alone.",
    );
    let it = AuthenticationConfig {
        token_file,
        config_file,
        token_review,
        anonymous: section.flag(anonymous.default(false)).unwrap_or(false),
        allow_system_names: set(section.texts(allow, SYSTEM_FORM, system_name)),
        disabled: section.flag(disabled.default(false)).unwrap_or(false),
    };
    section.end();
    it
}

fn token_review(mut section: Section<'_>) -> TokenReviewConfig {
    let cluster = key(
        "cluster",
        "The name of a cluster that is asked about all tokens that are not known otherwise.",
    );
    let audiences = key(
        "audiences",
        "For whom its tokens must be; for its own kube-apiserver where absent.",
    );
    let target = key(
        "targetCluster",
        "Whether each cluster is asked about tokens that it has issued itself, for requests to it.",
    );
    let says_cluster = section.says("cluster");
    let it = TokenReviewConfig {
        cluster: section.text(cluster, NON_EMPTY, non_empty),
        audiences: section.texts(audiences, NON_EMPTY, non_empty),
        target_cluster: section.flag(target.default(false)).unwrap_or(false),
    };
    if !says_cluster && !it.target_cluster {
        section.mistake(
            "cluster",
            "no cluster is asked: name one, or make targetCluster true",
        );
    }
    if !says_cluster && !it.audiences.is_empty() {
        section.mistake("audiences", "they are about tokens of cluster alone");
    }
    section.end();
    it
}

pub(super) fn authorization(mut section: Section<'_>) -> AuthorizationConfig {
    let default = AuthorizationSettings::default();
    let mode = key(
        "mode",
        "Who says whether a user may read what is in memory: the cluster, or nobody, and every user may.",
    );
    let allow = key("allowTTL", "How long the Allow of a cluster counts.");
    let deny = key("denyTTL", "How long its Deny counts.");
    let stale = key(
        "staleAllowTTL",
        "How long its last Allow counts while it is not connected; 0s is not at all.",
    );
    let ttl = at_least(Duration::from_secs(1));
    let settings = AuthorizationSettings {
        mode: section
            .choice(mode.default(MODES[0].0), &MODES)
            .unwrap_or(default.mode),
        allow_ttl: section
            .duration(allow.default(duration::text(default.allow_ttl)), ttl)
            .unwrap_or(default.allow_ttl),
        deny_ttl: section
            .duration(deny.default(duration::text(default.deny_ttl)), ttl)
            .unwrap_or(default.deny_ttl),
        stale_allow_ttl: section
            .duration(
                stale.default(duration::text(default.stale_allow_ttl)),
                ttl.or_zero(),
            )
            .unwrap_or(default.stale_allow_ttl),
        broad_questions: broad_questions(&mut section, Some(default.broad_questions))
            .unwrap_or(default.broad_questions),
    };
    let about = "Who may read the fleet's own API, and nobody else; all who are authenticated, where absent.";
    let fleet_readers = section
        .optional(key("fleetReaders", about))
        .map(|mut readers| {
            let names_any = readers.says("users") || readers.says("groups");
            let users = key("users", "Names of users.");
            let groups = key("groups", "Names of groups, such as system:authenticated.");
            let it = FleetReaders {
                users: set(readers.texts(users, NON_EMPTY, non_empty)),
                groups: set(readers.texts(groups, NON_EMPTY, non_empty)),
            };
            if !names_any {
                readers.mistake("users", "nobody is named, by users or groups");
            }
            readers.end();
            it
        });
    section.end();
    AuthorizationConfig {
        settings,
        fleet_readers,
    }
}

/// The key of `authorization`, of `defaults` and of each override.
pub(super) fn broad_questions(section: &mut Section<'_>, default: Option<bool>) -> Option<bool> {
    let about = "Whether who may read all objects of a kind may read each of them, as under RBAC: they are asked about first.";
    section.flag(key("broadQuestions", about).maybe_default(default))
}

fn system_name(text: &str) -> Result<String, String> {
    match text.strip_prefix("system:") {
        Some(rest) if !rest.is_empty() => Ok(text.to_owned()),
        Some(_) | None => Err(format!(
            "{text:?} does not begin with \"system:\"; other names are allowed anyway"
        )),
    }
}

fn set(texts: Vec<String>) -> BTreeSet<String> {
    texts.into_iter().collect()
}
