//! Reads and watches: kinds, scopes, selectors, versions and representations.

use fleetcache_e2e::client::Client;
use http::Method;

use super::ask::{From, Row};
use super::kinds::{CONFIGMAPS, KINDS, Kind, NODES, OTHER_SECRETS, PODS, SECRETS, WIDGETS};

/// What rows need to know of the cluster.
#[derive(Default)]
pub(super) struct Facts {
    /// A version after all that was made.
    newest: String,
    /// A token for the second page of the ConfigMaps of `here`, one a page.
    token: String,
}

impl Facts {
    pub(super) async fn of(admin: &Client) -> Self {
        let path = format!("{}?limit=1", CONFIGMAPS.within("here"));
        let page = admin.get(&path).await.unwrap().ok().unwrap();
        let page = page.json().unwrap();
        let text = |field: &str| page["metadata"][field].as_str().unwrap().to_owned();
        Self {
            newest: text("resourceVersion"),
            token: text("continue"),
        }
    }
}

/// All rows, those that take no time first.
pub(super) fn all(facts: &Facts) -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in KINDS {
        rows.extend(plain(kind));
    }
    rows.extend(selectors());
    rows.extend(versions(facts));
    rows.extend(representations());
    rows.extend(odd());
    rows.extend(watches(facts));
    rows
}

