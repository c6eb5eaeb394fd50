//! The fields that a custom resource's definition makes selectable.

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn schema() -> Value {
    let spec = json!({
        "color": {"type": "string"}, "count": integer(), "on": {"type": "boolean"},
        "deep": {"type": "object", "nullable": true, "properties": {"odd-name": {"type": "string"}}},
    });
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}})
}

fn integer() -> Value {
    json!({"type": "integer", "nullable": true})
}

fn selectable(fields: &[&str]) -> Value {
    let paths = fields.iter().map(|field| json!({"jsonPath": field}));
    paths.collect()
}

/// Defines a kind with these fields, and returns the path of its definition and that of its objects.
async fn define(client: &Client, scope: &str, fields: &[&str]) -> (String, String) {
    let group = format!("{}.example.com", random_name("fields"));
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("gadgets.{group}")},
        "spec": {
            "group": group, "scope": scope, "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema()},
                "selectableFields": selectable(fields),
            }],
        },
    });
    create(client, DEFINITIONS, definition).await;
    let namespace = if scope == "Namespaced" {
        "namespaces/default/"
    } else {
        ""
    };
    let path = format!("/apis/{group}/v1/{namespace}gadgets");
    wait_for("the new kind to be served", PATIENCE, async || {
        client.get(&path).await?.ok()
    })
    .await
    .unwrap();
    (format!("{DEFINITIONS}/gadgets.{group}"), path)
}

/// OpenAPI tells of a new group up to a second after it is served.
async fn told_of(client: &Client, path: &str) {
    let group_version = path.trim_start_matches('/').splitn(4, '/').take(3);
    let document = format!(
        "/openapi/v3/{}",
        group_version.collect::<Vec<_>>().join("/")
    );
    wait_for(&format!("{document} to be there"), PATIENCE, async || {
        client.get(&document).await?.ok()
    })
    .await
    .unwrap();
}

async fn put(client: &Client, path: &str, name: &str, spec: Value) {
    let group_version = path.trim_start_matches("/apis/").splitn(3, '/');
    let api_version = group_version.take(2).collect::<Vec<_>>().join("/");
    let object = json!({"apiVersion": api_version, "kind": "Gadget", "metadata": {"name": name}, "spec": spec});
    create(client, path, object).await;
}

async fn change(client: &Client, definition: &str, patch: Value) {
    let headers = [("content-type", "application/json-patch+json")];
    let patched = client.send(http::Method::PATCH, definition, &headers, patch.to_string());
    patched.await.unwrap().ok().unwrap();
}

const FIELDS: [&str; 4] = [
    ".spec.color",
    ".spec.count",
    ".spec.on",
    ".spec.deep.odd-name",
];

async fn put_some(client: &Client, path: &str) {
    for (name, spec) in [
        (
            "a",
            json!({"color": "red", "count": 2, "on": true, "deep": {"odd-name": "x"}}),
        ),
        (
            "b",
            json!({"color": "a,b=c\\\u{fc}", "count": -9007199254740993_i64, "on": false, "deep": {}}),
        ),
        ("c", json!({"color": "", "count": null, "deep": null})),
        ("d", json!({})),
    ] {
        put(client, path, name, spec).await;
    }
}

#[tokio::test]
async fn custom_resources_are_selected_by_what_their_definition_lists() {
    let pair = Pair::shared().await;
    for scope in ["Namespaced", "Cluster"] {
        let (_, path) = define(&pair.direct, scope, &FIELDS).await;
        told_of(&pair.direct, &path).await;
        put_some(&pair.direct, &path).await;
        warm(&pair.proxied, &path).await;
        for (field, values) in [
            ("spec.color", ["red", "a\\,b\\=c\\\\\u{fc}", "a"]),
            ("spec.count", ["2", "-9007199254740993", "2.0"]),
            ("spec.on", ["true", "false", "1"]),
            ("spec.deep.odd-name", ["x", "X", "<nil>"]),
            ("metadata.name", ["a", "b", "x"]),
        ] {
            for value in values.into_iter().chain([""]) {
                for operator in ["=", "==", "!="] {
                    let selector = format!("{field}{operator}{value}");
                    let selected = check_hit(&pair.direct, &pair.proxied, &path, &selector).await;
                    let some = value == values[0] && selected > 0 && selected < 4;
                    assert!(some || value != values[0], "{selector}: {selected}");
                }
            }
        }
        let both = "spec.on!=true,spec.color=,metadata.name!=d";
        let selected = check_hit(&pair.direct, &pair.proxied, &path, both).await;
        assert_eq!(selected, 1);
        for selector in REFUSED {
            check_live(&pair.direct, &pair.proxied, &path, selector).await;
        }
        for field in [
            ".spec.color",
            "spec",
            "spec.deep",
            "spec.other",
            "spec.Color",
        ] {
            check_live(&pair.direct, &pair.proxied, &path, &format!("{field}=x")).await;
        }
        let namespace = format!("{path}?fieldSelector=metadata.namespace%3Ddefault");
        let answer = check_with(&pair, &namespace, &ACCEPT, scope == "Namespaced").await;
        assert_eq!(answer.is_hit(), scope == "Namespaced");
    }
}

