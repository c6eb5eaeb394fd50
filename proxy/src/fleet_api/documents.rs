//! What the fleet's API says about itself: discovery, `/version` and OpenAPI. The same for as long as the process lives.

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, IF_NONE_MATCH, LOCATION, VARY,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::json;
use sha2::{Digest as _, Sha512};

use super::{GROUP, KIND, RESOURCE, SHORT_NAME, VERBS, VERSION, openapi};
use crate::body::{Body, empty};
use crate::negotiation::{Clause, clauses};
use crate::query::query_pairs;
use crate::sent::{indented, whole};

/// How clients since Kubernetes 1.30 ask for all of discovery at once.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The server's version of Kubernetes that this API behaves as: clients judge by it what they may ask for.
const BEHAVES_AS: (&str, &str) = ("1", "36");

/// All documents, written once.
#[derive(Debug)]
pub(super) struct Documents {
    api: Document,
    api_aggregated: Document,
    apis: Document,
    apis_aggregated: Document,
    group: Document,
    resources: Document,
    version: Document,
    openapi_index: Document,
    openapi: Document,
}

/// Which document a path is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    Api,
    Apis,
    Group,
    Resources,
    Version,
    OpenapiIndex,
    Openapi,
}

impl Name {
    /// By a path without slashes at its ends.
    pub(super) fn of(path: &str) -> Option<Self> {
        let segments: Vec<_> = path.split('/').collect();
        Some(match segments[..] {
            ["api"] => Self::Api,
            ["apis"] => Self::Apis,
            ["apis", GROUP] => Self::Group,
            ["apis", GROUP, VERSION] => Self::Resources,
            ["version"] => Self::Version,
            ["openapi", "v3"] => Self::OpenapiIndex,
            ["openapi", "v3", "apis", GROUP, VERSION] => Self::Openapi,
            _ => return None,
        })
    }
}

#[derive(Debug)]
struct Document {
    bytes: Bytes,
    etag: String,
    content_type: &'static str,
    /// Clients revalidate it by its `ETag`.
    is_public: bool,
}

impl Document {
    fn json(value: &str) -> Self {
        Self::new(format!("{value}\n"), "application/json", false)
    }

    fn new(text: String, content_type: &'static str, is_public: bool) -> Self {
        let hash = Sha512::digest(&text);
        Self {
            etag: hash.iter().map(|byte| format!("{byte:02X}")).collect(),
            bytes: text.into(),
            content_type,
            is_public,
        }
    }

    fn answer(&self, headers: &HeaderMap, pretty: bool) -> Response<Body> {
        let etag = format!("\"{}\"", self.etag);
        let known = headers.get_all(IF_NONE_MATCH).iter();
        let mut known = known.filter_map(|value| value.to_str().ok());
        let is_known = self.is_public
            && known.any(|value| {
                value
                    .split(',')
                    .any(|it| matches!(it.trim(), "*") || it.trim() == etag)
            });
        let body = if is_known {
            empty()
        } else if pretty {
            indented([self.bytes.clone()].into_iter()).0
        } else {
            whole(self.bytes.clone()).0
        };
        let mut response = Response::new(body);
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let set = response.headers_mut();
        let cache_control = if self.is_public {
            "public"
        } else {
            "no-cache, private"
        };
        set.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
        set.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if self.is_public {
            set.insert(VARY, HeaderValue::from_static("Accept"));
            if let Ok(etag) = HeaderValue::try_from(etag) {
                set.insert(ETAG, etag);
            }
        }
        response
    }
}

impl Documents {
    pub(super) fn new() -> Self {
        let version = format!(r#"{{"groupVersion":"{GROUP}/{VERSION}","version":"{VERSION}"}}"#);
        let group =
            format!(r#""name":"{GROUP}","versions":[{version}],"preferredVersion":{version}"#);
        let verbs = json!(VERBS);
        let aggregated = |items: &str| {
            let text = format!(
                r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{{}},"items":[{items}]}}{}"#,
                "\n"
            );
            Document::new(text, AGGREGATED, true)
        };
        let openapi = openapi::document().to_string();
        let openapi = Document::new(openapi, "application/json", true);
        let index = json!({"paths": {openapi::PATH: {
            "serverRelativeURL": format!("/openapi/v3/{}?hash={}", openapi::PATH, openapi.etag),
        }}});
        Self {
            api: Document::json(
                r#"{"kind":"APIVersions","versions":[],"serverAddressByClientCIDRs":[]}"#,
            ),
            api_aggregated: aggregated(""),
            apis: Document::json(&format!(
                r#"{{"kind":"APIGroupList","apiVersion":"v1","groups":[{{{group}}}]}}"#
            )),
            apis_aggregated: aggregated(&format!(
                r#"{{"metadata":{{"name":"{GROUP}"}},"versions":[{{"version":"{VERSION}","resources":[{{"resource":"{RESOURCE}","responseKind":{{"group":"{GROUP}","version":"{VERSION}","kind":"{KIND}"}},"scope":"Cluster","singularResource":"clusterconnection","verbs":{verbs},"shortNames":["{SHORT_NAME}"]}}],"freshness":"Current"}}]}}"#
            )),
            group: Document::json(&format!(
                r#"{{"kind":"APIGroup","apiVersion":"v1",{group}}}"#
            )),
            resources: Document::json(&format!(
                r#"{{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"{GROUP}/{VERSION}","resources":[{{"name":"{RESOURCE}","singularName":"clusterconnection","namespaced":false,"kind":"{KIND}","verbs":{verbs},"shortNames":["{SHORT_NAME}"]}}]}}"#
            )),
            version: Document::new(version_document(), "application/json", false),
            openapi_index: Document::new(index.to_string(), "text/plain; charset=utf-8", false),
            openapi,
        }
    }

