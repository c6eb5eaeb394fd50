//! The cluster goes away and comes back, with all that a watch missed, without some of it, or as another one.

mod model;

use std::time::Duration;

use fleetcache_e2e::control_plane::{ControlPlane, Options, Server};
use fleetcache_e2e::fault::Mode;
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use serde_json::json;

use super::cluster::{
    Breakable, configmap, configmaps, create, delete, list_version, patch, plain, served, value,
    version,
};
use super::stream::{End, Stream};
use crate::pair::warm;
use model::Model;

/// Open watches say nothing meanwhile, and then all that they missed, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_break_watches_are_silent_and_miss_nothing() {
    let cluster = plain().await;
    let direct = cluster.client().unwrap();
    let path = configmaps(cluster, "break").await;
    for name in ["a", "b"] {
        create(&direct, &path, &configmap(name, "0")).await;
    }
    let broken = Breakable::start(cluster, "").await;
    let (client, http2) = (broken.client(), broken.http2());
    warm(&client, &path).await;
    let from = list_version(&direct, &path).await;
    let plain = format!("{path}?watch=1&resourceVersion={from}");
    let labels = format!("{plain}&labelSelector=app%3Dx");
    let initial = format!(
        "{path}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let queries = [&plain, &labels, &initial];
    let mut pairs = Vec::new();
    for query in queries {
        for client in [&client, &http2] {
            let reference = Stream::watch(&direct, query).await;
            pairs.push((reference, Stream::watch(client, query).await));
        }
    }
    for round in 0..4 {
        let write = async |what: &str| {
            for n in 0..5 {
                let app = if n % 2 == 0 { "x" } else { "y" };
                let change = json!({"data": {"value": format!("{round}{what}{n}")}, "metadata": {"labels": {"app": app}}});
                patch(&direct, &format!("{path}/a"), &change).await;
            }
            let name = format!("made-{round}-{what}");
            create(&direct, &path, &configmap(&name, "0")).await;
            delete(&direct, &format!("{path}/{name}")).await;
        };
        write("before").await;
        // Refused for a while, or only reset; the second is over before anything is noticed.
        let refused = round % 2 == 0;
        if refused {
            broken.relay.set(Mode::Refuse).unwrap();
        }
        broken.relay.cut();
        if refused {
            wait_for("the proxy to notice", PATIENCE, async || {
                let answer = client.get(&path).await?;
                anyhow::ensure!(answer.status == 503, "{}", answer.status);
                Ok(())
            })
            .await
            .unwrap();
            write("meanwhile").await;
            for (_, stream) in &pairs {
                let text = stream.text();
                assert!(!text.contains(&format!("{round}meanwhile")), "{text}");
                assert_eq!(stream.end(), None);
            }
            broken.relay.set(Mode::Forward).unwrap();
        }
        served(&client, &path).await;
        write("after").await;
    }
    let last = json!({"data": {"value": "last word"}, "metadata": {"labels": {"app": "x"}}});
    patch(&direct, &format!("{path}/b"), &last).await;
    for (reference, stream) in &pairs {
        reference.has("last word").await;
        stream.has("last word").await;
        stream.assert_hit();
        assert_eq!(told(stream), told(reference));
        assert_eq!(stream.end(), None);
    }
}

