//! Each fault, as a client meets it.

use super::*;

async fn fails(client: &Client) -> bool {
    client
        .try_send(Method::GET, CONFIGMAPS, &[], "")
        .await
        .is_err()
}

#[tokio::test]
async fn refusing_and_cutting_take_a_cluster_down_and_healing_brings_it_back() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let mut frames = client.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    cluster.fault(Fault::Refuse);
    assert_eq!(
        client.get(CONFIGMAPS).await.status,
        200,
        "what is connected stays connected"
    );
    assert!(fails(&Client::new(&cluster)).await);
    cluster.fault(Fault::Cut);
    timeout(PATIENCE, frames.body.frame())
        .await
        .unwrap()
        .unwrap()
        .unwrap_err();
    assert!(fails(&client).await);
    let accepted = cluster.counts().accepted;
    cluster.heal().unwrap();
    assert_eq!(client.get(CONFIGMAPS).await.status, 200);
    assert_eq!(cluster.counts().accepted, accepted + 1);
}

#[tokio::test]
async fn a_stalled_cluster_accepts_and_is_silent_until_it_is_healed() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let mut frames = client.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    cluster.fault(Fault::Stall);
    cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap();
    assert!(frames.is_silent().await);
    let (old, new) = (client.get(CONFIGMAPS), Client::new(&cluster));
    tokio::pin!(old);
    let new = new.get(CONFIGMAPS);
    tokio::pin!(new);
    assert!(timeout(IN_VAIN, &mut old).await.is_err());
    assert!(timeout(IN_VAIN, &mut new).await.is_err());
    cluster.heal().unwrap();
    assert_eq!(
        (old.await.names(), new.await.names()),
        (vec!["a".to_owned()], vec!["a".to_owned()])
    );
    assert_eq!(frames.event().await.1, "a");
}

#[tokio::test]
async fn half_open_connections_are_dead_and_new_ones_live() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    assert_eq!(client.get(CONFIGMAPS).await.status, 200);
    cluster.fault(Fault::HalfOpen);
    let frozen = client.get(CONFIGMAPS);
    tokio::pin!(frozen);
    assert!(timeout(IN_VAIN, &mut frozen).await.is_err());
    assert_eq!(Client::new(&cluster).get(CONFIGMAPS).await.status, 200);
    cluster.heal().unwrap();
    assert_eq!(frozen.await.status, 200);
}

#[tokio::test]
async fn codes_are_answered_where_they_are_wanted() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    cluster.fault(Fault::Unauthorized);
    assert_eq!(client.get(CONFIGMAPS).await.status, 401);
    assert_eq!(client.get("/readyz").await.status, 401);
    cluster.heal().unwrap();

    cluster.fault(Fault::Forbidden(vec!["/api/v1/pods".to_owned()]));
    let forbidden = client.get("/api/v1/pods").await;
    assert_eq!(forbidden.status, 403);
    assert_eq!(
        forbidden.json()["message"],
        "pods is forbidden: User \"admin\" cannot list resource \"pods\" in API group \"\" at the cluster scope"
    );
    assert_eq!(client.get(CONFIGMAPS).await.status, 200);
    cluster.heal().unwrap();

    cluster.fault(Fault::Answer {
        code: 500,
        paths: vec!["/readyz".to_owned()],
    });
    assert_eq!(client.get("/readyz").await.status, 500);
    assert_eq!(client.get(CONFIGMAPS).await.status, 200);
    cluster.fault(Fault::Answer {
        code: 503,
        paths: Vec::new(),
    });
    assert_eq!(client.get(CONFIGMAPS).await.status, 503);
}

#[tokio::test]
async fn every_resume_is_expired_but_starts_are_not() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap();
    cluster.fault(Fault::ExpireWatches);
    let version = cluster.store().revision();
    let mut frames = client
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={version}"))
        .await;
    assert_eq!(frames.next().await.unwrap()["object"]["reason"], "Expired");
    let mut frames = client.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    assert_eq!(frames.event().await.1, "a");
}

