//! Tables, as `kubectl get` asks for them.

use super::*;

use http::Method;

use super::metadata::ATTEMPTS;
use crate::watches::stream::Stream;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// As kubectl asks.
const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

const OLD: &str = "application/json;as=Table;v=v1beta1;g=meta.k8s.io";

/// A kind with a printer column of every type, which ages are found in every way.
async fn define_gadgets(client: &Client, group: &str) {
    let columns = json!([
        {"name": "Text", "type": "string", "jsonPath": ".spec.text"},
        {"name": "Whole", "type": "integer", "jsonPath": ".spec.whole"},
        {"name": "Number", "type": "number", "jsonPath": ".spec.number"},
        {"name": "Is", "type": "boolean", "jsonPath": ".spec.is", "description": "<it is>"},
        {"name": "All", "type": "string", "jsonPath": ".spec.list[*].name", "priority": 1},
        {"name": "When", "type": "date", "jsonPath": ".spec.when"},
        {"name": "Ready", "type": "date", "jsonPath": ".spec.list[?(@.name==\"b\")].at"},
        {"name": "Noted", "type": "date", "jsonPath": ".metadata.annotations.example\\.com/at", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("gadgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": columns,
            }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    create(client, definitions, definition).await;
    wait_for("the new kind to be served", PATIENCE, async || {
        client.get(&format!("/apis/{group}/v1/gadgets")).await?.ok()
    })
    .await
    .unwrap();
}

fn gadgets(group: &str) -> Vec<Value> {
    let all = json!([
        {
            "text": "<&>", "whole": 3, "number": 2.5, "is": true, "when": "2020-01-01T00:00:00Z",
            "list": [{"name": "a"}, {"name": "b", "at": "2026-11-01T00:00:00+02:00"}],
        },
        {"when": "tomorrow", "list": [], "is": "no", "whole": "three", "number": null},
        {"when": "2100-01-01T00:00:00.5Z", "text": ["x"], "list": [{"name": "b", "at": 7}]},
        {},
    ]);
    let specs = all.as_array().unwrap().iter().zip(["a", "b", "c", "d"]);
    specs
        .map(|(spec, name)| {
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "Gadget", "spec": spec,
                "metadata": {"name": name, "labels": {"is": name}, "annotations": {"example.com/at": "2025-12-31T23:59:59Z"}},
            })
        })
        .collect()
}

#[tokio::test]
async fn of_objects_lists_and_pages_they_are_the_servers() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let group = format!("{}.example.com", random_name("reads"));
    define_gadgets(&pair.direct, &group).await;
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let widgets = format!("/apis/{group}/v1/namespaces/{namespace}/gadgets");
    for name in ["a", "b", "c", "d"] {
        create(&pair.direct, &configmaps, configmap(name, "<&>")).await;
    }
    for gadget in gadgets(&group) {
        create(&pair.direct, &widgets, gadget).await;
    }
    for path in [&configmaps, &widgets] {
        warm(&pair.proxied, path).await;
        let absent = path.replace(&namespace, &format!("{namespace}-absent"));
        for (path, accept) in [
            (format!("{path}/a"), TABLE),
            (format!("{path}/b?includeObject=None"), KUBECTL),
            (format!("{path}/c?includeObject=Object&pretty=1"), KUBECTL),
            (format!("{path}/d?includeObject=Metadata"), OLD),
            (path.clone(), TABLE),
            (format!("{path}?limit=500"), KUBECTL),
            (format!("{path}?limit=3"), KUBECTL),
            (format!("{path}?includeObject=Object"), KUBECTL),
            (format!("{path}?includeObject=None&pretty=true"), TABLE),
            (format!("{path}?includeObject=Object"), OLD),
            (format!("{path}?includeObject=Metadata"), OLD),
            (format!("{path}?fieldSelector=metadata.name%3Db"), TABLE),
            (absent, TABLE),
        ] {
            check_with(&pair, &path, &[("accept", accept)], true).await;
        }
        check_same(
            &pair,
            &format!("{path}?includeObject=All"),
            &[("accept", TABLE)],
        )
        .await;
        check_same(&pair, &format!("{path}/none"), &[("accept", TABLE)]).await;
        // Cells go their way with their objects.
        let labels = json!({"metadata": {"labels": {"is": "changed"}}, "data": {"more": "x"}, "spec": {"text": "new"}});
        let one = format!("{path}/a");
        pair.direct
            .patch(&one, &labels)
            .await
            .unwrap()
            .ok()
            .unwrap();
        pair.direct.delete(&format!("{path}/b")).await.unwrap();
        check_with(&pair, path, &[("accept", TABLE)], true).await;
        let changed = format!("{path}?labelSelector=is%3Dchanged&includeObject=Object");
        check_with(&pair, &changed, &[("accept", KUBECTL)], true).await;
    }
}

