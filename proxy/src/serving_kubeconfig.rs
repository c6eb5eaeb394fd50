//! The kubeconfig by which clients use the proxy: one context per cluster, and one for the fleet itself.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A kubeconfig of the proxy. Only what the proxy writes is read back.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ServingKubeconfig {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    clusters: Vec<NamedCluster>,
    contexts: Vec<NamedContext>,
    current_context: String,
    users: Vec<NamedUser>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate_authority_data: Option<String>,
    server: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Clone, Deserialize, Serialize)]
struct User {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").finish_non_exhaustive()
    }
}

/// The one user of the file.
const USER: &str = "fleetcache";

/// The context of the fleet itself; where a cluster has that name, one that no cluster can have.
pub(crate) const FLEET: [&str; 2] = ["fleet", "fleet@fleetcache"];

/// Whether a context has the name and the user that the fleet's has; a cluster may be named so too.
pub(crate) fn is_named_as_fleet(context: &str, user: &str) -> bool {
    FLEET.contains(&context) && user == USER
}

/// Why a part of a kubeconfig cannot be had.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// No such cluster.
    #[error("no cluster {name:?}; there are: {known}")]
    UnknownCluster {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// Not the URL of a proxy.
    #[error("{url:?} is not a URL such as \"https://proxy.example.com:8443\"")]
    NotAUrl {
        /// What was given.
        url: String,
    },
}

impl ServingKubeconfig {
    /// One context per cluster, named as the cluster, and one for the fleet; `url` is the proxy's own, without a path.
    /// Without a CA the system's authorities count, and without a token users bring credentials of their own.
    pub fn new<'a>(
        url: &str,
        ca_pem: Option<&str>,
        token: Option<&str>,
        clusters: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        use base64::Engine as _;
        let ca = ca_pem.map(|pem| base64::engine::general_purpose::STANDARD.encode(pem));
        let ca = ca.as_deref();
        let mut it = Self {
            api_version: "v1".to_owned(),
            kind: "Config".to_owned(),
            clusters: Vec::new(),
            contexts: Vec::new(),
            current_context: String::new(),
            users: vec![NamedUser {
                name: USER.to_owned(),
                user: User {
                    token: token.map(str::to_owned),
                },
            }],
        };
        for name in clusters {
            it.push(name, ca, server(url, name));
        }
        it.choose_current();
        let is_taken = |name: &str| it.contexts.iter().any(|it| it.name == name);
        let fleet = FLEET[usize::from(is_taken(FLEET[0]))];
        it.push(fleet, ca, url.trim_end_matches('/').to_owned());
        it
    }

    fn push(&mut self, name: &str, ca: Option<&str>, server: String) {
        self.clusters.push(NamedCluster {
            name: name.to_owned(),
            cluster: Cluster {
                certificate_authority_data: ca.map(str::to_owned),
                server,
            },
        });
        self.contexts.push(NamedContext {
            name: name.to_owned(),
            context: Context {
                cluster: name.to_owned(),
                user: USER.to_owned(),
            },
        });
    }

    /// Reads what was written.
    ///
    /// # Errors
    /// It is no kubeconfig of a proxy.
    pub fn from_yaml(text: &str) -> Result<Self, serde_saphyr::Error> {
        serde_saphyr::from_str(text)
    }

    /// As YAML.
    pub fn to_yaml(&self) -> String {
        // Long strings, such as the CA, would be folded: valid, but a burden to whoever looks with grep.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
        serde_saphyr::to_string_with_options(self, options)
            .expect("strings and lists can be written as YAML")
    }

    /// Only some clusters, or the fleet (all where none are named), and with another URL of the proxy.
    ///
    /// # Errors
    /// A name is unknown, or the URL is none.
    pub fn select(mut self, names: &[String], url: Option<&str>) -> Result<Self, SelectError> {
        for name in names {
            if !self.clusters.iter().any(|it| it.name == *name) {
                let known: Vec<_> = self.clusters.iter().map(|it| it.name.as_str()).collect();
                return Err(SelectError::UnknownCluster {
                    name: name.clone(),
                    known: known.join(", "),
                });
            }
        }
        if !names.is_empty() {
            self.clusters.retain(|it| names.contains(&it.name));
            self.contexts.retain(|it| names.contains(&it.name));
            self.choose_current();
        }
        if let Some(url) = url {
            let parsed = url.parse::<http::Uri>().ok();
            let is_url = |it: &http::Uri| {
                it.scheme_str() == Some("https") && it.authority().is_some() && it.query().is_none()
            };
            if !parsed.is_some_and(|it| is_url(&it)) {
                return Err(SelectError::NotAUrl {
                    url: url.to_owned(),
                });
            }
            for it in &mut self.clusters {
                it.cluster.server = match it.is_cluster() {
                    true => server(url, &it.name),
                    false => url.trim_end_matches('/').to_owned(),
                };
            }
        }
        Ok(self)
    }

    /// Only a single cluster is current: among several, a command without a context would hit one by chance.
    fn choose_current(&mut self) {
        self.current_context = match &self.contexts[..] {
            [only] => only.name.clone(),
            _ => String::new(),
        };
    }
}

