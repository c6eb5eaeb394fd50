//! What always goes to the cluster: writes that change nothing, subresources, what is no resource, and questions about oneself.

use http::Method;
use serde_json::{Value, json};

use super::ask::{Form, From, Row};
use super::kinds::{
    CLUSTER_ROLES, CONFIGMAPS, DEPLOYMENTS, GADGETS, NAMESPACES, NODES, PODS, SECRETS, WIDGETS,
    object,
};

pub(super) fn all() -> Vec<Row> {
    let mut rows = writes();
    rows.extend(subresources());
    rows.extend(streams());
    rows.extend(no_resources());
    rows.extend(reviews());
    rows
}

/// The server goes through everything but the last step.
fn dry(path: &str) -> String {
    let join = if path.contains('?') { '&' } else { '?' };
    format!("{path}{join}dryRun=All")
}

fn writes() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut send = |method, path: &str, body: &Value| rows.push(Row::send(method, dry(path), body));
    for kind in [CONFIGMAPS, SECRETS, PODS, DEPLOYMENTS, WIDGETS] {
        for namespace in ["here", "there", "nowhere"] {
            let new = object(kind, namespace, "new", "x");
            send(Method::POST, &kind.within(namespace), &new);
        }
        let here = kind.within("here");
        send(Method::POST, &here, &object(kind, "here", "one", "x"));
        send(Method::DELETE, &format!("{here}/one"), &Value::Null);
    }
    for kind in [NAMESPACES, NODES, CLUSTER_ROLES, GADGETS] {
        send(Method::POST, &kind.all(), &object(kind, "", "new", "x"));
        send(
            Method::DELETE,
            &format!("{}/none", kind.all()),
            &Value::Null,
        );
    }
    let [here, there] = ["here", "there"].map(|namespace| CONFIGMAPS.within(namespace));
    let change = json!({"data": {"more": "m"}});
    for path in [
        format!("{here}/one"),
        format!("{here}/none"),
        format!("{there}/one"),
    ] {
        let name = path.rsplit('/').next().unwrap();
        let mut changed = object(CONFIGMAPS, "here", name, "z");
        changed["data"] = json!({});
        send(Method::PUT, &path, &changed);
        send(Method::PATCH, &path, &change);
        send(Method::DELETE, &path, &Value::Null);
    }
    send(Method::DELETE, &here, &Value::Null);
    send(Method::DELETE, &there, &Value::Null);
    send(
        Method::DELETE,
        &format!("{here}?fieldSelector=metadata.name%3Done"),
        &Value::Null,
    );
    send(
        Method::DELETE,
        &format!("{here}?labelSelector=app%3Dx"),
        &Value::Null,
    );
    send(Method::DELETE, &CONFIGMAPS.all(), &Value::Null);
    send(Method::POST, &format!("{here}/one"), &change);
    send(Method::PUT, &here, &change);
    // Apply makes what is not there.
    for (path, name) in [
        (format!("{here}/one"), "one"),
        (format!("{here}/new"), "new"),
    ] {
        let mut row = Row::send(
            Method::PATCH,
            dry(&format!("{path}?fieldManager=matrix&force=true")),
            &object(CONFIGMAPS, "here", name, "z"),
        );
        row.headers = vec![("content-type", "application/apply-patch+yaml".to_owned())];
        rows.push(row);
    }
    rows
}

fn subresources() -> Vec<Row> {
    let (pods, widgets) = (PODS.within("here"), WIDGETS.within("here"));
    let deployments = DEPLOYMENTS.within("here");
    let mut rows = Vec::new();
    for path in [
        format!("{pods}/one/status"),
        format!("{pods}/none/status"),
        format!("{widgets}/one/status"),
        format!("{widgets}/one/scale"),
        format!("{deployments}/one/scale"),
        format!("{deployments}/one/status"),
        format!("{deployments}/none/scale"),
        format!("{}/one/scale", WIDGETS.within("there")),
        "/api/v1/namespaces/here/status".to_owned(),
        "/api/v1/nodes/node-1/status".to_owned(),
        format!("{pods}/one/nothing"),
    ] {
        rows.push(Row::get(path, From::Live));
    }
    let status = json!({"status": {"reason": "Tested"}});
    let scale = json!({"spec": {"replicas": 3}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "two", "namespace": "here"}});
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "two"}, "target": {"kind": "Node", "name": "node-1"},
    });
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    for (method, path, body) in [
        (Method::PATCH, format!("{pods}/one/status"), &status),
        (
            Method::PATCH,
            format!("{widgets}/one/status"),
            &json!({"status": {"replicas": 2}}),
        ),
        (Method::PATCH, format!("{widgets}/one/scale"), &scale),
        (Method::PATCH, format!("{deployments}/one/scale"), &scale),
        (Method::PATCH, format!("{deployments}/one/status"), &status),
        (Method::POST, format!("{pods}/two/eviction"), &eviction),
        (Method::POST, format!("{pods}/two/binding"), &binding),
        (
            Method::POST,
            "/api/v1/namespaces/here/serviceaccounts/default/token".to_owned(),
            &token,
        ),
    ] {
        rows.push(Row::send(method, dry(&path), body));
    }
    rows
}

