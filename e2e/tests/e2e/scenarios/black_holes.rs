//! Clusters that cannot be reached, for every reason there is: their requests cost nothing, and their attempts go on.

use std::sync::Arc;

use fleetcache_e2e::client::Client;
use fleetcache_e2e::fault::{Door, black_hole};
use fleetcache_e2e::kubeconfig;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::sim::Fault;
use futures_util::future::join_all;
use http::Method;
use serde_json::json;

use super::bed::{
    Answers, Bed, CONFIGMAPS, READS, assert_unavailable, causes, configmap, lost, sim,
};
use crate::pair::warm;

#[tokio::test]
async fn a_cluster_that_was_never_registered_is_a_404_and_never_a_503() {
    let good = sim("good").await;
    let hole = black_hole().unwrap();
    let bed = Bed::start(&[good.context(), lost("hole", &hole)], "").await;
    bed.served("good", CONFIGMAPS).await;
    for name in ["goo", "good2", "GOOD", "hol", "hole.", "unknown"] {
        let client = bed.client(name);
        for path in READS.into_iter().chain(["/version", "/api", "/apis", "/"]) {
            for method in [Method::GET, Method::POST, Method::PATCH, Method::DELETE] {
                let answer = client.send(method, path, &[], "{}").await.unwrap();
                let status = answer.json().unwrap();
                assert_eq!(answer.status, 404, "{name} {path}: {status}");
                assert_eq!(
                    (&status["kind"], &status["reason"]),
                    (&json!("Status"), &json!("NotFound")),
                    "{name} {path}"
                );
                assert_eq!(status["details"]["kind"], "clusters", "{name} {path}");
            }
        }
    }
    let unavailable = bed.metrics().get("fleetcache_fast_fail_total");
    assert_eq!(unavailable.unwrap_or_default(), 0.0);
}

/// A name that nobody may have. The resolver may have nobody to ask where the test runs; it gives up soon then.
const NO_NAME: &str = "no-such-name.invalid";
const RESOLVER: (&str, &str) = ("RES_OPTIONS", "timeout:1 attempts:1");

#[tokio::test]
async fn the_reason_names_the_step_that_failed_and_attempts_go_on() {
    let hole = black_hole().unwrap();
    let (stranger, failing, stalled, refusing) = (
        sim("stranger").await,
        sim("failing").await,
        sim("stalled").await,
        sim("refusing").await,
    );
    failing.fault(Fault::Answer {
        code: 500,
        paths: Vec::new(),
    });
    stalled.fault(Fault::Stall);
    refusing.fault(Fault::Refuse);
    let mut nameless = lost("nameless", &hole);
    nameless.server = format!("https://{NO_NAME}:6443");
    let door = Door::open(([127, 0, 0, 1], 0).into()).unwrap();
    door.close();
    let mut closed = lost("closed", &hole);
    closed.server = format!("https://{}", door.address());
    // What the kubeconfig trusts has not signed this server's certificate.
    let mut strange = stranger.context();
    strange.ca_pem = failing.ca_pem().to_owned();
    let contexts = [
        nameless,
        closed,
        lost("hole", &hole),
        strange,
        failing.context(),
        stalled.context(),
        refusing.context(),
    ];
    let settings = "defaults: { connectTimeout: 500ms, probe: { timeout: 500ms } }\noverrides: [ { cluster: nameless, connectTimeout: 30s } ]\nconnections: { backoffMin: 100ms, backoffMax: 500ms }";
    let files = tempfile::tempdir().unwrap();
    kubeconfig::write(&files.path().join("kubeconfig"), &contexts).unwrap();
    let bed = Bed::serve_with(files, settings, &[RESOLVER]).await;
    let reasons = [
        ("nameless", "NameNotResolved"),
        ("closed", "ConnectionRefused"),
        ("hole", "ConnectTimeout"),
        ("stranger", "TLSFailed"),
        ("failing", "ServerError"),
        ("stalled", "ConnectTimeout"),
        ("refusing", "ConnectionRefused"),
    ];
    for (name, reason) in reasons {
        let answer = bed.told(name, reason).await;
        assert_unavailable(name, &answer);
        // Whatever is asked, and however often.
        let client = bed.client(name);
        for path in READS {
            let answer = client.get(path).await.unwrap();
            assert_unavailable(name, &answer);
            assert_eq!(
                causes(&answer),
                ["ClusterNotConnected", reason],
                "{name} {path}"
            );
        }
    }
    for (name, _) in reasons {
        let before = bed.failures(name);
        wait_for("further attempts", PATIENCE, async || {
            let now = bed.failures(name);
            if now >= before + 3 {
                Ok(())
            } else {
                Err(format!("{name}: {before}, then {now}"))
            }
        })
        .await
        .unwrap();
    }
    for cluster in [&failing, &stalled, &refusing] {
        cluster.heal().unwrap();
        bed.served(cluster.name(), CONFIGMAPS).await;
    }
    assert_eq!(bed.is_up("hole"), Some(false));
}

/// Requests of a round, and how many of them are under way at once.
const ROUND: usize = 1000;
const AT_ONCE: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_never_waits_for_a_black_hole() {
    let good = sim("good").await;
    let hole = black_hole().unwrap();
    // A connect is in flight nearly all the time, and takes long where anybody waits for it.
    let settings =
        "defaults: { connectTimeout: 1s }\nconnections: { backoffMin: 20ms, backoffMax: 50ms }";
    let bed = Bed::start(&[good.context(), lost("hole", &hole)], settings).await;
    let healthy = bed.client("good");
    bed.served("good", CONFIGMAPS).await;
    warm(&healthy, CONFIGMAPS).await;
    bed.grace_spent("hole").await;
    let clients: Arc<Vec<Client>> = Arc::new((0..AT_ONCE).map(|_| bed.client("hole")).collect());
    // Handshakes are not what is measured.
    round(&clients, AT_ONCE).await;
    let mut late = Vec::new();
    for _ in 0..10 {
        let before = Answers::of(&bed.metrics(), "local", "0.025");
        round(&clients, ROUND).await;
        let asked = Answers::of(&bed.metrics(), "local", "0.025").since(before);
        assert_eq!(asked.all, ROUND as f64);
        late.push(asked.share());
    }
    println!("answers that took more than 25 ms, by round: {late:?}");
    // In the best round: this machine may be busy with anything for as long. Of a proxy that waits a third are late in each.
    assert!(late.iter().any(|late| *late <= 0.05), "{late:?}");
    assert!(healthy.get(CONFIGMAPS).await.unwrap().is_hit());
}

/// So many requests of every sort by all of these clients, all of which are told that the cluster is away.
async fn round(clients: &Arc<Vec<Client>>, requests: usize) {
    let each = requests / clients.len();
    let asking = (0..clients.len()).map(|n| {
        let clients = Arc::clone(clients);
        tokio::spawn(async move {
            let client = &clients[n];
            for turn in 0..each {
                let answer = match (n + turn) % 8 {
                    0 => client.create(CONFIGMAPS, &configmap("a", "b")).await,
                    1 => client.delete(&format!("{CONFIGMAPS}/a")).await,
                    other => client.get(READS[other % READS.len()]).await,
                };
                let answer = answer.unwrap();
                assert_unavailable("hole", &answer);
            }
        })
    });
    for asked in join_all(asking).await {
        asked.unwrap();
    }
}
