//! What becomes of a cluster whose owner panics, and of the others.

use super::*;
use crate::cluster_accessor::NotConnectedReason;

#[tokio::test]
async fn an_owner_that_panics_tells_so_and_connects_again() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.timing.backoff_min = Duration::from_millis(10);
    let other = Running::start(config.clone());
    let untouched = other.connected().await;

    planned::plan("connect", 1);
    let running = Running::start(config);
    let view = running.disconnected().await;
    let trouble = view.trouble.unwrap();
    assert_eq!(trouble.reason, NotConnectedReason::InternalError);
    assert!(view.next_attempt.is_some());
    let before = running.connected().await;
    assert_eq!(planned::visits("connect"), 2);

    // While it serves: what was published may be half changed, and is not served on.
    planned::plan("connect", 1);
    running.accessor.refresh();
    let view = running.disconnected().await;
    let trouble = view.trouble.unwrap();
    assert_eq!(trouble.reason, NotConnectedReason::InternalError);
    assert_eq!(view.disconnects, 1);
    assert!(before.lost().is_cancelled());
    let after = running.connected().await;
    // The fresh start that was asked for is made.
    assert!(after.lists_anew);
    assert_eq!((after.generation, after.epoch), (2, 1));
    get(&after, "/x").await.unwrap();

    assert!(!untouched.closed().is_cancelled());
    let status = other.accessor.status();
    assert_eq!((status.generation, status.disconnects), (1, 0));
}