fn streams() -> Vec<Row> {
    let pods = PODS.within("here");
    let one = format!("{pods}/one");
    let mut rows = Vec::new();
    for path in [
        format!("{one}/log"),
        format!("{one}/log?tailLines=1"),
        format!("{pods}/none/log"),
        format!("{}/one/log", PODS.within("there")),
        // Without an upgrade it is an error, for whoever may.
        format!("{one}/exec?command=true&stdout=true"),
        format!("{pods}/none/exec?command=true&stdout=true"),
        format!("{one}/attach?stdout=true"),
        format!("{one}/portforward?ports=80"),
        format!("{one}/proxy/"),
        "/api/v1/nodes/node-1/proxy/healthz".to_owned(),
        "/api/v1/namespaces/here/services/none/proxy/".to_owned(),
    ] {
        rows.push(Row::get(path, From::Live));
    }
    for path in [
        format!("{one}/exec?command=true&stdout=true"),
        format!("{one}/portforward?ports=80"),
    ] {
        rows.push(Row::send(Method::POST, path, &Value::Null));
    }
    rows
}

fn no_resources() -> Vec<Row> {
    let mut rows = Vec::new();
    for path in [
        "/",
        "/api",
        "/api/v1",
        "/api/v2",
        "/apis",
        "/apis/apps",
        "/apis/ex.io/v1",
        "/apis/nothing.io/v1",
        "/healthz",
        "/healthz/ping",
        "/livez?verbose",
        "/readyz",
        "/logs",
        "/nothing",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/apis/ex.io/v1",
        "/version",
        "/version/",
        "/.well-known/openid-configuration",
        "/debug/pprof/cmdline",
    ] {
        rows.push(Row::get(path, From::Any));
    }
    rows.push(Row {
        form: Form::Metrics,
        ..Row::get("/metrics", From::Live)
    });
    for path in ["/version", "/api", "/healthz"] {
        rows.push(Row {
            method: Method::HEAD,
            ..Row::get(path, From::Any)
        });
    }
    rows.push(Row::send(Method::POST, "/version", &json!({})));
    rows
}

/// What the server says to a user of itself, through the proxy, is what it decides of its requests.
fn reviews() -> Vec<Row> {
    let mut rows = Vec::new();
    let authorization = "/apis/authorization.k8s.io/v1";
    let mut ask = |path: &str, kind: &str, spec: Value, form| {
        let words: Vec<&str> = path.split('/').collect();
        let body = json!({"apiVersion": words[2..4].join("/"), "kind": kind, "spec": spec});
        rows.push(Row {
            form,
            ..Row::send(Method::POST, path, &body)
        });
    };
    let own = format!("{authorization}/selfsubjectaccessreviews");
    let configmap = |verb: &str, name: &str| json!({"resourceAttributes": {"namespace": "here", "verb": verb, "resource": "configmaps", "name": name}});
    for spec in [
        configmap("get", "one"),
        configmap("get", "two"),
        configmap("list", ""),
        configmap("delete", "one"),
        json!({"resourceAttributes": {"verb": "list", "resource": "secrets"}}),
        json!({"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}),
    ] {
        ask(&own, "SelfSubjectAccessReview", spec, Form::Object);
    }
    let rules = format!("{authorization}/selfsubjectrulesreviews");
    for namespace in ["here", "there", "nowhere"] {
        let spec = json!({"namespace": namespace});
        ask(&rules, "SelfSubjectRulesReview", spec, Form::Rules);
    }
    let mut of_others = configmap("get", "one");
    of_others["user"] = json!("viewer");
    ask(
        &format!("{authorization}/subjectaccessreviews"),
        "SubjectAccessReview",
        of_others.clone(),
        Form::Object,
    );
    ask(
        &format!("{authorization}/namespaces/here/localsubjectaccessreviews"),
        "LocalSubjectAccessReview",
        of_others,
        Form::Object,
    );
    ask(
        "/apis/authentication.k8s.io/v1/tokenreviews",
        "TokenReview",
        json!({"token": "viewer-token"}),
        Form::Object,
    );
    rows.push(who_am_i());
    rows
}

/// The user as the server sees it.
pub(super) fn who_am_i() -> Row {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    Row::send(Method::POST, path, &body)
}
