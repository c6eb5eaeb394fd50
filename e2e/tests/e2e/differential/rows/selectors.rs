//! Label and field selectors, in the spellings that `reads::selectors` does not try.

use super::{CONFIGMAPS, PODS, Row, WIDGETS, encode};

/// `true`: memory can answer.
const LABELS: [(&str, bool); 32] = [
    ("app=x", true),
    ("app = x", true),
    ("app==x,n>2", true),
    ("app==x , n > 2", true),
    ("  app   in  ( x ,  y )  ", true),
    ("app\tnotin\n(x)", true),
    ("!app", true),
    ("! app", true),
    ("app in ()", true),
    ("app=", true),
    ("app!=", true),
    ("ex.io/a=b.c_d-e", true),
    ("n>1,n<4", true),
    ("n > 1 , n < 4", true),
    ("none", true),
    ("", true),
    (" ", true),
    ("app in (x,y),!none,ex.io/a", true),
    ("a b", false),
    ("app in x", false),
    ("app in (x", false),
    ("app=x=y", false),
    ("n>abc", false),
    ("app,", false),
    ("/app", false),
    ("ex.io/", false),
    ("-a=b", false),
    ("a=-b", false),
    ("a=\u{fc}", false),
    ("a=b c", false),
    (
        "a=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        false,
    ),
    ("app\u{a0}=x", false),
];

const FIELDS: [(&str, bool); 14] = [
    ("metadata.name=cm1", true),
    ("metadata.name==cm1", true),
    ("metadata.name!=cm1", true),
    ("metadata.name=cm1,metadata.name=cm2", true),
    ("metadata.name=cm1,metadata.namespace=diff", true),
    ("metadata.namespace=other", true),
    (",", true),
    ("", true),
    ("foo=bar", false),
    ("foo", false),
    ("metadata.labels.app=x", false),
    ("metadata.name=a\\,b", true),
    ("metadata.name=cm1\\", false),
    ("spec.nodeName=n1", false),
];

/// Fields of pods; the last column says whether memory can answer.
const PODS_FIELDS: [(&str, bool); 22] = [
    ("spec.nodeName=n1", true),
    ("spec.nodeName=", true),
    ("spec.nodeName!=n1", true),
    ("spec.host=n1", true),
    ("spec.restartPolicy=Always", true),
    ("spec.restartPolicy=Never", true),
    ("spec.schedulerName=nobody", true),
    ("spec.serviceAccountName=", true),
    ("spec.hostNetwork=true", true),
    ("spec.hostNetwork=false", true),
    ("status.phase=Running", true),
    ("status.phase!=Running,spec.nodeName=n2", true),
    ("status.podIP=10.1.0.1", true),
    ("status.podIP=", true),
    ("status.podIPs=", true),
    ("status.podIPs=10.1.0.1", true),
    ("status.nominatedNodeName=", true),
    ("metadata.name=p1,spec.nodeName=n1", true),
    ("metadata.name=p1", true),
    ("metadata.namespace=diff", true),
    ("spec.foo=x", false),
    ("spec.containers=c", false),
];

const WIDGETS_FIELDS: [(&str, bool); 11] = [
    ("spec.n=2", true),
    ("spec.n!=2", true),
    ("spec.n=", true),
    ("spec.b=true", true),
    ("spec.b=false", true),
    ("spec.s=a\\,b\\=c\\\\d", true),
    ("spec.s=", true),
    ("spec.n=2,metadata.name=w2", true),
    ("metadata.name=w1", true),
    (".spec.n=2", false),
    ("spec.x=1", false),
];

const CLUSTER_FIELDS: [(&str, &str, bool); 12] = [
    ("/api/v1/nodes", "metadata.name=n1", true),
    ("/api/v1/nodes", "spec.unschedulable=true", true),
    ("/api/v1/nodes", "spec.unschedulable=false", true),
    ("/api/v1/nodes", "metadata.namespace=", false),
    ("/api/v1/nodes", "status.phase=x", false),
    ("/api/v1/namespaces", "metadata.name=diff", true),
    ("/api/v1/namespaces", "status.phase=Active", true),
    ("/api/v1/namespaces", "name=diff", false),
    ("/api/v1/configmaps", "metadata.namespace=diff", true),
    ("/api/v1/configmaps", "metadata.namespace!=diff", true),
    ("/api/v1/pods", "spec.nodeName=n1", true),
    ("/apis/ex.io/v1/widgets", "metadata.namespace=diff", true),
];

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (selector, hit) in LABELS {
        rows.push(labelled("19 labels", CONFIGMAPS, selector, hit));
    }
    for (selector, hit) in [("app=x", true), ("app in (x)", true), ("a b", false)] {
        rows.push(labelled("19 labels", WIDGETS, selector, hit));
    }
    rows.push(labelled("19 labels", "/api/v1/namespaces", "of=test", true));
    rows.push(Row::get(
        "19 labels",
        format!("{CONFIGMAPS}?labelSelector=app+in+(x)"),
        true,
    ));
    for (selector, hit) in FIELDS {
        rows.push(fielded("20 fields", CONFIGMAPS, selector, hit));
    }
    for (selector, hit) in PODS_FIELDS {
        rows.push(fielded("23 fields of pods", PODS, selector, hit));
    }
    for (selector, hit) in WIDGETS_FIELDS {
        rows.push(fielded(
            "24 fields of custom resources",
            WIDGETS,
            selector,
            hit,
        ));
    }
    for (path, selector, hit) in CLUSTER_FIELDS {
        rows.push(fielded("20 fields", path, selector, hit));
    }
    rows.push(Row::get(
        "20 fields",
        format!(
            "{CONFIGMAPS}?fieldSelector=metadata.name%3Dcm1&labelSelector=app%3Dx&resourceVersion=0"
        ),
        true,
    ));
    rows.push(Row::get(
        "20 fields",
        format!("{CONFIGMAPS}?fieldSelector=metadata.name%3Dcm1&limit=1"),
        false,
    ));
    rows
}

fn labelled(case: &'static str, path: &str, selector: &str, hit: bool) -> Row {
    Row::get(
        case,
        format!("{path}?labelSelector={}", encode(selector)),
        hit,
    )
}

fn fielded(case: &'static str, path: &str, selector: &str, hit: bool) -> Row {
    Row::get(
        case,
        format!("{path}?fieldSelector={}", encode(selector)),
        hit,
    )
}