#[tokio::test]
async fn of_kinds_of_every_sort_they_are_the_servers() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let core = format!("/api/v1/namespaces/{namespace}");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
    });
    create(&pair.direct, &format!("{core}/pods"), pod).await;
    let template = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    });
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}});
    let jobs = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
    create(&pair.direct, &jobs, job).await;
    let cronjob = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}},
    });
    let cronjobs = format!("/apis/batch/v1/namespaces/{namespace}/cronjobs");
    create(&pair.direct, &cronjobs, cronjob).await;
    let ago = json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}});
    pair.direct
        .patch(&format!("{cronjobs}/c/status"), &ago)
        .await
        .unwrap();
    for path in [
        "/api/v1/pods".to_owned(),
        format!("{core}/pods/p"),
        jobs,
        cronjobs,
        "/api/v1/namespaces".to_owned(),
        "/api/v1/nodes".to_owned(),
        "/api/v1/services".to_owned(),
        "/api/v1/serviceaccounts".to_owned(),
        "/apis/apps/v1/deployments".to_owned(),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned(),
        "/apis/apiregistration.k8s.io/v1/apiservices".to_owned(),
        "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(),
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
    ] {
        warm(&pair.proxied, &path).await;
        check_with(&pair, &path, &[("accept", KUBECTL)], true).await;
    }
}

/// The lines of a watch without the ages in them: they are of the moment that each was written at.
fn without_ages(lines: &[Value]) -> Vec<Value> {
    let is_age = |cell: &Value| {
        cell.as_str().is_some_and(|text| {
            text.ends_with(['s', 'm', 'h', 'd'])
                && text.starts_with(|first: char| first.is_ascii_digit())
        })
    };
    lines
        .iter()
        .cloned()
        .map(|mut line| {
            let cells = line["object"]["rows"][0]["cells"].as_array_mut();
            for cell in cells.into_iter().flatten().filter(|cell| is_age(cell)) {
                *cell = json!("AGE");
            }
            line
        })
        .collect()
}

#[tokio::test]
async fn of_watches_they_are_the_servers() {
    let pair = Pair::shared().await;
    let namespace = pair.cluster.namespace("reads").await.unwrap();
    let group = format!("{}.example.com", random_name("reads"));
    define_gadgets(&pair.direct, &group).await;
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let widgets = format!("/apis/{group}/v1/namespaces/{namespace}/gadgets");
    for (path, kind) in [(configmaps, "ConfigMap"), (widgets, "Gadget")] {
        let object = |name: &str| match kind {
            "ConfigMap" => configmap(name, "x"),
            _ => {
                let mut gadget = gadgets(&group).remove(0);
                gadget["metadata"]["name"] = json!(name);
                gadget
            }
        };
        for (accept, include) in [
            (KUBECTL, ""),
            (OLD, "&includeObject=None"),
            (TABLE, "&includeObject=Object"),
        ] {
            let mut attempt = 1;
            loop {
                let path = format!("{path}?{include}");
                let [server, proxy] = watched(&pair, &path, accept, attempt, object).await;
                if server == proxy {
                    break;
                }
                assert!(attempt < ATTEMPTS, "{server:#?}\n{proxy:#?}");
                attempt += 1;
            }
        }
    }
}

/// What the server and the proxy tell of the same writes, but for plain bookmarks, of which one may have none.
async fn watched(
    pair: &Pair,
    path: &str,
    accept: &str,
    attempt: u64,
    object: impl Fn(&str) -> Value,
) -> [Vec<Value>; 2] {
    let (kind, include) = path.split_once('?').unwrap();
    let query = format!(
        "{kind}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds={}&labelSelector=is!%3Dx{include}",
        5 * attempt
    );
    let name = |name: &str| format!("{name}-{}", random_name("w"));
    let first = name("a");
    for name in [&first, &name("b")] {
        create(&pair.direct, kind, object(name)).await;
    }
    warm(&pair.proxied, kind).await;
    let headers = [("accept", accept)];
    let proxied = wait_for(&query, PATIENCE, async || {
        let stream = Stream::request(&pair.proxied, Method::GET, &query, &headers).await;
        let status = stream.cache_status();
        anyhow::ensure!(status.starts_with("fleetcache; hit"), "{status}");
        Ok(stream)
    });
    let proxied = proxied.await.unwrap();
    let direct = Stream::request(&pair.direct, Method::GET, &query, &headers).await;
    create(&pair.direct, kind, object(&name("c"))).await;
    let one = format!("{kind}/{first}");
    for patch in [
        json!({"metadata": {"annotations": {"more": "<"}}}),
        json!({"metadata": {"labels": {"is": "x"}}}),
        json!({"metadata": {"labels": {"is": null}}}),
    ] {
        pair.direct.patch(&one, &patch).await.unwrap().ok().unwrap();
    }
    pair.direct.delete(&one).await.unwrap();
    let told = async |stream: &Stream| {
        stream.ended_clean().await;
        let text = String::from_utf8(stream.bytes().to_vec()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        // What the versions of bookmarks are is for each to say.
        let is_bookmark = |line: &Value| line["type"] == "BOOKMARK";
        let ends = |line: &Value| line.to_string().contains("initial-events-end");
        let mut lines: Vec<Value> = lines
            .into_iter()
            .filter(|line| !is_bookmark(line) || ends(line))
            .collect();
        for line in lines.iter_mut().filter(|line| is_bookmark(line)) {
            line["object"]["metadata"]["resourceVersion"] = json!("?");
            line["object"]["rows"][0]["object"]["metadata"]["resourceVersion"] = json!("?");
        }
        without_ages(&lines)
    };
    let (server, proxy) = (told(&direct).await, told(&proxied).await);
    assert!(server.len() > 4, "{server:#?}");
    [server, proxy]
}
