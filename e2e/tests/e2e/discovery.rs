//! What a cluster says about itself: while it is connected the apiserver's own words at that moment, while it is not the
//! last of them, so that its clients get on to the sentence that says why.

mod definitions;

use std::path::{Path, PathBuf};
use std::time::Duration;

use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::control_plane::{ControlPlane, Options, Server};
use fleetcache_e2e::kubeconfig::{self, Context, Credential};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::proxy::{self, Proxy};

use crate::pair::{Comparable, Pair, compare, connect};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const V2_PROTOBUF: &str =
    "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const OPENAPI_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// As kubectl and client-go ask for discovery.
const CLIENT_GO: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                         application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// What kubectl writes before the message of the request that it was told to make.
const AS_ERROR: &str = "Error from server (ServiceUnavailable): ";

/// What it writes before a warning; of the error of a failed discovery it does not show the message.
const AS_WARNING: &str = "Warning: ";

/// Every kind of document, in every form.
const DOCUMENTS: [(&str, &str); 18] = [
    ("/version", "application/json, */*"),
    ("/version?timeout=32s", ""),
    ("/api", JSON),
    ("/api?timeout=32s", CLIENT_GO),
    ("/apis", JSON),
    ("/apis/", PROTOBUF),
    ("/apis", "application/yaml"),
    ("/apis?timeout=32s", CLIENT_GO),
    ("/apis", V2),
    ("/apis", V2_PROTOBUF),
    ("/apis?profile=nopeer", V2),
    ("/api/v1", JSON),
    ("/apis/apps", JSON),
    ("/apis/apps/v1", JSON),
    (
        "/apis/apps/v1",
        "application/vnd.kubernetes.protobuf,application/json",
    ),
    ("/openapi/v3", JSON),
    ("/openapi/v3/apis/apps/v1", JSON),
    ("/openapi/v3/apis/apps/v1", OPENAPI_PROTOBUF),
];

/// Path and query of a document under the hash that the index has for it.
async fn hashed(client: &Client) -> String {
    let index = client.get("/openapi/v3").await.unwrap().json().unwrap();
    let url = &index["paths"]["apis/apps/v1"]["serverRelativeURL"];
    url.as_str().unwrap().to_owned()
}

/// As [`Comparable`], without times that say nothing of the document: the index of OpenAPI is as new as its answer, a
/// document as old as its apiserver's process, and what may be kept for a year may be kept for a year from then on.
fn comparable(answer: &Answer) -> Comparable {
    let mut comparable = Comparable::from(answer);
    for (name, value) in &mut comparable.headers {
        if name == "expires" || name == "last-modified" {
            "?".clone_into(value);
        }
    }
    comparable
}

/// Asks both sides until they agree; see `reads`.
async fn check(pair: (&Client, &Client), path: &str, headers: &[(&str, &str)]) -> Answer {
    let (direct, proxied) = pair;
    let what = format!("{path} {headers:?} to be the same through the proxy");
    wait_for(&what, PATIENCE, async || {
        let before = direct.get_with(path, headers).await?;
        let answer = proxied.get_with(path, headers).await?;
        let after = direct.get_with(path, headers).await?;
        let server = comparable(&before);
        let still = server == comparable(&after) && before.body == after.body;
        anyhow::ensure!(still, "the cluster does not hold still");
        compare(&server, &comparable(&answer)).map_err(anyhow::Error::msg)?;
        // Bytes, and not only as far as they are text.
        anyhow::ensure!(
            before.body == answer.body,
            "the bodies are not the same bytes"
        );
        Ok(answer)
    })
    .await
    .unwrap()
}

fn headers<'a>(accept: &'a str, etag: &'a str) -> Vec<(&'static str, &'a str)> {
    let all = [("accept", accept), ("if-none-match", etag)];
    all.into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

fn etag(answer: &Answer) -> Option<String> {
    let etag = answer.headers.get("etag")?;
    Some(etag.to_str().unwrap().to_owned())
}

