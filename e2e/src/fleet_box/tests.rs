//! The box as a client of its clusters sees it.

use std::collections::BTreeSet;

use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::client::Client;
use crate::poll::{PATIENCE, wait_for};
use crate::sim::Filling;

const IN_VAIN: Duration = Duration::from_millis(200);

async fn fleet(count: usize) -> FleetBox {
    let names = (0..count).map(|index| format!("c{index}"));
    FleetBox::start(names, |config| config).await.unwrap()
}

fn client(fleet: &FleetBox, index: usize) -> Client {
    Client::new(&fleet.clusters()[index].context()).unwrap()
}

fn step(line: &str) -> Step {
    line.parse().unwrap()
}

#[tokio::test]
async fn each_cluster_has_an_address_of_its_own_and_one_ca_is_enough() {
    let fleet = fleet(300).await;
    let contexts = fleet.contexts(0..300);
    let hosts: BTreeSet<_> = fleet
        .clusters()
        .iter()
        .map(|cluster| cluster.address().ip())
        .collect();
    assert_eq!(hosts.len(), 300);
    assert!(contexts.iter().all(|it| it.ca_pem == contexts[0].ca_pem));
    for index in [0, 253, 254, 299] {
        let answer = client(&fleet, index).get("/readyz").await.unwrap();
        assert_eq!(answer.text(), "ok");
    }
    fleet.stop().await;
}

#[tokio::test]
async fn seven_hundred_black_holes_come_and_go() {
    let fleet = fleet(1000).await;
    fleet.apply(&step("0s 0..700 vanish")).unwrap();
    let connect = async |index: usize| {
        let address = fleet.clusters()[index].address();
        timeout(IN_VAIN, tokio::net::TcpStream::connect(address)).await
    };
    for index in [0, 350, 699] {
        connect(index).await.unwrap_err();
    }
    for index in [700, 999] {
        assert_eq!(
            client(&fleet, index).get("/readyz").await.unwrap().status,
            200
        );
    }
    fleet.apply(&step("0s 10% of 0..700 heal")).unwrap();
    connect(0).await.unwrap_err();
    let healed = client(&fleet, 9);
    assert_eq!(healed.get("/readyz").await.unwrap().status, 200);
    // A connection that is open hears nothing either, until it does.
    fleet.apply(&step("0s 9..10 vanish")).unwrap();
    let asked = healed.get("/readyz");
    tokio::pin!(asked);
    timeout(IN_VAIN, &mut asked).await.unwrap_err();
    fleet.apply(&step("0s 9..10 heal")).unwrap();
    assert_eq!(asked.await.unwrap().status, 200);
}

#[tokio::test]
async fn faults_of_a_script_are_met_by_clients() {
    let fleet = fleet(5).await;
    for line in [
        "0s 0..1 kill",
        "0s 1..2 another-ca",
        "0s 2..3 unauthorized",
        "0s 3..4 answer 503",
        "0s 4..9 slow-handshake 1000s",
    ] {
        fleet.apply(&step(line)).unwrap();
    }
    let fails = async |index: usize| {
        let error = client(&fleet, index).get("/readyz").await.unwrap_err();
        format!("{error:#}")
    };
    assert!(fails(0).await.contains("refused"));
    assert!(fails(1).await.contains("certificate"));
    let status = async |index: usize| client(&fleet, index).get("/readyz").await.unwrap().status;
    assert_eq!(status(2).await, 401);
    assert_eq!(status(3).await, 503);
    timeout(IN_VAIN, status(4)).await.unwrap_err();
    assert_eq!(fleet.take_most_handshakes(), 1);
    fleet.apply(&step("0s 0..5 heal")).unwrap();
    for index in 0..5 {
        assert_eq!(status(index).await, 200);
    }
}

#[tokio::test]
async fn a_store_is_filled_when_somebody_looks() {
    let fleet = FleetBox::start(["a".to_owned()], |config| SimConfig {
        filling: Some(Filling::new(|store| {
            let object = json!({"metadata": {"namespace": "default", "name": "filled"}});
            store.create("configmaps", object).unwrap();
        })),
        ..config
    })
    .await
    .unwrap();
    let (cluster, client) = (&fleet.clusters()[0], client(&fleet, 0));
    client.get("/api/v1/namespaces/kube-system").await.unwrap();
    assert!(cluster.is_unfilled() && cluster.store().is_empty("configmaps"));
    for _ in 0..2 {
        let list = client.get("/api/v1/configmaps").await.unwrap();
        let list = list.json().unwrap();
        assert_eq!(list["items"][0]["metadata"]["name"], "filled");
    }
    assert!(!cluster.is_unfilled());
}

#[tokio::test]
async fn probes_are_counted_for_those_of_whom_they_are_expected() {
    let fleet = fleet(2).await;
    fleet.expect_probes(0..1, Duration::from_secs(1000));
    for index in [0, 0, 0, 1, 1] {
        client(&fleet, index).get("/readyz").await.unwrap();
    }
    let probes = Probes {
        on_time: 2,
        late: 0,
    };
    wait_for("the probes to be counted", PATIENCE, async || {
        let counted = fleet.probes();
        (counted == probes)
            .then_some(())
            .ok_or_else(|| format!("{counted:?}"))
    })
    .await
    .unwrap();
}
