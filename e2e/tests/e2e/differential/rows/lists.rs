//! Versions, limits and pages.

use super::{CONFIGMAPS, PODS, Row, WIDGETS};
use crate::differential::cluster::Facts;

pub(super) fn rows(facts: &Facts) -> Vec<Row> {
    let mut rows = whole();
    rows.extend(options(facts));
    rows.extend(pages(facts));
    rows
}

/// Lists and objects of every sort of kind.
fn whole() -> Vec<Row> {
    [
        "/api/v1/configmaps",
        CONFIGMAPS,
        "/api/v1/namespaces/diff/configmaps/cm1",
        "/api/v1/namespaces/diff-b/configmaps/cm1",
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/nope/configmaps",
        "/api/v1/pods",
        PODS,
        "/api/v1/namespaces/diff/pods/p1",
        "/api/v1/namespaces",
        "/api/v1/namespaces/diff",
        "/api/v1/nodes",
        "/api/v1/nodes/n2",
        "/api/v1/endpoints",
        "/api/v1/namespaces/diff/endpoints",
        "/api/v1/namespaces/diff/endpoints/ep",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/namespaces/diff/deployments/d1",
        "/apis/ex.io/v1/widgets",
        WIDGETS,
        "/apis/ex.io/v1/namespaces/diff/widgets/w1",
        "/apis/ex.io/v1/namespaces/nope/widgets",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
    ]
    .into_iter()
    .map(|path| Row::get("1 plain reads", path, true))
    .collect()
}