fn is_revalidated(answer: &Answer) -> bool {
    answer.cache_status() == "fleetcache; fwd=stale; fwd-status=304; detail=revalidated"
}

#[tokio::test]
async fn every_document_is_the_servers_own_before_and_after_it_is_held() {
    let pair = Pair::shared().await;
    let both = (&pair.direct, &pair.proxied);
    let hashed = hashed(&pair.direct).await;
    let good = [(hashed.as_str(), JSON), (hashed.as_str(), OPENAPI_PROTOBUF)];
    for (path, accept) in DOCUMENTS.into_iter().chain(good) {
        let cold = check(both, path, &headers(accept, "")).await;
        assert_eq!(cold.status, 200, "{path} {accept}");
        let Some(etag) = etag(&cold) else {
            // Nothing to recognise it by: it comes live each time.
            let again = check(both, path, &headers(accept, "")).await;
            assert_eq!(
                again.cache_status(),
                "fleetcache; fwd=stale; detail=document"
            );
            continue;
        };
        let what = format!("{path} {accept} to be revalidated");
        wait_for(&what, PATIENCE, async || {
            let warm = check(both, path, &headers(accept, "")).await;
            anyhow::ensure!(is_revalidated(&warm), "{}", warm.cache_status());
            Ok(())
        })
        .await
        .unwrap();
        // The client's own condition is the server's to judge.
        let not_modified = check(both, path, &headers(accept, &etag)).await;
        assert!(matches!(not_modified.status.as_u16(), 200 | 304));
        check(both, path, &headers(accept, "\"another\"")).await;
    }
    for (path, line) in [
        ("/openapi/v3/apis/apps/v1", ("range", "bytes=0-9")),
        ("/openapi/v3/apis/apps/v1", ("accept-encoding", "gzip")),
        ("/openapi/v3/apis/apps/v1", ("accept", "text/plain")),
        ("/apis", ("accept", "application/*")),
        ("/apis", ("user-agent", "curl/8")),
        ("/apis/none.example.com/v1", ("accept", JSON)),
        ("/openapi/v3/apis/none.example.com/v1", ("accept", JSON)),
        ("/openapi/v3/", ("accept", JSON)),
        ("/apis?timeout=soon", ("accept", JSON)),
    ] {
        check(both, path, &[line]).await;
    }
    let metrics = pair.proxy.metrics().unwrap();
    let cached = metrics.sum("fleetcache_request_total", &[("source", "cached")]);
    assert!(cached > Some(0.0), "revalidated is from memory");
}

#[tokio::test]
async fn an_old_hash_leads_to_the_new_one_through_the_proxy() {
    let pair = Pair::shared().await;
    let hashed = hashed(&pair.direct).await;
    for _ in 0..2 {
        let path = "/openapi/v3/apis/apps/v1?hash=OLD";
        let direct = pair.direct.get(path).await.unwrap();
        let proxied = pair.proxied.get(path).await.unwrap();
        assert_eq!(
            (direct.status.as_u16(), proxied.status.as_u16()),
            (301, 301)
        );
        assert_eq!(direct.headers["location"], hashed);
        let location = proxied.headers["location"].to_str().unwrap();
        let prefix = format!("/clusters/{}", pair.cluster.name());
        assert_eq!(location.strip_prefix(&prefix), Some(hashed.as_str()));
    }
    let answer = pair.proxied.get(&hashed).await.unwrap();
    assert_eq!(answer.headers["cache-control"], "public, immutable");
}

/// Returns when the proxy has noticed that its cluster is away.
async fn wait_until_unavailable(client: &Client) {
    wait_for("the proxy to notice", PATIENCE, async || {
        let answer = client.get("/api/v1/namespaces/default/pods").await?;
        let noticed = answer.status == 503 && answer.text().contains("is not connected");
        anyhow::ensure!(noticed, "{}: {}", answer.status, answer.text());
        Ok(())
    })
    .await
    .unwrap();
}

