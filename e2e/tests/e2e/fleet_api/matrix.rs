//! The same requests, asked of the proxy's root and of a real server that has the same objects by a definition of its own.

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::{ControlPlane, Options, User, control_plane};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::Proxy;
use futures_util::StreamExt as _;
use http::Method;
use serde_json::{Value, json};

use super::normal::Normal;
use super::{PATH, is_at_rest, object_when, root, serve};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const JSON: &str = "application/json";

/// How often an answer may differ from the server's: what is different is so each time.
const ATTEMPTS: usize = 3;

/// Options of a list or watch, with `RV` for the version of a list just made and `TOKEN` for that of its first page.
const OPTIONS: &[&str] = &[
    "",
    "limit=2",
    "limit=0",
    "limit=-1",
    "limit=abc",
    "limit=",
    "limit=99999999999999999999",
    "limit=1&limit=2",
    "limit=1;x=2",
    "limit=2&resourceVersion=0",
    "limit=2&resourceVersion=RV",
    "limit=1&pretty=1",
    "pretty=1&limit=abc",
    "continue=TOKEN",
    "continue=TOKEN&limit=1",
    "continue=TOKEN&resourceVersion=0&limit=1",
    "continue=TOKEN&resourceVersion=5",
    "continue=zzz",
    "continue=e30",
    "continue=a",
    "continue=%21",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MCwic3RhcnQiOiIvYVx1MDAwMCJ9",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIifQ",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjE5LCJzdGFydCI6Ii8uLi9hXHUwMDAwIn0",
    "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYVx1MDAwMCJ9&limit=1",
    "resourceVersion=0",
    "resourceVersion=RV",
    "resourceVersion=0RV",
    "resourceVersion=RV&resourceVersionMatch=Exact",
    "resourceVersion=RV&resourceVersionMatch=NotOlderThan",
    "resourceVersion=0&resourceVersionMatch=NotOlderThan",
    "resourceVersion=abc",
    "resourceVersion=-1",
    "resourceVersion=99999999999999999999",
    "resourceVersion=9999999999999999",
    "resourceVersionMatch=Exact",
    "resourceVersionMatch=NotOlderThan",
    "resourceVersionMatch=Foo",
    "resourceVersionMatch=Foo&resourceVersion=5",
    "resourceVersionMatch=Exact&resourceVersion=0",
    "resourceVersionMatch=Exact&continue=zzz",
    "resourceVersionMatch=Foo&fieldSelector=foo%3Dx",
    "resourceVersion=abc&fieldSelector=foo%3Dx",
    "sendInitialEvents=true",
    "sendInitialEvents=maybe",
    "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "labelSelector=a",
    "labelSelector=%21a",
    "labelSelector=a%20in%20()",
    "labelSelector=a%20notin%20(x,y)",
    "labelSelector=a%20b",
    "labelSelector=%3Dx",
    "labelSelector=a,",
    "labelSelector=a%3Db,c%20foo",
    "labelSelector=a%2Fb%2Fc",
    "labelSelector=A_%2Fb",
    "labelSelector=%2Fb",
    "labelSelector=a%2F",
    "labelSelector=-a",
    "labelSelector=a%3E%3Dx",
    "labelSelector=a%3Ex",
    "labelSelector=a%20in",
    "labelSelector=a%20in%20x",
    "labelSelector=a%20in%20(x",
    "labelSelector=a%20in%20(%3D",
    "labelSelector=a%3D-x",
    "labelSelector=a%20in%20(-x,_y)",
    "labelSelector=%21",
    "labelSelector=a%20b&labelSelector=a",
    "labelSelector=a%20b&fieldSelector=foo&timeout=x",
    "fieldSelector=metadata.name%3Da",
    "fieldSelector=metadata.name%21%3Da",
    "fieldSelector=metadata.name%3Da,metadata.name%3Db",
    "fieldSelector=metadata.name%3Da&limit=1",
    "fieldSelector=metadata.namespace%3Da",
    "fieldSelector=foo%3Dbar",
    "fieldSelector=foo",
    "fieldSelector=,",
    "fieldSelector=a%3Db%5Cx",
    "timeout=abc",
    "timeout=1",
    "timeout=1x",
    "timeout=-1s",
    "timeout=1h1.5s",
    "timeout=",
    "timeoutSeconds=abc",
    "allowWatchBookmarks=maybe",
    "foo=bar",
    "includeObject=None",
    "includeObject=Object",
    "includeObject=Foo",
];

