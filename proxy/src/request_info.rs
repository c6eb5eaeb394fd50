//! Where a request goes and what it asks, from its method and its raw target.
//!
//! What is exactly a resource path by a strict whitelist may be answered from memory; everything else goes upstream byte
//! for byte, never normalised, so that routing and authorization are the cluster's own.

use std::borrow::Cow;

use http::Method;

use crate::query::{percent_decode, query_pairs};

mod resource_path;

pub use resource_path::ResourcePath;
pub(crate) use resource_path::is_plain;
use resource_path::non_empty_segments;

/// A request's target, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub struct RequestInfo<'a> {
    /// The cluster's name, as written.
    pub cluster: &'a str,
    /// What follows `/clusters/<name>`, byte for byte; begins with `/`.
    pub path_and_query: Cow<'a, str>,
    /// The query, undecoded.
    pub query: &'a str,
    /// The verb in Kubernetes' words.
    pub verb: Verb,
    /// The resource, where the path is exactly one.
    pub resource: Option<ResourcePath<'a>>,
}

/// Kubernetes' verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST to a collection, or to a subresource.
    Create,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// GET of one object, or of a path that is no resource.
    Get,
    /// GET of a collection.
    List,
    /// Any other method.
    Other,
    /// PATCH.
    Patch,
    /// PUT.
    Update,
    /// GET of a collection with `watch`.
    Watch,
}

impl Verb {
    /// The verb as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Other => "other",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }

    /// Whether it may change something.
    pub fn is_write(self) -> bool {
        match self {
            Self::Create | Self::Delete | Self::DeleteCollection | Self::Patch | Self::Update => {
                true
            }
            Self::Get | Self::List | Self::Other | Self::Watch => false,
        }
    }
}

/// Subresources whose requests last as long as the client wants.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

impl<'a> RequestInfo<'a> {
    /// Takes a request's target apart; `None` where it is not below `/clusters/<name>`.
    pub fn parse(method: &Method, target: &'a str) -> Option<Self> {
        let rest = target.strip_prefix("/clusters/")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (cluster, rest) = rest.split_at(end);
        let path_and_query = if rest.starts_with('/') {
            Cow::Borrowed(rest)
        } else {
            Cow::Owned(format!("/{rest}"))
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let resource = ResourcePath::parse_strict(path);
        let named = resource
            .as_ref()
            .is_some_and(|resource| resource.name.is_some());
        let verb = match *method {
            Method::GET if resource.is_none() || named => Verb::Get,
            Method::GET if is_watch(query) => Verb::Watch,
            Method::GET => Verb::List,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE
                if named
                    || ResourcePath::parse_lenient(path)
                        .is_some_and(|path| path.name.is_some()) =>
            {
                Verb::Delete
            }
            Method::DELETE => Verb::DeleteCollection,
            _ => Verb::Other,
        };
        Some(Self {
            cluster,
            path_and_query,
            query,
            verb,
            resource,
        })
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        self.path_and_query.split('?').next().unwrap_or_default()
    }

    /// A GET or LIST of a resource, which an informer may be able to answer.
    pub fn is_plain_read(&self) -> bool {
        let resource = self.resource.as_ref();
        matches!(self.verb, Verb::Get | Verb::List)
            && resource.is_some_and(|resource| resource.subresource.is_none())
    }

    /// Watches, logs, exec, attach, port-forward and proxy: kube-apiserver gives them no timeout either.
    pub fn is_long_running(&self) -> bool {
        self.verb == Verb::Watch
            || self.may_pause()
            || self.legacy_verb() == Some("watch")
            // Also by a path that is read as no resource; to a write the parameter means nothing.
            || (self.verb == Verb::Get && is_watch(self.query))
    }

    /// Those of them whose reader may pause for hours: all but watches.
    pub fn may_pause(&self) -> bool {
        let subresource =
            ResourcePath::parse_lenient(self.path()).and_then(|path| path.subresource);
        self.legacy_verb() == Some("proxy")
            || subresource.is_some_and(|subresource| LONG_RUNNING.contains(&&*subresource))
    }

    /// `watch` or `proxy` of a path of the old kind.
    fn legacy_verb(&self) -> Option<&'static str> {
        let path = percent_decode(self.path());
        let mut segments = non_empty_segments(&path);
        let verb = match segments.next() {
            Some("api") => segments.nth(1),
            Some("apis") => segments.nth(2),
            _ => None,
        };
        ["watch", "proxy"].into_iter().find(|it| verb == Some(it))
    }
}

