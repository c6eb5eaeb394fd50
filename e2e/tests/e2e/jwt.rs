//! Tokens of OpenID Connect issuers: the same files and the same tokens as a real kube-apiserver, and keys that change.

mod files;
mod keys;
mod tokens;

use fleetcache_auth::{AuthenticationConfiguration, JwtAuthenticator, KeyTiming};
use fleetcache_e2e::oidc_issuer::OidcIssuer;
use serde_json::{Value, json};

/// The file with these entries of `jwt`.
fn file(jwt: &Value) -> String {
    let document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": jwt,
    });
    document.to_string()
}

/// An entry for the issuer at a path, whose tokens name their user in `sub`.
fn plain(issuer: &OidcIssuer, path: &str) -> Value {
    json!({
        "issuer": {
            "url": format!("{}{path}", issuer.url()),
            "audiences": ["fleet"],
            "certificateAuthority": issuer.ca_pem(),
        },
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    })
}

fn authenticator(file: &str, timing: KeyTiming) -> JwtAuthenticator {
    let configuration = AuthenticationConfiguration::parse(file).unwrap();
    JwtAuthenticator::new(&configuration, timing).unwrap()
}
