//! How an answer is written: indented or not, and by which `Accept` it is JSON at all.

use super::*;

/// Everything that is written in a way of its own.
fn odd() -> Value {
    json!({"empty": {}, "none": [], "nested": [[], [{}], [1, -2.5, 1.5e300, true, null]], "text": "<&> \\ \" {}[],: \u{2028} \u{1f600}", "\"key\\": "x"})
}

/// A namespace with configmaps, one of them large, and custom resources; and the paths of what is compared.
async fn fill(pair: &Pair) -> Vec<String> {
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    create(
        &pair.direct,
        &configmaps,
        configmap("a", &odd().to_string()),
    )
    .await;
    let large = "\\\"<x>, {\n".repeat(30_000);
    create(&pair.direct, &configmaps, configmap("large", &large)).await;
    let group = format!("{}.example.com", random_name("reads"));
    define_widgets(&pair.direct, &group).await;
    let widgets = format!("/apis/{group}/v1/namespaces/{namespace}/widgets");
    for name in ["a", "b"] {
        let widget = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": name}, "spec": odd()});
        create(&pair.direct, &widgets, widget).await;
    }
    let paths = vec![
        configmaps.clone(),
        format!("{configmaps}/a"),
        format!("{configmaps}/large"),
        format!("/api/v1/namespaces/{namespace}-absent/configmaps"),
        format!("{configmaps}?labelSelector=name%3Da"),
        "/api/v1/namespaces".to_owned(),
        widgets.clone(),
        format!("{widgets}/a"),
        format!("/apis/{group}/v1/namespaces/{namespace}-absent/widgets"),
    ];
    for path in &paths {
        warm(&pair.proxied, path).await;
    }
    paths
}

#[tokio::test]
async fn indentation_is_the_servers() {
    let pair = Pair::shared().await;
    let paths = fill(&pair).await;
    let json = "application/json";
    for (query, accept, agent, indented) in [
        ("", json, "t/1", false),
        ("", json, "curl/8.5.0", true),
        ("", "*/*", "Wget/1.21", true),
        ("", json, "Mozilla/5.0 (X11; Linux x86_64)", true),
        ("", json, "Mozilla/4.0", false),
        ("pretty=true", json, "t/1", true),
        ("pretty=1", json, "t/1", true),
        ("pretty=T", json, "t/1", true),
        ("pretty=tRUE", json, "curl/8.5.0", false),
        ("pretty=yes", json, "curl/8.5.0", false),
        ("pretty=0", json, "curl/8.5.0", false),
        ("pretty=false", json, "curl/8.5.0", false),
        ("pretty=", json, "curl/8.5.0", true),
        ("pretty", json, "t/1", false),
        ("pretty=&pretty=true", json, "t/1", false),
        ("pretty=true&pretty=false", json, "t/1", true),
        ("pretty=%74rue", json, "t/1", true),
        ("%70retty=true", json, "t/1", false),
        ("%70retty=true&notpretty=1", json, "t/1", true),
        ("pretty=false", "application/json;pretty=1", "t/1", true),
        ("", "application/json; pretty = 1 ", "t/1", true),
        ("", "application/json;pretty=true", "t/1", false),
    ] {
        for path in &paths {
            let separator = if path.contains('?') { '&' } else { '?' };
            let path = format!("{path}{separator}{query}");
            let headers = [("accept", accept), ("user-agent", agent)];
            let answer = check_with(&pair, &path, &headers, true).await;
            assert_eq!(
                answer.body.starts_with(b"{\n  \""),
                indented,
                "{path} {headers:?}"
            );
        }
    }
    // What the server reads in its own way, and what it refuses.
    for (query, accept) in [
        ("pretty=%zz", json),
        ("pretty=true&resourceVersion=abc", json),
        ("pretty=true", "application/yaml"),
        ("pretty=true", "text/html"),
    ] {
        for path in &paths[..2] {
            check_same(&pair, &format!("{path}?{query}"), &[("accept", accept)]).await;
        }
    }
}

#[tokio::test]
async fn accept_is_read_as_the_server_reads_it() {
    let pair = Pair::shared().await;
    let paths = fill(&pair).await;
    for (accept, from_memory) in [
        ("", true),
        ("application/json, */*", true),
        ("*/*;q=0.8", true),
        ("*/*, *", true),
        ("application/json; charset=\"utf-8\"; odd", true),
        ("application/json;export=1;profile=x", true),
        ("application/json;q=0.9,application/yaml;q=0.1", true),
        ("application/yaml;q=0.1,application/json;q=0.9", true),
        ("application/json;q=0.1, application/yaml;q=0.9", false),
        // A name is before a wildcard, whatever they weigh.
        ("*/*;q=0.9,application/yaml;q=0.1", false),
        ("*/*;q=0.9,application/json;pretty=1;q=0.1", true),
        ("*/*,application/*;pretty=1", true),
        ("application/*", false),
        ("application/*,application/json", true),
        ("text/html", false),
        (
            "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
            true,
        ),
        ("application/json;as=Nonsense,application/json", true),
        ("application/json;stream=watch", false),
        ("application/json;sv=v1", false),
        ("application/cbor,application/json", false),
        ("application/json;q=1e0", false),
        ("*/, */*;q=0.1", true),
        ("application/json/;q=1=, x/y//;pretty=1, */*;q=0.1", true),
        ("application/json;pretty==1,*/*", true),
        ("application/json;pretty=1;pretty=0", true),
        ("application / json,*/*", true),
        ("APPLICATION/JSON", false),
        (",,", false),
        (
            "a/a,a/b,a/c,a/d,a/e,a/f,a/g,a/h,a/i,a/j,a/k;q=0.5,application/json;q=0.2",
            true,
        ),
    ] {
        for path in &paths {
            check_with(&pair, path, &[("accept", accept)], from_memory).await;
        }
    }
    // The first of several headers counts.
    for (first, second) in [
        ("application/json", "application/yaml"),
        ("application/yaml", "application/json"),
    ] {
        let headers = [("accept", first), ("accept", second)];
        let from_memory = first == "application/json";
        check_with(&pair, &paths[0], &headers, from_memory).await;
    }
    // Not of every kind, so it is the server's.
    for path in &paths {
        let accept = "application/vnd.kubernetes.protobuf,application/json";
        check_same(&pair, path, &[("accept", accept)]).await;
    }
}
