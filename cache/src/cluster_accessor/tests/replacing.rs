//! What serves while another connection is being made.

use http::StatusCode;

use super::*;
use crate::cluster_accessor::{NotConnectedReason, Turn};

/// A connected cluster whose next connect has begun, and does not come to its turn while the second is held.
async fn replacing(server: &FakeServer) -> (Running, Arc<Turn>) {
    replacing_of(config_of(server)).await
}

async fn replacing_of(config: ClusterConfig) -> (Running, Arc<Turn>) {
    planned::plan("connect", 0);
    let limit = ConnectLimit::new(1);
    let running = Running::start_under(&limit, config);
    running.connected().await;
    let turn = Turn::take(limit, false).await;
    running.accessor.refresh();
    attempts(2).await;
    (running, turn)
}

#[tokio::test]
async fn a_server_that_dies_while_another_connection_is_made_is_told_at_once() {
    let server = FakeServer::start("127.0.0.1").await;
    let (running, turn) = replacing(&server).await;
    let before = running.connected().await;
    server.kill();
    before.suspect();
    tokio::time::pause();
    let view = running.disconnected().await;
    tokio::time::resume();
    let trouble = view.trouble.unwrap();
    assert_eq!(trouble.reason, NotConnectedReason::ConnectionRefused);
    assert_eq!((view.next_attempt, view.disconnects), (None, 1));
    within(before.lost().cancelled()).await;

    // It goes on, and is not begun anew.
    server.revive().await;
    drop(turn);
    let after = running.connected().await;
    assert!(after.lists_anew);
    assert_eq!((after.generation, after.epoch), (2, 1));
    let connects = running.accessor.status().connects;
    assert_eq!((connects.succeeded, connects.failed), (2, 0));
    assert_eq!(planned::visits("connect"), 2);
}

#[tokio::test]
async fn another_cluster_is_noticed_while_another_connection_is_made() {
    let server = FakeServer::start("127.0.0.1").await;
    let (running, turn) = replacing(&server).await;
    let before = running.connected().await;
    server.change(|script| script.uid = Some("uid-2".to_owned()));
    before.epoch_ended();
    within(before.lost().cancelled()).await;
    drop(turn);
    let after = running.connected().await;
    assert!(after.lists_anew);
    assert_eq!((after.generation, after.epoch), (2, 2));
    // What the attempt has heard may be of the cluster before.
    assert_eq!(planned::visits("connect"), 3);
}

#[tokio::test]
async fn a_refused_credential_is_noticed_while_another_connection_is_made() {
    let server = FakeServer::start("127.0.0.1").await;
    let (running, _turn) = replacing(&server).await;
    let before = running.connected().await;
    server.change(|script| {
        script.public_probe = true;
        script.accepted = Some("Bearer other".to_owned());
    });
    before.credential_rejected();
    let view = running.disconnected().await;
    let trouble = view.trouble.unwrap();
    assert_eq!(trouble.reason, NotConnectedReason::Unauthorized);
    assert_eq!(view.next_attempt, None);
}

#[tokio::test]
async fn the_credential_for_another_server_is_not_shown_to_the_one_before() {
    let (server, other) = (
        FakeServer::start("127.0.0.1").await,
        FakeServer::start("127.0.0.1").await,
    );
    let (running, _turn) = replacing(&server).await;
    let before = running.connected().await;
    let mut config = config_of(&other);
    config.credential = CredentialConfig::Token("other".into());
    running.accessor.update(config);
    attempts(3).await;
    server.change(|script| {
        script.public_probe = true;
        script.accepted = Some("Bearer other".to_owned());
    });
    before.credential_rejected();
    let view = running.disconnected().await;
    assert_eq!(
        view.trouble.unwrap().reason,
        NotConnectedReason::Unauthorized
    );
    assert_eq!(before.credential_number(), 0);
}

/// A token is revoked, and whoever did that asks for a refresh: the attempt may have the old one, and so has the connection.
#[tokio::test]
async fn another_credential_is_used_at_once_while_a_fresh_start_is_made() {
    let (_dir, path, server, config) = server_and_token_file("0").await;
    let (running, turn) = replacing_of(config).await;
    let before = running.connected().await;
    server.change(|script| script.accepted = Some("Bearer 1".to_owned()));
    std::fs::write(&path, "1").unwrap();
    let number = before.credential_number();
    before.credential_rejected();
    assert!(within(before.another_credential(number)).await);
    get(&before, "/x").await.unwrap();
    drop(turn);
    running.until(|view| view.generation == 2).await;
    assert_eq!(running.accessor.status().disconnects, 0);
    // Whoever has the old one still is led to the new one.
    let after = running.connected().await;
    assert!(Arc::ptr_eq(&before.successor().unwrap(), &after));
    assert!(after.successor().is_none());
}

