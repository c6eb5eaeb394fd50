//! Pages of lists from memory: byte for byte the apiserver's, of one version, and continued by whoever is asked next.

mod expiry;
mod kubectl;
mod moving;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::{ControlPlane, Options};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{self, Proxy};
use serde_json::{Value, json};

use crate::pair::{Comparable, assert_same, connect, connected, warm};
use crate::reads::define_widgets;

pub(crate) const CONFIGMAPS: &str = "/api/v1/namespaces/paged/configmaps";

/// What a token says.
fn decode(token: &str) -> Value {
    let json = BASE64_URL_SAFE_NO_PAD.decode(token).unwrap();
    serde_json::from_slice(&json).unwrap()
}

fn encode(version: i64, start: &str) -> String {
    // The form is exact: no token of another order of keys is taken from memory.
    let start = serde_json::to_string(start).unwrap();
    BASE64_URL_SAFE_NO_PAD.encode(format!(
        r#"{{"v":"meta.k8s.io/v1","rv":{version},"start":{start}}}"#
    ))
}

fn token(page: &Answer) -> Option<String> {
    let page = page.json().unwrap();
    let token = page["metadata"]["continue"].as_str().unwrap_or_default();
    (!token.is_empty()).then(|| token.to_owned())
}

fn version(page: &Answer) -> String {
    let page = page.json().unwrap();
    let version = page["metadata"]["resourceVersion"].as_str();
    version.unwrap().to_owned()
}

fn items(page: &Answer) -> Vec<Value> {
    let page = page.json().unwrap();
    page["items"].as_array().unwrap().clone()
}

async fn get(client: &Client, path: &str) -> Answer {
    let answer = client.get(path).await.unwrap();
    answer
        .ok()
        .unwrap_or_else(|error| panic!("{path}: {error:#}"))
}

async fn create(client: &Client, path: &str, object: Value) -> Value {
    let answer = client.create(path, &object).await.unwrap();
    answer.ok().unwrap().json().unwrap()
}

/// Another page, at the key where one ended.
fn next(path: &str, token: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}continue={token}")
}

/// All pages of a list, each asked for with the token of the one before.
async fn walk(client: &Client, path: &str) -> Vec<Answer> {
    let mut pages = vec![get(client, path).await];
    while let Some(token) = pages.last().and_then(token) {
        pages.push(get(client, &next(path, &token)).await);
        assert!(pages.len() < 500, "{path} does not end");
    }
    pages
}

fn union(pages: &[Answer]) -> Vec<Value> {
    pages.iter().flat_map(items).collect()
}

/// Pages from memory are the server's, at each step, and of one version.
async fn check_walk(direct: &Client, proxied: &Client, path: &str) {
    let (served, held) = (walk(direct, path).await, walk(proxied, path).await);
    assert_eq!(served.len(), held.len(), "{path}");
    for (at, (served, page)) in served.iter().zip(&held).enumerate() {
        let what = format!("page {at} of {path}");
        assert_same(&what, &Comparable::from(served), &Comparable::from(page));
        assert!(page.is_hit(), "{what}: {}", page.cache_status());
        assert_eq!(version(page), version(&held[0]), "{what}");
        let (theirs, ours) = (token(served), token(page));
        assert_eq!(theirs.is_some(), ours.is_some(), "{what}");
        if let (Some(theirs), Some(ours)) = (theirs, ours) {
            let ours = decode(&ours);
            assert_eq!(ours["rv"].to_string(), version(page), "{what}");
            assert_eq!(ours["start"], decode(&theirs)["start"], "{what}");
        }
    }
}

fn configmap(name: &str, app: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": app}}, "data": {"html": "<&>"}})
}

async fn namespace(direct: &Client, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    create(direct, "/api/v1/namespaces", object).await;
}

/// Two namespaces of which one's name begins with the other's, and twelve objects in each.
async fn populate(direct: &Client) {
    for of in ["paged", "paged-b"] {
        namespace(direct, of).await;
        for at in 0..12 {
            let app = if at % 3 == 0 { "x" } else { "y" };
            let path = format!("/api/v1/namespaces/{of}/configmaps");
            create(direct, &path, configmap(&format!("cm{at:02}"), app)).await;
        }
    }
}

