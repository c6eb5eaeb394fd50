//! What a changed configuration does to a cluster at work.

use futures_util::FutureExt;
use http::StatusCode;
use secrecy::SecretString;

use super::*;
use crate::cluster_accessor::NotConnectedReason;

fn with_token(server: &FakeServer, token: &str) -> ClusterConfig {
    let mut config = config_of(server);
    config.credential = CredentialConfig::Token(SecretString::from(token));
    config
}

#[tokio::test]
async fn another_token_is_used_on_the_same_connection() {
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.accepted = Some("Bearer one".to_owned()));
    let running = Running::start(with_token(&server, "one"));
    let connection = running.connected().await;
    server.change(|script| script.accepted = Some("Bearer two".to_owned()));
    let mut config = with_token(&server, "two");
    config.timing.probe_interval = Duration::from_millis(10);
    running.accessor.update(config);
    // The next probe, at the new interval, has the new token.
    server
        .asked(|seen| {
            let token = seen.headers.get("authorization");
            seen.target == "/readyz" && token.is_some_and(|it| it == "Bearer two")
        })
        .await;
    assert!(!connection.closed().is_cancelled());
    assert_eq!(running.connected().await.generation, 1);
}

#[tokio::test]
async fn another_address_is_connected_before_the_old_one_is_let_go() {
    let (old, new) = (
        FakeServer::start("127.0.0.1").await,
        FakeServer::start("127.0.0.1").await,
    );
    let running = Running::start(config_of(&old));
    let before = running.connected().await;
    new.change(|script| script.mute = true);
    running.accessor.update(config_of(&new));
    new.dialled().await;
    // The new one has not answered: the old one serves.
    assert_eq!(running.accessor.status().state, ConnectionState::Connected);
    assert_eq!(running.accessor.connected().await.unwrap().generation, 1);
    assert!(!before.closed().is_cancelled());
    new.change(|script| script.mute = false);
    running.until(|view| view.generation == 2).await;
    let after = running.connected().await;
    assert_eq!(
        (after.generation, after.epoch),
        (2, 1),
        "the uid is the same"
    );
    assert!(before.closed().is_cancelled() && before.replaced().is_cancelled());
    // What is in flight goes on, as long as the cluster is there.
    assert!(!before.lost().is_cancelled());
    assert!(get(&before, "/x").await.is_ok());
    running.accessor.remove();
    within(before.lost().cancelled()).await;
}

#[tokio::test]
async fn another_address_is_another_cluster_unless_its_uid_is_the_same() {
    for (uid, epoch) in [(Some("uid-1"), 1), (Some("uid-2"), 2), (None, 2)] {
        let (old, new) = (
            FakeServer::start("127.0.0.1").await,
            FakeServer::start("127.0.0.1").await,
        );
        new.change(|script| script.uid = uid.map(str::to_owned));
        let running = Running::start(config_of(&old));
        running.connected().await;
        running.accessor.update(config_of(&new));
        let mut connections = running.accessor.connection.clone();
        let after = within(connections.wait_for(|now| {
            now.as_ref()
                .is_some_and(|connection| connection.generation == 2)
        }));
        let after = after.await.unwrap().clone().unwrap();
        assert_eq!(after.epoch, epoch, "{uid:?}");
    }
}

#[tokio::test]
async fn a_cluster_that_waits_is_tried_at_once() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config("https://127.0.0.1:1");
    config.timing.backoff_min = Duration::from_secs(3600);
    config.timing.backoff_max = Duration::from_secs(3600);
    let running = Running::start(config);
    running.disconnected().await;
    running.accessor.update(config_of(&server));
    running.connected().await;
}

#[tokio::test]
async fn a_cluster_on_demand_can_be_told_to_connect_always() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.connect = ConnectPolicy::OnDemand;
    let running = Running::start(config);
    running.accessor.update(config_of(&server));
    running.connected().await;
}

#[tokio::test]
async fn removal_ends_the_wait_for_another_connection() {
    let server = FakeServer::start("127.0.0.1").await;
    let running = Running::start(config_of(&server));
    let connection = running.connected().await;
    running.accessor.remove();
    within(connection.replaced().cancelled()).await;
    assert!(running.accessor.removed().is_cancelled());
}

#[tokio::test]
async fn an_address_that_does_not_answer_leaves_the_old_connection_until_it_does() {
    let (old, new) = (
        FakeServer::start("127.0.0.1").await,
        FakeServer::start("127.0.0.1").await,
    );
    let mut config = config_of(&old);
    config.timing.backoff_min = Duration::from_millis(10);
    config.timing.backoff_max = Duration::from_millis(20);
    let running = Running::start(config.clone());
    let before = running.connected().await;
    new.kill();
    config.endpoint = config_of(&new).endpoint;
    running.accessor.update(config);
    running.until(|view| view.connects.failed >= 3).await;
    get(&before, "/x").await.unwrap();
    let status = running.accessor.status();
    assert_eq!(status.state, ConnectionState::Connected);
    assert_eq!(status.disconnects, 0);
    let (reason, message) = status.trouble().unwrap();
    assert_eq!(reason, NotConnectedReason::ConnectionRefused);
    assert_eq!(
        message,
        "another connection cannot be made, and the one from before is kept: connection refused"
    );
    new.revive().await;
    running.until(|view| view.generation == 2).await;
    assert_eq!(running.accessor.status().trouble(), None);
    assert!(before.closed().is_cancelled());
}

