//! Discovery, the version, and the little OpenAPI that `kubectl create` asks for.

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::json;
use super::resource::{RESOURCES, Resource};

/// The media type of aggregated discovery.
pub(super) const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// What can be done with an object, and with its subresources.
const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// The plural, the singular and the kind of a request that is answered without storing anything.
type Review = (&'static str, &'static str, &'static str);

/// The groups of the reviews.
const REVIEWS: [(&str, &[Review]); 2] = [
    (
        "authentication.k8s.io",
        &[(
            "selfsubjectreviews",
            "selfsubjectreview",
            "SelfSubjectReview",
        )],
    ),
    (
        "authorization.k8s.io",
        &[
            (
                "selfsubjectaccessreviews",
                "selfsubjectaccessreview",
                "SelfSubjectAccessReview",
            ),
            (
                "subjectaccessreviews",
                "subjectaccessreview",
                "SubjectAccessReview",
            ),
        ],
    ),
];

/// The groups but the core one, in the order of discovery.
fn groups() -> Vec<&'static str> {
    let mut groups: Vec<&str> = RESOURCES.iter().map(|resource| resource.group).collect();
    groups.extend(REVIEWS.iter().map(|(group, _)| *group));
    groups.sort_unstable();
    groups.dedup();
    groups.retain(|group| !group.is_empty());
    groups
}

/// The answer to a discovery path, if it is one: the same bytes for all clusters.
pub(super) fn shared_answer(path: &str, accept: &str) -> Option<Bytes> {
    /// By path, and whether it is aggregated. Held for a look-up, or while an answer is made for the first time.
    static MADE: LazyLock<Mutex<HashMap<(String, bool), Bytes>>> = LazyLock::new(Mutex::default);
    let key = (path.to_owned(), is_aggregated(accept));
    let mut made = MADE.lock();
    if let Some(made) = made.get(&key) {
        return Some(made.clone());
    }
    let answer = Bytes::from(answer(path, accept)?);
    made.insert(key, answer.clone());
    Some(answer)
}

/// The answer to a discovery path, if it is one.
fn answer(path: &str, accept: &str) -> Option<Vec<u8>> {
    let aggregated = is_aggregated(accept);
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let value = match segments.as_slice() {
        ["api"] if aggregated => aggregate(&[""]),
        ["apis"] if aggregated => aggregate(&groups()),
        ["api"] => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        ["apis"] => {
            let groups: Vec<Value> = groups().into_iter().map(group).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["api", "v1"] => resource_list("", "v1")?,
        ["apis", name] if groups().contains(name) => {
            let mut group = group(name);
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }
        ["apis", group, "v1"] => resource_list(group, &format!("{group}/v1"))?,
        _ => return None,
    };
    let value = value.as_object().expect("each of them is an object");
    let mut answer = json::encode_built_in(value);
    answer.push(b'\n');
    Some(answer)
}

/// Whether the client prefers aggregated discovery; the plain kind is the later clause of its `Accept`.
pub(super) fn is_aggregated(accept: &str) -> bool {
    let wanted = ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"];
    accept.split(',').any(|clause| {
        let parameters: Vec<&str> = clause.split(';').map(str::trim).collect();
        wanted
            .iter()
            .all(|parameter| parameters.contains(parameter))
    })
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version.clone()], "preferredVersion": version})
}

fn resource_list(group: &str, group_version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for resource in RESOURCES.iter().filter(|resource| resource.group == group) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": VERBS,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        resources.push(entry);
        if resource.scale {
            resources.push(json!({
                "name": format!("{}/scale", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": SUBRESOURCE_VERBS,
            }));
        }
        if resource.status {
            resources.push(json!({
                "name": format!("{}/status", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": resource.kind, "verbs": SUBRESOURCE_VERBS,
            }));
        }
    }
    for (plural, singular, kind) in reviews(group) {
        resources.push(json!({
            "name": plural, "singularName": singular, "namespaced": false, "kind": kind, "verbs": ["create"],
        }));
    }
    if resources.is_empty() {
        return None;
    }
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

fn aggregate(groups: &[&str]) -> Value {
    let items: Vec<Value> = groups.iter().map(|group| aggregated_group(group)).collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    })
}