/// All lines but bookmarks, whose time and version are the server's choice.
fn told(stream: &Stream) -> String {
    let text = stream.text();
    let lines = text.split_inclusive('\n');
    lines
        .filter(|line| !line.starts_with(r#"{"type":"BOOKMARK""#))
        .collect()
}

/// The watches of the proxy itself cannot be resumed, since what they missed is no longer known to anybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_compaction_every_client_converges() {
    let mut cluster = ControlPlane::start(Options::named("compacted"))
        .await
        .unwrap();
    let direct = cluster.client().unwrap();
    let path = "/api/v1/namespaces/default/configmaps";
    for n in 0..20 {
        create(&direct, path, &configmap(&format!("c{n}"), "0")).await;
    }
    let broken = Breakable::start(&cluster, "").await;
    warm(&broken.client(), path).await;
    let models = [
        Model::start(broken.client(), path, ""),
        Model::start(broken.http2(), path, ""),
        Model::start(broken.client(), path, "labelSelector=app%3Dx"),
        Model::start(broken.client(), path, "fieldSelector=metadata.name%3Dc3"),
        Model::start(broken.client(), "/api/v1/configmaps", ""),
    ];
    let change = async |n: usize, round: usize| {
        let app = if round.is_multiple_of(2) { "x" } else { "y" };
        let change =
            json!({"data": {"value": round.to_string()}, "metadata": {"labels": {"app": app}}});
        patch(&direct, &format!("{path}/c{n}"), &change).await;
    };
    for n in 0..20 {
        change(n, n).await;
    }
    for model in &models {
        model.converges(&direct).await;
    }

    broken.relay.set(Mode::Refuse).unwrap();
    broken.relay.cut();
    // Changed, gone, made again: what was missed is of every sort.
    for n in 0..15 {
        change(n, n + 1).await;
    }
    for n in 0..10 {
        delete(&direct, &format!("{path}/c{n}")).await;
    }
    for n in 0..5 {
        create(&direct, path, &configmap(&format!("c{n}"), "again")).await;
    }
    let newest = list_version(&direct, path).await;
    cluster.compact(newest).await.unwrap();
    // Otherwise its memory would still know.
    cluster.restart(Server::Apiserver).await.unwrap();
    broken.relay.set(Mode::Forward).unwrap();
    for model in &models {
        model.converges(&direct).await;
    }
    for n in 0..5 {
        delete(&direct, &format!("{path}/c{n}")).await;
        change(n + 10, n).await;
    }
    for model in &models {
        model.converges(&direct).await;
        println!("{}", model.tally());
    }
    assert!(
        models[0].expired() > 0,
        "nobody was told 410: {}",
        models[0].tally()
    );
}

/// A version of the old history means something else, or nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_at_the_same_address_ends_watches_and_expires_versions() {
    let mut cluster = ControlPlane::start(Options::named("replaced"))
        .await
        .unwrap();
    let path = "/api/v1/namespaces/default/configmaps";
    let direct = cluster.client().unwrap();
    for n in 0..100 {
        create(&direct, path, &configmap(&format!("old{n}"), "0")).await;
    }
    // So short that clients have asked again and again when the proxy is connected anew.
    let settings = "defaults: { watchDisconnectGrace: 1s }";
    let broken = Breakable::start(&cluster, settings).await;
    let client = broken.client();
    warm(&client, path).await;
    let old = list_version(&client, path).await;
    let models = [
        Model::start(broken.client(), path, ""),
        Model::start(broken.http2(), path, ""),
    ];
    let watches = [
        Stream::watch(&client, &format!("{path}?watch=1&resourceVersion={old}")).await,
        Stream::watch(
            &broken.http2(),
            &format!("{path}?watch=1&resourceVersion=0"),
        )
        .await,
    ];
    for model in &models {
        model.converges(&direct).await;
        model.expect_another_cluster();
    }

    broken.relay.set(Mode::Refuse).unwrap();
    broken.relay.cut();
    cluster.replace_etcd().await.unwrap();
    let direct = cluster.client().unwrap();
    let mut newest = version(&create(&direct, path, &configmap("new", "0")).await);
    while newest < old + 20 {
        let value = value(newest.to_string());
        newest = version(&patch(&direct, &format!("{path}/new"), &value).await);
    }
    broken.relay.set(Mode::Forward).unwrap();
    for watch in &watches {
        watch.ended_clean().await;
        assert!(!watch.text().contains("\"new\""), "{}", watch.text());
    }
    for model in &models {
        model.converges(&direct).await;
    }
    warm(&client, path).await;
    for from in [1, old - 50, old, old + 1] {
        let watch = format!("{path}?watch=1&resourceVersion={from}&timeoutSeconds=3");
        let watch = Stream::watch(&client, &watch).await;
        watch.ended_clean().await;
        // The server has a history of its own, and knows nothing of the old one's meaning.
        assert!(is_expired(&watch), "{from}: {}", watch.text());
    }
    for model in &models {
        println!("{}", model.tally());
    }
}

/// A new history that is shorter: the server would take an old version for a future one, and stay mute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_of_a_longer_history_expire_with_it() {
    let mut cluster = ControlPlane::start(Options::named("restored"))
        .await
        .unwrap();
    let path = "/api/v1/namespaces/default/configmaps";
    let direct = cluster.client().unwrap();
    for n in 0..300 {
        create(&direct, path, &configmap(&format!("old{n}"), "0")).await;
    }
    let broken = Breakable::start(&cluster, "").await;
    let client = broken.client();
    warm(&client, path).await;
    let old = list_version(&client, path).await;
    let watch = Stream::watch(&client, &format!("{path}?watch=1&resourceVersion={old}")).await;
    let models = [
        Model::start(broken.client(), path, ""),
        Model::start(broken.http2(), path, ""),
    ];
    for model in &models {
        model.converges(&direct).await;
        model.expect_another_cluster();
    }
    cluster.replace_etcd().await.unwrap();
    let direct = cluster.client().unwrap();
    create(&direct, path, &configmap("new", "0")).await;
    watch.ended_clean().await;
    for model in &models {
        model.converges(&direct).await;
        println!("{}", model.tally());
    }
    wait_for("the new cluster", PATIENCE, async || {
        let answer = client.get(path).await?.ok()?;
        anyhow::ensure!(
            answer.text().contains("\"new\"") && answer.is_hit(),
            "{}",
            answer.text()
        );
        Ok(())
    })
    .await
    .unwrap();
    let watch = format!("{path}?watch=1&resourceVersion={old}&timeoutSeconds=3");
    let watch = Stream::watch(&client, &watch).await;
    watch.ended_clean().await;
    assert!(is_expired(&watch), "{}", watch.text());
}

/// Whether a watch told only that its version is too old, as an event, and ended.
fn is_expired(watch: &Stream) -> bool {
    let events = watch.events();
    watch.end() == Some(End::Clean)
        && events.len() == 1
        && events[0]["type"] == "ERROR"
        && events[0]["object"]["code"] == 410
        && watch.lasted() < Duration::from_secs(60)
}