/// `kubectl get pods`, of a user who never asked before, ends at once with the proxy's sentence after these words. Of
/// three tries the quickest counts: what is asked is whether kubectl waits, and not whether the machine is busy.
async fn assert_newcomers_are_told(proxy: &Proxy, cluster: &str, words: &str) {
    let mut quickest = Duration::MAX;
    for _ in 0..3 {
        let kubectl = proxy.kubectl(cluster).await.unwrap();
        let output = kubectl.run(&["get", "pods"]).await.unwrap();
        assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""));
        let sentence = format!("{words}cluster \"{cluster}\" is not connected: ");
        let told = output.stderr.starts_with(&sentence);
        assert!(told, "not our sentence: {}", output.stderr);
        quickest = quickest.min(output.elapsed);
    }
    assert!(
        quickest < Duration::from_secs(3),
        "kubectl took {quickest:?}"
    );
}

#[tokio::test]
async fn a_cluster_that_is_down_is_described_as_it_last_was() {
    let mut cluster = ControlPlane::start(Options::named("gamma")).await.unwrap();
    let (direct, proxied, proxy) = connect(&cluster).await;
    let hashed = hashed(&direct).await;
    let hashed = [(hashed.as_str(), JSON), (hashed.as_str(), OPENAPI_PROTOBUF)];
    let asked: Vec<_> = DOCUMENTS.into_iter().chain(hashed).collect();
    let mut before = Vec::new();
    for (path, accept) in &asked {
        before.push(check((&direct, &proxied), path, &headers(accept, "")).await);
    }
    let kubectl = proxy.kubectl("gamma").await.unwrap();
    kubectl.run(&["get", "pods"]).await.unwrap().ok().unwrap();

    cluster.kill(Server::Apiserver);
    // Whether or not the proxy has noticed yet.
    let at_once = proxied.get_with("/apis", &headers(V2, "")).await.unwrap();
    assert!(
        at_once.status == 200 && at_once.is_hit(),
        "{}",
        at_once.text()
    );
    wait_until_unavailable(&proxied).await;
    for ((path, accept), before) in asked.iter().zip(&before) {
        let held = proxied.get_with(path, &headers(accept, "")).await.unwrap();
        let what = format!("{path} {accept}");
        compare(&comparable(before), &comparable(&held))
            .unwrap_or_else(|difference| panic!("{what}: {difference}"));
        assert_eq!(before.body, held.body, "{what}");
        assert_eq!(held.cache_status(), "fleetcache; hit; detail=disconnected");
        let age: u64 = held.headers["age"].to_str().unwrap().parse().unwrap();
        assert!(age < PATIENCE.as_secs(), "{what}: {age}");
        assert!(held.headers.contains_key("audit-id"));
        let Some(etag) = etag(before) else { continue };
        let matched = proxied
            .get_with(path, &headers(accept, &etag))
            .await
            .unwrap();
        assert_eq!(
            (matched.status.as_u16(), matched.body.len()),
            (304, 0),
            "{what}"
        );
        assert_eq!(matched.headers["etag"], etag.as_str());
        let other = proxied
            .get_with(path, &headers(accept, "\"another\""))
            .await
            .unwrap();
        assert_eq!(other.body, before.body, "{what}");
    }
    assert_others_are_negotiated(&proxied).await;

    // kubectl that knows what is served, and kubectl that does not: both get to the sentence.
    assert_newcomers_are_told(&proxy, "gamma", AS_ERROR).await;
    let warm = kubectl.run(&["get", "pods"]).await.unwrap();
    assert!(warm.stderr.starts_with(AS_ERROR), "{}", warm.stderr);

    // Back, with another kind: nobody is told the old documents any more.
    cluster.start_server(Server::Apiserver).await.unwrap();
    let definition = definitions::define(&direct, "discovery.example.com", "before").await;
    wait_for("the proxy to be connected", PATIENCE, async || {
        let answer = proxied.get("/healthz").await?;
        anyhow::ensure!(answer.status == 200, "{}", answer.text());
        Ok(())
    })
    .await
    .unwrap();
    for (path, accept) in &asked {
        check((&direct, &proxied), path, &headers(accept, "")).await;
    }
    let groups = proxied.get("/apis").await.unwrap();
    assert!(groups.text().contains("discovery.example.com"));
    definitions::remove(&direct, &definition).await;
}

