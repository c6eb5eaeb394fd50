//! What is done, step by step. `NAMESPACE` stands for the namespace in paths and bodies.

use http::Method;
use serde_json::{Value, json};

/// One request of a sequence.
pub(in crate::differential) struct Step {
    pub(in crate::differential) method: Method,
    pub(in crate::differential) path: String,
    pub(in crate::differential) content_type: &'static str,
    pub(in crate::differential) body: String,
    /// Whether memory can answer it once it is warm.
    pub(in crate::differential) hit: bool,
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

const CONFIGMAPS: &str = "/api/v1/namespaces/NAMESPACE/configmaps";
const PODS: &str = "/api/v1/namespaces/NAMESPACE/pods";
const WIDGETS: &str = "/apis/ex.io/v1/namespaces/NAMESPACE/widgets";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/NAMESPACE/deployments";

/// All sequences, by name.
pub(super) fn all() -> Vec<(&'static str, Vec<Step>)> {
    vec![
        ("configmaps", configmaps()),
        ("deletions", deletions()),
        ("dry runs", dry_runs()),
        ("pods", pods()),
        ("custom resources", widgets()),
        ("deployments", deployments()),
        ("conflicts", conflicts()),
        ("refusals", refusals()),
    ]
}

fn read(path: impl Into<String>) -> Step {
    Step {
        method: Method::GET,
        path: path.into(),
        content_type: "",
        body: String::new(),
        hit: true,
    }
}

/// A read that only the cluster can answer: of what is not there.
fn gone(path: impl Into<String>) -> Step {
    Step {
        hit: false,
        ..read(path)
    }
}

fn write(
    method: Method,
    path: impl Into<String>,
    content_type: &'static str,
    body: &Value,
) -> Step {
    Step {
        method,
        path: path.into(),
        content_type,
        body: body.to_string(),
        hit: false,
    }
}

fn post(path: impl Into<String>, body: &Value) -> Step {
    write(Method::POST, path, JSON, body)
}

fn patch(path: impl Into<String>, content_type: &'static str, body: &Value) -> Step {
    write(Method::PATCH, path, content_type, body)
}

fn delete(path: impl Into<String>) -> Step {
    Step {
        method: Method::DELETE,
        hit: false,
        ..read(path)
    }
}

fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": "x"}}, "data": {"a": "1"}})
}

fn configmaps() -> Vec<Step> {
    let a = format!("{CONFIGMAPS}/a");
    vec![
        read(CONFIGMAPS),
        post(CONFIGMAPS, &configmap("a")),
        read(&a),
        read(CONFIGMAPS),
        write(Method::PUT, &a, JSON, &configmap("a")),
        read(&a),
        patch(&a, MERGE, &json!({"data": {"b": "2"}})),
        read(&a),
        patch(&a, STRATEGIC, &json!({"data": {"a": null}})),
        read(CONFIGMAPS),
        patch(
            &a,
            JSON_PATCH,
            &json!([{"op": "add", "path": "/data/c", "value": "3"}]),
        ),
        read(&a),
        // Nothing changes, and neither does the version.
        patch(&a, MERGE, &json!({"data": {"b": "2"}})),
        read(&a),
        read(format!("{CONFIGMAPS}?labelSelector=app%3Dx")),
        patch(&a, MERGE, &json!({"metadata": {"labels": {"app": "y"}}})),
        read(format!("{CONFIGMAPS}?labelSelector=app%3Dx")),
        post(
            format!("{CONFIGMAPS}?fieldManager=m&fieldValidation=Strict"),
            &configmap("b"),
        ),
        read(format!("{CONFIGMAPS}?fieldSelector=metadata.name%3Db")),
        delete(&a),
        gone(&a),
        read(CONFIGMAPS),
        delete(&a),
        post(CONFIGMAPS, &configmap("a")),
        read(&a),
    ]
}

