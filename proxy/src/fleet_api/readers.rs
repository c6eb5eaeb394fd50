//! Who may read of the fleet.

use std::collections::BTreeSet;

use fleetcache_auth::{AUTHENTICATED, UserInfo, selected_name};

use super::documents::Name;
use super::{FleetRequest, Refusal};
use crate::query::query_pairs;
use crate::request_info::{ResourcePath, Verb};

/// Who may read of the fleet: users by name, and all who are in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetReaders {
    /// Their names.
    pub users: BTreeSet<String>,
    /// Groups of them.
    pub groups: BTreeSet<String>,
}

impl Default for FleetReaders {
    /// Everybody who is somebody.
    fn default() -> Self {
        Self {
            users: BTreeSet::new(),
            groups: BTreeSet::from([AUTHENTICATED.to_owned()]),
        }
    }
}

impl FleetReaders {
    /// Whether the user is one of them.
    pub(crate) fn include(&self, user: &UserInfo) -> bool {
        let mut groups = user.groups.iter();
        self.users.contains(&user.name) || groups.any(|it| self.groups.contains(it))
    }

    /// Whether the user may have an answer. What the API says of itself is for all who are authenticated, and its version for
    /// anybody, as by the roles that every cluster has.
    ///
    /// # Errors
    /// In the words of kube-apiserver.
    pub(super) fn check(&self, user: &UserInfo, request: &FleetRequest<'_>) -> Result<(), Refusal> {
        let Some(resource) = &request.resource else {
            let authenticated = user.groups.iter().any(|it| it == AUTHENTICATED);
            let is_public = || {
                request.method == "get" && matches!(Name::of(&request.path), Some(Name::Version))
            };
            if authenticated || is_public() {
                return Ok(());
            }
            return Err(Refusal::ForbiddenPath {
                user: user.name.clone(),
                verb: request.method.clone(),
                path: format!("/{}", request.path),
            });
        };
        if self.include(user) {
            return Ok(());
        }
        Err(Refusal::Forbidden {
            user: user.name.clone(),
            verb: request.verb.as_str(),
            name: name(request, resource),
            subresource: resource
                .subresource
                .as_deref()
                .unwrap_or_default()
                .to_owned(),
        })
    }
}

/// Which object a request is about: of a list or a watch, the one that it selects by its name.
fn name(request: &FleetRequest<'_>, resource: &ResourcePath<'_>) -> String {
    if let Some(name) = &resource.name {
        return name.to_string();
    }
    if !matches!(request.verb, Verb::List | Verb::Watch) {
        return String::new();
    }
    let mut pairs = query_pairs(request.query);
    let fields = pairs.find(|(key, _)| key == "fieldSelector");
    let name = fields.and_then(|(_, fields)| selected_name(&fields));
    name.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::error::Error;
    use crate::status;

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        UserInfo {
            name: name.to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            ..UserInfo::default()
        }
    }

    const PATH: &str = "/apis/fleetcache.dev/v1alpha1/clusterconnections";

    fn check(readers: &FleetReaders, user: &UserInfo, target: &str) -> Result<(), Refusal> {
        readers.check(user, &FleetRequest::parse(&Method::GET, target))
    }

    #[test]
    fn readers_are_named_or_in_a_group() {
        let readers = FleetReaders {
            users: BTreeSet::from(["alice".to_owned()]),
            groups: BTreeSet::from(["a,b".to_owned()]),
        };
        for (user, may) in [
            (user("alice", &[]), true),
            (user("bob", &["x", "a,b"]), true),
            (user("bob", &["a", "b", AUTHENTICATED]), false),
            (user("a,b", &["alice"]), false),
        ] {
            for target in [
                PATH.to_owned(),
                format!("{PATH}/x"),
                format!("{PATH}?watch=1"),
            ] {
                assert_eq!(
                    check(&readers, &user, &target).is_ok(),
                    may,
                    "{user:?} {target}"
                );
            }
        }
        let anybody = FleetReaders::default();
        assert!(check(&anybody, &user("bob", &[AUTHENTICATED]), PATH).is_ok());
        assert!(check(&anybody, &UserInfo::anonymous(), PATH).is_err());
    }

    #[test]
    fn what_the_api_says_of_itself_is_for_all_who_are_somebody() {
        let nobody = FleetReaders {
            users: BTreeSet::new(),
            groups: BTreeSet::new(),
        };
        let bob = user("bob", &[AUTHENTICATED]);
        for path in [
            "/apis",
            "/api",
            "/apis/fleetcache.dev/v1alpha1",
            "/openapi/v3",
            "/version",
        ] {
            assert!(check(&nobody, &bob, path).is_ok(), "{path}");
            let anonymous = check(&nobody, &UserInfo::anonymous(), path);
            assert_eq!(anonymous.is_ok(), path == "/version", "{path}");
        }
    }

    #[tokio::test]
    async fn whoever_may_not_is_told_so_in_the_words_of_the_apiserver() {
        use http_body_util::BodyExt as _;

        let nobody = FleetReaders {
            users: BTreeSet::new(),
            groups: BTreeSet::new(),
        };
        let of_kind = json!({"group": "fleetcache.dev", "kind": "clusterconnections"});
        let of_object =
            json!({"name": "a", "group": "fleetcache.dev", "kind": "clusterconnections"});
        for (user, method, target, message, details) in [
            (
                user("bob", &[AUTHENTICATED]),
                Method::GET,
                PATH.to_owned(),
                "clusterconnections.fleetcache.dev is forbidden: User \"bob\" cannot list resource \"clusterconnections\" in API group \"fleetcache.dev\" at the cluster scope",
                of_kind.clone(),
            ),
            (
                user("bob", &[AUTHENTICATED]),
                Method::DELETE,
                format!("{PATH}/a"),
                "clusterconnections.fleetcache.dev \"a\" is forbidden: User \"bob\" cannot delete resource \"clusterconnections\" in API group \"fleetcache.dev\" at the cluster scope",
                of_object.clone(),
            ),
            (
                user("bob", &[AUTHENTICATED]),
                Method::GET,
                format!("{PATH}/a/status"),
                "clusterconnections.fleetcache.dev \"a\" is forbidden: User \"bob\" cannot get resource \"clusterconnections/status\" in API group \"fleetcache.dev\" at the cluster scope",
                of_object.clone(),
            ),
            (
                user("bob", &[AUTHENTICATED]),
                Method::GET,
                format!("{PATH}?fieldSelector=metadata.name%3Da"),
                "clusterconnections.fleetcache.dev \"a\" is forbidden: User \"bob\" cannot list resource \"clusterconnections\" in API group \"fleetcache.dev\" at the cluster scope",
                of_object,
            ),
            (
                UserInfo::anonymous(),
                Method::GET,
                "/apis".to_owned(),
                "forbidden: User \"system:anonymous\" cannot get path \"/apis\"",
                json!({}),
            ),
            (
                UserInfo::anonymous(),
                Method::POST,
                "/apis".to_owned(),
                "forbidden: User \"system:anonymous\" cannot post path \"/apis\"",
                json!({}),
            ),
        ] {
            let refusal = nobody.check(&user, &FleetRequest::parse(&method, &target));
            let response = status::response(&Error::Refused(refusal.unwrap_err()));
            assert_eq!(response.status(), 403, "{target}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let status: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(status["message"], message);
            assert_eq!(status["reason"], "Forbidden");
            assert_eq!(status["details"], details, "{target}");
        }
    }
}
