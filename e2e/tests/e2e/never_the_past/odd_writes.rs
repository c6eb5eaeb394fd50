//! Writes that are spelled as no client of ours would spell them, and the same object under two versions.

use fleetcache_e2e::client::Answer;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::Proxy;
use http::Method;
use serde_json::{Value, json};

use super::{Bench, configmap, rounds};
use crate::pair::warm;

/// Each of these is `path` to the server, which decodes a path before it takes it apart.
fn spellings(path: &str) -> Vec<String> {
    let (collection, name) = path.rsplit_once('/').unwrap();
    vec![
        format!("{collection}%2F{name}"),
        format!("{collection}/%63"),
        path.replace("/configmaps", "%2fconfigmaps"),
        path.replace("/api/v1/", "/%61pi/v1/"),
        format!("{path}/"),
    ]
}

#[tokio::test]
async fn an_object_written_by_another_spelling_of_its_path() {
    let bench = Bench::new(1).await;
    let path = format!("{}/c", bench.configmaps);
    bench.create(&bench.configmaps, &configmap("c", &[])).await;
    let mut written_as = 0;
    for round in 0..rounds() / 4 {
        for spelling in spellings(&path) {
            let patch = json!({"data": {"round": round.to_string()}});
            let answer = bench.writer.patch(&spelling, &patch).await.unwrap();
            if !answer.status.is_success() {
                continue;
            }
            written_as += 1;
            bench
                .must_see("patch, list", &path, &answer.json().unwrap())
                .await;
        }
    }
    assert!(written_as > 0, "the server knows none of the spellings");
}

async fn delete_with(bench: &Bench, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    let answer = bench
        .writer
        .send(Method::DELETE, path, &headers, body.to_string());
    answer.await.unwrap().ok().unwrap()
}

/// The server reads the options of a DELETE from its body alone where there is one.
#[tokio::test]
async fn a_dry_run_asked_for_beside_a_body_is_none() {
    let bench = Bench::new(1).await;
    let path = format!("{}/c", bench.configmaps);
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    for _ in 0..rounds() / 4 {
        let created = bench.create(&bench.configmaps, &configmap("c", &[])).await;
        bench.must_see("create, get", &path, &created).await;
        delete_with(&bench, &format!("{path}?dryRun=All"), &options).await;
        bench.must_be_gone("delete, get", &path).await;
    }
}

/// And a dry run that is one, by its body or by the query, deletes nothing.
#[tokio::test]
async fn a_dry_run_of_a_delete_hides_nothing() {
    let bench = Bench::new(1).await;
    let path = format!("{}/c", bench.configmaps);
    let created = bench.create(&bench.configmaps, &configmap("c", &[])).await;
    let dry = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]});
    delete_with(&bench, &path, &dry).await;
    bench.must_see("delete, get", &path, &created).await;
    let by_query = format!("{path}?dryRun=All");
    bench.delete(&by_query).await;
    bench.must_see("delete, get", &path, &created).await;
    bench
        .delete(&format!("{}?dryRun=All", bench.configmaps))
        .await;
    bench
        .must_see("deletecollection, list", &path, &created)
        .await;
}

/// What was written past the proxy is told by the answer to a dry run, and by the refusal of a patch that tests for what
/// was before.
#[tokio::test]
async fn what_a_write_without_effect_tells_is_not_taken_back() {
    let bench = Bench::new(1).await;
    let path = format!("{}/c", bench.configmaps);
    let object = |round: usize| json!({"data": {"round": round.to_string()}});
    bench.create(&bench.configmaps, &configmap("c", &[])).await;
    let dry_run = format!("{path}?dryRun=All");
    for round in 1..=rounds() / 2 {
        let past = bench._pair.direct.patch(&path, &object(round)).await;
        let past = past.unwrap().ok().unwrap().json().unwrap();
        if round % 2 == 0 {
            let label = json!({"metadata": {"labels": {"a": "b"}}});
            let tried = bench.writer.patch(&dry_run, &label).await.unwrap();
            let tried = tried.ok().unwrap().json().unwrap();
            assert_eq!(tried["data"], past["data"], "it tells what is there");
        } else {
            let test =
                json!([{"op": "test", "path": "/data/round", "value": (round - 1).to_string()}]);
            let headers = [("content-type", "application/json-patch+json")];
            let refused = bench
                .writer
                .send(Method::PATCH, &path, &headers, test.to_string());
            assert_eq!(refused.await.unwrap().status, 422);
        }
        bench.must_see("patch, list", &path, &past).await;
    }
}

/// One storage with two informers: what one of them has seen is not news to the other's readers only later.
#[tokio::test]
async fn two_versions_of_one_storage() {
    let bench = Bench::new(1).await;
    let namespaced = bench.configmaps.trim_end_matches("/configmaps");
    let namespace = namespaced.trim_start_matches("/api/v1");
    let versions = ["v1", "v2"]
        .map(|version| format!("/apis/autoscaling/{version}{namespace}/horizontalpodautoscalers"));
    for version in &versions {
        warm(&bench.reader, version).await;
    }
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    for round in 0..rounds() / 4 {
        let (one, other) = (&versions[round % 2], &versions[(round + 1) % 2]);
        let version = one.split('/').nth(3).unwrap();
        let object = json!({
            "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3},
        });
        let created = bench.create(one, &object).await;
        let (one, other) = (format!("{one}/h"), format!("{other}/h"));
        bench.must_see("create, get", &other, &created).await;
        bench.must_see("create, get", &one, &created).await;
        bench.delete(&one).await;
        bench.must_be_gone("delete, get", &other).await;
        bench.must_be_gone("delete, get", &one).await;
    }
}

/// What the outer proxy takes for the cluster is the memory of the inner one.
#[tokio::test]
async fn a_proxy_in_front_of_a_proxy() {
    let mut bench = Bench::new(1).await;
    let pair = &bench._pair;
    let outer = Proxy::for_kubeconfigs(&[pair.proxy.kubeconfig()])
        .await
        .unwrap();
    let client = outer.client(pair.cluster.name()).unwrap();
    wait_for("the outer proxy to be connected", PATIENCE, async || {
        client.get("/version").await?.ok()
    })
    .await
    .unwrap();
    (bench.writer, bench.reader) = (client.clone(), client);
    warm(&bench.reader, &bench.configmaps).await;
    warm(&bench.reader, &bench.pods).await;
    for round in 0..rounds() / 10 {
        bench.configmap_round(round).await;
        bench.pod_round(round).await;
    }
    bench.finish(1);
}
