//! One storage under two paths: what a live answer told by the one, memory knows by the other.

use fleetcache_e2e::client::Client;
use fleetcache_e2e::control_plane::{ControlPlane, random_name};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{Options, Proxy};
use serde_json::{Value, json};

use super::{rounds, version};
use crate::pair::{Pair, connected, warm};

/// A kind under two paths, in a namespace.
struct Views {
    /// Reads go through the proxy, writes past it.
    direct: Client,
    proxied: Client,
    collections: [String; 2],
    /// An object of the first view.
    object: Value,
    /// The collection of another one elsewhere, that takes an informer its time.
    elsewhere: String,
}

impl Views {
    /// Live by one view, then from memory by the other.
    async fn check(&self) {
        let mut large = self.object.clone();
        large["metadata"]["name"] = "large".into();
        if large["involvedObject"].is_object() {
            // An Event is where its object is.
            let namespace = self.elsewhere.split('/').rev().nth(1).unwrap();
            large["involvedObject"]["namespace"] = namespace.into();
        }
        let created = self.direct.create(&self.elsewhere, &large).await;
        created.unwrap().ok().unwrap();
        for path in &self.collections {
            warm(&self.proxied, path).await;
        }
        let (mut reads, mut hits) = (0, 0);
        for round in 0..rounds() / 10 {
            let told = &self.collections[round % 2];
            let read = &self.collections[(round + 1) % 2];
            let created = self.direct.create(&self.collections[0], &self.object).await;
            created.unwrap().ok().unwrap();
            self.tell(told).await;
            // From memory, as soon as it is there.
            warm(&self.proxied, &format!("{read}/c")).await;

            self.delay_the_informers(round).await;
            let path = format!("{}/c", self.collections[0]);
            let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
            let patched = self.direct.patch(&path, &patch).await;
            let patched = patched.unwrap().ok().unwrap().json().unwrap();
            self.tell(&format!("{told}/c")).await;
            let answer = self.proxied.get(&format!("{read}/c")).await.unwrap();
            (reads, hits) = (reads + 1, hits + usize::from(answer.is_hit()));
            let seen = answer.ok().unwrap().json().unwrap();
            assert!(version(&seen) >= version(&patched), "{read} after {told}");

            self.delay_the_informers(round).await;
            self.direct.delete(&path).await.unwrap().ok().unwrap();
            self.tell(told).await;
            let answer = self.proxied.get(read).await.unwrap();
            (reads, hits) = (reads + 1, hits + usize::from(answer.is_hit()));
            let list = answer.ok().unwrap().json().unwrap();
            let mut items = list["items"].as_array().unwrap().iter();
            assert!(
                items.all(|item| item["metadata"]["name"] != "c"),
                "{read} shows what {told} told to be gone"
            );
        }
        println!(
            "{:?}: {hits} of {reads} reads from memory",
            self.collections
        );
        assert!(
            hits > 0,
            "nothing was answered from memory, so nothing was proven"
        );
    }

    async fn delay_the_informers(&self, round: usize) {
        // An event of the core group may say as much, and an object without a schema anything.
        let patch = json!({"message": format!("{round:07}").repeat(100_000)});
        let large = format!("{}/large", self.elsewhere);
        let patched = self.direct.patch(&large, &patch).await;
        patched.unwrap().ok().unwrap();
    }

    async fn tell(&self, path: &str) {
        let headers = [
            ("accept", "application/json"),
            ("cache-control", "no-store"),
        ];
        let live = self.proxied.get_with(path, &headers).await.unwrap();
        assert!(!live.is_hit(), "{}", live.cache_status());
        live.ok().unwrap();
    }
}

#[tokio::test]
async fn both_groups_of_events() {
    let pair = Pair::shared().await;
    // Never in memory unless asked for.
    let config = format!(
        "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\nclusters: {{ kubeconfigs: [ {{ path: {} }} ] }}\nresources: [ {{ group: \"\", resource: events, cache: onDemand }}, {{ group: events.k8s.io, resource: events, cache: onDemand }} ]\n",
        pair.cluster.proxy_kubeconfig().display()
    );
    let options = Options {
        config: Some(config),
        ..Options::default()
    };
    let proxy = Proxy::start(options).await.unwrap();
    let proxied = proxy.client(pair.cluster.name()).unwrap();
    connected(&proxied).await;
    let namespace = pair.cluster.namespace("events").await.unwrap();
    let elsewhere = pair.cluster.namespace("large").await.unwrap();
    let collections = ["/api/v1", "/apis/events.k8s.io/v1"]
        .map(|group| format!("{group}/namespaces/{namespace}/events"));
    let views = Views {
        direct: pair.cluster.client().unwrap(),
        proxied,
        elsewhere: format!("/api/v1/namespaces/{elsewhere}/events"),
        collections,
        object: json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "c"}, "reason": "r", "type": "Normal",
            "involvedObject": {"kind": "ConfigMap", "namespace": namespace, "name": "c"},
        }),
    };
    views.check().await;
}

/// Defines a kind that is served in two versions.
async fn define(cluster: &ControlPlane, direct: &Client) -> String {
    let group = format!("{}.example.com", random_name("versions"));
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [version("v1", true), version("v2", false)],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    direct
        .create(path, &definition)
        .await
        .unwrap()
        .ok()
        .unwrap();
    for version in ["v1", "v2"] {
        let path = format!("/apis/{group}/{version}/things");
        wait_for(
            &format!("{} to serve {path}", cluster.name()),
            PATIENCE,
            async || direct.get(&path).await?.ok(),
        )
        .await
        .unwrap();
    }
    group
}

#[tokio::test]
async fn both_versions_of_a_custom_resource() {
    let pair = Pair::shared().await;
    let direct = pair.cluster.client().unwrap();
    let group = define(&pair.cluster, &direct).await;
    let namespace = pair.cluster.namespace("versions").await.unwrap();
    let elsewhere = pair.cluster.namespace("large").await.unwrap();
    let collections = ["v1", "v2"]
        .map(|version| format!("/apis/{group}/{version}/namespaces/{namespace}/things"));
    let views = Views {
        direct,
        proxied: pair.proxied.clone(),
        elsewhere: format!("/apis/{group}/v1/namespaces/{elsewhere}/things"),
        collections,
        object: json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "c"}}),
    };
    views.check().await;
    let definition =
        format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}");
    views
        .direct
        .delete(&definition)
        .await
        .unwrap()
        .ok()
        .unwrap();
}