/// Reads until a list from memory holds what is there.
async fn warm_with(proxied: &Client, path: &str, name: &str) {
    wait_for("the newest object in memory", PATIENCE, async || {
        let list = warm(proxied, path).await;
        anyhow::ensure!(list.text().contains(&format!("\"{name}\"")), "no {name}");
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn pages_of_every_sort_of_kind_are_the_servers() {
    let cluster = ControlPlane::start(Options::named("pages")).await.unwrap();
    let (direct, proxied, _proxy) = connect(&cluster).await;
    populate(&direct).await;
    define_widgets(&direct, "pages.example.com").await;
    let widgets = "/apis/pages.example.com/v1/widgets";
    for at in 0..5 {
        let object = json!({
            "apiVersion": "pages.example.com/v1", "kind": "Widget",
            "metadata": {"name": format!("w{at}"), "labels": {"app": "x"}}, "spec": {"at": at},
        });
        let path = "/apis/pages.example.com/v1/namespaces/paged/widgets";
        create(&direct, path, object).await;
    }
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for name in ["a<b>&c", "q\"\\z", "ü\u{2028}"] {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": {"app": "odd"}}, "rules": [],
        });
        create(&direct, roles, object).await;
    }
    let all = "/api/v1/configmaps";
    for (path, newest) in [
        (all, "cm11"),
        (widgets, "w4"),
        (roles, "a\\u003cb\\u003e\\u0026c"),
    ] {
        warm_with(&proxied, path, newest).await;
    }
    for (path, limits) in [
        (CONFIGMAPS, &[1, 2, 5, 11, 12, 13][..]),
        (all, &[7, 23, 24, 25, 500]),
        (widgets, &[1, 2, 4, 5, 6]),
        ("/apis/pages.example.com/v1/namespaces/paged/widgets", &[2]),
        ("/api/v1/namespaces/paged-c/configmaps", &[1]),
        (roles, &[1, 30]),
    ] {
        for limit in limits {
            check_walk(&direct, &proxied, &format!("{path}?limit={limit}")).await;
        }
    }
    // None of twelve, four, eight, all; and a page that is empty because nothing that follows is selected.
    for selector in ["app%3Dz", "app%3Dx", "app%3Dy", "app"] {
        for limit in [1, 2, 3, 4, 8, 12, 13] {
            for path in [CONFIGMAPS, all] {
                let path = format!("{path}?limit={limit}&labelSelector={selector}");
                check_walk(&direct, &proxied, &path).await;
            }
        }
    }
    for query in [
        "limit=2&labelSelector=app%3Dodd",
        "limit=1&labelSelector=app%3Dodd",
    ] {
        check_walk(&direct, &proxied, &format!("{roles}?{query}")).await;
    }
    for query in [
        "limit=2&labelSelector=app%3Dx",
        "limit=3&fieldSelector=metadata.namespace%3Dpaged",
    ] {
        let path = format!("{widgets}?{query}");
        if query.contains("namespace") {
            let (served, held) = (walk(&direct, &path).await, walk(&proxied, &path).await);
            assert_eq!(union(&served), union(&held), "{path}");
        } else {
            check_walk(&direct, &proxied, &path).await;
        }
    }
    for query in [
        "limit=5&pretty=true",
        "limit=5&pretty=1&labelSelector=app%3Dx",
    ] {
        for path in [all, widgets] {
            check_walk(&direct, &proxied, &format!("{path}?{query}")).await;
        }
    }
}

/// Events are in no watch cache: their tokens are written otherwise, and a limit counts at version 0 too.
#[tokio::test]
async fn pages_of_events_are_the_servers() {
    let cluster = ControlPlane::start(Options::named("events")).await.unwrap();
    let (direct, _, proxy) = connect(&cluster).await;
    drop(proxy);
    let proxy = caching_events(&cluster).await;
    let proxied = proxy.client(cluster.name()).unwrap();
    connected(&proxied).await;
    namespace(&direct, "paged").await;
    let path = "/api/v1/namespaces/paged/events";
    for at in 0..7 {
        create(&direct, path, event(at)).await;
    }
    warm_with(&proxied, path, "e6").await;
    for limit in [1, 3, 6, 7, 8] {
        check_walk(&direct, &proxied, &format!("{path}?limit={limit}")).await;
    }
    check_walk(
        &direct,
        &proxied,
        &format!("{path}?limit=2&labelSelector=odd%3D1"),
    )
    .await;
    // Not a walk: the version may not stand beside the token of the next page.
    for query in ["resourceVersion=0&limit=2", "resourceVersion=0&limit=7"] {
        let path = format!("{path}?{query}");
        let (served, held) = (get(&direct, &path).await, get(&proxied, &path).await);
        assert_same(&path, &Comparable::from(&served), &Comparable::from(&held));
        assert!(held.is_hit(), "{}", held.cache_status());
    }
}

fn event(at: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("e{at}"), "namespace": "paged", "labels": {"odd": (at % 2).to_string()}},
        "involvedObject": {"kind": "Pod", "namespace": "paged", "name": "p"}, "reason": "Tested", "type": "Normal",
    })
}

async fn caching_events(cluster: &ControlPlane) -> Proxy {
    Proxy::start(proxy::Options {
        kubeconfigs: vec![cluster.proxy_kubeconfig()],
        config: Some(format!(
            "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\n{}",
            crate::model::CACHE_EVENTS
        )),
        ..proxy::Options::default()
    })
    .await
    .unwrap()
}