/// What was never asked in these words is answered by what was, where the client can read it.
async fn assert_others_are_negotiated(proxied: &Client) {
    for (path, accept, expected) in [
        (
            "/apis",
            "application/json;q=0.5, application/yaml;q=0.9",
            Some("application/yaml"),
        ),
        (
            "/apis",
            "application/json;as=Table;v=v1;g=meta.k8s.io, application/vnd.kubernetes.protobuf",
            Some(PROTOBUF),
        ),
        ("/apis", "*/*", Some(JSON)),
        ("/apis/apps", "", Some(JSON)),
        (
            "/openapi/v3",
            OPENAPI_PROTOBUF,
            Some("text/plain; charset=utf-8"),
        ),
        ("/apis/apps", PROTOBUF, None),
        ("/api", V2_PROTOBUF, None),
        ("/openapi/v3/api/v1", JSON, None),
        ("/openapi/v2", JSON, None),
    ] {
        let answer = proxied.get_with(path, &headers(accept, "")).await.unwrap();
        let what = format!("{path} {accept}");
        if let Some(expected) = expected {
            assert_eq!(answer.status, 200, "{what}");
            assert_eq!(answer.headers["content-type"], expected, "{what}");
        } else {
            assert_eq!(answer.status, 503, "{what}: {}", answer.text());
            assert!(answer.headers.contains_key("warning"), "{what}");
        }
    }
}

#[tokio::test]
async fn a_cluster_that_nobody_ever_asked_is_described_all_the_same() {
    let mut cluster = ControlPlane::start(Options::named("delta")).await.unwrap();
    let proxy = Proxy::start(proxy::Options {
        // As the administrator: a user is shown what it was never let see only where the cluster can be asked.
        kubeconfigs: vec![cluster.kubeconfig()],
        env: vec![("FLEETCACHE_LOG".to_owned(), "debug".to_owned())],
        ..proxy::Options::default()
    })
    .await
    .unwrap();
    // In the log, since a question would be one that somebody asked.
    wait_for("the documents to be fetched", PATIENCE, async || {
        let fetched = proxy.log().contains("documents fetched");
        anyhow::ensure!(fetched, "{}", proxy.log_tail());
        Ok(())
    })
    .await
    .unwrap();
    cluster.kill(Server::Apiserver);
    wait_until_unavailable(&proxy.client("delta").unwrap()).await;
    assert_newcomers_are_told(&proxy, "delta", AS_ERROR).await;
    let kubectl = proxy.kubectl("delta").await.unwrap();
    let version = kubectl.run(&["version"]).await.unwrap().ok().unwrap();
    assert!(version.contains("Server Version: v1."), "{version}");
}

#[tokio::test]
async fn a_cluster_that_was_never_connected_is_told_of_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::for_kubeconfigs(&[nowhere(&dir.path().join("kubeconfig"))])
        .await
        .unwrap();
    let client = proxy.client("nowhere").unwrap();
    wait_until_unavailable(&client).await;
    for path in ["/version", "/api", "/apis", "/openapi/v3"] {
        let answer = client
            .get_with(path, &headers(CLIENT_GO, ""))
            .await
            .unwrap();
        assert_eq!(answer.status, 503, "{path}");
        assert!(answer.headers.contains_key("warning"), "{path}");
    }
    assert_newcomers_are_told(&proxy, "nowhere", AS_WARNING).await;
}

/// A kubeconfig of a cluster where nobody listens.
fn nowhere(path: &Path) -> PathBuf {
    let context = Context {
        name: "nowhere".to_owned(),
        server: "https://127.0.0.1:1".to_owned(),
        ca_pem: String::new(),
        credential: Credential::Token("t".to_owned()),
    };
    kubeconfig::write(path, &[context]).unwrap()
}
