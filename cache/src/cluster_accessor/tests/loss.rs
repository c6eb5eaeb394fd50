//! How a loss is noticed, and what follows it.

use std::time::Instant;

use http::StatusCode;

use super::*;
use crate::cluster_accessor::NotConnectedReason;

fn fast_probes(config: &mut ClusterConfig) {
    config.timing.probe_interval = Duration::from_millis(50);
    config.timing.probe_timeout = Duration::from_millis(200);
}

/// An owner that tries again soon.
fn start_impatient(server: &FakeServer) -> Running {
    let mut config = config_of(server);
    config.timing.backoff_min = Duration::from_millis(50);
    Running::start(config)
}

/// Each question is answered 403, the probe too.
fn forbid_everything(server: &FakeServer) {
    server.change(|script| {
        script.probe = StatusCode::FORBIDDEN;
        script.uid = None;
    });
}

impl Running {
    /// Takes the server away, and waits until that is noticed.
    async fn lose(&self, server: &FakeServer, connection: &Connection) {
        server.kill();
        connection.suspect();
        self.disconnected().await;
    }
}

#[tokio::test]
async fn a_killed_server_is_noticed_in_about_a_second_and_found_again() {
    let server = FakeServer::start("127.0.0.1").await;
    let running = start_impatient(&server);
    let connection = running.connected().await;
    server.kill();
    let start = Instant::now();
    let error = get(&connection, "/x").await.unwrap_err();
    running.disconnected().await;
    // Three refusals, 250 ms apart.
    assert!(start.elapsed() < Duration::from_secs(2), "{error:?}");
    assert!(connection.closed().is_cancelled());
    let why = running.accessor.connected().await.unwrap_err();
    assert_eq!(why.reason, NotConnectedReason::ConnectionRefused);
    assert_eq!(why.message, "connection refused");

    server.revive().await;
    let again = running.connected().await;
    assert_eq!((again.generation, again.epoch), (2, 1));
    get(&again, "/x").await.unwrap();
}

#[tokio::test]
async fn a_broken_informer_connection_is_noticed_without_a_request() {
    let server = FakeServer::start("127.0.0.1").await;
    let running = Running::start(config_of(&server));
    let connection = running.connected().await;
    let shard = connection.informer_shard();
    let request = connection.informer_request("/x", "*/*");
    connection.send_informer(&shard, request).await.unwrap();
    let start = Instant::now();
    server.kill();
    running.disconnected().await;
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn a_server_gone_mute_is_noticed_by_probes() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    fast_probes(&mut config);
    let running = Running::start(config);
    let connection = running.connected().await;
    server.change(|script| script.mute = true);
    let view = running.disconnected().await;
    assert_eq!(
        view.trouble.unwrap().message,
        "the server did not answer in time"
    );
    assert_eq!(view.consecutive_failures, 3);
    assert!(connection.closed().is_cancelled());
}

#[tokio::test]
async fn a_request_in_flight_when_the_server_dies_was_sent() {
    let server = FakeServer::start("127.0.0.1").await;
    let running = Running::start(config_of(&server));
    let connection = running.connected().await;
    // What is asked of every cluster at first would hold the only connection that a mute server has accepted.
    running.documents_fetched().await;
    server.change(|script| script.mute = true);
    let request = get(&connection, "/x");
    let killed = async {
        server.asked(|seen| seen.target == "/x").await;
        server.kill();
    };
    let (answer, ()) = within(async { tokio::join!(request, killed) }).await;
    assert!(answer.unwrap_err().sent());
    // Nobody listens any more: certainly not sent.
    assert!(!get(&connection, "/y").await.unwrap_err().sent());
}

#[tokio::test]
async fn server_errors_degrade_and_keep_serving() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    fast_probes(&mut config);
    config.timing.probe_failure_threshold = 2;
    let running = Running::start(config);
    let connection = running.connected().await;
    server.change(|script| script.probe = StatusCode::INTERNAL_SERVER_ERROR);
    running
        .until(|view| view.state == ConnectionState::Degraded)
        .await;
    let served = running.accessor.connected().await.unwrap();
    assert_eq!(served.generation, 1);
    get(&served, "/x").await.unwrap();
    let degraded = running.accessor.status();
    assert!(!degraded.last_probe_ok && degraded.not_connected.is_none());
    let (reason, _) = degraded.trouble().unwrap();
    assert_eq!(reason, NotConnectedReason::ServerError);
    server.change(|script| script.probe = StatusCode::FORBIDDEN);
    running
        .until(|view| view.state == ConnectionState::Connected)
        .await;
    assert!(!connection.closed().is_cancelled());
    assert_eq!(running.accessor.status().consecutive_failures, 0);
}

#[tokio::test]
async fn a_server_that_answers_503_from_the_start_is_not_connected() {
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.probe = StatusCode::SERVICE_UNAVAILABLE);
    let view = Running::start(config_of(&server)).disconnected().await;
    assert_eq!(
        view.trouble.unwrap().message,
        "the server answered 503 to the probe"
    );
}

