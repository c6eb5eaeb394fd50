//! GET, LIST, tables and discovery.

use super::*;

#[tokio::test]
async fn lists_have_the_bytes_of_the_apiserver() {
    let cluster = cluster().await;
    let object = json!({
        "metadata": {"name": "a", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "data": {"k": "<v>"},
    });
    cluster.store().create("configmaps", object).unwrap();
    let widget = json!({
        "metadata": {"name": "w", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
    });
    cluster.store().create("widgets", widget).unwrap();
    let client = Client::new(&cluster);
    let list = client.get(CONFIGMAPS).await;
    assert_eq!(list.headers["content-type"], "application/json");
    assert_eq!(
        list.text,
        "{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[{\"metadata\":{\"name\":\"a\",\"namespace\":\"default\",\"uid\":\"u\",\"resourceVersion\":\"4\",\"creationTimestamp\":\"2026-01-01T00:00:00Z\"},\"data\":{\"k\":\"\\u003cv\\u003e\"}}]}\n"
    );
    let list = client.get("/apis/example.com/v1/widgets").await;
    assert_eq!(
        list.text,
        "{\"apiVersion\":\"example.com/v1\",\"items\":[{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"metadata\":{\"creationTimestamp\":\"2026-01-01T00:00:00Z\",\"generation\":1,\"name\":\"w\",\"namespace\":\"default\",\"resourceVersion\":\"5\",\"uid\":\"u\"}}],\"kind\":\"WidgetList\",\"metadata\":{\"continue\":\"\",\"resourceVersion\":\"5\"}}\n"
    );
    let one = client.get(&format!("{CONFIGMAPS}/a")).await;
    assert!(
        one.text.starts_with(
            "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\""
        ),
        "{}",
        one.text
    );
}

#[tokio::test]
async fn http_1_and_http_2_answer_alike() {
    let cluster = cluster().await;
    let one = Client::with(&cluster, false)
        .send(Method::GET, "/api/v1/pods", &[], "")
        .await;
    let two = Client::with(&cluster, true)
        .send(Method::GET, "/api/v1/pods", &[], "")
        .await;
    assert_eq!(
        (one.version(), two.version()),
        (http::Version::HTTP_11, http::Version::HTTP_2)
    );
    assert_eq!(Answer::read(one).await.text, Answer::read(two).await.text);
}

#[tokio::test]
async fn pages_continue_at_their_revision_until_it_is_compacted() {
    let cluster = cluster().await;
    for name in ["a", "b", "c", "d", "e"] {
        cluster
            .store()
            .create("configmaps", configmap(name))
            .unwrap();
    }
    let client = Client::new(&cluster);
    let first = client.get(&format!("{CONFIGMAPS}?limit=2")).await;
    assert_eq!(first.names(), ["a", "b"]);
    let metadata = first.json()["metadata"].clone();
    assert_eq!(metadata["remainingItemCount"], 3);
    cluster
        .store()
        .delete("configmaps", "default", "d")
        .unwrap();

    let token = metadata["continue"].as_str().unwrap();
    let rest = client
        .get(&format!("{CONFIGMAPS}?limit=3&continue={token}"))
        .await;
    assert_eq!(rest.names(), ["c", "d", "e"]);
    let expected = json!({"resourceVersion": metadata["resourceVersion"]});
    assert_eq!(rest.json()["metadata"], expected);

    let selected = client
        .get(&format!("{CONFIGMAPS}?limit=1&labelSelector=!x"))
        .await
        .json();
    assert!(selected["metadata"]["continue"].is_string());
    assert!(selected["metadata"].get("remainingItemCount").is_none());

    cluster.store().compact();
    let expired = client
        .get(&format!("{CONFIGMAPS}?limit=3&continue={token}"))
        .await;
    assert_eq!(
        (expired.status, &expired.json()["reason"]),
        (StatusCode::GONE, &json!("Expired"))
    );
    let fresh = expired.json()["metadata"]["continue"]
        .as_str()
        .unwrap()
        .to_owned();
    let rest = client.get(&format!("{CONFIGMAPS}?continue={fresh}")).await;
    assert_eq!(rest.names(), ["c", "e"]);
}

#[tokio::test]
async fn the_resource_version_says_which_state_is_read() {
    let cluster = SimCluster::start(SimConfig {
        fresh_wait: IN_VAIN,
        ..SimConfig::new("sim")
    })
    .await
    .unwrap();
    let client = Client::new(&cluster);
    let before = cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap()
        .revision;
    cluster
        .store()
        .create("configmaps", configmap("b"))
        .unwrap();
    let names = async |query: &str| client.get(&format!("{CONFIGMAPS}?{query}")).await.names();
    assert_eq!(names("resourceVersion=0&limit=1").await, ["a", "b"]);
    assert_eq!(
        names(&format!("resourceVersion={before}")).await,
        ["a", "b"]
    );
    assert_eq!(
        names(&format!(
            "resourceVersion={before}&resourceVersionMatch=Exact"
        ))
        .await,
        ["a"]
    );

    let future = client
        .get(&format!("{CONFIGMAPS}?resourceVersion=99999999"))
        .await;
    assert_eq!(
        (future.status, &future.headers["retry-after"]),
        (StatusCode::GATEWAY_TIMEOUT, &"1".parse().unwrap())
    );
    assert_eq!(
        future.json()["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
    let events = client.get("/api/v1/events?resourceVersion=99999999").await;
    assert!(events.headers.get("retry-after").is_none());
    assert_eq!(
        client
            .get(&format!("{CONFIGMAPS}/a?resourceVersion=abc"))
            .await
            .status,
        500
    );
    assert_eq!(
        client
            .get(&format!("{CONFIGMAPS}?watch=1&resourceVersion=abc"))
            .await
            .status,
        500
    );
}

#[tokio::test]
async fn tables_and_metadata_are_made_on_request() {
    let cluster = cluster().await;
    cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap();
    let client = Client::new(&cluster);
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = client.get_as(CONFIGMAPS, accept).await.json();
    assert_eq!(
        (&table["kind"], &table["rows"][0]["cells"][0]),
        (&json!("Table"), &json!("a"))
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let empty = client
        .get_as("/api/v1/namespaces/none/configmaps", accept)
        .await
        .json();
    assert_eq!(empty["rows"], json!([]));
    let accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let metadata = client.get_as(CONFIGMAPS, accept).await;
    assert!(
        metadata.text.starts_with(
            "{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\""
        )
    );
    assert_eq!(metadata.names(), ["a"]);
    assert_eq!(client.get_as(CONFIGMAPS, "text/html").await.status, 406);
}

#[tokio::test]
async fn a_large_list_comes_whole() {
    let cluster = cluster().await;
    for index in 0..100 {
        let mut object = configmap(&format!("{index:03}"));
        object["data"] = json!({"k": "v".repeat(5000)});
        cluster.store().create("configmaps", object).unwrap();
    }
    let list = Client::new(&cluster).get(CONFIGMAPS).await;
    assert_eq!(list.names().len(), 100);
    assert!(list.headers.get("content-length").is_none());
}

#[tokio::test]
async fn discovery_names_every_resource() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let groups = client.get("/apis").await.json();
    let names: Vec<&str> = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|group| group["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "apps",
            "authentication.k8s.io",
            "authorization.k8s.io",
            "example.com"
        ]
    );
    let core = client.get("/api/v1").await.json();
    let pods = core["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["name"] == "pods")
        .unwrap();
    assert_eq!(
        (&pods["kind"], &pods["namespaced"]),
        (&json!("Pod"), &json!(true))
    );

    let accept =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let aggregated = client.get_as("/apis", accept).await;
    assert_eq!(aggregated.headers["content-type"], discovery::AGGREGATED);
    assert_eq!(aggregated.json()["items"].as_array().unwrap().len(), 4);
    assert_eq!(client.get("/version").await.json()["gitVersion"], "v1.36.3");
    assert_eq!(client.get("/readyz").await.text, "ok");
    assert_eq!(
        client.get("/apis/foo.io/v1/foos").await.text,
        "404 page not found\n"
    );
}

#[tokio::test]
async fn a_wrong_token_is_unauthorized_everywhere_and_health_needs_none() {
    let cluster = cluster().await;
    let mut client = Client::new(&cluster);
    client.token = "wrong".to_owned();
    let refused = client.get(CONFIGMAPS).await;
    assert_eq!(
        (refused.status, &refused.json()["reason"]),
        (StatusCode::UNAUTHORIZED, &json!("Unauthorized"))
    );
    let public = ["/readyz", "/livez", "/healthz", "/version"];
    for path in public {
        assert_eq!(client.get(path).await.status, 401, "{path}");
    }
    cluster.accept_tokens(vec!["wrong".to_owned()]);
    assert_eq!(client.get(CONFIGMAPS).await.status, 200);
    // An empty token is none.
    client.token.clear();
    assert_eq!(client.get(CONFIGMAPS).await.status, 401);
    for path in public {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
}
