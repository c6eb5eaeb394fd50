//! What a reader may have, and for what it waits.

use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::envelope::Envelope;
use crate::gvr::Gvr;
use crate::store::Store;

const ANY: Scope = Scope {
    namespace: false,
    name: false,
};

fn rv(number: u64) -> ResourceVersion {
    ResourceVersion::from_number(number)
}

fn snapshot(at: u64) -> Arc<Snapshot> {
    let body = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
    let envelope = Arc::new(Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope);
    let mut store = Store::default();
    store.complete(rv(at));
    store.snapshot(&envelope)
}

/// Synced at version 5, in generation 1 of epoch 1.
fn informer() -> Informer {
    let gvr = Gvr::new("", "v1", "pods");
    let informer = Informer::new(gvr, Arc::default(), CancellationToken::new());
    informer.publish((1, 1), true, snapshot(5));
    informer
}

fn asked(informer: &Informer) -> u64 {
    informer.questions().asked().borrow().ticket
}

#[tokio::test]
async fn a_consistent_read_waits_for_the_answer_and_for_the_state() {
    let informer = informer();
    let mut read = Box::pin(informer.read_consistent((1, 1), ANY));
    assert!((&mut read).now_or_never().is_none(), "nobody has answered");
    informer.publish((1, 1), true, snapshot(6));
    assert!((&mut read).now_or_never().is_none(), "6 may be too old");
    informer
        .questions()
        .answer(asked(&informer), 1, Some(rv(8)));
    assert!((&mut read).now_or_never().is_none(), "6 is too old");
    informer.publish((1, 1), true, snapshot(8));
    let held = read.now_or_never().unwrap().unwrap();
    assert_eq!(held.resource_version, rv(8));
    assert_eq!(
        informer.floor().told(1),
        rv(8),
        "the next reader sees no less"
    );
}

#[tokio::test(start_paused = true)]
async fn a_consistent_read_gives_up() {
    let informer = informer();
    let started = Instant::now();
    let read = informer.read_consistent((1, 1), ANY).await;
    assert_eq!(read.unwrap_err(), NotServable::Unproven);
    assert_eq!(started.elapsed(), CONSISTENT_WAIT);
    let mut read = Box::pin(informer.read_consistent((1, 1), ANY));
    assert!((&mut read).now_or_never().is_none());
    informer.questions().answer(asked(&informer), 1, None);
    let read = read.now_or_never().expect("at once");
    assert_eq!(read.unwrap_err(), NotServable::Unproven);
}

#[tokio::test]
async fn a_consistent_read_ends_with_its_connection_and_its_informer() {
    let informer = informer();
    let mut read = Box::pin(informer.read_consistent((1, 1), ANY));
    assert!((&mut read).now_or_never().is_none());
    informer.suspend();
    informer.publish((2, 1), true, snapshot(9));
    let read = read.now_or_never().unwrap();
    assert_eq!(read.unwrap_err(), NotServable::NotSynced);
    let mut read = Box::pin(informer.read_consistent((2, 1), ANY));
    assert!((&mut read).now_or_never().is_none());
    informer.stopped().cancel();
    let read = read.now_or_never().unwrap();
    assert_eq!(read.unwrap_err(), NotServable::NotSynced);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_the_floor_in_vain_asks_to_catch_up_once() {
    let informer = informer();
    let catch_ups = || informer.questions().asked().borrow().catch_ups;
    informer.floor().raise(1, rv(7));
    for _ in 0..3 {
        let read = informer.read_latest((1, 1), ANY).await;
        assert_eq!(read.unwrap_err(), NotServable::BelowFloor);
        assert_eq!(catch_ups(), 1);
    }
    informer.publish((1, 1), true, snapshot(7));
    assert!(informer.read_latest((1, 1), ANY).await.is_ok());
}

#[test]
fn the_last_known_state_outlives_its_connection_but_not_its_epoch() {
    let informer = informer();
    informer.suspend();
    assert!(informer.read_any((1, 1), ANY).is_err());
    let held = informer.read_last_known(1, ANY).unwrap();
    assert_eq!(held.resource_version, rv(5));
    assert_eq!(
        informer.floor().told(1),
        rv(0),
        "nobody is told that it is new"
    );
    assert!(informer.read_last_known(2, ANY).is_err());
    informer.clear();
    assert!(informer.read_last_known(1, ANY).is_err());
    assert!(
        informer.read_last_known(0, ANY).is_err(),
        "it holds nothing"
    );
}
