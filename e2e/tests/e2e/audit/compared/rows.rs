//! The requests of which both logs say the same.

use fleetcache_e2e::control_plane::User;

/// How a request is made.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum How {
    /// To the end of its answer.
    Whole,
    /// It leaves when the answer has begun.
    Leaves,
    /// It asks for a WebSocket, and leaves when it has it.
    Exec,
}

pub(super) struct Row {
    pub(super) user: User,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) body: &'static str,
    pub(super) how: How,
}

const fn row(method: &'static str, path: &'static str, body: &'static str) -> Row {
    Row {
        user: User::Alice,
        method,
        path,
        body,
        how: How::Whole,
    }
}

const fn get(path: &'static str) -> Row {
    row("GET", path, "")
}

const fn leaves(path: &'static str, how: How) -> Row {
    Row { how, ..get(path) }
}

const fn by_bob(method: &'static str, path: &'static str, body: &'static str) -> Row {
    Row {
        user: User::Bob,
        ..row(method, path, body)
    }
}

const CONFIGMAP: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"data":{"k":"v"}}"#;

pub(super) const ROWS: [Row; 62] = [
    get("/api/v1/namespaces/default"),
    get("/api/v1/configmaps?limit=5&labelSelector=a%3Db"),
    get("/apis/apps/v1/namespaces/default/deployments"),
    get("/api/v1/namespaces/default/configmaps/none"),
    row("POST", "/api/v1/namespaces/default/configmaps", CONFIGMAP),
    row("POST", "/api/v1/namespaces/default/configmaps", CONFIGMAP),
    row(
        "POST",
        "/api/v1/namespaces/default/configmaps?fieldManager=m",
        "{",
    ),
    get("/api/v1/namespaces/default/configmaps/one"),
    row(
        "PUT",
        "/api/v1/namespaces/default/configmaps/one?dryRun=All",
        CONFIGMAP,
    ),
    row(
        "PUT",
        "/api/v1/namespaces/default/configmaps/other",
        CONFIGMAP,
    ),
    row(
        "PATCH",
        "/api/v1/namespaces/default/configmaps/one",
        r#"{"data":{"a":"b"}}"#,
    ),
    row("DELETE", "/api/v1/namespaces/default/configmaps/one", ""),
    row("DELETE", "/api/v1/namespaces/default/configmaps/one", ""),
    row(
        "DELETE",
        "/api/v1/namespaces/default/configmaps?labelSelector=x%3Dy",
        "",
    ),
    get("/api/v1/configmaps?fieldSelector=metadata.name%3Done"),
    get("/api/v1/configmaps?limit=abc"),
    get("/api/v1/configmaps?continue=abc"),
    get("/api/v1/configmaps?watch=1&timeoutSeconds=1"),
    get("/api/v1/configmaps?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Done"),
    get("/api/v1/configmaps?watch=1&resourceVersion=abc"),
    get("/api/v1/configmaps?watch=1&resourceVersion=0&timeoutSeconds=1"),
    get("/api/v1/watch/namespaces/default/configmaps?timeoutSeconds=1"),
    get("/api/v1/watch/namespaces/default/configmaps/x?timeoutSeconds=1"),
    leaves("/api/v1/namespaces/default/configmaps?watch=1", How::Leaves),
    leaves(
        "/api/v1/namespaces/default/pods/p/log?follow=true",
        How::Leaves,
    ),
    get("/api/v1/namespaces/default/pods/p/log?tailLines=1"),
    get("/api/v1/namespaces/default/pods/none/log"),
    leaves(
        "/api/v1/namespaces/default/pods/p/exec?command=echo&command=hi&stdout=true&container=c",
        How::Exec,
    ),
    leaves(
        "/api/v1/namespaces/default/pods/none/exec?command=echo&stdout=true",
        How::Exec,
    ),
    by_bob("GET", "/api/v1/configmaps", ""),
    by_bob("GET", "/api/v1/namespaces/default/configmaps/one", ""),
    by_bob("GET", "/api/v1/configmaps?watch=1", ""),
    by_bob("POST", "/api/v1/namespaces/default/configmaps", CONFIGMAP),
    by_bob("DELETE", "/apis/apps/v1/namespaces/default/deployments", ""),
    by_bob("GET", "/metrics", ""),
    get("/version"),
    get("/healthz"),
    get("/api/v1"),
    get("/apis"),
    get("/apis/apps/v1"),
    get("/openapi/v3"),
    get("/foo/bar"),
    row("POST", "/foo/bar", ""),
    row("OPTIONS", "/api/v1/configmaps", ""),
    row("FROB", "/api/v1/configmaps", ""),
    row("OPTIONS", "/version", ""),
    get("/api/v1/namespaces/default/status"),
    get("/api/v1/namespaces/default/finalize"),
    get("/api/v1/namespaces"),
    get("/api/v1/namespaces?"),
    get("/api/v1/namespaces/"),
    get("/api/v1/namespaces/default/frobs/x/y/z"),
    get("/apis/nope.io/v1/frobs"),
    get("/apis/apps/v1/namespaces/default/deployments/x/scale"),
    get("/api/v1//namespaces/%41%0a%22%3c&x"),
    get("/api/v1/namespaces/a%2fb/configmaps/x%2fy"),
    get("/api/v1/../v1/namespaces"),
    get("/api/v1/namespaces/%c3%a9"),
    get("/api/v1/namespaces/default/services/x/proxy/a/b"),
    get("/api/v1/nodes/none/proxy/metrics"),
    row(
        "POST",
        "/api/v1/namespaces/default/pods/p/eviction?dryRun=All",
        r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"none"}}"#,
    ),
    row(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        r#"{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"nonResourceAttributes":{"verb":"get","path":"/"}}}"#,
    ),
];