/// Options of a watch alone, beside those.
const WATCH_OPTIONS: &[&str] = &[
    "allowWatchBookmarks=1",
    "resourceVersion=RV",
    "resourceVersion=1",
    "resourceVersion=0&allowWatchBookmarks=1",
    "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1",
    "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&resourceVersion=RV&allowWatchBookmarks=1",
    "sendInitialEvents=1&resourceVersionMatch=NotOlderThan&resourceVersion=9999999999999999",
    "sendInitialEvents=0&resourceVersionMatch=NotOlderThan",
    "sendInitialEvents=0&resourceVersionMatch=NotOlderThan&resourceVersion=RV",
    "sendInitialEvents=true",
    "sendInitialEvents=false",
    "sendInitialEvents=true&resourceVersionMatch=Exact",
    "sendInitialEvents=true&resourceVersionMatch=Foo",
    "resourceVersionMatch=NotOlderThan",
    "resourceVersionMatch=Exact&resourceVersion=5",
    "continue=abc",
    "continue=abc&resourceVersion=1",
    "fieldSelector=metadata.name%3Da&includeObject=None",
];

/// Of a watch from it the proxy says that it is expired: nobody was told of it, so it is of another process.
const FUTURE: &str = "resourceVersion=9999999999999999";

/// Requests under way at once: many of them wait, for a version that does not come or until a watch ends.
const AT_ONCE: usize = 64;

struct Pair {
    real: Client,
    proxy: Client,
    values: [[String; 2]; 2],
}

impl Pair {
    async fn ask(&self, method: &Method, path: &str, accept: &str) -> Result<(), String> {
        let ask = async |client: &Client, [version, token]: &[String; 2]| {
            let path = path.replace("RV", version).replace("TOKEN", token);
            let headers = [("accept", accept), ("user-agent", "matrix/1")];
            client
                .send(method.clone(), &path, &headers, "")
                .await
                .unwrap()
        };
        let (real, proxy) = tokio::join!(
            ask(&self.real, &self.values[0]),
            ask(&self.proxy, &self.values[1])
        );
        let (expected, found) = (Normal::from(&real), Normal::from(&proxy));
        if expected == found {
            return Ok(());
        }
        let told = |answer: &Answer, normal: &Normal| {
            let body: String = answer.text().chars().take(600).collect();
            format!("{} {:?} {body}", normal.status, normal.headers)
        };
        Err(format!(
            "{method} {path} ({accept})\nserver: {}\nproxy:  {}\n",
            told(&real, &expected),
            told(&proxy, &found)
        ))
    }
}

async fn values(client: &Client) -> [String; 2] {
    let page = client.get(&format!("{PATH}?limit=1")).await.unwrap();
    let metadata = page.ok().unwrap().json().unwrap()["metadata"].clone();
    let text = |field: &str| metadata[field].as_str().unwrap().to_owned();
    [text("resourceVersion"), text("continue")]
}

