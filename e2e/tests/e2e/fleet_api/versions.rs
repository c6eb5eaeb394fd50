//! When the version of an object moves, and when it does not.

use fleetcache_e2e::client::Lines;
use fleetcache_e2e::proxy::Proxy;
use fleetcache_e2e::sim::{Fault, SimCluster, SimConfig};
use serde_json::Value;

use super::{PATH, is_at_rest, object_when, root, serve, version};
use crate::pair::warm;

/// Probes so often that many fall into a test.
const OFTEN: &str = "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\ndefaults: { probe: { interval: 200ms, timeout: 100ms }, remoteConnectionGracePeriod: 3s }\n";

async fn start(config: &str) -> (SimCluster, Proxy) {
    let cluster = SimCluster::start(SimConfig::new("a")).await.unwrap();
    let proxy = serve(&[("a", &cluster.context())], Some(config)).await;
    (cluster, proxy)
}

async fn next(lines: &mut Lines) -> Value {
    let line = lines.next().await.unwrap().unwrap();
    serde_json::from_slice(&line).unwrap()
}

pub(super) fn condition<'a>(object: &'a Value, name: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|it| it["type"] == name).unwrap()
}

#[tokio::test]
async fn figures_move_no_version_and_are_those_of_the_moment() {
    let (cluster, proxy) = start(OFTEN).await;
    let client = root(&proxy);
    let before = object_when(&client, "a", "the cluster to be at rest", is_at_rest).await;
    let path = format!("{PATH}?watch=1&resourceVersion={}", version(&before));
    let mut watch = client.lines(&path).await.unwrap();
    warm(&proxy.client("a").unwrap(), "/api/v1/namespaces").await;
    let after = object_when(&client, "a", "an informer and another probe", |object| {
        let status = &object["status"];
        status["totals"]["objects"] != 0
            && status["informers"][0]["state"] == "Synced"
            && status["lastProbeTime"] != before["status"]["lastProbeTime"]
    })
    .await;
    assert_eq!(version(&before), version(&after), "{after:#}");
    assert_eq!(before["metadata"], after["metadata"]);
    let informer = &after["status"]["informers"][0];
    assert_eq!(
        (&informer["resource"], &informer["version"]),
        (&"namespaces".into(), &"v1".into())
    );
    assert!(informer["lastHeardTime"].is_string() && informer["resourceVersion"].is_string());
    // The next event is that of a transition, and there was none before.
    cluster.kill();
    let event = next(&mut watch).await;
    assert_eq!(event["type"], "MODIFIED");
    let object = &event["object"];
    let fails = object["status"]["consecutiveFailures"] != 0;
    assert!(
        fails || object["status"]["state"] != "Connected",
        "{object:#}"
    );
    assert_eq!(version(object), version(&after) + 1);
    assert_eq!(
        object["status"]["totals"]["informers"], 1,
        "as of the event"
    );
}

/// The condition of the probe moves once, when the last success is too long ago, though all that happens meanwhile is that
/// time passes.
#[tokio::test]
async fn a_probe_that_is_too_long_ago_moves_it_once() {
    // The first failure disconnects, and nobody tries again.
    let once = "apiVersion: fleetcache.dev/v1alpha1\nkind: Configuration\ndefaults: { probe: { interval: 100ms, timeout: 1s, failureThreshold: 1 }, remoteConnectionGracePeriod: 5s }\nconnections: { backoffMin: 1h, backoffMax: 1h }\n";
    let (cluster, proxy) = start(once).await;
    let client = root(&proxy);
    object_when(&client, "a", "the cluster to be at rest", is_at_rest).await;
    let mut watch = client.lines(&format!("{PATH}?watch=1")).await.unwrap();
    cluster.kill();
    let (mut before, mut last) = (Value::Null, next(&mut watch).await["object"].take());
    assert_eq!(condition(&last, "RemoteConnectionProbe")["status"], "True");
    while condition(&last, "RemoteConnectionProbe")["status"] == "True" {
        before = std::mem::replace(&mut last, next(&mut watch).await["object"].take());
    }
    let probe = condition(&last, "RemoteConnectionProbe");
    assert_eq!(probe["status"], "False");
    assert_eq!(probe["reason"], "ProbeFailed");
    assert_eq!(version(&last), version(&before) + 1);
    // Nothing else is new.
    assert_eq!(before["status"]["state"], "Disconnected");
    for key in ["state", "reason", "message", "consecutiveFailures"] {
        assert_eq!(before["status"][key], last["status"][key], "{last:#}");
    }
    assert_eq!(
        condition(&before, "Connected"),
        condition(&last, "Connected"),
        "that is another question"
    );
    let quiet = format!(
        "{PATH}?watch=1&timeoutSeconds=3&resourceVersion={}",
        version(&last)
    );
    let quiet = client.get(&quiet).await.unwrap().ok().unwrap();
    assert_eq!(quiet.text(), "", "once");
}

#[tokio::test]
async fn failures_move_it_and_a_recovery_does() {
    let (cluster, proxy) = start(OFTEN).await;
    let client = root(&proxy);
    object_when(&client, "a", "the cluster to be at rest", is_at_rest).await;
    let mut watch = client.lines(&format!("{PATH}?watch=1")).await.unwrap();
    let mut last = version(&next(&mut watch).await["object"]);
    cluster.fault(Fault::Refuse);
    cluster.fault(Fault::Cut);
    let mut failures = Vec::new();
    let mut is_back = false;
    while !is_back {
        let event = next(&mut watch).await;
        let object = &event["object"];
        assert!(version(object) > last, "in order");
        last = version(object);
        let failed = object["status"]["consecutiveFailures"].as_u64().unwrap();
        if object["status"]["state"] == "Disconnected" && failures.last() != Some(&failed) {
            failures.push(failed);
            assert_eq!(
                object["status"]["reason"], "ConnectionRefused",
                "{object:#}"
            );
            assert_eq!(condition(object, "Connected")["status"], "False");
            assert!(
                object["status"]["nextAttemptTime"].is_string(),
                "{object:#}"
            );
        }
        if failures.len() == 2 {
            cluster.heal().unwrap();
        }
        is_back = failures.len() >= 2 && object["status"]["state"] == "Connected";
    }
    assert!(failures[1] > failures[0], "each failed attempt is told of");
    let object = object_when(&client, "a", "the cluster to be back", is_at_rest).await;
    assert!(object["status"]["reason"].is_null(), "{object:#}");
    assert_eq!(condition(&object, "Connected")["status"], "True");
}

/// A proxy that is started again begins above all versions of the one before, and knows none of them.
#[tokio::test]
async fn a_restart_never_goes_back() {
    let (cluster, proxy) = start(OFTEN).await;
    let before = object_when(&root(&proxy), "a", "the cluster to be at rest", is_at_rest).await;
    drop(proxy);
    let proxy = serve(&[("a", &cluster.context())], Some(OFTEN)).await;
    let client = root(&proxy);
    let after = object_when(&client, "a", "the cluster to be at rest", is_at_rest).await;
    assert!(version(&after) > version(&before));
    let path = format!("{PATH}?watch=1&resourceVersion={}", version(&before));
    let event = client
        .get(&path)
        .await
        .unwrap()
        .ok()
        .unwrap()
        .json()
        .unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&"ERROR".into(), &410.into())
    );
}
