//! Names that are not there, odd spellings of paths, odd methods, and what is no resource.

use super::{CONFIGMAPS, PODS, Row, WIDGETS};

pub(super) fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = gets()
        .into_iter()
        .map(|(case, path, hit)| Row::get(case, path, hit))
        .collect();
    for (method, path) in [
        ("HEAD", format!("{CONFIGMAPS}/cm1")),
        ("HEAD", CONFIGMAPS.to_owned()),
        ("HEAD", WIDGETS.to_owned()),
        ("HEAD", format!("{WIDGETS}/w1")),
        ("HEAD", format!("{WIDGETS}/nope")),
        ("HEAD", "/version".to_owned()),
        ("HEAD", "/api".to_owned()),
        ("OPTIONS", CONFIGMAPS.to_owned()),
        ("OPTIONS", format!("{WIDGETS}/w1")),
        ("FOO", CONFIGMAPS.to_owned()),
        ("FOO", format!("{CONFIGMAPS}/cm1")),
        ("get", CONFIGMAPS.to_owned()),
        ("TRACE", CONFIGMAPS.to_owned()),
        ("PUT", CONFIGMAPS.to_owned()),
        ("PATCH", CONFIGMAPS.to_owned()),
        ("POST", format!("{CONFIGMAPS}/cm1")),
        ("POST", "/api/v1/configmaps".to_owned()),
        ("DELETE", "/api/v1/configmaps".to_owned()),
        ("DELETE", "/api/v1/namespaces".to_owned()),
        ("DELETE", format!("{CONFIGMAPS}/nope")),
        ("PATCH", format!("{CONFIGMAPS}/nope")),
        ("DELETE", format!("{WIDGETS}/nope")),
    ] {
        rows.push(Row::other("36 methods", method, path));
    }
    rows
}

fn gets() -> Vec<(&'static str, String, bool)> {
    let mut all: Vec<(&str, String, bool)> = vec![
        ("25 absent", format!("{CONFIGMAPS}/nope"), false),
        (
            "25 absent",
            format!("{CONFIGMAPS}/nope?resourceVersion=0"),
            false,
        ),
        ("25 absent", format!("{WIDGETS}/nope"), false),
        ("25 absent", format!("{PODS}/nope"), false),
        ("25 absent", "/api/v1/nodes/nope".into(), false),
        ("25 absent", "/api/v1/namespaces/nope".into(), false),
        (
            "25 absent",
            "/api/v1/namespaces/nope/configmaps/cm1".into(),
            false,
        ),
        ("25 absent", format!("{CONFIGMAPS}/CM1"), false),
        ("27 no such kind", "/api/v1/foos".into(), false),
        ("27 no such kind", "/api/v2/configmaps".into(), false),
        ("27 no such kind", "/apis/foo.io/v1/foos".into(), false),
        ("27 no such kind", "/apis/ex.io/v2/widgets".into(), false),
        ("27 no such kind", "/apis/ex.io/v1/gadgets".into(), false),
        ("27 no such kind", "/apis/apps/v1/foos".into(), false),
        ("27 no such kind", "/nothing".into(), false),
        ("27 scope", "/api/v1/configmaps/cm1".into(), false),
        ("27 scope", "/api/v1/namespaces/diff/nodes".into(), false),
        ("27 scope", "/api/v1/namespaces/diff/nodes/n1".into(), false),
        ("27 scope", "/apis/ex.io/v1/widgets/w1".into(), false),
        ("29 subresources", format!("{PODS}/p1/status"), false),
        ("29 subresources", format!("{PODS}/p1/nope"), false),
        ("29 subresources", format!("{PODS}/p1/log"), false),
        ("29 subresources", format!("{CONFIGMAPS}/cm1/status"), false),
        ("29 subresources", format!("{WIDGETS}/w1/status"), false),
        ("29 subresources", format!("{WIDGETS}/w1/scale"), false),
        (
            "29 subresources",
            "/apis/apps/v1/namespaces/diff/deployments/d1/scale".into(),
            false,
        ),
        (
            "29 subresources",
            "/api/v1/namespaces/diff/status".into(),
            false,
        ),
        (
            "29 subresources",
            "/api/v1/namespaces/diff/finalize".into(),
            false,
        ),
        (
            "33 colons",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node".into(),
            true,
        ),
        (
            "33 colons",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode".into(),
            false,
        ),
        ("64 discovery", "/api".into(), false),
        ("64 discovery", "/apis".into(), false),
        ("64 discovery", "/api/v1".into(), false),
        ("64 discovery", "/api/v1/".into(), false),
        ("64 discovery", "/apis/ex.io".into(), false),
        ("64 discovery", "/apis/ex.io/v1".into(), false),
        ("64 discovery", "/apis/nope.io".into(), false),
        ("64 discovery", "/version".into(), false),
        ("64 discovery", "/openapi/v3".into(), false),
        ("64 discovery", "/".into(), false),
    ];
    let c = CONFIGMAPS;
    for (spelling, hit) in [
        (format!("{c}/"), true),
        (format!("{c}/cm1/"), true),
        (format!("{c}//"), false),
        (format!("{c}/cm1//"), false),
        (format!("/{c}"), false),
        (c.replace("/diff", "//diff"), false),
        (c.replace("/v1", "//v1"), false),
        (format!("{c}/?limit=500"), true),
        (format!("{c}/../configmaps/cm1"), false),
        (format!("{c}/./cm1"), false),
        (format!("{c}/%2e%2e/configmaps/cm1"), false),
        (format!("{c}/%2E/cm1"), false),
        (format!("{c}/cm%31"), false),
        (format!("{c}%2Fcm1"), false),
        (format!("{c}/cm1%2F"), false),
        (format!("{c}/cm1%00"), false),
        (format!("{c}/cm1%zz"), false),
        (format!("{c}/cm1;a=b"), false),
        (format!("{c}/cm1,cm2"), false),
        (format!("{c}/*"), false),
        (format!("{c}/cm1?"), true),
        (format!("{c}/%C3%BC"), false),
        (c.replace("diff", "DIFF"), true),
        (c.replace("diff", "d%69ff"), false),
        (c.replace("configmaps", "ConfigMaps"), false),
        (c.replace("/api", "/API"), false),
        (c.replace("/v1/", "/%761/"), false),
    ] {
        all.push(("28-31 spellings", spelling, hit));
    }
    all
}
