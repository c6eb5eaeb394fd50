//! What kubectl lists as JSON, YAML and names comes from memory: with selectors, across namespaces, any kind.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::kubectl::Kubectl;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::Value;

use crate::pair::Pair;

/// Kinds that are never kept unless the configuration says so.
const NEVER: [&str; 4] = [
    "events",
    "events.v1.events.k8s.io",
    "leases.v1.coordination.k8s.io",
    "secrets",
];

/// Groups that every cluster has. Those of other tests' definitions come and go, and may hold nothing.
fn is_built_in(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}

/// A kind as kubectl takes it, and the path of its list.
struct Kind {
    name: String,
    path: String,
}

/// Every built-in kind with list and watch, in the version that its group prefers.
async fn kinds(client: &Client) -> Vec<Kind> {
    let mut versions = vec![("v1".to_owned(), String::new(), "/api/v1".to_owned())];
    let groups = client.get("/apis").await.unwrap().json().unwrap();
    for group in groups["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap();
        let version = group["preferredVersion"]["version"].as_str().unwrap();
        if is_built_in(name) {
            let path = format!("/apis/{name}/{version}");
            versions.push((version.to_owned(), name.to_owned(), path));
        }
    }
    let mut kinds = Vec::new();
    for (version, group, path) in versions {
        let resources = client.get(&path).await.unwrap().json().unwrap();
        for resource in resources["resources"].as_array().unwrap() {
            let verbs = resource["verbs"].as_array().unwrap();
            let name = resource["name"].as_str().unwrap();
            let is_kept = ["list", "watch"]
                .iter()
                .all(|verb| verbs.contains(&Value::from(*verb)));
            let kubectls = if group.is_empty() {
                name.to_owned()
            } else {
                format!("{name}.{version}.{group}")
            };
            if is_kept && !NEVER.contains(&kubectls.as_str()) {
                kinds.push(Kind {
                    name: kubectls,
                    path: format!("{path}/{name}"),
                });
            }
        }
    }
    kinds
}

/// Lists that were answered from memory, and lists that went live.
fn lists(pair: &Pair) -> (f64, f64) {
    let metrics = pair.proxy.metrics().unwrap();
    let of = |source| {
        let labels = [("verb", "list"), ("source", source)];
        metrics.sum("fleetcache_request_total", &labels)
    };
    (of("cached").unwrap_or(0.0), of("live").unwrap_or(0.0))
}

async fn list(kubectl: &Kubectl, kinds: &str, options: &[&str]) -> String {
    let args = [&["get", kinds, "-A"], options].concat();
    kubectl.run(&args).await.unwrap().ok().unwrap()
}

#[tokio::test]
async fn the_second_list_of_any_kind_comes_from_memory_in_every_form() {
    let pair = Pair::shared().await;
    let kinds = kinds(&pair.direct).await;
    assert!(kinds.len() > 40, "{} kinds", kinds.len());
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
    let names = names.join(",");
    let kubectl = pair.proxy.kubectl(pair.cluster.name()).await.unwrap();

    list(&kubectl, &names, &["-o", "json"]).await;
    wait_for("all kinds to be synced", PATIENCE, async || {
        for kind in &kinds {
            let why = pair.proxy.why(pair.cluster.name(), &kind.path)?;
            let synced = why["informer"]["state"] == "synced";
            anyhow::ensure!(synced, "{}: {why}", kind.name);
        }
        Ok(())
    })
    .await
    .unwrap();

    for options in [
        &["-o", "json"][..],
        &["-o", "yaml"],
        &["-o", "name"],
        &["-o", "name", "-l", "component=apiserver"],
        &["-o", "json", "-l", "!component, tier notin (a,b)"],
        &["-o", "name", "--field-selector", "metadata.name=kubernetes"],
        &[
            "-o",
            "yaml",
            "--field-selector",
            "metadata.name!=kubernetes",
        ],
    ] {
        let before = lists(&pair);
        list(&kubectl, &names, options).await;
        let after = lists(&pair);
        let (hits, live) = (after.0 - before.0, after.1 - before.1);
        assert_eq!((hits, live), (kinds.len() as f64, 0.0), "{options:?}");
    }
}