/// Who reads a new kind at once is before OpenAPI, but its fields are learned when that tells of them.
#[tokio::test]
async fn the_fields_of_a_kind_that_is_read_at_once_are_learned() {
    let pair = Pair::shared().await;
    let (_, path) = define(&pair.direct, "Namespaced", &[".spec.count"]).await;
    pair.proxied.get(&path).await.unwrap().ok().unwrap();
    put_some(&pair.direct, &path).await;
    warm(&pair.proxied, &select(&path, "spec.count=2")).await;
    let selected = check_hit(&pair.direct, &pair.proxied, &path, "spec.count=2").await;
    assert_eq!(selected, 1);
}

/// What a definition no longer lists is refused, and what it lists now comes from memory.
#[tokio::test]
async fn changed_fields_are_learned() {
    let pair = Pair::shared().await;
    let (definition, path) = define(&pair.direct, "Namespaced", &[".spec.color"]).await;
    told_of(&pair.direct, &path).await;
    put_some(&pair.direct, &path).await;
    warm(&pair.proxied, &path).await;
    check_hit(&pair.direct, &pair.proxied, &path, "spec.color=red").await;
    check_live(&pair.direct, &pair.proxied, &path, "spec.count=2").await;
    let fields = selectable(&[".spec.count", ".spec.on"]);
    let patch =
        json!([{"op": "replace", "path": "/spec/versions/0/selectableFields", "value": fields}]);
    change(&pair.direct, &definition, patch).await;
    let selected = check_hit(&pair.direct, &pair.proxied, &path, "spec.count=2").await;
    assert_eq!(selected, 1);
    check_live(&pair.direct, &pair.proxied, &path, "spec.color=red").await;
    let patch = json!([{"op": "remove", "path": "/spec/versions/0/selectableFields"}]);
    change(&pair.direct, &definition, patch).await;
    wait_for("the last fields to be refused", PATIENCE, async || {
        let answer = pair.proxied.get(&select(&path, "spec.count=2")).await?;
        anyhow::ensure!(answer.status == 400, "{}", answer.status);
        anyhow::Ok(())
    })
    .await
    .unwrap();
    check_live(&pair.direct, &pair.proxied, &path, "spec.count=2").await;
    check_hit(&pair.direct, &pair.proxied, &path, "metadata.name=a").await;
}

/// An object that is older than its schema may hold what Go prints in its own way; only the server does that.
#[tokio::test]
async fn values_that_their_schema_does_not_allow_are_the_servers_to_print() {
    let pair = Pair::shared().await;
    let (definition, path) = define(&pair.direct, "Namespaced", &[".spec.color"]).await;
    let anything = json!({"x-kubernetes-preserve-unknown-fields": true});
    let count = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/count";
    let patch = json!([{"op": "replace", "path": count, "value": anything}]);
    change(&pair.direct, &definition, patch).await;
    wait_for("a number to be accepted", PATIENCE, async || {
        let group_version = path.trim_start_matches("/apis/").splitn(3, '/');
        let api_version = group_version.take(2).collect::<Vec<_>>().join("/");
        let object = json!({"apiVersion": api_version, "kind": "Gadget", "metadata": {"name": "float"}, "spec": {"count": 1.5}});
        pair.direct.create(&path, &object).await?.ok()
    })
    .await
    .unwrap();
    put(&pair.direct, &path, "list", json!({"count": ["a"]})).await;
    put(
        &pair.direct,
        &path,
        "plain",
        json!({"count": 2, "color": "red"}),
    )
    .await;
    let fields = selectable(&[".spec.color", ".spec.count"]);
    let patch = json!([
        {"op": "replace", "path": count, "value": integer()},
        {"op": "replace", "path": "/spec/versions/0/selectableFields", "value": fields},
    ]);
    change(&pair.direct, &definition, patch).await;
    wait_for("the new fields to be accepted", PATIENCE, async || {
        let path = select(&path, "spec.count=1.5");
        pair.direct.get(&path).await?.ok()
    })
    .await
    .unwrap();
    warm(&pair.proxied, &path).await;
    for selector in [
        "spec.count=1.5",
        "spec.count=2",
        "spec.count=[a]",
        "spec.color=red",
    ] {
        check_live(&pair.direct, &pair.proxied, &path, selector).await;
    }
    check_hit(&pair.direct, &pair.proxied, &path, "metadata.name=list").await;
    for name in ["float", "list"] {
        let deleted = pair.direct.delete(&format!("{path}/{name}")).await;
        deleted.unwrap().ok().unwrap();
    }
    let selected = check_hit(&pair.direct, &pair.proxied, &path, "spec.count=2").await;
    assert_eq!(selected, 1);
}