/// The definition whose objects the server has, with the columns that the proxy shows.
fn definition(table: &Value) -> Value {
    let columns = table["columnDefinitions"].as_array().unwrap();
    let paths = [
        ".status.state",
        ".status.reason",
        ".status.serverVersion",
        ".status.lastProbeSuccessTime",
        ".status.totals.informers",
        ".status.totals.objects",
        ".status.totals.memory",
        ".metadata.creationTimestamp",
        ".status.nextAttemptTime",
        ".status.lastProbeTime",
        ".status.consecutiveFailures",
        ".status.totals.watchers",
        ".spec.source.kind",
        ".spec.context",
        ".status.message",
        ".status.hint",
    ];
    assert_eq!(columns.len(), 1 + paths.len());
    let columns: Vec<Value> = columns[1..]
        .iter()
        .zip(paths)
        .map(|(column, path)| {
            json!({"name": column["name"], "type": column["type"], "description": column["description"],
                   "priority": column["priority"], "jsonPath": path})
        })
        .collect();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterconnections.fleetcache.dev"},
        "spec": {
            "group": "fleetcache.dev", "scope": "Cluster",
            "names": {"plural": "clusterconnections", "singular": "clusterconnection", "kind": "ClusterConnection",
                      "listKind": "ClusterConnectionList", "shortNames": ["cc"]},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": columns}],
        },
    })
}

async fn fill(server: &ControlPlane, proxy: &Client) -> Client {
    let client = server.client().unwrap();
    let table = proxy.get_with(PATH, &[("accept", TABLE)]).await.unwrap();
    let definition = definition(&table.ok().unwrap().json().unwrap());
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client
        .create(definitions, &definition)
        .await
        .unwrap()
        .ok()
        .unwrap();
    wait_for("the definition to be served", PATIENCE, async || {
        client.get(PATH).await?.ok()
    })
    .await
    .unwrap();
    let list = proxy.get(PATH).await.unwrap().ok().unwrap().json().unwrap();
    for object in list["items"].as_array().unwrap() {
        let mut object = object.clone();
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.retain(|key, _| key == "name" || key == "labels");
        client.create(PATH, &object).await.unwrap().ok().unwrap();
    }
    client
}

async fn pair() -> (Pair, Proxy, ControlPlane) {
    // A definition is one for the whole server, and this one shall be nobody else's.
    let server = ControlPlane::start(Options::named("fleet-api")).await;
    let server = server.unwrap();
    let endpoint = server.context(User::Proxy).unwrap();
    let proxy = serve(
        &[("a", &endpoint), ("b", &endpoint), ("c", &endpoint)],
        None,
    )
    .await;
    let client = root(&proxy);
    for name in ["a", "b", "c"] {
        object_when(&client, name, "the cluster to be at rest", is_at_rest).await;
    }
    let real = fill(&server, &client).await;
    let values = [values(&real).await, values(&client).await];
    let pair = Pair {
        real,
        proxy: client,
        values,
    };
    (pair, proxy, server)
}

