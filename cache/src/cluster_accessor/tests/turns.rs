//! What may wait for a connect, and what a connect waits for.

use futures_util::FutureExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::*;
use crate::cluster_accessor::{NotConnectedReason, Turn, attempt};
use crate::upstream::endpoint::Endpoint;

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_connect_that_waits_for_its_turn() {
    planned::plan("connect", 0);
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.mute = true);
    let limit = ConnectLimit::new(1);
    let turn = Turn::take(limit.clone(), false).await;
    let running = Running::start_under(&limit, config_of(&server));
    attempts(1).await;
    let start = Instant::now();
    let why = running.accessor.connected().await.unwrap_err();
    assert_eq!(why.reason, NotConnectedReason::ClusterStarting);
    assert_eq!(start.elapsed(), Duration::ZERO);
    drop(turn);
    running.until(|view| view.grace > Duration::ZERO).await;
    let start = Instant::now();
    running.accessor.connected().await.unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(40));
}

#[tokio::test]
async fn who_asks_for_a_cluster_on_demand_waits_in_line_too() {
    planned::plan("connect", 0);
    let server = FakeServer::start("127.0.0.1").await;
    let limit = ConnectLimit::new(1);
    let turn = Turn::take(limit.clone(), false).await;
    let mut config = config_of(&server);
    config.connect = ConnectPolicy::OnDemand;
    let running = Running::start_under(&limit, config);
    let first = running.accessor.connected();
    let second = async {
        attempts(1).await;
        let second = running.accessor.connected();
        let turn = async move { drop(turn) };
        tokio::join!(second, turn).0
    };
    let (first, second) = within(async { tokio::join!(first, second) }).await;
    assert_eq!(first.unwrap().generation, 1);
    assert_eq!(second.unwrap().generation, 1);
}

#[tokio::test]
async fn what_waits_for_a_silent_server_speaks_tls_in_its_turn() {
    planned::plan("tls of an endpoint", 0);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let endpoint = Endpoint::new(config(&format!("https://{address}")).endpoint);
    let limit = ConnectLimit::new(1);
    let permit = limit.acquire(false).await;
    let until = Instant::now() + Duration::from_secs(3600);
    let waiting = (0..3).map(|_| {
        let (endpoint, limit) = (Arc::clone(&endpoint), limit.clone());
        tokio::spawn(attempt::answered(endpoint, limit, until))
    });
    let waiting: Vec<_> = waiting.collect();
    let mut accepted = Vec::new();
    for _ in &waiting {
        accepted.push(within(listener.accept()).await.unwrap().0);
    }
    others_have_acted().await;
    assert_eq!(planned::visits("tls of an endpoint"), 0);
    drop(permit);
    for server in &mut accepted {
        // A handshake record.
        assert_eq!(within(server.read_u8()).await.unwrap(), 22);
    }
    // They wait on, without a permit.
    let permit = limit.acquire(true).now_or_never();
    assert!(permit.is_some());
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    for (mut server, waiting) in accepted.into_iter().zip(waiting) {
        server.write_u8(22).await.unwrap();
        within(waiting).await.unwrap();
    }
    assert_eq!(planned::visits("tls of an endpoint"), 1);
}

#[tokio::test]
async fn a_cluster_that_nobody_has_asked_for_says_how_it_is_connected() {
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.mute = true);
    let mut config = config_of(&server);
    config.connect = ConnectPolicy::OnDemand;
    let running = Running::start(config);
    let status = running.accessor.status();
    assert_eq!(status.state, ConnectionState::Pending);
    let why = status.not_connected.unwrap();
    assert_eq!(why.reason, NotConnectedReason::OnDemand);
    assert_eq!(why.reason.class(), "ClusterStarting");
    assert_eq!(
        why.message,
        "it connects at the first request, or by: fleetcache refresh c"
    );
    running.accessor.refresh();
    let view = running
        .until(|view| view.state == ConnectionState::Connecting)
        .await;
    let trouble = view.trouble.unwrap();
    assert_eq!(trouble.reason, NotConnectedReason::ClusterStarting);
}

#[tokio::test]
async fn tls_is_made_once_for_all_attempts() {
    planned::plan("tls of an endpoint", 0);
    let mut config = config("https://127.0.0.1:1");
    config.timing.backoff_min = Duration::from_millis(1);
    config.timing.backoff_max = Duration::from_millis(1);
    let running = Running::start(config);
    running.until(|view| view.connects.failed >= 3).await;
    assert_eq!(planned::visits("tls of an endpoint"), 1);
}