impl NamedCluster {
    /// Whether it is one of the clusters, and not the fleet.
    fn is_cluster(&self) -> bool {
        let path = format!("/clusters/{}", self.name);
        self.cluster.server.ends_with(&path)
    }
}

fn server(url: &str, name: &str) -> String {
    format!("{}/clusters/{name}", url.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn one_context_per_cluster() {
        let it = ServingKubeconfig::new(
            "https://127.0.0.1:8443",
            Some("CA"),
            Some("t0ken"),
            ["alpha", "beta"],
        );
        let expect = "\
apiVersion: v1
kind: Config
clusters:
- name: alpha
  cluster:
    certificate-authority-data: Q0E=
    server: https://127.0.0.1:8443/clusters/alpha
- name: beta
  cluster:
    certificate-authority-data: Q0E=
    server: https://127.0.0.1:8443/clusters/beta
- name: fleet
  cluster:
    certificate-authority-data: Q0E=
    server: https://127.0.0.1:8443
contexts:
- name: alpha
  context:
    cluster: alpha
    user: fleetcache
- name: beta
  context:
    cluster: beta
    user: fleetcache
- name: fleet
  context:
    cluster: fleet
    user: fleetcache
current-context: \"\"
users:
- name: fleetcache
  user:
    token: t0ken
";
        assert_eq!(it.to_yaml(), expect);
        let again = ServingKubeconfig::from_yaml(expect).unwrap();
        assert_eq!(again.to_yaml(), expect);
        let long =
            ServingKubeconfig::new("https://h:1", Some(&"CA".repeat(200)), Some("t"), ["alpha"])
                .to_yaml();
        assert_eq!(long.lines().count(), 25, "{long}");
    }

    #[test]
    fn the_fleet_has_a_context_that_no_cluster_has() {
        let of = |names: &[&'static str]| {
            let it =
                ServingKubeconfig::new("https://h:1", Some("CA"), Some("t"), names.iter().copied());
            let last = it.clusters.last().unwrap();
            (
                last.name.clone(),
                last.cluster.server.clone(),
                it.current_context,
            )
        };
        let root = || "https://h:1".to_owned();
        let (fleet, other) = (FLEET[0].to_owned(), FLEET[1].to_owned());
        assert_eq!(of(&["a", "b"]), (fleet.clone(), root(), String::new()));
        assert_eq!(of(&["fleet"]), (other, root(), fleet.clone()));
        assert_eq!(
            of(&["a"]),
            (fleet.clone(), root(), "a".to_owned()),
            "a single cluster is current"
        );
        assert_eq!(of(&[]), (fleet, root(), String::new()));
        let it = ServingKubeconfig::new("https://h:1", Some("CA"), Some("t"), ["a"]);
        let moved = it
            .clone()
            .select(&[], Some("https://proxy.example/"))
            .unwrap();
        assert_eq!(moved.clusters[1].cluster.server, "https://proxy.example");
        let server = |it: &ServingKubeconfig, name: &str, url: Option<&str>| {
            let part = it.clone().select(&names(&[name]), url).unwrap();
            assert_eq!((part.clusters.len(), &*part.current_context), (1, name));
            part.clusters[0].cluster.server.clone()
        };
        assert_eq!(server(&it, FLEET[0], None), root(), "it can be had alone");
        assert_eq!(server(&it, FLEET[0], Some("https://p/")), "https://p");
        let it = ServingKubeconfig::new("https://h:1", Some("CA"), Some("t"), ["fleet"]);
        assert_eq!(server(&it, FLEET[0], None), "https://h:1/clusters/fleet");
        assert_eq!(server(&it, FLEET[1], None), root());
    }

    #[test]
    fn names_that_look_like_other_yaml_stay_names() {
        let odd = ["true", "null", "123", "1e5", "0x1f", "no", "1.5"];
        let text = ServingKubeconfig::new("https://h:1", Some("CA"), Some("t"), odd).to_yaml();
        let values: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        for (i, name) in odd.iter().enumerate() {
            assert_eq!(values["clusters"][i]["name"], *name);
        }
    }

    #[test]
    fn a_part_with_another_url() {
        let it = ServingKubeconfig::new("https://h:1", Some("CA"), Some("t"), ["alpha", "beta"]);
        let part = it
            .clone()
            .select(&names(&["beta"]), Some("https://proxy.example/"))
            .unwrap();
        assert_eq!(part.clusters.len(), 1);
        assert_eq!(part.contexts.len(), 1);
        assert_eq!(
            part.clusters[0].cluster.server,
            "https://proxy.example/clusters/beta"
        );
        assert_eq!(part.current_context, "beta");
        assert_eq!(
            it.clone()
                .select(&names(&["gamma"]), None)
                .unwrap_err()
                .to_string(),
            "no cluster \"gamma\"; there are: alpha, beta, fleet"
        );
        for wrong in ["", "proxy", "http://proxy", "https://", "https://h/?q"] {
            let err = it.clone().select(&[], Some(wrong)).unwrap_err().to_string();
            let expect =
                format!("{wrong:?} is not a URL such as \"https://proxy.example.com:8443\"");
            assert_eq!(err, expect);
        }
    }
}