/// Everything, in one run: the definition is one for the whole server.
#[tokio::test]
async fn it_answers_as_a_server_with_a_definition_does() {
    let (pair, _proxy, _server) = pair().await;
    let (get, mut requests) = (Method::GET, Vec::new());
    let mut check = |method: &Method, path: String, accept: &'static str| {
        requests.push((method.clone(), path, accept));
    };
    for options in OPTIONS {
        check(&get, format!("{PATH}?{options}"), JSON);
        check(&get, format!("{PATH}?{options}"), TABLE);
        check(&get, format!("{PATH}?{options}"), METADATA_LIST);
        // One object: options mean nothing to it but the version.
        check(&get, format!("{PATH}/a?{options}"), JSON);
    }
    for options in OPTIONS.iter().chain(WATCH_OPTIONS) {
        if *options == FUTURE {
            continue;
        }
        let seconds = match options.contains("timeoutSeconds") {
            true => "",
            false => "&timeoutSeconds=1",
        };
        let path = format!("{PATH}?watch=1{seconds}&{options}");
        check(&get, path.clone(), JSON);
        check(&get, path.clone(), TABLE);
        check(&get, path, METADATA);
    }
    for accept in [
        "",
        "*/*",
        "application/*",
        "text/html",
        "application/cbor",
        "text/html,*/*;q=0.8",
        "application/json;as=Foo",
        "application/json;as=Foo,application/json",
        "application/json;as=Table;v=v2;g=meta.k8s.io",
        "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
        "application/json;as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;g=meta.k8s.io;v=v1beta1,application/json",
        "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
        "application/vnd.kubernetes.protobuf,application/json",
        "application/json;stream=watch",
        "application/json;pretty=1",
        METADATA,
        METADATA_LIST,
        TABLE,
    ] {
        for path in ["", "/a", "/nope", "?limit=1", "?includeObject=Object"] {
            // The proxy's errors are JSON.
            if path == "/nope" && accept.starts_with("application/vnd.kubernetes.protobuf,") {
                continue;
            }
            check(&get, format!("{PATH}{path}"), accept);
        }
        if !accept.contains("MetadataList") {
            check(&get, format!("{PATH}?watch=1&timeoutSeconds=1"), accept);
        }
    }
    for path in [
        "/",
        "//",
        "/a/",
        "/a//",
        "/%61",
        "/a%2Fb",
        "/a/status",
        "/a/foo",
        "/nope",
        "/nope/status",
        "/../clusterconnections/a",
        "/./a",
        "/a?watch=1",
        "/a?resourceVersion=9999999999999999",
        "/nope?resourceVersion=0",
    ] {
        check(&get, format!("{PATH}{path}"), JSON);
    }
    let group = "/apis/fleetcache.dev";
    for path in [
        "/v1alpha1/foos",
        "/v1alpha1/foos/a",
        "/v1alpha1//clusterconnections",
        "/v1alpha1/namespaces/x/clusterconnections",
        "/v1alpha1/namespaces/x/clusterconnections/a",
        "/v1/clusterconnections",
        "/v1",
        "",
        "/",
        "?pretty=1",
    ] {
        check(&get, format!("{group}{path}"), JSON);
    }
    check(&get, "/apis/nope.dev".to_owned(), JSON);
    check(&get, "/apis/nope.dev/v1".to_owned(), JSON);
    for method in [
        Method::HEAD,
        Method::OPTIONS,
        Method::from_bytes(b"FOO").unwrap(),
    ] {
        for path in ["", "/a", "/nope", "?watch=1&timeoutSeconds=1"] {
            check(&method, format!("{PATH}{path}"), JSON);
        }
    }
    let asked = requests.len();
    println!("{asked} requests");
    let answers = futures_util::stream::iter(requests).map(async |(method, path, accept)| {
        // On a busy machine a watch of one second may be over before its bookmark is due, on either side.
        let mut differs = None;
        for _ in 0..ATTEMPTS {
            differs = pair.ask(&method, &path, accept).await.err();
            if differs.is_none() {
                break;
            }
        }
        differs
    });
    let differ: Vec<String> = answers
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(
        differ.is_empty(),
        "{} of {asked} differ:\n{}",
        differ.len(),
        differ.join("\n")
    );
}

/// What has to be said otherwise: a version that this process has not told is of another one.
#[tokio::test]
async fn a_version_of_another_process_is_expired() {
    let server = control_plane().await;
    let proxy = serve(&[("a", &server.context(User::Proxy).unwrap())], None).await;
    let client = root(&proxy);
    let object = object_when(&client, "a", "the cluster to be at rest", is_at_rest).await;
    let now = super::version(&object);
    let ask =
        async |options: &str| -> Answer { client.get(&format!("{PATH}?{options}")).await.unwrap() };
    for version in [1, 1_000_000, now + 1_000_000, 9_999_999_999_999_999] {
        let watch = ask(&format!(
            "watch=1&resourceVersion={version}&timeoutSeconds=5"
        ))
        .await;
        assert_eq!(watch.status, 200);
        let event = watch.json().unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["code"]),
            (&json!("ERROR"), &json!(410))
        );
        assert_eq!(event["object"]["reason"], "Expired");
        let message = event["object"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("too old resource version: {version} (")),
            "{message}"
        );
        let list = ask(&format!(
            "resourceVersion={version}&resourceVersionMatch=Exact"
        ))
        .await;
        assert_eq!(list.status, 410);
        let status = list.json().unwrap();
        assert_eq!(status["reason"], "Expired");
        assert_eq!(
            status["message"],
            "The resourceVersion for the provided list is too old."
        );
    }
}
