//! Objects in protobuf: of built-in kinds from memory, whatever else is asked for of them.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;

use super::metadata::{ATTEMPTS, metadata, owners, watched};
use super::*;
use crate::watches::stream::Stream;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// As client-go's typed clients and controller-runtime ask.
const TYPED: &str = "application/vnd.kubernetes.protobuf,application/json";

const IN_PROTOBUF: [(&str, &str); 1] = [("accept", PROTOBUF)];

/// Objects of kinds of all sorts, with the paths under which they are made in a namespace.
fn objects(namespace: &str) -> Vec<(String, Value)> {
    let pod = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "args": ["<", "\u{1f600}"], "resources": {"limits": {"cpu": "1500m"}}}]},
    });
    let selected = json!({"matchLabels": {"a": "b"}});
    let core = |resource: &str| format!("/api/v1/namespaces/{namespace}/{resource}");
    let of =
        |group: &str, resource: &str| format!("/apis/{group}/namespaces/{namespace}/{resource}");
    let binary = json!({"kind": "ConfigMap", "apiVersion": "v1", "binaryData": {"b": "AP/+"}, "data": {"d": "x"}});
    vec![
        (core("configmaps"), binary),
        (
            core("pods"),
            json!({"kind": "Pod", "apiVersion": "v1", "spec": pod["spec"]}),
        ),
        (
            core("services"),
            json!({"kind": "Service", "apiVersion": "v1", "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}),
        ),
        (
            core("serviceaccounts"),
            json!({"kind": "ServiceAccount", "apiVersion": "v1"}),
        ),
        (
            core("persistentvolumeclaims"),
            json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        ),
        (
            of("apps/v1", "deployments"),
            json!({"kind": "Deployment", "apiVersion": "apps/v1", "spec": {"selector": selected, "template": pod}}),
        ),
        (
            of("apps/v1", "statefulsets"),
            json!({"kind": "StatefulSet", "apiVersion": "apps/v1", "spec": {"serviceName": "s", "selector": selected, "template": pod}}),
        ),
        (
            of("networking.k8s.io/v1", "networkpolicies"),
            json!({"kind": "NetworkPolicy", "apiVersion": "networking.k8s.io/v1", "spec": {"podSelector": {}}}),
        ),
        (
            of("policy/v1", "poddisruptionbudgets"),
            json!({"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "spec": {"maxUnavailable": "30%", "selector": selected}}),
        ),
        (
            of("rbac.authorization.k8s.io/v1", "roles"),
            json!({"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "rules": []}),
        ),
    ]
}

/// The lists of all kinds that the server has objects of, those aside that are not kept.
async fn kinds(direct: &Client) -> Vec<String> {
    let get = async |path: &str| {
        let answer = direct.get(path).await.unwrap().ok().unwrap();
        answer.json().unwrap()
    };
    let groups = get("/apis").await;
    let preferred = |group: &Value| {
        let version = group["preferredVersion"]["groupVersion"].as_str();
        format!("/apis/{}", version.unwrap())
    };
    let groups = groups["groups"].as_array().unwrap().iter().map(preferred);
    let mut kinds = Vec::new();
    for group in ["/api/v1".to_owned()].into_iter().chain(groups) {
        // Groups of other tests come and go.
        let Ok(answer) = direct.get(&group).await.unwrap().ok() else {
            continue;
        };
        let answer = answer.json().unwrap();
        let listed = |resource: &&Value| {
            let verbs = resource["verbs"].as_array();
            let has = |verb: &str| verbs.is_some_and(|it| it.contains(&json!(verb)));
            has("list") && has("watch")
        };
        for resource in answer["resources"]
            .as_array()
            .unwrap()
            .iter()
            .filter(listed)
        {
            let name = resource["name"].as_str().unwrap();
            if matches!(name, "secrets" | "events" | "leases") {
                continue;
            }
            let path = format!("{group}/{name}");
            let one = format!("{path}?limit=1");
            let one = direct.get_with(&one, &IN_PROTOBUF).await.unwrap();
            let some = direct.get(&path).await.unwrap();
            let some = some.json().is_ok_and(|list| list["items"][0].is_object());
            // Custom resources are none of them.
            if one.status == 200 && some {
                kinds.push(path);
            }
        }
    }
    kinds
}

#[tokio::test]
async fn of_every_kind_it_is_the_servers() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    for (path, mut object) in objects(&namespace) {
        for name in ["a", "b", "c"] {
            object["metadata"] = json!({"name": name, "labels": {"is": name}, "annotations": {"text": "<&> \u{2028}"}});
            create(&pair.direct, &path, object.clone()).await;
        }
        warm_as(&pair.proxied, &path, PROTOBUF).await;
        for path in [
            path.clone(),
            format!("{path}/b"),
            format!("{path}?limit=2"),
            format!("{path}?labelSelector=is%21%3Da"),
            format!("{path}?labelSelector=is%3Dnone"),
            format!("{path}?fieldSelector=metadata.name%3Db"),
            format!("{path}?resourceVersion=0"),
            path.replace(&namespace, &format!("{namespace}-absent")),
        ] {
            check_with(&pair, &path, &IN_PROTOBUF, true).await;
            check_with(&pair, &path, &[("accept", TYPED)], true).await;
        }
        // The server says that there is none.
        check_with(&pair, &format!("{path}/none"), &IN_PROTOBUF, false).await;
    }
    let kinds = kinds(&pair.direct).await;
    assert!(kinds.len() > 15, "{kinds:?}");
    for path in kinds {
        warm_as(&pair.proxied, &path, PROTOBUF).await;
        check_with(&pair, &path, &IN_PROTOBUF, true).await;
        let list = pair.direct.get(&path).await.unwrap().json().unwrap();
        let meta = &list["items"][0]["metadata"];
        let name = meta["name"].as_str().unwrap();
        let one = match (path.rsplit_once('/'), meta["namespace"].as_str()) {
            (Some((group, resource)), Some(namespace)) => {
                format!("{group}/namespaces/{namespace}/{resource}/{name}")
            }
            _ => format!("{path}/{name}"),
        };
        // What tests make may be gone by now.
        if pair.direct.get(&one).await.unwrap().status == 200 {
            check_with(&pair, &one, &IN_PROTOBUF, false).await;
        }
        check_with(&pair, &format!("{path}?limit=1"), &IN_PROTOBUF, true).await;
    }
}

#[tokio::test]
async fn a_walk_by_pages_is_the_whole_list() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    for at in 0..7 {
        create(&pair.direct, &path, configmap(&format!("c{at}"), "x")).await;
    }
    let whole = warm_as(&pair.proxied, &path, PROTOBUF).await;
    let names = |answer: &Answer| -> Vec<String> {
        let shown = crate::model::wire::shown(answer).unwrap();
        shown.into_iter().map(|object| object.name).collect()
    };
    let (mut walked, mut token) = (Vec::new(), String::new());
    loop {
        let page = format!("{path}?limit=3{token}");
        let answer = pair.proxied.get_with(&page, &IN_PROTOBUF).await.unwrap();
        assert!(answer.is_hit(), "{}", answer.cache_status());
        walked.extend(names(&answer));
        let next = crate::protobuf::continue_token(&answer.body).unwrap();
        if next.is_empty() {
            break;
        }
        // The server goes on with it as well.
        token = format!("&continue={next}");
        let page = format!("{path}?limit=3{token}");
        let direct = pair.direct.get_with(&page, &IN_PROTOBUF).await.unwrap();
        let proxied = pair.proxied.get_with(&page, &IN_PROTOBUF).await.unwrap();
        assert_eq!(direct.body, proxied.body);
    }
    assert_eq!(walked, names(&whole));
}

#[tokio::test]
async fn of_watches_it_is_the_servers() {
    let pair = Pair::shared().await;
    let owners = owners(&pair.direct).await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    for (path, api_version, kind) in [
        (
            format!("/api/v1/namespaces/{namespace}/configmaps"),
            "v1",
            "ConfigMap",
        ),
        (
            format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
            "v1",
            "ServiceAccount",
        ),
        (
            format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles"),
            "rbac.authorization.k8s.io/v1",
            "Role",
        ),
    ] {
        let object = |name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": metadata(name, &owners)});
        for accept in [PROTOBUF, TYPED] {
            let mut attempt = 1;
            loop {
                let nth = attempt + ATTEMPTS * u64::from(accept == TYPED);
                let [server, proxy] = watched(&pair, &path, accept, nth, object).await;
                if server == proxy {
                    break;
                }
                assert!(attempt < ATTEMPTS, "{server:#?}\n{proxy:#?}");
                attempt += 1;
            }
        }
    }
}

/// A group of Kubernetes' own may be one of custom resources, which have no protobuf: that is found out, and who takes JSON
/// too is answered from memory.
#[tokio::test]
async fn a_kind_that_turns_out_to_be_custom_is_read_in_json() {
    let pair = Pair::shared().await;
    let group = format!("{}.k8s.io", random_name("reads"));
    define_widgets(&pair.direct, &group).await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let path = format!("/apis/{group}/v1/namespaces/{namespace}/widgets");
    let widget =
        json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "a"}});
    create(&pair.direct, &path, widget).await;
    let answer = warm_as(&pair.proxied, &path, TYPED).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    check_with(&pair, &path, &[("accept", TYPED)], true).await;
    check_with(&pair, &format!("{path}/a"), &[("accept", TYPED)], true).await;
    check_with(&pair, &path, &IN_PROTOBUF, false).await;
}

