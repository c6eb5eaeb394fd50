use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use super::*;
use crate::documents::DocumentKey;
use crate::panics::planned;

/// A document that nobody fetches but this test.
fn key() -> DocumentKey {
    DocumentKey {
        path: "/apis/apps".to_owned(),
        accept: String::new(),
        indented: false,
    }
}

fn keep(running: &Running, epoch: u64) {
    let documents = running.accessor.documents();
    documents.keep(epoch, &key(), Instant::now(), &HeaderMap::new(), b"{}");
}

fn paths(server: &FakeServer) -> Vec<String> {
    let seen = server.seen.borrow();
    let targets = seen.iter().map(|seen| seen.target.clone());
    let fetched = targets.filter(|path| ["/api", "/apis", "/version"].contains(&path.as_str()));
    fetched.collect()
}

#[tokio::test]
async fn what_every_client_asks_first_is_fetched_at_each_connect() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.timing.backoff_min = Duration::from_millis(50);
    let running = Running::start(config);
    let connection = running.connected().await;
    running.documents_fetched().await;
    assert_eq!(paths(&server), ["/api", "/apis", "/version"]);
    for path in ["/api", "/apis", "/version"] {
        assert_eq!(running.accessor.documents().of_path(path).len(), 1);
    }
    keep(&running, 1);

    // Down and up again: what was held stays, and is asked for anew.
    server.kill();
    connection.suspect();
    running.disconnected().await;
    assert_eq!(running.accessor.documents().of_path("/apis").len(), 1);
    server.revive().await;
    running.connected().await;
    fetched(&server, 2).await;
    assert!(running.accessor.documents().get(1, &key()).is_some());
}

#[tokio::test]
async fn another_version_of_the_server_is_a_reason_to_fetch_again() {
    let server = FakeServer::start("127.0.0.1").await;
    let running = Running::start(config_of(&server));
    running.connected().await;
    running.documents_fetched().await;
    // As `kubectl version` finds it, behind an address that never went away.
    let key = DocumentKey {
        path: "/version".to_owned(),
        accept: "application/json, */*".to_owned(),
        indented: false,
    };
    let documents = running.accessor.documents();
    documents.keep(1, &key, Instant::now(), &HeaderMap::new(), b"another");
    fetched(&server, 2).await;
}

/// Waits until all was fetched so often.
async fn fetched(server: &FakeServer, times: usize) {
    within(async {
        while paths(server).len() < 3 * times {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn another_epoch_begins_without_documents() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.timing.backoff_min = Duration::from_millis(50);
    let running = Running::start(config);
    let connection = running.connected().await;
    keep(&running, 1);

    // Another uid, found at the next connect.
    server.change(|script| script.uid = Some("uid-2".to_owned()));
    server.kill();
    connection.suspect();
    running.disconnected().await;
    assert_eq!(running.accessor.documents().of_path("/apis/apps").len(), 1);
    server.revive().await;
    let again = running.connected().await;
    assert_eq!(again.epoch, 2);
    assert!(
        running
            .accessor
            .documents()
            .of_path("/apis/apps")
            .is_empty()
    );

    // Told by an informer: nothing is answered from then on.
    keep(&running, 2);
    again.epoch_ended();
    within(again.closed().cancelled()).await;
    assert!(
        running
            .accessor
            .documents()
            .of_path("/apis/apps")
            .is_empty()
    );
}

#[tokio::test]
async fn documents_are_fetched_after_a_panic() {
    planned::plan("documents", 1);
    let server = FakeServer::start("127.0.0.1").await;
    let running = Running::start(config_of(&server));
    running.connected().await;
    running.documents_fetched().await;
    assert_eq!(planned::visits("documents"), 2);
}
