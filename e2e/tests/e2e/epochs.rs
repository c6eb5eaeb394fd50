//! Another state behind the same address: a restored backup, a rebuilt cluster. Versions mean something else from then on.

use std::collections::BTreeMap;

use fleetcache_e2e::client::Answer;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use fleetcache_e2e::process::Signal;
use serde_json::{Value, json};

use crate::fleet::{CONFIGMAPS, Fleet, configmap};

#[tokio::test]
async fn another_etcd_at_the_same_address_is_another_cluster() {
    let mut fleet = Fleet::start().await;
    let proxied = fleet.client();
    let beta = fleet.watch_beta();
    // Fewer writes than before, so that the new history is still behind the old one when the proxy comes back to it.
    fleet.alpha.replace_etcd().await.unwrap();
    let direct = fleet.alpha.client().unwrap();
    direct
        .create(CONFIGMAPS, &configmap("kept", "new"))
        .await
        .unwrap()
        .ok()
        .unwrap();

    let mut seen_new = false;
    wait_for("the new cluster", PATIENCE, async || {
        let answer = proxied.get(CONFIGMAPS).await?.ok()?;
        let values = values(&answer);
        if values.get("kept").is_some_and(|value| value == "new") {
            seen_new = true;
        } else {
            assert!(
                !seen_new,
                "the old cluster is back: {values:?} ({})",
                answer.cache_status()
            );
        }
        anyhow::ensure!(
            seen_new && answer.is_hit(),
            "{values:?} ({})",
            answer.cache_status()
        );
        Ok(())
    })
    .await
    .unwrap();
    fleet.assert_equal_to_the_server().await;

    // A watch that resumed with a version from the old history would be accepted, and stay mute until that is reached.
    direct
        .create(CONFIGMAPS, &configmap("later", "new"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    wait_for("a later object", PATIENCE, async || {
        let answer = proxied.get(CONFIGMAPS).await?.ok()?;
        anyhow::ensure!(
            values(&answer).contains_key("later"),
            "{}",
            answer.cache_status()
        );
        Ok(())
    })
    .await
    .unwrap();
    beta.assert_unharmed().await;
}

/// The same, but the proxy sleeps until the new history is longer than the old one was: only the identity of the cluster
/// tells that a version means something else now, and a watch from the old version would be told events of the new one.
#[tokio::test]
async fn another_etcd_with_a_longer_history_is_another_cluster() {
    let mut fleet = Fleet::start().await;
    let proxied = fleet.client();
    let old = proxied.get(CONFIGMAPS).await.unwrap().json().unwrap();
    let old_version = list_version(&old);
    fleet.proxy.signal(Signal::Stop);
    fleet.alpha.replace_etcd().await.unwrap();
    let direct = fleet.alpha.client().unwrap();
    direct
        .create(CONFIGMAPS, &configmap("kept", "new"))
        .await
        .unwrap()
        .ok()
        .unwrap();
    let path = format!("{CONFIGMAPS}/kept");
    for round in 0.. {
        let object = direct
            .patch(&path, &json!({"data": {"round": round.to_string()}}))
            .await
            .unwrap()
            .ok()
            .unwrap()
            .json()
            .unwrap();
        let version: u64 = object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        if version > old_version + 100 {
            break;
        }
    }
    fleet.proxy.signal(Signal::Continue);
    fleet.assert_equal_to_the_server().await;
    let values = values(&proxied.get(CONFIGMAPS).await.unwrap());
    assert!(
        !values.contains_key("recreated"),
        "an object of the old cluster is still served: {values:?}"
    );
}

fn list_version(list: &Value) -> u64 {
    list["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

fn values(list: &Answer) -> BTreeMap<String, String> {
    let list = list.json().unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| {
            (
                text(&item["metadata"]["name"]),
                text(&item["data"]["value"]),
            )
        })
        .collect()
}
