//! What stands in the headers of an answer from memory because of its kind.

use http::Method;

use super::*;

fn warnings(answer: &Answer) -> Vec<&str> {
    let warnings = answer.headers.get_all("warning").iter();
    warnings.map(|text| text.to_str().unwrap()).collect()
}

#[tokio::test]
async fn a_deprecated_kind_says_so() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let endpoints = format!("/api/v1/namespaces/{namespace}/endpoints");
    let object = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "a"}});
    create(&pair.direct, &endpoints, object).await;
    let json = [("accept", "application/json")];
    for path in [
        "/api/v1/endpoints",
        &endpoints,
        &format!("{endpoints}/a"),
        "/api/v1/endpoints?labelSelector=none",
    ] {
        warm(&pair.proxied, path).await;
        let answer = check_with(&pair, path, &json, true).await;
        let warnings = warnings(&answer);
        assert!(
            matches!(warnings[..], [one] if one.starts_with("299 - \"v1 Endpoints is deprecated")),
            "{warnings:?}"
        );
    }
    check_same(&pair, &format!("{endpoints}/absent"), &json).await;
    check(&pair, "/apis/discovery.k8s.io/v1/endpointslices").await;
}

#[tokio::test]
async fn a_deprecated_version_of_a_custom_resource_says_so_for_as_long_as_it_is() {
    let pair = Pair::shared().await;
    let group = format!("{}.example.com", random_name("reads"));
    let name = define_widgets(&pair.direct, &group).await;
    let widget =
        json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "w"}});
    let widgets = |version| format!("/apis/{group}/{version}/namespaces/default/widgets");
    create(&pair.direct, &widgets("v1"), widget).await;
    let definition = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let old = json!([
        {"op": "copy", "from": "/spec/versions/0", "path": "/spec/versions/-"},
        {"op": "replace", "path": "/spec/versions/1/name", "value": "v1beta1"},
        {"op": "replace", "path": "/spec/versions/1/storage", "value": false},
        {"op": "add", "path": "/spec/versions/1/deprecated", "value": true},
        {"op": "add", "path": "/spec/versions/1/deprecationWarning", "value": "use \"v1\", it is <better>"},
    ]);
    change(&pair.direct, &definition, &old).await;
    let old = [widgets("v1beta1"), format!("{}/w", widgets("v1beta1"))];
    wait_for("the old version to be served", PATIENCE, async || {
        pair.direct.get(&old[1]).await?.ok()
    })
    .await
    .unwrap();
    let json = [("accept", "application/json")];
    for path in &old {
        warm(&pair.proxied, path).await;
        let answer = check_with(&pair, path, &json, true).await;
        assert_eq!(
            warnings(&answer),
            [r#"299 - "use \"v1\", it is <better>""#],
            "{path}"
        );
    }
    check(&pair, &widgets("v1")).await;
    let none = json!([
        {"op": "remove", "path": "/spec/versions/1/deprecationWarning"},
        {"op": "remove", "path": "/spec/versions/1/deprecated"},
    ]);
    change(&pair.direct, &definition, &none).await;
    wait_for(
        "the server to take the warning back",
        PATIENCE,
        async || {
            let answer = pair.direct.get(&old[0]).await?;
            anyhow::ensure!(warnings(&answer).is_empty());
            anyhow::Ok(())
        },
    )
    .await
    .unwrap();
    for path in &old {
        check_with(&pair, path, &json, true).await;
    }
    pair.direct.delete(&definition).await.unwrap();
}

/// The servers of a test share its clock.
#[tokio::test]
async fn the_clock_of_a_cluster_is_known() {
    let pair = Pair::shared().await;
    let metrics = pair.proxy.metrics().unwrap();
    let labels = [("cluster", pair.cluster.name())];
    let offset = metrics.sum("fleetcache_cluster_clock_offset_seconds", &labels);
    // How late the last answer came is counted in.
    assert!(offset.is_some_and(|it| it.abs() < 60.0), "{offset:?}");
}

async fn change(client: &Client, path: &str, patch: &Value) {
    let headers = [("content-type", "application/json-patch+json")];
    let answer = client.send(Method::PATCH, path, &headers, patch.to_string());
    answer.await.unwrap().ok().unwrap();
}
