//! A path as the resource that it names.

use std::borrow::Cow;

use fleetcache_cache::gvr::Gvr;

use crate::query::percent_decode;

/// A path of the form `/api/v1|/apis/g/v [/namespaces/ns] /resource [/name [/subresource…]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePath<'a> {
    /// Group, version and resource.
    pub gvr: Gvr,
    /// The namespace, where named.
    pub namespace: Option<Cow<'a, str>>,
    /// The object, where named.
    pub name: Option<Cow<'a, str>>,
    /// What follows the name's slash up to the next.
    pub subresource: Option<Cow<'a, str>>,
}

impl<'a> ResourcePath<'a> {
    /// Reads a path of the whitelist: plain characters, no empty or dot segments, at most one trailing slash.
    pub fn parse_strict(path: &'a str) -> Option<Self> {
        let path = path.strip_prefix('/')?;
        let path = path.strip_suffix('/').unwrap_or(path);
        path.split('/')
            .all(is_plain)
            .then(|| Self::from_segments(path.split('/').map(Cow::Borrowed)))?
    }

    /// Reads a path as the server would, escapes and doubled slashes included: for what a write may have changed. An
    /// escaped slash parts segments like any other, since the server decodes a path before it takes it apart.
    pub fn parse_lenient(path: &'a str) -> Option<Self> {
        match percent_decode(path) {
            Cow::Borrowed(path) => Self::from_segments(non_empty_segments(path).map(Cow::Borrowed)),
            Cow::Owned(path) => Self::from_segments(
                non_empty_segments(&path).map(|segment| Cow::Owned(segment.to_owned())),
            ),
        }
    }

    /// Reads a path of the old kind of watch, `/api/v1|/apis/g/v /watch …`, as what it watches.
    pub fn parse_legacy_watch(path: &str) -> Option<ResourcePath<'static>> {
        let path = percent_decode(path);
        let mut segments: Vec<&str> = non_empty_segments(&path).collect();
        let at = match *segments.first()? {
            "api" => 2,
            "apis" => 3,
            _ => return None,
        };
        if segments.get(at) != Some(&"watch") {
            return None;
        }
        segments.remove(at);
        let owned = segments
            .into_iter()
            .map(|segment| segment.to_owned().into());
        ResourcePath::from_segments(owned)
    }

    fn from_segments(mut segments: impl Iterator<Item = Cow<'a, str>>) -> Option<Self> {
        let group = match &*segments.next()? {
            "api" => Cow::Borrowed(""),
            "apis" => segments.next()?,
            _ => return None,
        };
        let version = segments.next()?;
        let mut resource = segments.next()?;
        let mut namespace = None;
        let mut name = segments.next();
        let mut next = segments.next();
        if resource == "watch" || resource == "proxy" {
            return None;
        }
        // `/namespaces/x/status` and `/namespaces/x/finalize` are subresources of the namespace itself, in any group.
        let of_namespace = matches!(next.as_deref(), None | Some("status" | "finalize"));
        if resource == "namespaces" && !of_namespace && name.is_some() {
            namespace = name;
            resource = next?;
            name = segments.next();
            next = segments.next();
        }
        Some(Self {
            gvr: Gvr::new(&group, &version, &resource),
            namespace,
            name,
            subresource: next,
        })
    }
}

/// Whether a segment is of the whitelist: no character that somebody on the way could read otherwise.
pub(crate) fn is_plain(segment: &str) -> bool {
    !segment.is_empty()
        && segment != "."
        && segment != ".."
        && segment
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b))
}

pub(super) fn non_empty_segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(path: &str) -> Option<String> {
        ResourcePath::parse_strict(path).map(|path| {
            let part = |part: &Option<Cow<'_, str>>| part.as_deref().unwrap_or("-").to_owned();
            format!(
                "{} {} {} {}",
                path.gvr,
                part(&path.namespace),
                part(&path.name),
                part(&path.subresource)
            )
        })
    }

    #[test]
    fn resource_paths_are_read() {
        for (path, expected) in [
            ("/api/v1/pods", "pods.v1 - - -"),
            ("/api/v1/pods/", "pods.v1 - - -"),
            ("/api/v1/namespaces", "namespaces.v1 - - -"),
            ("/api/v1/namespaces/a", "namespaces.v1 - a -"),
            ("/api/v1/namespaces/a/status", "namespaces.v1 - a status"),
            (
                "/api/v1/namespaces/a/finalize",
                "namespaces.v1 - a finalize",
            ),
            ("/api/v1/namespaces/a/pods", "pods.v1 a - -"),
            ("/api/v1/namespaces/a/pods/b", "pods.v1 a b -"),
            ("/api/v1/namespaces/a/pods/b/log", "pods.v1 a b log"),
            ("/api/v1/namespaces/a/pods/b/proxy/x/y", "pods.v1 a b proxy"),
            ("/apis/apps/v1/deployments", "deployments.v1.apps - - -"),
            (
                "/apis/ex.io/v1/namespaces/a/status",
                "namespaces.v1.ex.io - a status",
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
                "clusterroles.v1.rbac.authorization.k8s.io - system:node -",
            ),
            (
                "/apis/ex.io/v1/namespaces/a/widgets/b/scale",
                "widgets.v1.ex.io a b scale",
            ),
        ] {
            assert_eq!(resource(path).as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn what_is_not_exactly_a_resource_path_is_none() {
        for path in [
            "",
            "/",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/apps",
            "/apis/apps/v1",
            "/version",
            "/api/v1//pods",
            "/api/v1/pods//",
            "/api/v1/namespaces/a/../b/pods",
            "/api/v1/./pods",
            "/api/v1/po%64s",
            "/api/v1/pods/a b",
            "/api/v1/watch/pods",
            "/api/v1/proxy/nodes/a",
            "/apis/apps/v1/watch/deployments",
            "api/v1/pods",
            "/API/v1/pods",
        ] {
            assert_eq!(resource(path), None, "{path}");
        }
    }

    #[test]
    fn a_legacy_watch_is_read_as_what_it_watches() {
        let watched = |path| {
            let path = ResourcePath::parse_legacy_watch(path)?;
            let namespace = path.namespace.unwrap_or_default();
            let name = path.name.unwrap_or_default();
            Some(format!("{} {namespace} {name}", path.gvr))
        };
        for (path, expected) in [
            ("/api/v1/watch/pods", Some("pods.v1  ")),
            ("/api/v1/watch/namespaces/a", Some("namespaces.v1  a")),
            ("/api/v1/watch/namespaces/a/pods/b", Some("pods.v1 a b")),
            (
                "/apis/apps/v1//w%61tch/namespaces/a/deployments/",
                Some("deployments.v1.apps a "),
            ),
            ("/api/v1/pods", None),
            ("/api/v1/namespaces/watch/pods", None),
            ("/apis/watch/v1/pods", None),
            ("/api/v1/watch", None),
            ("/", None),
        ] {
            assert_eq!(watched(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_write_is_traced_to_its_object_however_it_is_spelled() {
        for path in [
            "/api/v1//namespaces/d/configmaps/cm%31/",
            "/api/v1/namespaces/d/configmaps%2Fcm1",
            "/%61pi%2fv1%2Fnamespaces/d%2F%2fconfigmaps/cm1%2f",
        ] {
            let path = ResourcePath::parse_lenient(path).unwrap();
            assert_eq!(
                (
                    path.gvr.to_string().as_str(),
                    path.namespace.as_deref(),
                    path.name.as_deref()
                ),
                ("configmaps.v1", Some("d"), Some("cm1"))
            );
        }
    }
}
