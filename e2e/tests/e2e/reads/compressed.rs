//! Long answers, compressed where the server compresses them.

use super::*;

const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

#[tokio::test]
async fn answers_are_compressed_as_the_server_does() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    // Two of them are a list that is too short, three are one that is not.
    let text = "<text> ".repeat(3500);
    for name in ["a", "b", "c"] {
        let mut object = configmap(name, &text);
        object["metadata"]["labels"]["is"] = name.into();
        create(&pair.direct, &path, object).await;
    }
    create(&pair.direct, &path, configmap("long", &text.repeat(4))).await;
    // What is long enough only when it is indented.
    let many: serde_json::Map<_, _> = (0..10_000)
        .map(|at| (format!("k{at}"), Value::from("")))
        .collect();
    let mut object = configmap("many", "x");
    object["data"] = Value::from(many);
    create(&pair.direct, &path, object).await;
    warm(&pair.proxied, &path).await;
    let json = "application/json";
    for (encoding, is_gzip) in [
        ("gzip", true),
        ("deflate, gzip ,br", true),
        ("gzip;q=0.5", false),
        ("GZIP", false),
        ("*", false),
        ("identity", false),
    ] {
        for (query, accept, is_long) in [
            ("", json, true),
            // Of ten thousand fields there is one who manages them.
            ("", METADATA, true),
            ("?limit=3", METADATA, false),
            ("?pretty=1", json, true),
            ("?limit=3", json, true),
            ("?limit=2", json, false),
            ("?labelSelector=is%20in%20(a,b)", json, false),
            ("?labelSelector=is&pretty=true", json, true),
            ("/a", json, false),
            ("/long", json, true),
            ("/long?pretty=true", json, true),
        ] {
            let path = format!("{path}{query}");
            let headers = [("accept", accept), ("accept-encoding", encoding)];
            let answer = check_with(&pair, &path, &headers, true).await;
            let is_compressed = answer.headers.contains_key("content-encoding");
            assert_eq!(is_compressed, is_gzip && is_long, "{path} {headers:?}");
        }
        for query in [
            "/many",
            "/many?pretty=true",
            "?fieldSelector=metadata.name%3Dmany",
        ] {
            let headers = [("accept", json), ("accept-encoding", encoding)];
            check_with(&pair, &format!("{path}{query}"), &headers, true).await;
        }
        // Live lists are asked for as the client asks, and come as the server sends them.
        for (query, is_long) in [("", true), ("?limit=2", false)] {
            let path = format!("{path}{query}");
            let headers = [
                ("accept", json),
                ("accept-encoding", encoding),
                ("cache-control", "no-store"),
            ];
            let answer = check_with(&pair, &path, &headers, false).await;
            assert!(!answer.is_hit());
            let is_compressed = answer.headers.contains_key("content-encoding");
            assert_eq!(is_compressed, is_gzip && is_long, "{path} {headers:?}");
        }
    }
}