/// Options of a list of ConfigMaps, and the same of one object. `true`: memory can answer.
fn options(facts: &Facts) -> Vec<Row> {
    let (newest, first, compacted) = (facts.newest, facts.first, facts.compacted);
    let of_lists: Vec<(&str, String, bool)> = vec![
        ("2 limit", "limit=2".into(), true),
        ("2 limit", "limit=5".into(), true),
        ("2 limit", "limit=500".into(), true),
        ("3 limit", "limit=2&labelSelector=app%3Dx".into(), true),
        ("3 limit", "limit=5&labelSelector=app%3Dx".into(), true),
        ("4 limit", "limit=0".into(), true),
        ("4 limit", "limit=-1".into(), true),
        ("4 limit", "limit=-9223372036854775808".into(), true),
        ("4 limit", "limit=9223372036854775807".into(), true),
        ("4 limit", "limit=%2B5".into(), true),
        ("4 limit", "limit=007".into(), true),
        ("5 limit", "limit=9223372036854775808".into(), false),
        ("5 limit", "limit=abc".into(), false),
        ("5 limit", "limit=".into(), false),
        ("5 limit", "limit".into(), false),
        ("5 limit", "limit=1_0".into(), false),
        ("5 limit", "limit=0x10".into(), false),
        ("5 limit", "limit=%205".into(), false),
        ("5 limit", "limit=5.0".into(), false),
        ("6 version 0", "resourceVersion=0&limit=1".into(), true),
        ("6 version 0", "resourceVersion=0".into(), true),
        ("6 version 0", "resourceVersion=".into(), true),
        (
            "6 version 0",
            "resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=1".into(),
            true,
        ),
        ("7 future", "resourceVersion=99999999".into(), false),
        (
            "7 future",
            "resourceVersion=99999999&resourceVersionMatch=Exact".into(),
            false,
        ),
        (
            "7 future",
            "resourceVersion=99999999&resourceVersionMatch=NotOlderThan&limit=1".into(),
            false,
        ),
        ("7 past", format!("resourceVersion={newest}"), true),
        ("7 past", format!("resourceVersion={first}"), true),
        ("7 past", "resourceVersion=1".into(), true),
        (
            "7 past",
            format!("resourceVersion={newest}&resourceVersionMatch=NotOlderThan"),
            true,
        ),
        (
            "7 past",
            format!("resourceVersion={newest}&resourceVersionMatch=NotOlderThan&limit=9"),
            true,
        ),
        (
            "7 past",
            format!("resourceVersion={first}&resourceVersionMatch=NotOlderThan&limit=2"),
            true,
        ),
        (
            "7 exact",
            format!("resourceVersion={newest}&resourceVersionMatch=Exact"),
            false,
        ),
        (
            "7 exact",
            format!("resourceVersion={first}&resourceVersionMatch=Exact"),
            false,
        ),
        (
            "7 exact",
            format!("resourceVersion={first}&resourceVersionMatch=Exact&labelSelector=app%3Dy"),
            false,
        ),
        (
            "7 exact",
            format!("resourceVersion={newest}&limit=2"),
            false,
        ),
        ("7 exact", format!("resourceVersion={first}&limit=9"), false),
        ("8 odd version", "resourceVersion=abc".into(), false),
        ("8 odd version", "resourceVersion=-1".into(), false),
        ("8 odd version", "resourceVersion=00".into(), false),
        ("8 odd version", "resourceVersion=01".into(), false),
        ("8 odd version", "resourceVersion=%2B1".into(), false),
        ("8 odd version", "resourceVersion=%201".into(), false),
        ("8 odd version", "resourceVersion=1.0".into(), false),
        (
            "8 odd version",
            "resourceVersion=18446744073709551616".into(),
            false,
        ),
        ("9 match", "resourceVersionMatch=Exact".into(), false),
        ("9 match", "resourceVersionMatch=NotOlderThan".into(), false),
        ("9 match", "resourceVersionMatch=".into(), true),
        (
            "10 match",
            "resourceVersionMatch=Foo&resourceVersion=5".into(),
            false,
        ),
        (
            "10 match",
            "resourceVersionMatch=notolderthan&resourceVersion=5".into(),
            false,
        ),
        (
            "11 match",
            "resourceVersionMatch=Exact&resourceVersion=0".into(),
            false,
        ),
        ("12 options", "sendInitialEvents=true".into(), false),
        ("12 options", "sendInitialEvents=false".into(), false),
        ("12 options", "allowWatchBookmarks=true".into(), false),
        ("12 options", "timeoutSeconds=5".into(), true),
        ("12 options", "timeoutSeconds=abc".into(), false),
        ("12 options", "timeout=30s".into(), true),
        ("12 options", "timeout=abc".into(), false),
        ("12 options", "timeout=-1s".into(), false),
        ("12 options", "timeout=1h30m".into(), false),
        ("12 options", "watch=0".into(), true),
        ("12 options", "watch=False".into(), true),
        ("12 options", "shardSelector=x".into(), false),
        (
            "17 repeated",
            "limit=1&limit=3&foo=bar&x%5B%5D=1".into(),
            true,
        ),
        ("17 repeated", "limit=500&limit=1&foo=bar".into(), true),
        ("17 repeated", "limit=500&limit=abc".into(), true),
        (
            "17 repeated",
            "resourceVersion=0&resourceVersion=abc".into(),
            true,
        ),
        (
            "17 repeated",
            "labelSelector=app%3Dx&labelSelector=app%3Dy".into(),
            true,
        ),
        (
            "17 repeated",
            "fieldSelector=metadata.name%3Dcm1&fieldSelector=nonsense".into(),
            true,
        ),
        ("17 unknown", "foo=bar".into(), true),
        ("17 unknown", "Limit=1".into(), true),
        ("17 unknown", "limit%3D1".into(), true),
        ("17 unknown", "x%5B%5D=1&%F0%9F%98%80=%zz".into(), true),
        ("17 unknown", "&&&".into(), true),
        ("17 unknown", "=1&=".into(), true),
        ("17 unknown", "limit=1;limit=2".into(), false),
        ("17 unknown", "li%6Dit=2".into(), true),
        ("17 unknown", "dryRun=All".into(), true),
        ("17 unknown", "fieldValidation=Strict".into(), true),
        ("17 unknown", String::new(), true),
    ];
    let mut rows: Vec<Row> = of_lists
        .into_iter()
        .map(|(case, query, hit)| Row::get(case, format!("{CONFIGMAPS}?{query}"), hit))
        .collect();
    let of_objects: Vec<(&str, String, bool)> = vec![
        ("6 version 0", "resourceVersion=0".into(), true),
        ("7 future", "resourceVersion=99999999".into(), false),
        ("7 past", format!("resourceVersion={newest}"), true),
        ("7 past", "resourceVersion=1".into(), true),
        ("8 odd version", "resourceVersion=abc".into(), false),
        ("8 odd version", "resourceVersion=01".into(), false),
        ("9 match", "resourceVersionMatch=Exact".into(), true),
        (
            "9 match",
            format!("resourceVersion={newest}&resourceVersionMatch=Foo"),
            true,
        ),
        ("12 options", "limit=abc".into(), false),
        ("12 options", "continue=x".into(), false),
        ("12 options", "watch=1".into(), false),
        ("12 options", "labelSelector=app%3Dy".into(), true),
        ("12 options", "labelSelector=,,".into(), true),
        ("12 options", "fieldSelector=foo%3Dbar".into(), true),
        ("12 options", "export=true".into(), false),
        ("12 options", "timeout=5s".into(), true),
        ("17 unknown", "foo=bar".into(), true),
    ];
    rows.extend(
        of_objects
            .into_iter()
            .map(|(case, query, hit)| Row::get(case, format!("{CONFIGMAPS}/cm1?{query}"), hit)),
    );
    for (kind, hit) in [(WIDGETS, true), ("/api/v1/nodes", true), (PODS, true)] {
        rows.push(Row::get(
            "6 version 0",
            format!("{kind}?resourceVersion=0&limit=1"),
            hit,
        ));
        rows.push(Row::get("2 limit", format!("{kind}?limit=1"), hit));
        rows.push(Row::get("2 limit", format!("{kind}?limit=500"), hit));
        rows.push(Row::get(
            "8 odd version",
            format!("{kind}?resourceVersion=abc"),
            false,
        ));
        rows.push(Row::get(
            "9 match",
            format!("{kind}?resourceVersionMatch=Exact"),
            false,
        ));
        rows.push(Row::get(
            "7 past",
            format!("{kind}?resourceVersion={first}"),
            hit,
        ));
    }
    for query in [
        format!("resourceVersion={compacted}&resourceVersionMatch=Exact"),
        format!("resourceVersion={compacted}&limit=1"),
        "resourceVersion=99999999".to_owned(),
        "limit=1".to_owned(),
        "limit=500".to_owned(),
    ] {
        rows.push(Row::get(
            "16 events",
            format!("/api/v1/namespaces/diff/events?{query}"),
            false,
        ));
    }
    rows
}