fn conflicts() -> Vec<Step> {
    let a = format!("{CONFIGMAPS}/a");
    let applied = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}});
    let mut stale = configmap("a");
    stale["metadata"]["resourceVersion"] = json!("1");
    let mut unlike = configmap("a");
    unlike["metadata"]["uid"] = json!("0a1b2c3d-0000-1111-2222-333344445555");
    vec![
        patch(format!("{a}?fieldManager=one"), APPLY, &applied("1")),
        read(&a),
        patch(format!("{a}?fieldManager=two"), APPLY, &applied("2")),
        read(&a),
        patch(
            format!("{a}?fieldManager=two&force=true"),
            APPLY,
            &applied("2"),
        ),
        read(&a),
        patch(&a, APPLY, &applied("3")),
        post(CONFIGMAPS, &configmap("a")),
        write(Method::PUT, &a, JSON, &stale),
        write(Method::PUT, &a, JSON, &unlike),
        patch(&a, MERGE, &json!({"metadata": {"resourceVersion": "1"}})),
        write(
            Method::DELETE,
            &a,
            JSON,
            &json!({"preconditions": {"resourceVersion": "1"}}),
        ),
        write(
            Method::DELETE,
            &a,
            JSON,
            &json!({"preconditions": {"uid": "x"}}),
        ),
        patch(
            &a,
            JSON_PATCH,
            &json!([{"op": "test", "path": "/data/k", "value": "no"}]),
        ),
        read(&a),
    ]
}

/// Writes that the server does not take.
fn refusals() -> Vec<Step> {
    let a = format!("{CONFIGMAPS}/a");
    let named = |name: &str| {
        let mut object = configmap("a");
        object["metadata"]["name"] = json!(name);
        object
    };
    let mut unknown = configmap("u");
    unknown["spec"] = json!({"x": 1});
    let mut elsewhere = configmap("a");
    elsewhere["metadata"]["namespace"] = json!("other");
    let mut other_kind = configmap("a");
    other_kind["kind"] = json!("Pod");
    let raw = |method: Method, content_type: &'static str, body: String| Step {
        body,
        ..write(method, CONFIGMAPS, content_type, &Value::Null)
    };
    vec![
        post(CONFIGMAPS, &configmap("a")),
        post(CONFIGMAPS, &named("A!")),
        post(CONFIGMAPS, &json!({})),
        post(CONFIGMAPS, &elsewhere),
        post(CONFIGMAPS, &other_kind),
        raw(Method::POST, JSON, "{".to_owned()),
        raw(Method::POST, JSON, String::new()),
        raw(Method::POST, "text/plain", configmap("t").to_string()),
        raw(Method::POST, "application/yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\n".to_owned()),
        // Was the YAML taken? The kind goes live anyway: its answer cannot be read.
        gone(format!("{CONFIGMAPS}/y")),
        raw(
            Method::POST,
            JSON,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "h"}, "data": {"a": "x".repeat(3_200_000)}}).to_string(),
        ),
        post(CONFIGMAPS, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "h"}, "data": {"a": "x".repeat(1_100_000)}})),
        // A Warning of its own.
        post(CONFIGMAPS, &unknown),
        post(format!("{CONFIGMAPS}?fieldValidation=Strict"), &unknown),
        post(format!("{CONFIGMAPS}?fieldValidation=Ignore"), &unknown),
        post(format!("{CONFIGMAPS}?fieldValidation=Foo"), &unknown),
        write(Method::PUT, &a, JSON, &named("b")),
        write(Method::PUT, format!("{CONFIGMAPS}/none"), JSON, &named("none")),
        patch(&a, "application/foo-patch+json", &json!({})),
        patch(&a, JSON, &json!({})),
        patch(&a, MERGE, &json!([])),
        patch(&a, JSON_PATCH, &json!({})),
        patch(format!("{CONFIGMAPS}/none"), MERGE, &json!({})),
        patch(&a, MERGE, &json!({"data": {"a": 1}})),
        post(format!("{CONFIGMAPS}/a/status"), &configmap("a")),
        post("/api/v1/namespaces/nope-NAMESPACE/configmaps", &configmap("a")),
        read(CONFIGMAPS),
    ]
}

fn dry_runs() -> Vec<Step> {
    let a = format!("{CONFIGMAPS}/a");
    vec![
        post(format!("{CONFIGMAPS}?dryRun=All"), &configmap("a")),
        gone(&a),
        read(CONFIGMAPS),
        post(format!("{CONFIGMAPS}?dryRun=Foo"), &configmap("a")),
        post(CONFIGMAPS, &configmap("a")),
        patch(
            format!("{a}?dryRun=All"),
            MERGE,
            &json!({"data": {"a": "2"}}),
        ),
        read(&a),
        write(
            Method::PUT,
            format!("{a}?dryRun=All"),
            JSON,
            &configmap("a"),
        ),
        read(&a),
        delete(format!("{a}?dryRun=All")),
        Step {
            hit: false,
            ..read(&a)
        },
        write(Method::DELETE, &a, JSON, &json!({"dryRun": ["All"]})),
        Step {
            hit: false,
            ..read(&a)
        },
        delete(format!("{CONFIGMAPS}?dryRun=All")),
        Step {
            hit: false,
            ..read(CONFIGMAPS)
        },
        delete(format!("{a}?dryRun=Foo")),
    ]
}