#[tokio::test]
async fn another_uid_starts_an_epoch() {
    let server = FakeServer::start("127.0.0.1").await;
    let running = start_impatient(&server);
    let connection = running.connected().await;
    assert!(connection.is_same_cluster().await.unwrap());
    server.change(|script| script.uid = Some("uid-2".to_owned()));
    assert!(!connection.is_same_cluster().await.unwrap());
    // May not be read: nothing speaks against it.
    server.change(|script| script.uid = None);
    assert!(connection.is_same_cluster().await.unwrap());
    server.change(|script| script.uid = Some("uid-2".to_owned()));

    running.lose(&server, &connection).await;
    server.revive().await;
    let again = running.connected().await;
    assert_eq!((again.generation, again.epoch), (2, 2));
    assert!(again.is_same_cluster().await.unwrap());
}

/// As a kube-apiserver does that has just started and has not read its roles.
#[tokio::test]
async fn a_server_that_forbids_everything_for_a_moment_is_asked_again() {
    let server = FakeServer::start("127.0.0.1").await;
    let running = start_impatient(&server);
    let connection = running.connected().await;
    running.lose(&server, &connection).await;
    forbid_everything(&server);
    let before = server.seen.borrow().len();
    server.revive().await;
    let mut seen = server.seen.subscribe();
    within(seen.wait_for(|seen| seen.len() >= before + 4))
        .await
        .unwrap();
    let status = running.accessor.status();
    assert_eq!(status.generation, 1, "nothing is believed of that");
    server.change(|script| {
        script.probe = StatusCode::OK;
        script.uid = Some("uid-2".to_owned());
    });
    let again = running.connected().await;
    assert_eq!((again.generation, again.epoch), (2, 2));

    // One that goes on so means it.
    running.lose(&server, &again).await;
    forbid_everything(&server);
    server.revive().await;
    let again = running.connected().await;
    assert_eq!((again.generation, again.epoch), (3, 2));
}

/// Before anything is known of it, too: what is believed is that its kinds cannot be kept.
#[tokio::test]
async fn a_server_that_forbids_everything_at_first_is_asked_again_once() {
    let forbids = async || {
        let server = FakeServer::start("127.0.0.1").await;
        forbid_everything(&server);
        server
    };
    let server = forbids().await;
    let running = start_impatient(&server);
    let mut seen = server.seen.subscribe();
    within(seen.wait_for(|seen| seen.len() >= 4)).await.unwrap();
    assert_eq!(running.accessor.status().generation, 0);
    server.change(|script| {
        script.probe = StatusCode::OK;
        script.uid = Some("uid-1".to_owned());
    });
    let connection = running.connected().await;
    assert!(connection.is_same_cluster().await.unwrap());

    // One that always says so is not asked for long each time.
    let server = forbids().await;
    let running = start_impatient(&server);
    let connection = running.connected().await;
    running.lose(&server, &connection).await;
    let before = server.seen.borrow().len();
    server.revive().await;
    running.connected().await;
    let asked = server.seen.borrow().len() - before;
    assert!(asked < 6, "{asked} questions");
}

#[tokio::test]
async fn an_epoch_told_to_have_ended_is_counted_once() {
    let server = FakeServer::start("127.0.0.1").await;
    let running = start_impatient(&server);
    let connection = running.connected().await;
    server.change(|script| script.uid = Some("uid-2".to_owned()));
    connection.epoch_ended();
    within(connection.closed().cancelled()).await;
    let again = running.connected().await;
    assert_eq!((again.generation, again.epoch), (2, 2));
}

#[tokio::test]
async fn on_demand_dials_at_the_first_request_which_waits() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.connect = ConnectPolicy::OnDemand;
    let running = Running::start(config);
    tokio::task::yield_now().await;
    assert_eq!(server.connections(), 0);
    assert_eq!(running.accessor.status().state, ConnectionState::Pending);
    let connection = within(running.accessor.connected()).await.unwrap();
    get(&connection, "/x").await.unwrap();
}

#[tokio::test]
async fn on_demand_does_not_dial_again_by_itself() {
    let server = FakeServer::start("127.0.0.1").await;
    server.kill();
    let mut config = config_of(&server);
    config.connect = ConnectPolicy::OnDemand;
    config.timing.backoff_min = Duration::from_millis(10);
    let running = Running::start(config);
    let why = within(running.accessor.connected()).await.unwrap_err();
    assert_eq!(why.message, "connection refused");
    assert_eq!(why.next_attempt, None, "nobody is promised another try");
    server.revive().await;
    // The one that asks after the pause connects it.
    let _ = running.accessor.connected().await;
    running.connected().await;
}

#[tokio::test]
async fn a_request_that_meets_a_hanging_connect_waits_a_moment_only() {
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.mute = true);
    let running = Running::start(config_of(&server));
    running
        .until(|view| view.state == ConnectionState::Connecting)
        .await;
    let start = Instant::now();
    let why = running.accessor.connected().await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(why.reason, NotConnectedReason::ClusterStarting);
    assert_eq!(why.message, "it is being connected for the first time");
}
