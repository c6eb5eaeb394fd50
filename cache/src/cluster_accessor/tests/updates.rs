//! What a changed configuration does to a cluster at work.

use secrecy::SecretString;

use super::*;

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
    running
        .until(|view| view.state == ConnectionState::Connecting)
        .await;
    // The new one has not answered: the old one serves.
    assert_eq!(running.accessor.connected().await.unwrap().generation, 1);
    assert!(!before.closed().is_cancelled());
    new.change(|script| script.mute = false);
    let after = running.connected().await;
    assert_eq!(
        (after.generation, after.epoch),
        (2, 1),
        "the uid is the same"
    );
    assert!(before.closed().is_cancelled() && before.replaced().is_cancelled());
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