fn deletions() -> Vec<Step> {
    let a = format!("{CONFIGMAPS}/a");
    let kept = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": ["example.com/wait"]}});
    vec![
        post(CONFIGMAPS, &kept),
        delete(&a),
        read(&a),
        read(CONFIGMAPS),
        patch(&a, MERGE, &json!({"data": {"late": "1"}})),
        read(&a),
        patch(&a, MERGE, &json!({"metadata": {"finalizers": null}})),
        gone(&a),
        read(CONFIGMAPS),
        post(CONFIGMAPS, &configmap("a")),
        read(&a),
        delete(format!("{a}?gracePeriodSeconds=0")),
        gone(&a),
        post(CONFIGMAPS, &configmap("a")),
        delete(format!("{a}?propagationPolicy=Foreground")),
        Step {
            hit: false,
            ..read(&a)
        },
        post(CONFIGMAPS, &configmap("b")),
        delete(format!("{a}?propagationPolicy=Foo")),
        delete(format!("{CONFIGMAPS}?labelSelector=app%3Dx")),
        Step {
            hit: false,
            ..read(CONFIGMAPS)
        },
    ]
}

fn pods() -> Vec<Step> {
    let a = format!("{PODS}/a");
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}},
            "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]},
        })
    };
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "b"}});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "c"}, "target": {"kind": "Node", "name": "n1"}});
    vec![
        post(PODS, &pod("a")),
        post(PODS, &pod("b")),
        post(PODS, &pod("c")),
        read(PODS),
        patch(
            format!("{a}/status"),
            MERGE,
            &json!({"status": {"message": "m"}}),
        ),
        read(&a),
        patch(
            &a,
            STRATEGIC,
            &json!({"spec": {"containers": [{"name": "c", "image": "j"}]}}),
        ),
        read(&a),
        patch(&a, STRATEGIC, &json!({"spec": {"nodeName": "n1"}})),
        post(format!("{PODS}/b/eviction"), &eviction),
        Step {
            hit: false,
            ..read(PODS)
        },
        post(format!("{PODS}/c/binding"), &binding),
        Step {
            hit: false,
            ..read(format!("{PODS}/c"))
        },
        post(format!("{PODS}/c/binding"), &binding),
        // A bound pod waits for its kubelet.
        delete(format!("{PODS}/c")),
        Step {
            hit: false,
            ..read(format!("{PODS}/c"))
        },
        delete(format!("{PODS}/c?gracePeriodSeconds=0")),
        gone(format!("{PODS}/c")),
        delete(&a),
        gone(&a),
        post(PODS, &pod("a")),
        delete(PODS),
        Step {
            hit: false,
            ..read(PODS)
        },
    ]
}

fn widgets() -> Vec<Step> {
    let a = format!("{WIDGETS}/a");
    let widget = |n: Value| json!({"apiVersion": "ex.io/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"n": n}});
    vec![
        post(WIDGETS, &widget(json!("no number"))),
        post(WIDGETS, &widget(json!(1))),
        read(&a),
        read(WIDGETS),
        patch(&a, MERGE, &json!({"spec": {"n": 2, "unknown": 1}})),
        read(&a),
        patch(&a, STRATEGIC, &json!({"spec": {"n": 3}})),
        patch(
            format!("{a}/status"),
            MERGE,
            &json!({"status": {"x": 1}, "spec": {"n": 9}}),
        ),
        read(&a),
        patch(format!("{a}?fieldManager=one"), APPLY, &widget(json!(4))),
        patch(
            format!("{a}?fieldManager=one&force=true"),
            APPLY,
            &widget(json!(4)),
        ),
        read(&a),
        write(Method::PUT, &a, JSON, &widget(json!(5))),
        delete(&a),
        gone(&a),
    ]
}

fn deployments() -> Vec<Step> {
    let a = format!("{DEPLOYMENTS}/a");
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    vec![
        post(DEPLOYMENTS, &deployment),
        read(&a),
        patch(
            format!("{a}/scale"),
            MERGE,
            &json!({"spec": {"replicas": 3}}),
        ),
        read(&a),
        patch(
            format!("{a}/status"),
            MERGE,
            &json!({"status": {"replicas": 2}}),
        ),
        read(DEPLOYMENTS),
        Step {
            hit: false,
            ..read(format!("{a}/scale"))
        },
        patch(
            &a,
            MERGE,
            &json!({"spec": {"selector": {"matchLabels": {"a": "c"}}}}),
        ),
        delete(&a),
        gone(&a),
    ]
}
