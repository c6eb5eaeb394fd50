//! kube-apiserver's `AuthenticationConfiguration`: whose tokens are believed, and what in them names the user.
//!
//! The same file serves kube-apiserver and the proxy, with the same rules. What the proxy cannot do is refused when the
//! file is read, and never ignored: CEL but for plain access to a claim ([`ClaimPath`]), rules about users, egress
//! selectors, and `anonymous`, which the proxy's own configuration says.

mod issuer;
mod mapping;
mod node;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use super::claim_path::ClaimPath;
pub(super) use issuer::roots;
use node::Node;

/// The versions that are understood; they do not differ in what is in them.
const API_VERSIONS: [&str; 2] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
];

/// As many as kube-apiserver takes.
const MAX_ISSUERS: usize = 64;

/// A file of kind `AuthenticationConfiguration`, without mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticationConfiguration {
    pub(super) issuers: Vec<IssuerConfig>,
}

/// One mistake in a file: where, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The key's path, such as `jwt[0].issuer.url`; `(document)` where it is about all of it.
    pub path: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

/// One issuer, and what of its tokens names the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IssuerConfig {
    /// What `iss` must be, exactly.
    pub(super) url: String,
    /// Where the discovery document is, where it is not under the URL.
    pub(super) discovery_url: Option<String>,
    /// The CAs of its server, in PEM; the system's where there are none.
    pub(super) certificate_authority: Option<String>,
    /// One of these must be in `aud`.
    pub(super) audiences: Vec<String>,
    /// Claims that must have this value.
    pub(super) required: Vec<(String, String)>,
    pub(super) username: Mapping,
    pub(super) groups: Option<Mapping>,
    pub(super) uid: Option<Mapping>,
    /// Keys of `extra`, and where their values are.
    pub(super) extra: Vec<(String, ClaimPath)>,
}

/// Where in a token something about the user is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mapping {
    /// A claim of the token itself, and what is put before its value.
    Claim { claim: String, prefix: String },
    /// A claim, or something inside it.
    Path(ClaimPath),
}

impl IssuerConfig {
    /// Whether the keys of both are to be had in the same way.
    pub(super) fn has_server_of(&self, other: &Self) -> bool {
        let of = |it: &Self| {
            (
                it.url.clone(),
                it.discovery_url.clone(),
                it.certificate_authority.clone(),
            )
        };
        of(self) == of(other)
    }
}

impl AuthenticationConfiguration {
    /// Reads a file.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        let mistakes = RefCell::default();
        let issuers = match serde_saphyr::from_str::<Value>(text) {
            Ok(document) => read(Node::root(document, &mistakes)),
            Err(error) => {
                mistakes.borrow_mut().push(Mistake {
                    path: node::DOCUMENT.to_owned(),
                    problem: format!("not YAML: {}", error.without_snippet()),
                });
                Vec::new()
            }
        };
        match mistakes.into_inner() {
            none if none.is_empty() => Ok(Self { issuers }),
            mistakes => Err(mistakes),
        }
    }

    /// The URLs of the issuers whose tokens are believed.
    pub fn issuers(&self) -> impl Iterator<Item = &str> {
        self.issuers.iter().map(|issuer| issuer.url.as_str())
    }
}

fn read(mut root: Node<'_>) -> Vec<IssuerConfig> {
    let version = root.text("apiVersion").unwrap_or_default();
    if !API_VERSIONS.contains(&version.as_str()) {
        let right = API_VERSIONS.join(" or ");
        root.mistake("apiVersion", format!("{version:?} is not {right}"));
    }
    let kind = root.text("kind").unwrap_or_default();
    if kind != "AuthenticationConfiguration" {
        let problem = format!("{kind:?} is not AuthenticationConfiguration");
        root.mistake("kind", problem);
    }
    root.refuse(
        "anonymous",
        "not available here: whether clients without credentials are let in is said by \
         authentication.anonymous in the proxy's own configuration",
    );
    let nodes = root.nodes("jwt");
    if nodes.len() > MAX_ISSUERS {
        root.mistake("jwt", format!("more than {MAX_ISSUERS} issuers"));
    }
    let issuers: Vec<_> = nodes.into_iter().map(issuer::issuer).collect();
    // Two of one URL: which of them judges a token would depend on their order.
    let urls = issuers.iter().map(|it| Some(it.url.as_str()));
    no_two(&root, urls, "url");
    let discovery = issuers.iter().map(|it| it.discovery_url.as_deref());
    no_two(&root, discovery, "discoveryURL");
    root.end();
    issuers
}

fn no_two<'a>(root: &Node<'_>, urls: impl Iterator<Item = Option<&'a str>>, key: &str) {
    let mut seen = HashSet::new();
    for (i, url) in urls.enumerate() {
        if let Some(url) = url.filter(|url| !url.is_empty())
            && !seen.insert(url)
        {
            let problem = format!("{url:?} is another issuer's already; each needs its own");
            root.mistake(&format!("jwt[{i}].issuer.{key}"), problem);
        }
    }
}