#[tokio::test]
async fn health_is_told_while_another_connection_is_made() {
    let server = FakeServer::start("127.0.0.1").await;
    let (running, turn) = replacing(&server).await;
    let before = running.connected().await;
    server.change(|script| script.probe = StatusCode::SERVICE_UNAVAILABLE);
    before.suspect();
    running.until(|view| view.consecutive_failures >= 1).await;
    server.change(|script| script.probe = StatusCode::OK);
    drop(turn);
    running.until(|view| view.generation == 2).await;
    assert_eq!(running.accessor.status().disconnects, 0);
}

#[tokio::test]
async fn refreshes_while_one_is_under_way_are_one() {
    let server = FakeServer::start("127.0.0.1").await;
    let (running, turn) = replacing(&server).await;
    for _ in 0..10 {
        running.accessor.refresh();
        others_have_acted().await;
    }
    assert_eq!(planned::visits("connect"), 2);
    drop(turn);
    running.until(|view| view.generation == 2).await;
    others_have_acted().await;
    assert_eq!(planned::visits("connect"), 2);
    // The next one is another.
    running.accessor.refresh();
    running.until(|view| view.generation == 3).await;
}

/// Among them the one that comes by itself: it may have begun long before what was wrong was put right.
#[tokio::test]
async fn a_refresh_does_not_wait_for_an_attempt_that_nobody_asked_for() {
    planned::plan("connect", 0);
    let server = FakeServer::start("127.0.0.1").await;
    let limit = ConnectLimit::new(1);
    let mut config = config_of(&server);
    config.timing.backoff_min = Duration::from_millis(10);
    let running = Running::start_under(&limit, config);
    let before = running.connected().await;
    let turn = Turn::take(limit, false).await;
    server.kill();
    before.suspect();
    running.disconnected().await;
    attempts(2).await;
    running.accessor.refresh();
    attempts(3).await;
    // Now it is somebody's.
    for _ in 0..10 {
        running.accessor.refresh();
        others_have_acted().await;
    }
    assert_eq!(planned::visits("connect"), 3);
    server.revive().await;
    drop(turn);
    running.connected().await;
}

#[tokio::test]
async fn refreshes_in_vain_do_not_put_off_the_next_try() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.timing.backoff_min = Duration::from_secs(60);
    config.timing.backoff_max = Duration::from_secs(3600);
    let running = Running::start(config);
    let before = running.connected().await;
    server.kill();
    before.suspect();
    running.disconnected().await;
    for tries in 1..=8 {
        running.accessor.refresh();
        running.until(|view| view.connects.failed == tries).await;
    }
    let next = running
        .until(|view| view.next_attempt.is_some())
        .await
        .next_attempt
        .unwrap();
    assert!(next <= tokio::time::Instant::now() + Duration::from_secs(60));
}

#[tokio::test]
async fn a_refresh_in_vain_asks_whether_the_connection_from_before_works() {
    let (old, new) = (
        FakeServer::start("127.0.0.1").await,
        FakeServer::start("127.0.0.1").await,
    );
    let mut config = config_of(&old);
    config.timing.backoff_min = Duration::from_secs(3600);
    config.timing.backoff_max = Duration::from_secs(3600);
    config.timing.probe_interval = Duration::from_secs(3600);
    let running = Running::start(config.clone());
    running.connected().await;
    new.kill();
    config.endpoint = config_of(&new).endpoint;
    running.accessor.update(config);
    let view = running.until(|view| view.connects.failed == 1).await;
    assert_eq!(view.probes_ok, 1);
    running.accessor.refresh();
    let view = running.until(|view| view.connects.failed == 2).await;
    assert!(view.not_replaced.is_some());
    running.until(|view| view.probes_ok == 2).await;
    old.change(|script| script.probe = StatusCode::SERVICE_UNAVAILABLE);
    running.accessor.refresh();
    running.until(|view| view.probe_failure.is_some()).await;
}
