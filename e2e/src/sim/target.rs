//! What a request path names.

use super::query;
use super::resource::{RESOURCES, Resource};
use super::status::Status;

/// The meaning of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A resource, an object of it, or a subresource.
    Resource(ResourcePath),
    /// Anything else: discovery, health, reviews. The path without trailing slashes.
    Other(String),
}

/// A path below a known resource. Empty parts are absent.
#[derive(Clone, Debug)]
pub(super) struct ResourcePath {
    pub(super) resource: &'static Resource,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) subresource: String,
}

impl Target {
    pub(super) fn parse(path: &str) -> Result<Self, Status> {
        let path = path.trim_end_matches('/');
        let segments: Vec<String> = path
            .split('/')
            .skip(1)
            .map(|segment| query::decode(segment, false))
            .collect();
        if segments
            .iter()
            .any(|segment| segment.is_empty() || segment == "." || segment == "..")
        {
            return Err(Status::no_such_resource());
        }
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => resource_path("", version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() && is_served(group) => {
                resource_path(group, version, rest)
            }
            _ => Ok(Self::Other(path.to_owned())),
        }
    }
}

impl ResourcePath {
    /// The namespace for messages.
    pub(super) fn namespace_or_none(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(self.namespace.as_str())
    }
}

impl PartialEq for ResourcePath {
    fn eq(&self, other: &Self) -> bool {
        let parts = |path: &Self| {
            (
                path.resource.plural,
                path.namespace.clone(),
                path.name.clone(),
                path.subresource.clone(),
            )
        };
        parts(self) == parts(other)
    }
}

impl Eq for ResourcePath {}

fn is_served(group: &str) -> bool {
    RESOURCES.iter().any(|resource| resource.group == group)
}

/// `namespaces` is both a resource and the prefix of the namespaced ones; what follows the name tells.
fn resource_path(group: &str, version: &str, rest: &[&str]) -> Result<Target, Status> {
    let (namespace, rest) = match rest {
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
        ["namespaces", namespace, rest @ ..] => (*namespace, rest),
        _ => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return Err(Status::no_such_resource()),
    };
    let resource = Resource::at(group, version, plural).ok_or_else(|| unknown(group))?;
    // A namespaced object without its namespace, or a namespace around what has none.
    if (resource.namespaced && namespace.is_empty() && !name.is_empty())
        || (!resource.namespaced && !namespace.is_empty())
    {
        return Err(unknown(group));
    }
    Ok(Target::Resource(ResourcePath {
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: subresource.to_owned(),
    }))
}

/// Custom resources are served by another handler than the built-in ones, with its own words.
fn unknown(group: &str) -> Status {
    if RESOURCES
        .iter()
        .any(|resource| resource.group == group && resource.custom)
    {
        Status::no_such_page()
    } else {
        Status::no_such_resource()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_resources_objects_and_subresources() {
        let check = |path: &str, expected: [&str; 4]| {
            let Target::Resource(found) = Target::parse(path).unwrap() else {
                panic!("{path} is a resource")
            };
            let parts = [
                found.resource.plural,
                &found.namespace,
                &found.name,
                &found.subresource,
            ];
            assert_eq!(parts, expected, "{path}");
        };
        check("/api/v1/pods", ["pods", "", "", ""]);
        check("/api/v1/namespaces", ["namespaces", "", "", ""]);
        check("/api/v1/namespaces/a", ["namespaces", "", "a", ""]);
        check(
            "/api/v1/namespaces/a/status",
            ["namespaces", "", "a", "status"],
        );
        check("/api/v1/namespaces/a/pods/", ["pods", "a", "", ""]);
        check(
            "/api/v1/namespaces/a/pods/p/status",
            ["pods", "a", "p", "status"],
        );
        check(
            "/api/v1/namespaces/a/configmaps/cm%31",
            ["configmaps", "a", "cm1", ""],
        );
        check(
            "/apis/apps/v1/namespaces/a/deployments/d",
            ["deployments", "a", "d", ""],
        );
        check("/apis/example.com/v1/widgets", ["widgets", "", "", ""]);
    }

    #[test]
    fn what_is_not_served_is_not_found() {
        let check = |path: &str, message: &str| {
            let error = Target::parse(path).unwrap_err();
            assert_eq!(
                (error.code, error.message.as_str()),
                (404, message),
                "{path}"
            );
        };
        let resource = "the server could not find the requested resource";
        check("/api/v1/foos", resource);
        check("/api/v1/namespaces/a/nodes", resource);
        check("/api/v1/namespaces/a/configmaps/../configmaps/b", resource);
        check("/apis/apps/v1/foos", resource);
        check("/apis/example.com/v1/foos", "404 page not found");
        assert_eq!(
            Target::parse("/apis/").unwrap(),
            Target::Other("/apis".to_owned())
        );
        assert_eq!(
            Target::parse("/apis/foo.io/v1/foos").unwrap(),
            Target::Other("/apis/foo.io/v1/foos".to_owned())
        );
    }
}
