//! What is accepted, who asks, compression, and the warnings of deprecated kinds.

use super::{CONFIGMAPS, PODS, Row, WIDGETS};

/// `true`: the answer is JSON, which memory has.
const ACCEPT: [(&str, bool); 24] = [
    ("application/json", true),
    ("application/json, */*", true),
    ("*/*", true),
    ("application/json;charset=utf-8", true),
    ("application/json; charset=UTF-8", true),
    ("application/json,application/yaml", true),
    ("application/json;q=0.1, application/yaml;q=0.9", false),
    ("application/json;q=1", true),
    ("application/yaml", false),
    ("application/*", false),
    ("*", false),
    ("", true),
    ("text/html", false),
    ("text/html, */*", true),
    ("text/html,application/xhtml+xml,*/*;q=0.8", true),
    ("application/cbor", false),
    ("application/xml,application/json", true),
    ("Application/JSON", false),
    ("application/json;pretty=1", true),
    ("application/json;as=Foo;v=v1;g=meta.k8s.io", false),
    (
        "application/json;as=Foo;v=v1;g=meta.k8s.io,application/json",
        true,
    ),
    ("application/json;v=v2", false),
    ("application/json;stream=watch", false),
    ("garbage", false),
];

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (accept, hit) in ACCEPT {
        for path in [
            CONFIGMAPS.to_owned(),
            format!("{CONFIGMAPS}/cm1"),
            WIDGETS.to_owned(),
        ] {
            rows.push(Row::get("50 accept", path, hit).with("accept", accept));
        }
    }
    // What is no list has no list's metadata, and the other way round.
    for (of_list, accept) in [
        (
            true,
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        ),
        (
            true,
            "application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io;pretty=1",
        ),
        (
            false,
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ),
        (
            false,
            "application/yaml;q=0.1,*/*;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
        ),
        (
            true,
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
        ),
        (
            true,
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
        ),
        (
            false,
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1;pretty=1",
        ),
    ] {
        for (path, is_list) in [
            (CONFIGMAPS.to_owned(), true),
            (format!("{CONFIGMAPS}/cm1"), false),
            (WIDGETS.to_owned(), true),
        ] {
            rows.push(Row::get("50 accept", path, of_list == is_list).with("accept", accept));
        }
    }
    for (path, is_custom) in [
        (CONFIGMAPS.to_owned(), false),
        (format!("{CONFIGMAPS}/cm1"), false),
        (format!("{CONFIGMAPS}?limit=2"), false),
        (format!("{CONFIGMAPS}?labelSelector=app%3Dx"), false),
        (
            format!("{CONFIGMAPS}?fieldSelector=metadata.name%3Dcm1"),
            false,
        ),
        (PODS.to_owned(), false),
        (WIDGETS.to_owned(), true),
    ] {
        for (accept, hit) in [
            ("application/vnd.kubernetes.protobuf", !is_custom),
            ("application/vnd.kubernetes.protobuf,application/json", true),
        ] {
            rows.push(Row::get("51 protobuf", path.clone(), hit).with("accept", accept));
        }
    }
    // Only metadata are read of it.
    let by_node = Row::get(
        "51 protobuf",
        format!("{PODS}?fieldSelector=spec.nodeName%3Dn1"),
        false,
    );
    rows.push(by_node.with("accept", "application/vnd.kubernetes.protobuf"));
    let mut bare = Row::get("50 accept", CONFIGMAPS, true);
    bare.headers.clear();
    rows.push(bare);
    let absent = format!("{CONFIGMAPS}/nope");
    for accept in [
        "application/yaml",
        "text/html",
        "application/vnd.kubernetes.protobuf",
    ] {
        rows.push(Row::get("50 errors", absent.clone(), false).with("accept", accept));
    }
    rows.extend(agents());
    rows.extend(compression());
    for path in [
        "/api/v1/endpoints",
        "/api/v1/namespaces/diff/endpoints",
        "/api/v1/namespaces/diff/endpoints/ep",
        "/api/v1/namespaces/diff/endpoints?resourceVersion=0&labelSelector=a",
    ] {
        rows.push(Row::get("63 deprecated", path, true));
    }
    rows.push(Row::get(
        "63 deprecated",
        "/api/v1/namespaces/diff/endpoints/nope",
        false,
    ));
    rows
}

fn agents() -> Vec<Row> {
    let mut rows = Vec::new();
    for (agent, hit) in [
        ("t/1", true),
        ("kubectl/v1.36.3 (linux/amd64) kubernetes/0000000", true),
        ("python-requests/2.32", true),
        ("Go-http-client/2.0", true),
        ("xcurl/8", true),
        ("CURL/8", true),
        ("curl/8.5.0", true),
        ("curl", true),
        ("Wget/1.21", true),
        ("Mozilla/5.0 (X11; Linux x86_64)", true),
        ("Mozilla/4.0", true),
    ] {
        for path in [CONFIGMAPS.to_owned(), format!("{PODS}/p1")] {
            rows.push(Row::get("52 agents", path, hit).with("user-agent", agent));
        }
        rows.push(
            Row::get("52 agents", format!("{CONFIGMAPS}/nope"), false).with("user-agent", agent),
        );
    }
    for (query, hit) in [
        ("pretty=false", true),
        ("pretty=0", true),
        ("pretty=False", true),
        ("pretty=true", true),
        ("pretty=1", true),
        ("pretty", true),
        ("pretty=", true),
        ("pretty=no", true),
        ("pretty=false&pretty=true", true),
        ("pretty=true&pretty=false", true),
    ] {
        for agent in ["t/1", "curl/8"] {
            let path = format!("{CONFIGMAPS}?{query}");
            rows.push(Row::get("52 pretty", path, hit).with("user-agent", agent));
        }
    }
    rows
}

fn compression() -> Vec<Row> {
    let mut rows = Vec::new();
    for encoding in [
        "gzip",
        "gzip;q=0.5",
        "deflate, gzip",
        "identity",
        "br",
        "*",
        "GZIP",
    ] {
        for path in [
            CONFIGMAPS,
            "/api/v1/namespaces/big/configmaps",
            "/api/v1/namespaces/big/configmaps/a",
        ] {
            rows.push(Row::get("53 gzip", path, true).with("accept-encoding", encoding));
        }
    }
    rows.push(Row::get("53 conditional", CONFIGMAPS, true).with("if-none-match", "\"0\""));
    rows.push(Row::get("53 conditional", CONFIGMAPS, true).with("range", "bytes=0-10"));
    rows.push(Row::get("53 cache-control", CONFIGMAPS, true).with("cache-control", "no-cache"));
    rows
}