/// Absent, `0` and `false` are false, anything else is true, and the first value counts.
pub(crate) fn is_watch(query: &str) -> bool {
    query_pairs(query)
        .find(|(key, _)| key == "watch")
        .is_some_and(|(_, value)| value != "0" && !value.eq_ignore_ascii_case("false"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_and_the_rest_are_taken_byte_for_byte() {
        for (target, expected) in [
            ("/clusters/a/api", Some(("a", "/api"))),
            ("/clusters/a", Some(("a", "/"))),
            ("/clusters/a?x=1", Some(("a", "/?x=1"))),
            ("/clusters/a//api/../x%2f?", Some(("a", "//api/../x%2f?"))),
            ("/clusters/../b/api", Some(("..", "/b/api"))),
            ("/clusters/", Some(("", "/"))),
            ("/clusters", None),
            ("/api", None),
            ("/Clusters/a/api", None),
            ("//clusters/a/api", None),
        ] {
            let info = RequestInfo::parse(&Method::GET, target);
            assert_eq!(
                info.as_ref()
                    .map(|info| (info.cluster, &*info.path_and_query)),
                expected,
                "{target}"
            );
        }
    }

    #[test]
    fn verbs_are_kubernetes_own() {
        for (method, target, expected) in [
            ("GET", "/clusters/a/api/v1/pods", Verb::List),
            ("GET", "/clusters/a/api/v1/pods?watch=0", Verb::List),
            ("GET", "/clusters/a/api/v1/pods?watch=False", Verb::List),
            ("GET", "/clusters/a/api/v1/pods?watch=0&watch=1", Verb::List),
            ("GET", "/clusters/a/api/v1/pods?watch", Verb::Watch),
            ("GET", "/clusters/a/api/v1/pods?watch=foo", Verb::Watch),
            (
                "GET",
                "/clusters/a/api/v1/namespaces/x/pods/p?watch=1",
                Verb::Get,
            ),
            ("GET", "/clusters/a/version", Verb::Get),
            ("HEAD", "/clusters/a/api/v1/pods", Verb::Other),
            ("POST", "/clusters/a/api/v1/namespaces/x/pods", Verb::Create),
            (
                "PUT",
                "/clusters/a/api/v1/namespaces/x/pods/p",
                Verb::Update,
            ),
            (
                "PATCH",
                "/clusters/a/api/v1/namespaces/x/pods/p/status",
                Verb::Patch,
            ),
            (
                "DELETE",
                "/clusters/a/api/v1/namespaces/x/pods/p",
                Verb::Delete,
            ),
            (
                "DELETE",
                "/clusters/a/api/v1/namespaces/x/pods/p%20",
                Verb::Delete,
            ),
            (
                "DELETE",
                "/clusters/a/api/v1/namespaces/x/pods",
                Verb::DeleteCollection,
            ),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(
                RequestInfo::parse(&method, target).unwrap().verb,
                expected,
                "{method} {target}"
            );
        }
    }

    #[test]
    fn a_write_is_no_watch() {
        let target = "/clusters/a/api/v1/namespaces/x/pods?watch=1";
        for method in [Method::POST, Method::DELETE, Method::HEAD] {
            let info = RequestInfo::parse(&method, target).unwrap();
            assert!(!info.is_long_running(), "{method}");
        }
        let info = RequestInfo::parse(&Method::GET, "/clusters/a/api/v1//pods?watch=1");
        assert!(info.unwrap().is_long_running());
    }

    #[test]
    fn long_running_requests_are_those_of_kube_apiserver() {
        for (target, expected) in [
            ("/clusters/a/api/v1/pods?watch=1", true),
            ("/clusters/a/api/v1/watch/pods", true),
            (
                "/clusters/a/api/v1/namespaces/x/pods/p/log?follow=true",
                true,
            ),
            ("/clusters/a/api/v1/namespaces/x/pods/p/exec", true),
            (
                "/clusters/a/api/v1/namespaces/x/services/s/proxy/a//b",
                true,
            ),
            ("/clusters/a/api/v1/nodes/n/proxy", true),
            ("/clusters/a/api/v1/nodes/n%2Fproxy", true),
            ("/clusters/a/api/v1%2Fwatch/pods", true),
            ("/clusters/a/api/v1/pods", false),
            ("/clusters/a/api/v1/namespaces/x/pods/p", false),
            ("/clusters/a/version", false),
        ] {
            assert_eq!(
                RequestInfo::parse(&Method::GET, target)
                    .unwrap()
                    .is_long_running(),
                expected,
                "{target}"
            );
        }
    }
}