/// Watches of a resource that the server has open.
async fn upstream_watches(direct: &Client, resource: &str) -> anyhow::Result<u64> {
    let metrics = direct
        .get_with("/metrics", &[("accept", "text/plain")])
        .await?;
    let labels = [
        format!(r#"resource="{resource}""#),
        r#"verb="WATCH""#.to_owned(),
    ];
    let of = |line: &&str| {
        line.starts_with("apiserver_longrunning_requests{")
            && labels.iter().all(|label| line.contains(label))
    };
    let text = metrics.text();
    let counts = text.lines().filter(of).map(|line| {
        let count = line.rsplit(' ').next().unwrap_or_default();
        count.parse::<f64>().unwrap_or_default() as u64
    });
    Ok(counts.sum())
}

#[tokio::test]
async fn however_mixed_the_clients_are_there_are_two_informers_and_two_watches() {
    let cluster = ControlPlane::start(Options::named("mixed")).await.unwrap();
    let (direct, proxied, proxy) = connect(&cluster).await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let all = "/apis/apps/v1/deployments";
    let mut objects = objects("default").into_iter();
    let (_, mut deployment) = objects.find(|(known, _)| known == path).unwrap();
    deployment["metadata"] = json!({"name": "a"});
    create(&direct, path, deployment).await;
    let before = upstream_watches(&direct, "deployments").await.unwrap();
    let metadata = |encoding: &str, list: &str| {
        format!(
            "application/{encoding};as=PartialObjectMetadata{list};g=meta.k8s.io;v=v1,application/json"
        )
    };
    let lists = [
        "application/json".to_owned(),
        PROTOBUF.to_owned(),
        TYPED.to_owned(),
        metadata("json", "List"),
        metadata("vnd.kubernetes.protobuf", "List"),
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json".to_owned(),
    ];
    let watches = [
        "application/json".to_owned(),
        PROTOBUF.to_owned(),
        TYPED.to_owned(),
        metadata("json", ""),
        metadata("vnd.kubernetes.protobuf", ""),
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json".to_owned(),
    ];
    // All at once, and nobody has asked before.
    join_all(lists.iter().cycle().take(40).map(async |accept| {
        let answer = proxied.get_with(all, &[("accept", accept)]).await;
        answer.unwrap().ok().unwrap();
    }))
    .await;
    for accept in &lists {
        warm_as(&proxied, all, accept).await;
    }
    let watch = format!("{all}?watch=1&allowWatchBookmarks=true&timeoutSeconds=600");
    let mut open = Vec::new();
    for accept in watches.iter().cycle().take(20) {
        let headers = [("accept", accept.as_str())];
        let stream = wait_for("a watch from memory", PATIENCE, async || {
            let stream = Stream::request(&proxied, Method::GET, &watch, &headers).await;
            let status = stream.cache_status();
            anyhow::ensure!(status.starts_with("fleetcache; hit"), "{status}");
            Ok(stream)
        });
        open.push(stream.await.unwrap());
    }
    assert_eq!(
        proxy.metrics().unwrap().sum("fleetcache_informers", &[]),
        Some(2.0)
    );
    // Second watches, by which an informer catches up, last a few seconds.
    let two = wait_for(
        "two watches upstream",
        Duration::from_secs(60),
        async || {
            let now = upstream_watches(&direct, "deployments").await?;
            anyhow::ensure!(
                now == before + 2,
                "{now} watches, {before} of them not ours"
            );
            Ok(())
        },
    );
    two.await.unwrap();
    let patch = json!({"metadata": {"labels": {"changed": "yes"}}});
    let one = format!("{path}/a");
    direct.patch(&one, &patch).await.unwrap().ok().unwrap();
    for stream in &open {
        let told = wait_for("the change to be told", PATIENCE, async || {
            let bytes = stream.bytes();
            let told = has(&bytes, b"MODIFIED");
            anyhow::ensure!(told, "{}", stream.text());
            Ok(())
        });
        told.await.unwrap();
    }
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|at| at == wanted)
}
