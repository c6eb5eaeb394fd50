//! What a SubjectAccessReview of ours asks is what the apiserver asks itself about the request, and it takes its form.

use fleetcache_auth::{
    Decision, NonResourceAttributes, Question, ResourceAttributes, UserInfo, broader, decision,
    selected_name, subject_access_review,
};
use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::{ControlPlane, User, control_plane};
use http::Method;
use serde_json::{Value, json};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn alice() -> UserInfo {
    UserInfo {
        name: "alice".to_owned(),
        uid: "2".to_owned(),
        groups: vec!["developers".to_owned(), "system:authenticated".to_owned()],
        ..UserInfo::default()
    }
}

async fn ask(client: &Client, question: &Question) -> (Answer, Decision) {
    let body = subject_access_review(&alice(), question);
    let json = &[("content-type", "application/json")];
    let answer = client.send(Method::POST, REVIEWS, json, body);
    let answer = answer.await.unwrap();
    assert_eq!(answer.status, 201, "{question:?}: {answer:?}");
    let decision = decision(&answer.body).unwrap();
    (answer, decision)
}

/// A namespace in which alice may do what these rules say.
async fn namespace_with(cluster: &ControlPlane, rules: Value) -> String {
    let namespace = cluster.namespace("reviews").await.unwrap();
    let client = cluster.client().unwrap();
    let roles = format!("{RBAC}/namespaces/{namespace}");
    let metadata = json!({"name": "alice"});
    let api_version = "rbac.authorization.k8s.io/v1";
    let role =
        json!({"apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": rules});
    let binding = json!({
        "apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "alice"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    for (path, object) in [("roles", role), ("rolebindings", binding)] {
        let path = format!("{roles}/{path}");
        client.create(&path, &object).await.unwrap().ok().unwrap();
    }
    namespace
}

fn configmaps(verb: &'static str, namespace: &str) -> ResourceAttributes {
    ResourceAttributes {
        verb,
        version: "v1".to_owned(),
        resource: "configmaps".to_owned(),
        namespace: namespace.to_owned(),
        ..ResourceAttributes::default()
    }
}

#[tokio::test]
async fn a_review_decides_as_the_request_itself_is_decided() {
    use Decision::{Allow, Deny};
    let cluster = control_plane().await;
    let verbs = ["get", "list", "watch", "deletecollection"];
    let namespace = namespace_with(
        &cluster,
        json!([
            {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        ]),
    )
    .await;
    let admin = cluster.client().unwrap();
    let as_alice = Client::new(&cluster.context(User::Alice).unwrap()).unwrap();
    let kind = format!("/api/v1/namespaces/{namespace}/configmaps");

    let selected = |verb, selector: &str| ResourceAttributes {
        name: selected_name(selector).unwrap_or_default(),
        field_selector: Some(selector.to_owned()),
        ..configmaps(verb, &namespace)
    };
    let named = |verb, name: &str| ResourceAttributes {
        name: name.to_owned(),
        ..configmaps(verb, &namespace)
    };
    let mut table = vec![
        (
            Method::GET,
            kind.clone(),
            configmaps("list", &namespace),
            false,
        ),
        (Method::GET, format!("{kind}/b"), named("get", "b"), false),
        (
            Method::GET,
            "/api/v1/configmaps".to_owned(),
            configmaps("list", ""),
            false,
        ),
        (
            Method::GET,
            format!("/api/v1/namespaces/{namespace}"),
            ResourceAttributes {
                resource: "namespaces".to_owned(),
                ..named("get", &namespace)
            },
            true,
        ),
        (
            Method::GET,
            "/api/v1/namespaces/default".to_owned(),
            ResourceAttributes {
                resource: "namespaces".to_owned(),
                namespace: "default".to_owned(),
                ..named("get", "default")
            },
            false,
        ),
    ];
    for (selector, allowed) in [
        ("metadata.name=a", true),
        ("metadata.name==a", true),
        ("metadata.name=b", false),
        ("metadata.name=b,metadata.name=a", true),
        ("metadata.name=a,metadata.name=b", true),
        ("metadata.namespace=x,metadata.name=a", true),
        ("metadata.name!=a", false),
        ("metadata.name!=b,metadata.name=a", true),
        (",metadata.name=a,", true),
        ("metadata.name=", false),
        (r"metadata.name=\a", false),
        ("metadata.name=a,x", false),
        ("", false),
    ] {
        let encoded: String = selector
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect();
        let path = format!("{kind}?fieldSelector={encoded}");
        let watch = format!("{path}&watch=1&timeoutSeconds=1");
        table.push((
            Method::GET,
            path.clone(),
            selected("list", selector),
            allowed,
        ));
        table.push((Method::GET, watch, selected("watch", selector), allowed));
    }
    // Of a deletecollection the server takes no name from the selector.
    let path = format!("{kind}?fieldSelector=metadata.name%3da&dryRun=All");
    let attributes = ResourceAttributes {
        name: String::new(),
        ..selected("deletecollection", "metadata.name=a")
    };
    table.push((Method::DELETE, path, attributes, false));

    for (method, path, attributes, allowed) in table {
        let answer = as_alice.send(method, &path, &[], "").await.unwrap();
        // What was allowed and is odd otherwise is a 400 or a 404.
        let real = answer.status != 403;
        let (_, ours) = ask(&admin, &Question::Resource(attributes.clone())).await;
        assert_eq!(ours == Allow, real, "{path} {attributes:?}: {answer:?}");
        assert_eq!(real, allowed, "{path}: {answer:?}");
    }

    // A broader Allow comes first where there is one, and no verb answers for another.
    let decisions = async |attributes: ResourceAttributes| {
        let mut decisions = Vec::new();
        for question in broader(&Question::Resource(attributes)) {
            decisions.push(ask(&admin, &question).await.1);
        }
        decisions
    };
    assert_eq!(decisions(named("get", "a")).await, [Deny, Deny, Allow]);
    let secrets = |verb| ResourceAttributes {
        resource: "secrets".to_owned(),
        ..named(verb, "s")
    };
    assert_eq!(decisions(secrets("list")).await, [Deny, Allow, Allow]);
    assert_eq!(decisions(secrets("get")).await, [Deny, Deny, Deny]);
    assert_eq!(decisions(secrets("watch")).await, [Deny, Deny, Deny]);

    for (path, allowed) in [("/version", true), ("/metrics", false)] {
        let question = Question::NonResource(NonResourceAttributes {
            verb: "get",
            path: path.to_owned(),
        });
        let real = as_alice.get(path).await.unwrap().status != 403;
        let (_, ours) = ask(&admin, &question).await;
        assert_eq!((ours == Allow, real), (allowed, allowed), "{path}");
    }
}

#[tokio::test]
async fn both_forms_of_a_selector_are_understood() {
    let cluster = control_plane().await;
    let client = cluster.client().unwrap();
    // Whether the server itself can read the selector.
    for (fields, labels, read) in [
        ("metadata.name=a", "a=b", true),
        (
            "a=b,c!=d,e=",
            "a in (b,c),d notin (e),f,!g,h=,i!=j,example.com/k==l",
            true,
        ),
        (r"a=b\,c", "a>1,b<2", true),
        (",", " a = b , c in ( d ) ", true),
        ("a=b", "a in ()", true),
        ("a", "a=b", false),
        ("a=b", "a in (", false),
        ("a=b", "a=-b", false),
        ("a=b", "A.com/b=c", false),
    ] {
        let question = Question::Resource(ResourceAttributes {
            field_selector: Some(fields.to_owned()),
            label_selector: Some(labels.to_owned()),
            ..configmaps("list", "default")
        });
        let (answer, decision) = ask(&client, &question).await;
        let answer = answer.json().unwrap();
        assert_eq!(decision, Decision::Deny);
        let error = &answer["status"]["evaluationError"];
        assert_eq!(error.is_null(), read, "{fields:?} {labels:?}: {answer}");
    }

    let check = async |field: &str, selector: Value, status: u16| {
        let attributes = json!({"verb": "list", "resource": "pods", field: selector});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "alice", "resourceAttributes": attributes},
        });
        let answer = client.create(REVIEWS, &review).await.unwrap();
        assert_eq!(answer.status, status, "{attributes} {answer:?}");
    };
    let requirement = |key: &str, operator: &str, values: Value| json!({"requirements": [{"key": key, "operator": operator, "values": values}]});
    for field in ["fieldSelector", "labelSelector"] {
        let mut both = requirement("a", "In", json!(["b"]));
        both["rawSelector"] = json!("a=b");
        check(field, both, 422).await;
        check(field, json!({}), 422).await;
        check(field, json!({"rawSelector": ""}), 422).await;
        check(field, json!({"requirements": []}), 422).await;
        check(field, requirement("a", "In", json!([])), 422).await;
        check(field, requirement("a", "Exists", json!(["b"])), 422).await;
        check(field, requirement("", "Exists", json!([])), 422).await;
        check(field, requirement("a", "In", json!("b")), 400).await;
        check(field, json!("a=b"), 400).await;
        check(field, requirement("a", "Gt", json!(["1"])), 201).await;
    }
    check(
        "labelSelector",
        requirement("A.com/b", "Exists", json!([])),
        422,
    )
    .await;
    check("labelSelector", requirement("a", "In", json!(["-b"])), 422).await;
    check(
        "fieldSelector",
        requirement("spec.x", "In", json!(["-b"])),
        201,
    )
    .await;
}