fn aggregated_group(group: &str) -> Value {
    let kind = |kind: &str| json!({"group": group, "version": "v1", "kind": kind});
    let mut resources = Vec::new();
    for resource in RESOURCES.iter().filter(|resource| resource.group == group) {
        let mut entry = json!({
            "resource": resource.plural, "responseKind": kind(resource.kind), "scope": scope(resource),
            "singularResource": resource.singular, "verbs": VERBS,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        let mut subresources = Vec::new();
        if resource.scale {
            let kind = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
            subresources.push(
                json!({"subresource": "scale", "responseKind": kind, "verbs": SUBRESOURCE_VERBS}),
            );
        }
        if resource.status {
            let kind = kind(resource.kind);
            subresources.push(
                json!({"subresource": "status", "responseKind": kind, "verbs": SUBRESOURCE_VERBS}),
            );
        }
        if !subresources.is_empty() {
            entry["subresources"] = subresources.into();
        }
        resources.push(entry);
    }
    for (plural, singular, review) in reviews(group) {
        resources.push(json!({
            "resource": plural, "responseKind": kind(review), "scope": "Cluster", "singularResource": singular,
            "verbs": ["create"],
        }));
    }
    let version = json!({"version": "v1", "resources": resources, "freshness": "Current"});
    let metadata = if group.is_empty() {
        json!({})
    } else {
        json!({ "name": group })
    };
    json!({"metadata": metadata, "versions": [version]})
}

fn reviews(group: &str) -> &'static [Review] {
    REVIEWS
        .iter()
        .find(|(name, _)| *name == group)
        .map_or(&[], |(_, reviews)| reviews)
}

fn scope(resource: &Resource) -> &'static str {
    if resource.namespaced {
        "Namespaced"
    } else {
        "Cluster"
    }
}

/// The answer to `/version`.
pub(super) fn version(git_version: &str) -> Vec<u8> {
    let mut parts = git_version.trim_start_matches('v').split('.');
    let (major, minor) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let version = json!({
        "major": major, "minor": minor, "gitVersion": git_version, "gitCommit": "simulated",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": "linux/amd64",
    });
    serde_json::to_vec_pretty(&version).expect("a value can be encoded")
}

/// The answer to `/openapi/v3…`. `kubectl create` and `apply` only look whether a PATCH of the kind takes
/// `fieldValidation`; there are no schemas, so that `kubectl explain` finds nothing.
pub(super) fn openapi(path: &str, listed_fields: &[String]) -> Option<Vec<u8>> {
    let rest = path.strip_prefix("/openapi/v3")?;
    let paths = |group: &str| {
        if group.is_empty() {
            "api/v1".to_owned()
        } else {
            format!("apis/{group}/v1")
        }
    };
    let mut served: Vec<&str> = RESOURCES.iter().map(|resource| resource.group).collect();
    served.dedup();
    if rest.is_empty() {
        let entries = served.iter().map(|group| {
            let path = paths(group);
            (
                path.clone(),
                json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash=SIMULATED")}),
            )
        });
        let entries: serde_json::Map<String, Value> = entries.collect();
        return Some(json::encode(&json!({ "paths": entries })));
    }
    let group = served
        .into_iter()
        .find(|group| rest.strip_prefix('/') == Some(&paths(group)))?;
    let patches = RESOURCES.iter().filter(|resource| resource.group == group).map(|resource| {
        let collection = if resource.namespaced { "/namespaces/{namespace}/" } else { "/" };
        let path = format!("/{}{collection}{}/{{name}}", paths(group), resource.plural);
        let kind = json!({"group": group, "version": resource.version, "kind": resource.kind});
        let parameter = json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string"}});
        (path, json!({"patch": {"parameters": [parameter], "x-kubernetes-group-version-kind": kind}}))
    });
    let patches: serde_json::Map<String, Value> = patches.collect();
    let schemas = RESOURCES
        .iter()
        .filter(|resource| resource.group == group)
        .map(|resource| {
            let kind = json!({"group": group, "version": resource.version, "kind": resource.kind});
            let mut schema = json!({"type": "object", "x-kubernetes-group-version-kind": [kind]});
            if resource.custom && !listed_fields.is_empty() {
                let fields = listed_fields
                    .iter()
                    .map(|field| json!({"fieldPath": field}));
                schema["x-kubernetes-selectable-fields"] = fields.collect();
            }
            (resource.kind.to_owned(), schema)
        });
    let schemas: serde_json::Map<String, Value> = schemas.collect();
    let info = json!({"title": "simulated", "version": "v1"});
    Some(json::encode(
        &json!({"openapi": "3.0.0", "info": info, "paths": patches, "components": {"schemas": schemas}}),
    ))
}