#[tokio::test]
async fn a_cluster_whose_configuration_keeps_changing_is_probed_all_the_same() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.timing.probe_interval = Duration::from_millis(50);
    let running = Running::start(config.clone());
    let connection = running.connected().await;
    let mut tokens = 0;
    within(async {
        while running.accessor.status().probes_ok < 5 {
            tokens += 1;
            config.credential = CredentialConfig::Token(format!("t{tokens}").into());
            running.accessor.update(config.clone());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(!connection.closed().is_cancelled());
}

#[tokio::test]
async fn a_refresh_makes_another_connection_and_loses_none() {
    let server = FakeServer::start("127.0.0.1").await;
    let running = Running::start(config_of(&server));
    let before = running.connected().await;
    running.accessor.refresh();
    running.until(|view| view.generation == 2).await;
    let after = running.connected().await;
    assert!(after.lists_anew && !before.lists_anew);
    let status = running.accessor.status();
    assert_eq!((status.connects.succeeded, status.disconnects), (2, 0));
    assert_eq!(status.epoch, 1);
}

#[tokio::test]
async fn news_of_a_cluster_is_told_and_probes_are_none() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.timing.probe_interval = Duration::from_millis(10);
    let running = Running::start(config.clone());
    running.connected().await;
    running.until(|view| view.probes_ok > 2).await;
    let _ = running.changes.taken().await;
    running.until(|view| view.probes_ok > 5).await;
    assert!(running.changes.taken().now_or_never().is_none());
    config.labels.insert("a".to_owned(), "b".to_owned());
    running.accessor.update(config);
    assert_eq!(running.changes.taken().await.len(), 1);
    server.change(|script| script.probe = StatusCode::FORBIDDEN);
    running.until(|view| view.probe_forbidden).await;
    assert_eq!(running.changes.taken().await.len(), 1);
    assert!(running.accessor.status().last_probe_ok);
}

/// Changes nothing that a connection depends on.
async fn relabel(running: &Running, config: &mut ClusterConfig) {
    let number = config.labels.len();
    config.labels.insert(format!("l{number}"), String::new());
    running.accessor.update(config.clone());
    others_have_acted().await;
}

#[tokio::test]
async fn labels_do_not_disturb_a_connect() {
    planned::plan("connect", 0);
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.mute = true);
    let mut config = config_of(&server);
    let running = Running::start(config.clone());
    server.dialled().await;
    for _ in 0..10 {
        relabel(&running, &mut config).await;
    }
    // Nor does when it is probed.
    config.timing.probe_interval *= 2;
    running.accessor.update(config);
    others_have_acted().await;
    server.change(|script| script.mute = false);
    running.connected().await;
    assert_eq!(planned::visits("connect"), 1);
}

#[tokio::test]
async fn labels_do_not_keep_a_credential_from_being_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let mut config = config("https://127.0.0.1:1");
    config.credential = CredentialConfig::TokenFile(path.clone());
    config.timing.backoff_min = Duration::from_secs(3600);
    config.timing.backoff_max = Duration::from_secs(3600);
    let running = Running::start(config.clone());
    let until = running.disconnected().await.next_attempt;
    std::fs::write(&path, "t").unwrap();
    tokio::time::pause();
    for second in 0..10 {
        relabel(&running, &mut config).await;
        let view = running.accessor.view.borrow().clone();
        let reason = view.trouble.unwrap().reason;
        if reason == NotConnectedReason::ConnectionRefused {
            return;
        }
        assert_eq!(view.next_attempt, until, "{second} {reason:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("the credential in the file was not tried");
}

#[tokio::test]
async fn an_address_that_comes_back_is_the_one_before() {
    let (old, new) = (
        FakeServer::start("127.0.0.1").await,
        FakeServer::start("127.0.0.1").await,
    );
    old.change(|script| script.uid = None);
    new.kill();
    let mut here = config_of(&old);
    here.timing.backoff_min = Duration::from_millis(10);
    here.timing.backoff_max = Duration::from_millis(20);
    let mut there = here.clone();
    there.endpoint = config_of(&new).endpoint;
    let running = Running::start(here.clone());
    let before = running.connected().await;

    // Still connected: nothing is left to do.
    running.accessor.update(there.clone());
    running.until(|view| view.connects.failed >= 1).await;
    running.accessor.update(here.clone());
    others_have_acted().await;
    let status = running.accessor.status();
    assert_eq!((status.generation, status.next_attempt), (1, None));
    assert!(!before.closed().is_cancelled());

    // Lost meanwhile.
    running.accessor.update(there);
    old.kill();
    before.suspect();
    running.disconnected().await;
    old.revive().await;
    running.accessor.update(here);
    let after = running.connected().await;
    assert_eq!((after.generation, after.epoch), (2, 1));
}

#[tokio::test]
async fn another_try_is_no_state_of_its_own() {
    planned::plan("connect", 0);
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.mute = true);
    let running = Running::start(config("https://127.0.0.1:1"));
    running.disconnected().await;
    running.accessor.update(config_of(&server));
    server.dialled().await;
    let status = running.accessor.status();
    assert_eq!(status.state, ConnectionState::Disconnected);
    let (reason, _) = status.trouble().unwrap();
    assert_eq!(reason, NotConnectedReason::ConnectionRefused);
    assert_eq!(status.next_attempt, None);
}
