//! How a watch is asked for, whatever it is about: deadlines, odd queries and paths, representations and headers.

use http::Method;

use super::{CONFIGMAPS, ROLES, Row, WIDGETS, quiet, row};

pub(super) fn deadlines() -> Vec<Row> {
    let mut rows = Vec::new();
    for seconds in ["1", "2", "3", "5"] {
        for start in [
            "",
            "&resourceVersion=$NOW",
            "&resourceVersion=$MID",
            "&resourceVersion=$MID&allowWatchBookmarks=true",
        ] {
            let query = format!("watch=1&timeoutSeconds={seconds}{start}");
            rows.push(quiet("deadline", CONFIGMAPS, &query, true));
        }
    }
    // How much the server tells before it sees that it is too late is a race of its own.
    for seconds in ["-1", "-100"] {
        let query = format!("watch=1&timeoutSeconds={seconds}&resourceVersion=$NOW");
        rows.push(quiet("deadline", CONFIGMAPS, &query, false));
    }
    for seconds in ["", "abc", "1.5", "99999999999999999999", "1s", "%20", "0x1"] {
        let query = format!("watch=1&timeoutSeconds={seconds}");
        rows.push(quiet("bad deadline", CONFIGMAPS, &query, false));
    }
    rows.push(quiet(
        "first deadline",
        CONFIGMAPS,
        "watch=1&timeoutSeconds=1&timeoutSeconds=100",
        true,
    ));
    rows.push(row("no deadline", CONFIGMAPS, "resourceVersion=$NOW", true).open_ended());
    rows.push(row("no deadline", CONFIGMAPS, "timeoutSeconds=0", true).open_ended());
    rows.push(row("no deadline", CONFIGMAPS, "timeout=1s", true).open_ended());
    rows
}

pub(super) fn queries() -> Vec<Row> {
    let mut rows = Vec::new();
    for watch in [
        "watch=true",
        "watch=TRUE",
        "watch=foo",
        "watch=",
        "watch",
        "watch=1&watch=0",
        "watch=1&watch=abc",
        "watch=%31",
        "w%61tch=1",
    ] {
        let query = format!("{watch}&timeoutSeconds=1&resourceVersion=$MID");
        rows.push(quiet("watch", CONFIGMAPS, &query, true));
    }
    for watch in ["watch=0", "watch=false", "watch=False", "watch=0&watch=1"] {
        rows.push(quiet("no watch", CONFIGMAPS, watch, true));
    }
    for (more, hit) in [
        ("limit=1", true),
        ("limit=abc", false),
        ("continue=abc", false),
        ("limit=1&continue=abc", false),
        ("resourceVersion=0&resourceVersion=abc", true),
        ("allowWatchBookmarks=foo", true),
        ("allowWatchBookmarks=", true),
        ("allowWatchBookmarks=0", true),
        ("allowWatchBookmarks=abc&resourceVersion=$MID", true),
        ("sendInitialEvents=", false),
        ("sendInitialEvents=0", false),
        (
            "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1",
            true,
        ),
        (
            "sendInitialEvents=abc&resourceVersionMatch=NotOlderThan",
            true,
        ),
        ("shardSelector=abc", false),
        ("foo=bar&x[]=1", true),
        ("pretty=true", true),
        ("pretty=false", true),
        ("dryRun=All", true),
        ("resourceVersion=00", false),
        ("resourceVersion=-1", false),
        ("resourceVersion=%20", false),
        ("resourceVersion=99999999999999999999", false),
    ] {
        rows.push(quiet(
            "option",
            CONFIGMAPS,
            &format!("watch=1&timeoutSeconds=1&{more}"),
            hit,
        ));
    }
    for (path, hit) in [
        ("/api/v1/namespaces/w/configmaps/", true),
        ("/api/v1/namespaces/w/configmaps//", false),
        ("/api/v1/namespaces/w/configm%61ps", false),
        ("/api/v1/watch/namespaces/w/configmaps", false),
        ("/api/v1/watch/namespaces/w/configmaps/moves", false),
        ("/api/v1/watch/configmaps", false),
    ] {
        rows.push(quiet("path", path, "watch=1&timeoutSeconds=1", hit));
    }
    rows.push(quiet(
        "one object",
        "/api/v1/namespaces/w/configmaps/moves",
        "watch=1&timeoutSeconds=1",
        false,
    ));
    for method in ["HEAD", "OPTIONS", "POST"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        for path in [CONFIGMAPS, WIDGETS] {
            let row = quiet("method", path, "watch=1&timeoutSeconds=1", false);
            rows.push(Row {
                method: method.clone(),
                ..row
            });
        }
    }
    rows
}

