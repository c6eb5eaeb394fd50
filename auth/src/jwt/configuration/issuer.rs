//! One issuer: its server, and what its tokens must say.

use std::collections::HashSet;

use http::Uri;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::IssuerConfig;
use super::mapping::{Mappings, mappings};
use super::node::Node;

const NO_CEL: &str = "CEL is not evaluated here";

/// Reads one entry of `jwt`. What has a mistake has no meaning.
pub(super) fn issuer(mut entry: Node<'_>) -> IssuerConfig {
    let mut node = entry.node("issuer");
    let url = node.text("url").unwrap_or_default();
    match url.is_empty() {
        true => node.mistake("url", "missing; what the tokens have as iss"),
        false => check_url(&node, "url", &url),
    }
    let discovery_url = node.text("discoveryURL");
    if let Some(discovery) = &discovery_url {
        check_url(&node, "discoveryURL", discovery);
        if discovery.trim_end_matches('/') == url.trim_end_matches('/') {
            node.mistake(
                "discoveryURL",
                "the same as url; leave it out, or name the document itself",
            );
        }
    }
    let certificate_authority = node.text("certificateAuthority");
    if let Some(Err(problem)) = certificate_authority.as_deref().map(roots) {
        node.mistake("certificateAuthority", problem);
    }
    let audiences = audiences(&mut node);
    node.refuse(
        "egressSelectorType",
        "not available: there are no egress selectors here, the issuer is dialled directly; remove the key",
    );
    node.end();

    let required = required(&mut entry);
    let Mappings {
        username,
        groups,
        uid,
        extra,
    } = mappings(entry.node("claimMappings"));
    if !entry.nodes("userValidationRules").is_empty() {
        entry.mistake(
            "userValidationRules",
            format!(
                "{NO_CEL}; remove the rules (names and groups of the form system:… are refused anyway unless \
                 authentication.allowSystemNames of the proxy's own configuration has them)"
            ),
        );
    }
    entry.end();
    IssuerConfig {
        url,
        discovery_url,
        certificate_authority,
        audiences,
        required,
        username,
        groups,
        uid,
        extra,
    }
}

/// The CAs of a PEM text, one at least.
pub(in crate::jwt) fn roots(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("not PEM: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("a certificate in it cannot be read: {error}"))?;
    }
    if roots.is_empty() {
        return Err("holds no certificate in PEM form".to_owned());
    }
    Ok(roots)
}

fn check_url(node: &Node<'_>, key: &str, url: &str) {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    if !scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("https")) {
        node.mistake(key, format!("{url:?} does not begin with https://"));
        return;
    }
    if url.contains('#') {
        node.mistake(key, "must not have a fragment (#…)");
    }
    if url.contains('?') {
        node.mistake(key, "must not have a query (?…)");
    }
    match url.parse::<Uri>() {
        Err(error) => node.mistake(key, format!("{url:?} is no URL: {error}")),
        Ok(uri) => {
            let authority = uri.authority().map(|it| it.as_str()).unwrap_or_default();
            if authority.contains('@') {
                node.mistake(key, "must not have a user name or password");
            }
            if uri.host().unwrap_or_default().is_empty() {
                node.mistake(key, format!("{url:?} names no host"));
            }
        }
    }
}

fn audiences(node: &mut Node<'_>) -> Vec<String> {
    let audiences = node.texts("audiences");
    if audiences.is_empty() {
        node.mistake(
            "audiences",
            "at least one is needed; what the tokens have in aud",
        );
    }
    let mut seen = HashSet::new();
    for (i, audience) in audiences.iter().enumerate() {
        let key = format!("audiences[{i}]");
        if audience.is_empty() {
            node.mistake(&key, "empty");
        } else if !seen.insert(audience) {
            node.mistake(&key, format!("{audience:?} is there already"));
        }
    }
    match node.text("audienceMatchPolicy").as_deref() {
        Some("MatchAny") => {}
        Some(other) => node.mistake("audienceMatchPolicy", format!("{other:?} is not MatchAny")),
        None if audiences.len() > 1 => node.mistake(
            "audienceMatchPolicy",
            "must be MatchAny where there are several audiences",
        ),
        None => {}
    }
    audiences
}

/// The claims that must have a value.
fn required(entry: &mut Node<'_>) -> Vec<(String, String)> {
    let mut rules: Vec<(String, String)> = Vec::new();
    for mut rule in entry.nodes("claimValidationRules") {
        let claim = rule.text("claim");
        let value = rule.text("requiredValue").unwrap_or_default();
        let message = rule.text("message");
        match (claim, rule.text("expression")) {
            (None, None) => {
                rule.wrong("claim is missing; the name of a claim and its requiredValue")
            }
            (Some(_), Some(_)) => rule.wrong("claim and expression cannot both be set"),
            (None, Some(_)) => rule.mistake(
                "expression",
                format!("{NO_CEL}; use claim and requiredValue"),
            ),
            (Some(claim), None) => {
                if message.is_some() {
                    rule.mistake("message", "goes with expression only; remove it");
                }
                if rules.iter().any(|(name, _)| *name == claim) {
                    rule.mistake("claim", format!("{claim:?} has a rule already"));
                }
                rules.push((claim, value));
            }
        }
        rule.end();
    }
    rules
}