fn encode(token: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token)
}

/// Continue tokens, right and wrong.
fn pages(facts: &Facts) -> Vec<Row> {
    let token = &facts.token;
    let made = |rv: i64, start: &str| {
        // The keys in the server's order: of another one no token is taken from memory.
        let start = serde_json::json!(start);
        encode(&format!(
            r#"{{"v":"meta.k8s.io/v1","rv":{rv},"start":{start}}}"#
        ))
    };
    let compacted = i64::try_from(facts.compacted).unwrap_or(1);
    let newest = i64::try_from(facts.newest).unwrap_or(1);
    let mut rows: Vec<Row> = [
        format!("limit=2&continue={token}"),
        format!("continue={token}"),
        format!("limit=2&continue={token}&resourceVersion=0"),
        format!("limit=2&continue={token}&resourceVersion=5"),
        format!("limit=2&continue={token}&resourceVersionMatch=Exact"),
        format!("limit=2&continue={token}&labelSelector=app%3Dx"),
        format!("limit=2&continue={token}%3D%3D"),
        format!("limit=2&continue={}", facts.token_of_pods),
        format!("limit=1&continue={}", made(newest, "/cm2\u{0}")),
        format!("limit=1&continue={}", made(-7, "/cm2\u{0}")),
        format!(
            "limit=1&continue={}",
            encode(r#"{"rv":-1,"start":"/cm2\u0000","v":"meta.k8s.io/v1"}"#)
        ),
        format!("limit=1&continue={}", made(-1, "/../cm2\u{0}")),
        format!("limit=1&continue={}", made(-1, "/cm2")),
        format!(
            "limit=1&resourceVersion=5&continue={}",
            made(-1, "/cm2\u{0}")
        ),
        format!("limit=1&continue={}", made(0, "/cm2\u{0}")),
        format!("limit=1&continue={}", made(99_999_999, "/cm2\u{0}")),
        format!("limit=1&continue={}", made(newest, "cm2")),
        format!("limit=1&continue={}", made(newest, "/../../secrets/")),
        format!("limit=1&continue={}", made(newest, "/zzz")),
        format!("limit=1&continue={}", made(newest, "")),
        format!("limit=1&continue={}", made(newest, "/")),
        "limit=2&continue=zzz".to_owned(),
        "continue=e30".to_owned(),
    ]
    .into_iter()
    .map(|query| Row::get("13 continue", format!("{CONFIGMAPS}?{query}"), false))
    .collect();
    for query in [
        String::new(),
        made(-1, "/cm2\u{0}"),
        made(-1, "cm2\u{0}"),
        made(-1, "/a\u{0}"),
        made(-1, "/zzz\u{0}"),
        made(-1, "/diff/cm2\u{0}"),
        format!("{}&limit=1", made(-1, "/cm2\u{0}")),
        format!("{}&limit=3", made(-1, "/cm2\u{0}")),
        format!("{}&limit=1&resourceVersion=0", made(-1, "/cm2\u{0}")),
        format!("{}&limit=1&labelSelector=app%3Dx", made(-1, "/cm1\u{0}")),
        format!("{}&limit=2&labelSelector=app%3Dx", made(-1, "/cm1\u{0}")),
        format!(
            "{}&limit=1&fieldSelector=metadata.name%3Dcm4",
            made(-1, "/cm2\u{0}")
        ),
        format!("{}&continue=zzz", made(-1, "/cm2\u{0}")),
    ] {
        let path = format!("{CONFIGMAPS}?continue={query}");
        rows.push(Row::get("13 continue", path, true));
    }
    // The server takes what a selector names alone from an index, and counts what follows there.
    for query in [
        "limit=1&fieldSelector=metadata.name%3Dcm1",
        "limit=2&fieldSelector=metadata.name%3Dcm1",
    ] {
        rows.push(Row::get(
            "3 limit",
            format!("{CONFIGMAPS}?{query}"),
            query.starts_with("limit=2"),
        ));
    }
    for (query, hit) in [
        ("limit=2&fieldSelector=metadata.namespace%3Ddiff", false),
        ("limit=9&fieldSelector=metadata.namespace%3Ddiff", true),
        ("limit=1&fieldSelector=metadata.name%3Dcm1", false),
        ("limit=2&fieldSelector=metadata.namespace%21%3Ddiff", true),
    ] {
        rows.push(Row::get(
            "3 limit",
            format!("/api/v1/configmaps?{query}"),
            hit,
        ));
    }
    for (query, hit) in [
        ("limit=1&fieldSelector=spec.nodeName%3Dn1", false),
        ("limit=2&fieldSelector=spec.nodeName%3Dn1", true),
        ("limit=1&fieldSelector=spec.schedulerName%3Dnobody", true),
    ] {
        rows.push(Row::get("3 limit", format!("{PODS}?{query}"), hit));
    }
    rows.push(Row::get(
        "16 events",
        format!(
            "/api/v1/namespaces/diff/events?limit=1&continue={}",
            made(compacted, "/e1\u{0}")
        ),
        false,
    ));
    rows
}