    /// The document of a path without slashes at its ends; `None` where there is none.
    pub(super) fn answer(
        &self,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        pretty: bool,
    ) -> Option<Response<Body>> {
        let document = match Name::of(path)? {
            Name::Api if accepts_aggregated(headers) => &self.api_aggregated,
            Name::Api => &self.api,
            Name::Apis if accepts_aggregated(headers) => &self.apis_aggregated,
            Name::Apis => &self.apis,
            Name::Group => &self.group,
            Name::Resources => &self.resources,
            Name::Version => &self.version,
            Name::OpenapiIndex => &self.openapi_index,
            Name::Openapi => return Some(self.openapi(query, headers)),
        };
        Some(document.answer(
            headers,
            pretty && document.content_type == "application/json",
        ))
    }

    /// As the server does: whoever names the right hash may keep it for ever, and another hash leads to the right one.
    fn openapi(&self, query: &str, headers: &HeaderMap) -> Response<Body> {
        let document = &self.openapi;
        let hash = query_pairs(query).find(|(key, _)| key == "hash");
        let hash = hash.map(|(_, hash)| hash.into_owned()).unwrap_or_default();
        let mut response = document.answer(headers, false);
        if hash == document.etag {
            let set = response.headers_mut();
            set.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            set.insert(
                EXPIRES,
                HeaderValue::from_static("Fri, 31 Dec 2100 00:00:00 GMT"),
            );
            return response;
        }
        let set = response.headers_mut();
        set.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        if !hash.is_empty() {
            let to = format!("/openapi/v3/{}?hash={}", openapi::PATH, document.etag);
            if let Ok(to) = HeaderValue::try_from(to) {
                set.insert(LOCATION, to);
            }
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            *response.body_mut() = empty();
        }
        response
    }
}

/// Whether the first clause that discovery knows is that of the aggregated form.
fn accepts_aggregated(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|it| it.to_str().ok());
    let clauses = clauses(accept.unwrap_or_default()).unwrap_or_default();
    let form = |clause: &Clause<'_>| {
        let json = matches!(
            (clause.media_type, clause.subtype),
            ("application", "json" | "*") | ("*", "*")
        );
        let of = |name| {
            let mut parameters = clause.parameters.iter();
            parameters
                .find(|(it, _)| *it == name)
                .map_or("", |(_, value)| *value)
        };
        match (of("as"), of("g"), of("v")) {
            _ if !json => None,
            ("", ..) => Some(false),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(true),
            _ => None,
        }
    };
    clauses.iter().find_map(form).unwrap_or_default()
}

/// Always indented, as the server's.
fn version_document() -> String {
    let (major, minor) = BEHAVES_AS;
    let own = env!("CARGO_PKG_VERSION");
    let fields: [(&str, &str); 9] = [
        ("major", major),
        ("minor", minor),
        (
            "gitVersion",
            &format!("v{major}.{minor}.0+fleetcache-{own}"),
        ),
        ("gitCommit", ""),
        ("gitTreeState", ""),
        ("buildDate", "1970-01-01T00:00:00Z"),
        ("goVersion", ""),
        ("compiler", ""),
        (
            "platform",
            &format!("{}/{}", std::env::consts::OS, go_architecture()),
        ),
    ];
    let lines = fields.map(|(key, value)| format!("  {}: {}", json!(key), json!(value)));
    format!("{{\n{}\n}}", lines.join(",\n"))
}

fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_document_is_json() {
        let documents = Documents::new();
        for path in [
            "api",
            "apis",
            "apis/fleetcache.dev",
            "apis/fleetcache.dev/v1alpha1",
            "version",
            "openapi/v3",
            "openapi/v3/apis/fleetcache.dev/v1alpha1",
        ] {
            assert!(
                documents
                    .answer(path, "", &HeaderMap::new(), false)
                    .is_some(),
                "{path}"
            );
        }
        for document in [
            &documents.api,
            &documents.api_aggregated,
            &documents.apis,
            &documents.apis_aggregated,
            &documents.group,
            &documents.resources,
            &documents.version,
            &documents.openapi_index,
            &documents.openapi,
        ] {
            serde_json::from_slice::<Value>(&document.bytes).unwrap();
        }
    }

    #[test]
    fn the_first_form_of_discovery_that_is_known_counts() {
        for (accept, expected) in [
            ("", false),
            ("application/json", false),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                true,
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
                false,
            ),
            (
                "application/json, application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                false,
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            assert_eq!(accepts_aggregated(&headers), expected, "{accept}");
        }
    }
}
