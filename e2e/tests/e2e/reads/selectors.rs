//! Selectors are evaluated from memory as the server evaluates them; what it would refuse, it refuses itself.

use serde_json::json;

use super::{check_with, create, define_widgets};
use crate::pair::{Pair, warm};
use fleetcache_e2e::control_plane::random_name;

const ACCEPT: [(&str, &str); 1] = [("accept", "application/json")];

/// Label selectors in every form of the grammar, and in forms that are none. `true`: it must come from memory.
const LABELS: [(&str, bool); 66] = [
    ("app", true),
    ("!app", true),
    (" ! app ", true),
    ("app=x", true),
    ("app==x", true),
    ("app = x", true),
    ("\tapp\n=\tx ", true),
    ("app!=x", true),
    ("app=", true),
    ("app==", true),
    ("app!=", true),
    ("app=,num", true),
    ("app in (x)", true),
    ("app in (x,y)", true),
    ("app in( x , y )", true),
    ("app in ()", true),
    ("app in (,x)", true),
    ("app in (x,)", true),
    ("app in (,)", true),
    ("app notin (x)", true),
    ("app notin (x,y),num", true),
    ("app notin ()", true),
    ("app notin (,x)", true),
    ("empty", true),
    ("empty=", true),
    ("empty in ()", true),
    ("num>6", true),
    ("num > 7", true),
    ("num<8", true),
    ("num<7,num>0", true),
    ("app>1", true),
    ("none<1", true),
    ("num>007", true),
    ("in", true),
    ("in in (in,notin)", true),
    ("notin notin (in)", true),
    ("in=in", true),
    ("ex.io/a", true),
    ("ex.io/a=b.c_d-e", true),
    ("ex.io/a!=b.c_d-e,app", true),
    ("app=x,app=y", true),
    ("app=x,num>6,!none,ex.io/a in (b.c_d-e)", true),
    (" ", true),
    ("app in (x,,y)", false),
    ("app in (x,,)", false),
    ("app in (,,)", false),
    ("app y", false),
    ("app,", false),
    (",app", false),
    (",", false),
    ("app=x,,num", false),
    ("=x", false),
    ("!", false),
    ("!!app", false),
    ("!app=x", false),
    ("app=x=y", false),
    ("app===x", false),
    ("app in x", false),
    ("app in (x", false),
    ("app in (x y)", false),
    ("num>x", false),
    ("num>1.5", false),
    ("num<-1", false),
    ("-app", false),
    ("Ex.io/a", false),
    ("app=\u{fc}", false),
];

const FIELDS: [(&str, bool); 19] = [
    ("metadata.name=a", true),
    ("metadata.name==a", true),
    ("metadata.name!=a", true),
    ("metadata.name=a,metadata.name=b", true),
    ("metadata.name!=a,metadata.name!=b", true),
    ("metadata.name=", true),
    ("metadata.name!=", true),
    (",", true),
    ("metadata.name=a,", true),
    ("metadata.name=none", true),
    ("metadata.namespace=", true),
    ("metadata.name= a", true),
    ("metadata.name =a", false),
    ("metadata.name", false),
    ("metadata.name=a\\,b", true),
    ("metadata.name!=a\\=b\\\\,", true),
    ("metadata.name=a\\b", false),
    ("metadata.name=a=b", false),
    ("spec.x=1", false),
];

fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn selectors_choose_what_the_server_chooses() {
    let pair = Pair::shared().await;
    let group = format!("{}.example.com", random_name("selectors"));
    define_widgets(&pair.direct, &group).await;
    let namespace = pair.cluster.namespace("selectors").await.unwrap();
    let labels = [
        ("a", json!({"app": "x", "num": "7", "ex.io/a": "b.c_d-e"})),
        ("b", json!({"app": "y", "empty": "", "in": "in"})),
        ("c", json!({"app": "", "num": "x", "notin": "notin"})),
        ("d", json!({})),
    ];
    let kinds = [
        (
            format!("/api/v1/namespaces/{namespace}/configmaps"),
            "v1".to_owned(),
            "ConfigMap",
        ),
        (
            format!("/apis/{group}/v1/namespaces/{namespace}/widgets"),
            format!("{group}/v1"),
            "Widget",
        ),
    ];
    for (path, api_version, kind) in &kinds {
        for (name, labels) in &labels {
            let metadata = json!({"name": name, "labels": labels, "annotations": {"labels": "{\"app\":\"z\"}"}});
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
            create(&pair.direct, path, object).await;
        }
        warm(&pair.proxied, path).await;
        for (selector, hit) in LABELS {
            let query = format!("{path}?labelSelector={}", encode(selector));
            check_with(&pair, &query, &ACCEPT, hit).await;
        }
        for (selector, hit) in FIELDS {
            let query = format!("{path}?fieldSelector={}", encode(selector));
            check_with(&pair, &query, &ACCEPT, hit).await;
        }
        for (query, hit) in [
            ("labelSelector=app&limit=4", true),
            ("labelSelector=app&limit=3", true),
            ("labelSelector=app&limit=2", true),
            ("labelSelector=none&limit=1", true),
            ("labelSelector=app&fieldSelector=metadata.name%3Da", true),
            ("labelSelector=app&labelSelector=none", true),
            ("labelSelector=app&resourceVersion=0&limit=1", true),
        ] {
            check_with(&pair, &format!("{path}?{query}"), &ACCEPT, hit).await;
        }
    }
}

#[tokio::test]
async fn cluster_scoped_kinds_are_selected_by_name_and_labels() {
    let pair = Pair::shared().await;
    for path in [
        "/api/v1/namespaces",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ] {
        warm(&pair.proxied, path).await;
        for (query, hit) in [
            ("fieldSelector=metadata.name%3Dkube-system", true),
            ("fieldSelector=metadata.name%3Dsystem%3Anode", true),
            ("fieldSelector=metadata.namespace%3D", false),
            ("fieldSelector=metadata.namespace%3Dx", false),
            (
                "labelSelector=kubernetes.io%2Fbootstrapping%3Drbac-defaults",
                true,
            ),
            (
                "labelSelector=kubernetes.io%2Fmetadata.name+in+%28default%2Ckube-public%29",
                true,
            ),
        ] {
            check_with(&pair, &format!("{path}?{query}"), &ACCEPT, hit).await;
        }
    }
}
