use serde_json::{Value, json};

use super::*;

fn list(namespace: &str, name: &str) -> ResourceAttributes {
    ResourceAttributes {
        verb: "list",
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        resource: "deployments".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..ResourceAttributes::default()
    }
}

fn body(user: &UserInfo, question: &Question) -> Value {
    serde_json::from_slice(&subject_access_review(user, question)).unwrap()
}

#[test]
fn a_review_says_who_wants_what() {
    let user = UserInfo {
        name: "jörg".to_owned(),
        uid: "7".to_owned(),
        groups: vec!["a,b".to_owned(), "system:authenticated".to_owned()],
        extra: BTreeMap::from([("k".to_owned(), vec!["v".to_owned()])]),
        named_by: None,
    };
    let attributes = ResourceAttributes {
        subresource: "scale".to_owned(),
        field_selector: Some("metadata.name=web".to_owned()),
        label_selector: Some("a>1".to_owned()),
        ..list("shop", "web")
    };
    assert_eq!(
        body(&user, &Question::Resource(attributes)),
        json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "jörg",
                "uid": "7",
                "groups": ["a,b", "system:authenticated"],
                "extra": {"k": ["v"]},
                "resourceAttributes": {
                    "verb": "list",
                    "group": "apps",
                    "version": "v1",
                    "resource": "deployments",
                    "subresource": "scale",
                    "namespace": "shop",
                    "name": "web",
                    "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["web"]}]},
                    "labelSelector": {"rawSelector": "a>1"},
                },
            },
        })
    );
}

#[test]
fn what_is_not_named_is_left_out() {
    let user = UserInfo {
        name: "bob".to_owned(),
        ..UserInfo::default()
    };
    // An empty selector is none: the server refuses one that is there and empty.
    let attributes = ResourceAttributes {
        verb: "get",
        version: "v1".to_owned(),
        resource: "pods".to_owned(),
        field_selector: Some(String::new()),
        label_selector: Some(String::new()),
        ..ResourceAttributes::default()
    };
    let spec = |question| body(&user, &question)["spec"].clone();
    assert_eq!(
        spec(Question::Resource(attributes)),
        json!({"user": "bob", "resourceAttributes": {"verb": "get", "version": "v1", "resource": "pods"}})
    );
    let version = NonResourceAttributes {
        verb: "get",
        path: "/version".to_owned(),
    };
    assert_eq!(
        spec(Question::NonResource(version)),
        json!({"user": "bob", "nonResourceAttributes": {"verb": "get", "path": "/version"}})
    );
}

#[test]
fn only_a_clear_word_allows() {
    let answer = |status: &str| {
        let status = match status {
            "" => String::new(),
            status => format!(r#","status":{status}"#),
        };
        let head = r#""kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1""#;
        decision(format!("{{{head}{status}}}").as_bytes())
    };
    for (status, expected) in [
        (r#"{"allowed":true}"#, Ok(Decision::Allow)),
        (
            r#"{"allowed":true,"denied":false,"reason":"RBAC: allowed"}"#,
            Ok(Decision::Allow),
        ),
        (
            r#"{"allowed":true,"evaluationError":"x"}"#,
            Ok(Decision::Allow),
        ),
        (r#"{"allowed":false}"#, Ok(Decision::Deny)),
        (r#"{"allowed":false,"denied":true}"#, Ok(Decision::Deny)),
        (
            r#"{"allowed":false,"evaluationError":"x"}"#,
            Ok(Decision::Deny),
        ),
        (r#"{"allowed":true,"denied":true}"#, Err(())),
        (r#"{"allowed":true,"denied":null}"#, Err(())),
        (r#"{"allowed":"true"}"#, Err(())),
        (r#"{"allowed":1}"#, Err(())),
        (r#"{"allowed":null}"#, Err(())),
        (r#"{"allowed":false,"allowed":true}"#, Err(())),
        (r#"{"Allowed":true}"#, Err(())),
        (r#"{"denied":false}"#, Err(())),
        ("{}", Err(())),
        ("null", Err(())),
        ("true", Err(())),
        ("", Err(())),
    ] {
        assert_eq!(answer(status).map_err(|_| ()), expected, "{status}");
    }
    for answer in [
        "",
        "{}",
        "[]",
        "null",
        "allowed",
        r#"{"status":{"allowed":true}}"#,
        r#"{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}"#,
        r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1beta1","status":{"allowed":true}}"#,
        r#"{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}} {}"#,
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":403}"#,
    ] {
        assert!(decision(answer.as_bytes()).is_err(), "{answer}");
    }
}

#[test]
fn broad_questions_come_first_and_keep_the_verb() {
    let all = |attributes: &ResourceAttributes| {
        let question = Question::Resource(attributes.clone());
        let questions = broader(&question).map(|question| match question {
            Question::Resource(it) => {
                assert_eq!(
                    (it.verb, &*it.group, &*it.subresource),
                    (
                        attributes.verb,
                        &*attributes.group,
                        &*attributes.subresource
                    )
                );
                format!(
                    "{}/{}{}",
                    it.namespace,
                    it.name,
                    it.field_selector.or(it.label_selector).unwrap_or_default()
                )
            }
            Question::NonResource(_) => unreachable!("it was about a resource"),
        });
        questions.collect::<Vec<_>>()
    };
    assert_eq!(all(&list("", "")), ["/"]);
    assert_eq!(all(&list("a", "")), ["/", "a/"]);
    assert_eq!(all(&list("a", "b")), ["/", "a/", "a/b"]);
    assert_eq!(all(&list("", "b")), ["/", "/b"]);
    let get = ResourceAttributes {
        verb: "get",
        subresource: "status".to_owned(),
        ..list("a", "b")
    };
    assert_eq!(all(&get), ["/", "a/", "a/b"]);
    let selected = ResourceAttributes {
        label_selector: Some("x=y".to_owned()),
        ..list("a", "")
    };
    assert_eq!(all(&selected), ["/", "a/", "a/x=y"]);

    let version = Question::NonResource(NonResourceAttributes {
        verb: "get",
        path: "/version".to_owned(),
    });
    assert_eq!(broader(&version).collect::<Vec<_>>(), [version]);
}
