//! What a request asks for, as kube-apiserver's own log has it.

use fleetcache_auth::selected_name;
use http::Method;
use serde::Serialize;

use crate::query::{percent_decode, query_pairs};
use crate::request_info::is_watch;

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    /// The verb in Kubernetes' words; the method where the path is no resource, and "" for a resource and a method that has
    /// no verb.
    pub(super) verb: String,
    pub(super) object: Option<ObjectReference>,
}

/// The `objectRef` of an event; "" is what a path does not name.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectReference {
    #[serde(skip_serializing_if = "str::is_empty")]
    resource: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_group: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: String,
}

impl Attributes {
    /// Reads a target as kube-apiserver reads it, odd ones too: other than what decides where an answer comes from, this is
    /// not about what is certain.
    pub(super) fn of(method: &Method, target: &str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let resource = of_resource(method, &percent_decode(path), query);
        resource.unwrap_or_else(|| Self {
            verb: method.as_str().to_lowercase(),
            object: None,
        })
    }

    /// Whether the rest of the path and the query are for somebody behind the cluster.
    pub(super) fn is_proxied(&self) -> bool {
        let object = self.object.as_ref();
        self.verb == "proxy" || object.is_some_and(|it| it.subresource == "proxy")
    }
}

fn of_resource(method: &Method, path: &str, query: &str) -> Option<Attributes> {
    let mut segments = path.trim_matches('/').split('/');
    let api_group = match segments.next()? {
        "api" => "",
        "apis" => segments.next()?,
        _ => return None,
    };
    let api_version = segments.next()?;
    let mut segments: Vec<_> = segments.collect();
    let mut verb = match *method {
        Method::POST => "create",
        Method::GET | Method::HEAD => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    };
    let by_path = match *segments.first()? {
        special @ ("watch" | "proxy") => Some(special),
        _ => None,
    };
    if let Some(special) = by_path {
        verb = special;
        segments.remove(0);
    }
    let mut namespace = "";
    if let ["namespaces", named, rest @ ..] = &segments[..] {
        namespace = named;
        let of_namespace = matches!(rest, [] | ["status" | "finalize", ..]);
        if !of_namespace {
            segments.drain(..2);
        }
    }
    let resource = *segments.first()?;
    let segment = |at: usize| segments.get(at).copied().unwrap_or_default();
    let mut name = segment(1).to_owned();
    let subresource = match by_path {
        None => segment(2),
        Some(_) => "",
    };
    if name.is_empty() && verb == "get" {
        verb = match is_watch(query) {
            true => "watch",
            false => "list",
        };
        let mut pairs = query_pairs(query);
        let fields = pairs.find(|(key, _)| key == "fieldSelector");
        let selected = fields.and_then(|(_, fields)| selected_name(&fields));
        name = selected.unwrap_or_default();
    } else if name.is_empty() && verb == "delete" {
        verb = "deletecollection";
    }
    Some(Attributes {
        verb: verb.to_owned(),
        object: Some(ObjectReference {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name,
            api_group: api_group.to_owned(),
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a real server wrote for the same requests; the end-to-end tests ask it again.
    #[test]
    fn a_request_is_read_as_kube_apiserver_reads_it() {
        for (method, target, expect) in [
            ("GET", "/api/v1/namespaces/a", "get namespaces a a  v1 "),
            (
                "GET",
                "/api/v1/configmaps?limit=5",
                "list configmaps    v1 ",
            ),
            (
                "GET",
                "/api/v1/namespaces/a/configmaps/b",
                "get configmaps a b  v1 ",
            ),
            (
                "POST",
                "/apis/apps/v1/namespaces/a/deployments",
                "create deployments a  apps v1 ",
            ),
            (
                "PATCH",
                "/api/v1/namespaces/a/configmaps/b",
                "patch configmaps a b  v1 ",
            ),
            (
                "PUT",
                "/api/v1/namespaces/a/configmaps/b",
                "update configmaps a b  v1 ",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/a/configmaps/b",
                "delete configmaps a b  v1 ",
            ),
            (
                "DELETE",
                "/api/v1/namespaces/a/configmaps?x=y",
                "deletecollection configmaps a   v1 ",
            ),
            (
                "GET",
                "/api/v1/configmaps?watch=1",
                "watch configmaps    v1 ",
            ),
            (
                "GET",
                "/api/v1/configmaps?fieldSelector=metadata.name%3Db",
                "list configmaps  b  v1 ",
            ),
            (
                "GET",
                "/api/v1/watch/namespaces/a/configmaps/b",
                "watch configmaps a b  v1 ",
            ),
            (
                "GET",
                "/api/v1/namespaces/a/status",
                "get namespaces a a  v1 status",
            ),
            (
                "GET",
                "/apis/apps/v1/namespaces/a/deployments/b/scale",
                "get deployments a b apps v1 scale",
            ),
            (
                "POST",
                "/api/v1/namespaces/a/pods/b/exec?command=x",
                "create pods a b  v1 exec",
            ),
            (
                "GET",
                "/api/v1/nodes/b/proxy/metrics",
                "get nodes  b  v1 proxy",
            ),
            ("HEAD", "/api/v1/configmaps", "list configmaps    v1 "),
            ("OPTIONS", "/api/v1/configmaps", " configmaps    v1 "),
            ("GET", "/api/v1/namespaces/", "list namespaces    v1 "),
            ("GET", "/api/v1/namespaces/a/b/c/d/e", "get b a c  v1 d"),
            (
                "GET",
                "/api/v1//namespaces/%41%0a",
                "get   namespaces  v1 A\n",
            ),
            (
                "GET",
                "/api/v1/namespaces/a%2fb/configmaps/x%2fy",
                "get b a configmaps  v1 x",
            ),
            (
                "GET",
                "/api/v1/../v1/namespaces",
                "get ..  v1  v1 namespaces",
            ),
            ("GET", "/api/v1", "get"),
            ("GET", "/apis/apps/v1", "get"),
            ("POST", "/foo/bar", "post"),
            ("HEAD", "/version", "head"),
            ("FROB", "/", "frob"),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let Attributes { verb, object } = Attributes::of(&method, target);
            let read = match object {
                Some(it) => [
                    verb,
                    it.resource,
                    it.namespace,
                    it.name,
                    it.api_group,
                    it.api_version,
                    it.subresource,
                ]
                .join(" "),
                None => verb,
            };
            assert_eq!(read, expect, "{method} {target}");
        }
    }
}
