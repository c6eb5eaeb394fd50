//! Which claims name the user, the groups and the rest.

use std::collections::HashSet;

use super::Mapping;
use super::node::Node;
use crate::jwt::claim_path::ClaimPath;

/// What `claimMappings` says.
pub(super) struct Mappings {
    pub(super) username: Mapping,
    pub(super) groups: Option<Mapping>,
    pub(super) uid: Option<Mapping>,
    pub(super) extra: Vec<(String, ClaimPath)>,
}

/// Whether a prefix goes with a claim.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefix {
    Needed,
    Unknown,
}

pub(super) fn mappings(mut node: Node<'_>) -> Mappings {
    let no_username = || Mapping::Claim {
        claim: String::new(),
        prefix: String::new(),
    };
    let mut username_node = node.node("username");
    let username = mapping(&mut username_node, Prefix::Needed);
    if let Ok(None) = username {
        username_node.wrong("claim is missing; the claim that holds the user's name, such as sub");
    }
    let username = username.ok().flatten();
    let groups = owned_mapping(node.node("groups"), Prefix::Needed);
    let uid = owned_mapping(node.node("uid"), Prefix::Unknown);
    let extra = extra(&mut node);
    // As the apiserver has it: an address that nobody verified is anybody's.
    let unverified = matches!(&username, Some(Mapping::Path(path)) if path.is("email"))
        && !extra.iter().any(|(_, path)| path.is("email_verified"));
    if unverified {
        username_node.mistake(
            "expression",
            "claims.email needs claims.email_verified; use claim: email, which checks it",
        );
    }
    username_node.end();
    node.end();
    Mappings {
        username: username.unwrap_or_else(no_username),
        groups,
        uid,
        extra,
    }
}

fn owned_mapping(mut node: Node<'_>, prefix: Prefix) -> Option<Mapping> {
    let mapping = mapping(&mut node, prefix);
    node.end();
    mapping.ok().flatten()
}

/// A claim with its prefix, or an expression; the error is noted already.
fn mapping(node: &mut Node<'_>, with: Prefix) -> Result<Option<Mapping>, ()> {
    let prefix = match with {
        Prefix::Needed => node.any_text("prefix"),
        Prefix::Unknown => None,
    };
    match (node.text("claim"), node.text("expression")) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            node.wrong("claim and expression cannot both be set");
            Err(())
        }
        (Some(claim), None) => {
            if with == Prefix::Needed && prefix.is_none() {
                node.mistake(
                    "prefix",
                    "missing; what is put before the claim's value, \"\" for nothing",
                );
            }
            Ok(Some(Mapping::Claim {
                claim,
                prefix: prefix.unwrap_or_default(),
            }))
        }
        (None, Some(expression)) => {
            if prefix.is_some() {
                node.mistake("prefix", "goes with claim only; remove it");
            }
            let path = ClaimPath::parse(&expression);
            path.map(|path| Some(Mapping::Path(path)))
                .map_err(|problem| node.mistake("expression", problem))
        }
    }
}

fn extra(node: &mut Node<'_>) -> Vec<(String, ClaimPath)> {
    let mut extra: Vec<(String, ClaimPath)> = Vec::new();
    let mut seen = HashSet::new();
    for mut item in node.nodes("extra") {
        let key = item.text("key").unwrap_or_default();
        check_key(&item, &key);
        if !key.is_empty() && !seen.insert(key.clone()) {
            item.mistake("key", format!("{key:?} is there already"));
        }
        match item.text("valueExpression") {
            None => item.mistake(
                "valueExpression",
                "missing; where the value is, such as claims.tenant",
            ),
            Some(expression) => match ClaimPath::parse(&expression) {
                Ok(path) => extra.push((key, path)),
                Err(problem) => item.mistake("valueExpression", problem),
            },
        }
        item.end();
    }
    extra
}

/// A key of `extra` belongs to somebody's domain, is in lower case since it travels as a header, and is not Kubernetes' own.
fn check_key(item: &Node<'_>, key: &str) {
    if key.is_empty() {
        item.mistake("key", "missing; such as example.org/tenant");
        return;
    }
    let (domain, path) = key.split_once('/').unwrap_or_default();
    if !is_subdomain(domain) || !is_path(path) {
        let problem = format!("{key:?} is not a domain, / and a path, such as example.org/tenant");
        item.mistake("key", problem);
    }
    if key.chars().any(char::is_uppercase) {
        item.mistake("key", format!("{key:?} is not in lower case"));
    }
    let reserved = |of: &str| {
        domain
            .strip_suffix(of)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if reserved("kubernetes.io") || reserved("k8s.io") {
        item.mistake(
            "key",
            format!("{domain} is for Kubernetes' own use; take your own"),
        );
    }
}

/// A subdomain by RFC 1123.
fn is_subdomain(domain: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        ends.iter()
            .all(|end| end.is_some_and(|&byte| is_letter(byte)))
            && bytes.iter().all(|&byte| is_letter(byte) || byte == b'-')
    };
    domain.len() <= 253 && domain.split('.').all(is_label)
}

fn is_path(path: &str) -> bool {
    let is_letter =
        |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
    !path.is_empty() && path.bytes().all(is_letter)
}