#[tokio::test]
async fn open_watches_end_once_and_others_can_begin() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let mut first = client.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    cluster.fault(Fault::EndWatches);
    assert_eq!(first.next().await, None);
    let mut second = client.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    cluster.heal().unwrap();
    cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap();
    assert_eq!(second.event().await.1, "a");
}

#[tokio::test]
async fn initial_events_are_unknown_for_a_while() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
    let target = format!("{CONFIGMAPS}?{query}");
    cluster.fault(Fault::NoWatchList);
    assert_eq!(client.get(&target).await.status, 422);
    cluster.heal().unwrap();
    assert_eq!(client.get(&target).await.status, 200);
}

#[tokio::test]
async fn lists_and_watches_can_be_broken_in_every_way() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap();
    let watch = format!("{CONFIGMAPS}?watch=1&timeoutSeconds=1");

    cluster.fault(Fault::BadBytes(BadBytes::InvalidJson));
    for path in [CONFIGMAPS, &watch] {
        serde_json::from_str::<Value>(&client.get(path).await.text).unwrap_err();
    }
    cluster.fault(Fault::BadBytes(BadBytes::Truncated));
    for path in [CONFIGMAPS, &watch] {
        let half = client.get(path).await.text;
        assert!(half.starts_with('{') && !half.ends_with('}'), "{half}");
    }
    cluster.fault(Fault::BadBytes(BadBytes::Reset));
    for path in [CONFIGMAPS, &watch] {
        let response = client.send(Method::GET, path, &[], "").await;
        response.into_body().collect().await.unwrap_err();
    }
    cluster.fault(Fault::BadBytes(BadBytes::Huge(1_000_000)));
    for path in [CONFIGMAPS, &watch] {
        let huge = client.get(path).await;
        assert!(huge.text.len() > 1_000_000);
        huge.json();
    }
}

#[tokio::test]
async fn a_rebuilt_cluster_is_empty_and_another() {
    let cluster = cluster().await;
    let client = Client::new(&cluster);
    cluster
        .store()
        .create("configmaps", configmap("a"))
        .unwrap();
    let kube_system = "/api/v1/namespaces/kube-system";
    let before = client.get(kube_system).await.json();
    let revision = cluster.store().revision();
    cluster.fault(Fault::Rebuild);
    let after = client.get(kube_system).await.json();
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert!(cluster.store().revision() < revision);
    assert!(client.get(CONFIGMAPS).await.names().is_empty());
}

#[tokio::test]
async fn requests_and_connections_are_counted() {
    let cluster = cluster().await;
    assert_eq!(cluster.counts(), Counts::default());
    let client = Client::new(&cluster);
    client.get(CONFIGMAPS).await;
    client.get(&format!("{CONFIGMAPS}/a")).await;
    client.get("/readyz").await;
    let watch = client.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    let counts = cluster.counts();
    assert_eq!(
        (
            counts.requests("list", "configmaps"),
            counts.requests("get", "configmaps")
        ),
        (1, 1)
    );
    assert_eq!(
        (
            counts.resource_requests(),
            counts.accepted,
            counts.connections
        ),
        (3, 1, 1)
    );
    assert_eq!(counts.watches("configmaps"), 1);
    drop((watch, client));
    let closed = async {
        while cluster.counts().connections > 0 || cluster.counts().watches("configmaps") > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, closed).await.unwrap();
    cluster.stop().await;
}

#[tokio::test]
async fn the_same_data_can_be_served_from_another_address() {
    let first = cluster().await;
    first.store().create("configmaps", configmap("a")).unwrap();
    let store = Some(first.store().clone());
    let second = SimCluster::start(SimConfig {
        store,
        ..SimConfig::new("sim")
    })
    .await
    .unwrap();
    assert_ne!(first.ca_pem(), second.ca_pem());
    assert_eq!(Client::new(&second).get(CONFIGMAPS).await.names(), ["a"]);
    second.kill();
    assert!(fails(&Client::new(&second)).await);
    assert_eq!(Client::new(&first).get(CONFIGMAPS).await.names(), ["a"]);
}
