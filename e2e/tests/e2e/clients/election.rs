//! Leader election: two candidates for one Lease, on either side of the proxy.

use serde_json::{Value, json};

use super::observer::{Endpoint, Observer, is_request};
use crate::pair::Pair;

/// Enough to be sure that the second candidate looked again after it had seen who leads.
const LOOKS: usize = 5;

#[tokio::test]
async fn a_lease_goes_from_one_candidate_to_the_other() {
    let pair = Pair::shared().await;
    for (first, second) in [
        (Side::Direct, Side::Direct),
        (Side::Proxied, Side::Proxied),
        (Side::Direct, Side::Proxied),
        (Side::Proxied, Side::Direct),
    ] {
        hand_over(&pair, first, second).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Direct,
    Proxied,
}

async fn hand_over(pair: &Pair, first_side: Side, second_side: Side) {
    let namespace = pair.cluster.namespace("clients").await.unwrap();
    let candidate = async |side: Side, name: &str| {
        let kubeconfig = match side {
            Side::Direct => pair.cluster.kubeconfig(),
            Side::Proxied => pair.proxy.kubeconfig(),
        };
        let endpoint = Endpoint {
            kubeconfig: &kubeconfig,
            context: pair.cluster.name(),
            namespace: &namespace,
        };
        let what = format!("candidate {name}, {side:?}");
        Observer::start(what, endpoint, &["--name", name, "elect"], &[]).await
    };
    let lease = async |holder: &str, transitions: u32| {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/leader");
        for client in [&pair.direct, &pair.proxied] {
            let lease = client.get(&path).await.unwrap().ok().unwrap();
            let spec = &lease.json().unwrap()["spec"];
            // Nobody is an empty name, or none at all.
            assert_eq!(spec["holderIdentity"].as_str().unwrap_or_default(), holder);
            assert_eq!(spec["leaseTransitions"], transitions);
        }
    };
    let (leads, does_not) = (json!({"leads": true}), json!({"leads": false}));
    let get = |line: &Value| is_request(line) && line["request"] == "GET";

    let mut first = candidate(first_side, "first").await;
    first.until("lead", 1, |line| *line == leads).await;
    lease("first", 0).await;
    let mut second = candidate(second_side, "second").await;
    let sees = json!({"sees": "first"});
    second.until("see the first", 1, |line| *line == sees).await;
    second.until("look", LOOKS, get).await;
    assert_eq!(second.count(|line| *line == leads), 0, "two leaders");

    first.close_input();
    let first = first.end().await;
    assert_eq!(first.iter().filter(|line| **line == does_not).count(), 1);
    second.until("lead", 1, |line| *line == leads).await;
    lease("second", 1).await;
    second.close_input();
    let second = second.end().await;
    lease("", 1).await;

    for (side, lines) in [(first_side, first), (second_side, second)] {
        for line in lines.iter().filter(|line| get(line)) {
            let status = line["cacheStatus"].as_str().unwrap();
            let is_live = status == "fleetcache; fwd=bypass; detail=never";
            assert!(
                is_live || side == Side::Direct && status.is_empty(),
                "{line}"
            );
        }
    }
}
