//! Kinds that are kept without who manages which field of their objects.

use fleetcache_e2e::proxy::{self, Proxy};

use super::*;
use crate::protobuf::without_managed_fields;

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const ONE: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// As a list, an object, a Table or an event has them, without them and without the list's own version.
fn stripped(mut answer: Value) -> Value {
    for list in ["items", "rows"] {
        if answer[list].is_array() {
            answer["metadata"] = Value::Null;
        }
        for item in answer[list].as_array_mut().into_iter().flatten() {
            *item = stripped(item.take());
        }
    }
    if answer["object"].is_object() {
        answer["object"] = stripped(answer["object"].take());
    }
    if let Some(metadata) = answer["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    answer
}

/// What memory answers has none, and is else the server's.
async fn check_stripped(direct: &Client, proxied: &Client, path: &str, accept: &str) {
    warm_as(proxied, path, accept).await;
    wait_for(&format!("{path} as {accept}"), PATIENCE, async || {
        let headers = [("accept", accept)];
        let server = direct.get_with(path, &headers).await?.ok()?;
        let memory = proxied.get_with(path, &headers).await?.ok()?;
        anyhow::ensure!(memory.is_hit(), "{}", memory.cache_status());
        let find = |answer: &Answer| contains(&answer.body, b"anagedFields");
        // Of protobuf the names of fields are not there, but those of managers are.
        anyhow::ensure!(!find(&memory), "{}", memory.text());
        if accept == PROTOBUF {
            let expected = without_managed_fields(&server.body);
            anyhow::ensure!(expected.len() < server.body.len(), "the server has none");
            anyhow::ensure!(
                without_version(&expected) == without_version(&memory.body),
                "{}\n{}",
                expected.escape_ascii(),
                memory.body.escape_ascii()
            );
        } else {
            anyhow::ensure!(find(&server), "the server has none");
            let (server, memory) = (stripped(server.json()?), stripped(memory.json()?));
            anyhow::ensure!(server == memory, "{server:#}\n{memory:#}");
        }
        Ok(())
    })
    .await
    .unwrap();
}

fn contains(body: &[u8], text: &[u8]) -> bool {
    body.windows(text.len()).any(|window| window == text)
}

fn without_version(body: &[u8]) -> String {
    crate::protobuf::without_list_version(body)
}

async fn configured(cluster: &ControlPlane, resources: &str) -> (Client, Proxy) {
    let options = proxy::Options {
        kubeconfigs: vec![cluster.proxy_kubeconfig()],
        config: Some(format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nresources: [ {resources} ]\n"
        )),
        ..proxy::Options::default()
    };
    let proxy = Proxy::start(options).await.unwrap();
    let proxied = proxy.client(cluster.name()).unwrap();
    connected(&proxied).await;
    (proxied, proxy)
}

#[tokio::test]
async fn objects_are_the_servers_without_who_manages_them() {
    let pair = Pair::shared().await;
    let (cluster, direct) = (&pair.cluster, &pair.direct);
    let namespace = cluster.namespace("reads").await.unwrap();
    let group = format!("{}.example.com", random_name("reads"));
    define_widgets(direct, &group).await;
    let configmaps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let widgets = format!("/apis/{group}/v1/namespaces/{namespace}/widgets");
    let spec: serde_json::Map<_, _> = (0..50)
        .map(|at| (format!("k{at}"), Value::from(at)))
        .collect();
    let widget = |name: &str| {
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Widget", "spec": spec,
            "metadata": {"name": name, "labels": {"test": "reads"}},
        })
    };
    for name in ["a", "b"] {
        create(direct, &configmaps, configmap(name, "<&>")).await;
        create(direct, &widgets, widget(name)).await;
    }
    let (proxied, proxy) = configured(
        cluster,
        &format!(
            "{{ resource: configmaps, cache: onDemand, stripManagedFields: true }}, \
             {{ group: {group}, resource: widgets, cache: onDemand, stripManagedFields: true }}"
        ),
    )
    .await;
    // Nothing else is kept of either: what they take can be compared.
    let bytes = |proxy: &Proxy| {
        proxy
            .metrics()
            .unwrap()
            .get("fleetcache_store_bytes")
            .unwrap()
    };
    warm(&proxied, &widgets).await;
    warm(&pair.proxied, &widgets).await;
    let (without, with) = (bytes(&proxy), bytes(&pair.proxy));
    assert!(without < 0.8 * with, "{without} of {with} bytes");

    for path in [&configmaps, &widgets] {
        let (one, of_some) = (
            format!("{path}/a"),
            format!("{path}?labelSelector=test%3Dreads"),
        );
        for (path, accept) in [
            (path, JSON),
            (&of_some, JSON),
            (&one, JSON),
            (path, LIST),
            (&one, ONE),
            (&format!("{path}?includeObject=Object"), TABLE),
            (&format!("{one}?includeObject=Metadata"), TABLE),
        ] {
            check_stripped(direct, &proxied, path, accept).await;
        }
    }
    for path in [configmaps.clone(), format!("{configmaps}/a")] {
        check_stripped(direct, &proxied, &path, PROTOBUF).await;
    }
    // Changes come as the list did, and self-checks find nothing wrong.
    for path in [&configmaps, &widgets] {
        let list = warm(&proxied, path).await.json().unwrap();
        let from = list["metadata"]["resourceVersion"].as_str().unwrap();
        let query = format!("{path}?watch=1&resourceVersion={from}&timeoutSeconds=60");
        let mut watches = Vec::new();
        for client in [direct, &proxied] {
            watches.push(client.lines(&query).await.unwrap());
        }
        let patch = json!({"metadata": {"labels": {"is": "changed"}}, "spec": {"k1": "x"}, "data": {"k": "v"}});
        let one = format!("{path}/a");
        direct.patch(&one, &patch).await.unwrap().ok().unwrap();
        direct.delete(&one).await.unwrap().ok().unwrap();
        let mut told = Vec::new();
        for watch in &mut watches {
            let mut events = Vec::new();
            while events.len() < 2 {
                let line = watch.next().await.unwrap().unwrap();
                events.push(serde_json::from_slice::<Value>(line.as_ref()).unwrap());
            }
            told.push(events);
        }
        assert!(
            !told[1]
                .iter()
                .any(|event| event.to_string().contains("anagedFields"))
        );
        let [server, memory] = [0, 1].map(|of| told[of].iter().cloned().map(stripped));
        assert_eq!(memory.collect::<Vec<_>>(), server.collect::<Vec<_>>());
        check_stripped(direct, &proxied, path, JSON).await;
    }
    // Written back as it was read, it loses none of them.
    for path in [&configmaps, &widgets] {
        let one = format!("{path}/b");
        let managers = async || {
            let object = direct.get(&one).await.unwrap().json().unwrap();
            let managers = object["metadata"]["managedFields"].as_array().cloned();
            managers.unwrap_or_default().len()
        };
        assert_eq!(managers().await, 1);
        let object = warm(&proxied, &one).await.text();
        let headers = [("content-type", JSON)];
        let put = proxied.send(http::Method::PUT, &one, &headers, object);
        put.await.unwrap().ok().unwrap();
        assert_eq!(managers().await, 1);
    }
}