fn query(path: &str, key: &str, value: &str) -> String {
    let encoded: String = value
        .bytes()
        .map(|byte| match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let join = if path.contains('?') { '&' } else { '?' };
    format!("{path}{join}{key}={encoded}")
}

fn fields(path: &str, selector: &str) -> String {
    query(path, "fieldSelector", selector)
}

fn labels(path: &str, selector: &str) -> String {
    query(path, "labelSelector", selector)
}

/// Each kind: all, in a namespace where users may something, where they may not, and in one that is not there.
fn plain(kind: Kind) -> Vec<Row> {
    let list = |path: String| Row::get(path, From::Memory);
    let get = |path: String, from| Row::get(path, from);
    if !kind.namespaced {
        let all = kind.all();
        return vec![
            get(format!("{all}/one"), From::Memory),
            get(format!("{all}/none"), From::Absent),
            list(all.clone()),
            list(fields(&all, "metadata.name=one")),
            list(fields(&all, "metadata.name=none")),
            list(labels(&all, "app=x")),
        ];
    }
    let [all, here, there, nowhere] = ["", "here", "there", "nowhere"].map(|it| kind.within(it));
    vec![
        get(format!("{here}/one"), From::Memory),
        get(format!("{here}/two"), From::Memory),
        get(format!("{here}/none"), From::Absent),
        get(format!("{there}/one"), From::Memory),
        get(format!("{there}/none"), From::Absent),
        get(format!("{nowhere}/one"), From::Absent),
        list(fields(&here, "metadata.name=one")),
        list(fields(&here, "metadata.name=two")),
        list(fields(&here, "metadata.name!=one")),
        list(labels(&here, "app=x")),
        list(all),
        list(here),
        list(there),
        list(nowhere),
    ]
}

fn selectors() -> Vec<Row> {
    let (all, here) = (CONFIGMAPS.all(), CONFIGMAPS.within("here"));
    let mut rows = Vec::new();
    for selector in [
        "metadata.name==one",
        "metadata.name=none",
        "metadata.name=one,metadata.namespace=here",
        "metadata.name=one,metadata.namespace=there",
        "metadata.name=one,metadata.name=two",
        "metadata.name!=two,metadata.name=one",
        "metadata.namespace=here",
        "metadata.name=",
        r"metadata.name=o\ne",
        ",metadata.name=one,",
    ] {
        rows.push(Row::get(fields(&here, selector), From::Any));
    }
    for selector in [
        "app",
        "!app",
        "app in (x,y)",
        "app notin (x)",
        "app=x,app!=y",
        "app=ü",
        "a b",
    ] {
        rows.push(Row::get(labels(&here, selector), From::Any));
    }
    for selector in [
        "metadata.name=one",
        "metadata.namespace=here",
        "metadata.name=a=b",
        "spec.x=y",
    ] {
        rows.push(Row::get(fields(&all, selector), From::Any));
    }
    let both = labels(&fields(&here, "metadata.name=one"), "app=x");
    rows.push(Row::get(both, From::Memory));
    // What a node may list by its own name others may only with all.
    let pods = [PODS.all(), PODS.within("here")];
    for (path, selector) in pods.iter().flat_map(|path| {
        let selectors = [
            "spec.nodeName=node-1",
            "spec.nodeName!=node-1",
            "spec.nodeName=one",
            "spec.nodeName=node-1,metadata.name=one",
            "status.phase=Running",
        ];
        selectors.map(|selector| (path, selector))
    }) {
        rows.push(Row::get(fields(path, selector), From::Memory));
    }
    rows
}

fn versions(facts: &Facts) -> Vec<Row> {
    let Facts { newest, token } = facts;
    let here = CONFIGMAPS.within("here");
    let with = |options: &str| format!("{here}?{options}");
    vec![
        Row::get(with("resourceVersion=0"), From::Memory),
        Row::get(with(&format!("resourceVersion={newest}")), From::Memory),
        Row::get(
            with(&format!(
                "resourceVersion={newest}&resourceVersionMatch=NotOlderThan"
            )),
            From::Memory,
        ),
        Row::get(
            with(&format!(
                "resourceVersion={newest}&resourceVersionMatch=Exact"
            )),
            From::Any,
        ),
        Row::get(
            with("resourceVersion=0&resourceVersionMatch=Exact"),
            From::Live,
        ),
        Row::get(with("resourceVersion=x"), From::Live),
        Row::get(with("limit=1"), From::Memory),
        Row::get(with("limit=1&resourceVersion=0"), From::Memory),
        Row::get(with(&format!("limit=1&continue={token}")), From::Any),
        Row::get(with("limit=1&continue=x"), From::Live),
        Row::get(format!("{here}/one?resourceVersion=0"), From::Memory),
        Row::get(format!("{here}/one?resourceVersion={newest}"), From::Memory),
        Row::get(format!("{here}/none?resourceVersion=0"), From::Absent),
        Row::get(format!("{}?resourceVersion=0", SECRETS.all()), From::Memory),
        Row::get(format!("{}?resourceVersion=0", NODES.all()), From::Memory),
    ]
}

fn representations() -> Vec<Row> {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let mut rows = Vec::new();
    for kind in [CONFIGMAPS, SECRETS, PODS, WIDGETS] {
        let here = kind.within("here");
        let (list, one) = (
            Row::get(here.as_str(), From::Memory),
            Row::get(format!("{here}/one"), From::Memory),
        );
        rows.push(list.accept(TABLE));
        rows.push(one.accept(TABLE));
        let in_memory = |path: String| Row::get(path, From::Memory);
        rows.push(in_memory(here.clone()).accept(METADATA_LIST));
        rows.push(in_memory(format!("{here}/one")).accept(METADATA));
    }
    for kind in [CONFIGMAPS, NODES] {
        let all = Row::get(kind.all(), From::Live);
        rows.push(Row::get(kind.all(), From::Memory).accept(PROTOBUF));
        rows.push(Row::get(kind.all(), From::Memory).accept(TABLE));
        for accept in ["application/yaml", "text/plain"] {
            rows.push(all.clone().accept(accept));
        }
    }
    let one = format!("{}/one", CONFIGMAPS.within("there"));
    rows.push(Row::get(one, From::Memory).accept(PROTOBUF));
    rows
}

/// What is no plain path, and no GET.
fn odd() -> Vec<Row> {
    let here = CONFIGMAPS.within("here");
    let mut rows = Vec::new();
    for path in [
        format!("{here}/one/"),
        format!("{here}/"),
        format!("{here}//one"),
        format!("{here}/%6fne"),
        format!("{here}/ONE"),
        here.replace("configmaps", "ConfigMaps"),
        here.replace("configmaps", "nothings"),
        here.replace("/v1/", "/v2/"),
        here.replace("/here/", "/HERE/"),
        here.replace("/here/", "/%68ere/"),
        here.replace("/here/", "//"),
        format!(
            "{}/one",
            OTHER_SECRETS.within("here").replace("/v1/", "/v2/")
        ),
        format!("{}/one", CONFIGMAPS.all()),
        "/api/v1/namespaces/here".to_owned(),
        "/api/v1/namespaces/nowhere".to_owned(),
        "/api/v1/namespaces/here/namespaces/here".to_owned(),
        "/api/v1/namespaces/here/nodes/one".to_owned(),
        format!("{here}?pretty=true"),
        format!("{here}?unknown=1"),
        format!("{here}/one?fieldSelector=metadata.name%3Dtwo"),
        "/api/v1/watch/namespaces/here/configmaps/none?timeoutSeconds=1".to_owned(),
    ] {
        rows.push(Row::get(path, From::Any));
    }
    for path in [
        here.clone(),
        format!("{here}/one"),
        format!("{here}/none"),
        PODS.all(),
    ] {
        rows.push(Row {
            method: Method::HEAD,
            ..Row::get(path, From::Live)
        });
    }
    rows
}

fn watches(facts: &Facts) -> Vec<Row> {
    const STREAMED: &str =
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut rows = Vec::new();
    for kind in KINDS {
        let all = kind.all();
        rows.push(Row::watch(&all, From::Memory));
        if kind.namespaced {
            let [here, there] = ["here", "there"].map(|it| kind.within(it));
            rows.push(Row::watch(fields(&here, "metadata.name=one"), From::Memory));
            rows.push(Row::watch(&here, From::Memory));
            rows.push(Row::watch(there, From::Memory));
        } else {
            rows.push(Row::watch(fields(&all, "metadata.name=one"), From::Memory));
        }
    }
    let here = CONFIGMAPS.within("here");
    for path in [
        fields(&here, "metadata.name=two"),
        fields(&here, "metadata.name!=one"),
        fields(&here, "metadata.name=none"),
        labels(&here, "app=x"),
        CONFIGMAPS.within("nowhere"),
        fields(&PODS.all(), "spec.nodeName=node-1"),
        format!("{here}?resourceVersion=0"),
        format!("{here}?resourceVersion={}", facts.newest),
        format!("{here}?{STREAMED}"),
        format!(
            "{}?{STREAMED}",
            fields(&CONFIGMAPS.all(), "metadata.name=one")
        )
        .replacen("?send", "&send", 1),
        format!("{}?{STREAMED}", SECRETS.all()),
        format!("{}?{STREAMED}", WIDGETS.within("here")),
    ] {
        rows.push(Row::watch(path, From::Memory));
    }
    for path in [
        format!("{here}?resourceVersion=1"),
        format!("{here}/one"),
        format!("{here}?sendInitialEvents=true"),
        format!("{here}?limit=1"),
    ] {
        rows.push(Row::watch(path, From::Any));
    }
    let table = Row::watch(&here, From::Memory);
    rows.push(table.accept("application/json;as=Table;v=v1;g=meta.k8s.io"));
    rows
}