pub(super) fn representations() -> Vec<Row> {
    let mut rows = Vec::new();
    for (accept, hit) in [
        ("*/*", true),
        ("application/json, */*", true),
        ("application/json;stream=watch", false),
        ("application/json;charset=utf-8", true),
        ("application/vnd.kubernetes.protobuf", true),
        ("application/vnd.kubernetes.protobuf;stream=watch", false),
        ("application/vnd.kubernetes.protobuf,application/json", true),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", true),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io, application/yaml",
            true,
        ),
        (
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            true,
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            true,
        ),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io,application/json",
            true,
        ),
        (
            "application/json;as=Foo;v=v1;g=meta.k8s.io,application/json",
            true,
        ),
    ] {
        for path in [ROLES, WIDGETS] {
            // Bookmarks come when they come: where the lines are not JSON they would be compared.
            let query = if accept.contains("protobuf") || accept.contains("as=") {
                "resourceVersion=$MID"
            } else {
                "resourceVersion=$MID&allowWatchBookmarks=true"
            };
            let script = row("accept", path, query, hit);
            let table_with_ages = path == WIDGETS && accept.contains("Table");
            let refused = path == WIDGETS
                && accept.starts_with("application/vnd.kubernetes.protobuf")
                && !accept.contains("json")
                && !accept.contains("as=");
            if !table_with_ages && !refused {
                rows.push(script.with("accept", accept));
            }
        }
    }
    for accept in [
        "application/yaml",
        "application/cbor",
        "application/cbor-seq",
        "text/html",
        "application/*",
        "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
        "application/json;q=0.1, application/yaml;q=0.9",
        "application/yaml, application/json",
        "",
    ] {
        let row = quiet(
            "not acceptable",
            ROLES,
            "watch=1&timeoutSeconds=1&resourceVersion=$NOW",
            accept.is_empty(),
        );
        rows.push(row.with("accept", accept));
    }
    rows.push(
        quiet(
            "protobuf of none",
            WIDGETS,
            "watch=1&timeoutSeconds=1",
            false,
        )
        .with("accept", "application/vnd.kubernetes.protobuf"),
    );
    for accept in [
        "application/vnd.kubernetes.protobuf",
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    ] {
        rows.push(
            quiet(
                "too old",
                ROLES,
                "watch=1&timeoutSeconds=1&resourceVersion=1",
                false,
            )
            .with("accept", accept),
        );
    }
    let mut without = row("accept", ROLES, "resourceVersion=$MID", true);
    without.headers.clear();
    rows.push(without);
    // What a curious person sees.
    for agent in ["curl/8", "Wget/1.21", "Mozilla/5.0 (X11)", "t/1"] {
        for pretty in ["", "&pretty=false", "&pretty=true"] {
            let query = format!("resourceVersion=$MID&allowWatchBookmarks=true{pretty}");
            rows.push(row("agent", CONFIGMAPS, &query, true).with("user-agent", agent));
        }
        rows.push(
            quiet(
                "agent",
                CONFIGMAPS,
                "watch=1&timeoutSeconds=1&resourceVersion=1",
                false,
            )
            .with("user-agent", agent),
        );
    }
    for (name, value) in [
        ("accept-encoding", "gzip"),
        ("if-none-match", "*"),
        ("range", "bytes=0-10"),
        ("cache-control", "no-cache"),
        ("cache-control", "no-store"),
        ("cache-control", "max-age=0"),
        ("audit-id", "of-the-client"),
    ] {
        let hit = value != "no-store";
        rows.push(row("header", CONFIGMAPS, "", hit).with(name, value));
    }
    rows
}
