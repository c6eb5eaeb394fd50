//! Versions that are over, and watches that end with them.

use super::*;

#[tokio::test]
async fn another_list_ends_watches_and_what_was_before_it_is_expired() {
    let mut kind = Kind::listed(&["n/a"]);
    kind.put("n/b", 12);
    let mut watcher = kind.watch(Some(10)).unwrap();
    assert_eq!(told(&mut watcher), "+n/b@12");
    // Before the first list of all nothing was told: the server may know.
    assert_eq!(kind.watch(Some(9)).unwrap_err(), NotWatchable::TooOld);
    kind.list(&["n/a"], 20);
    assert_eq!(told(&mut watcher), ".");
    let expired = kind.watch(Some(19)).unwrap_err();
    assert_eq!(expired, NotWatchable::Expired(rv(20)));
    kind.put("n/c", 21);
    assert_eq!(told(&mut kind.watch(Some(20)).unwrap()), "+n/c@21");
}

#[tokio::test]
async fn versions_of_a_former_epoch_are_expired_though_they_are_higher() {
    let mut kind = Kind::listed(&["n/a"]);
    kind.put("n/b", 1000);
    let mut watcher = kind.watch(Some(10)).unwrap();
    kind.informer.clear();
    assert_eq!(told(&mut watcher), ".");
    let not_synced = NotWatchable::NotServable(NotServable::NotSynced);
    // Not even before anything of the new epoch is known.
    let expired = kind.watch(Some(1000)).unwrap_err();
    assert_eq!(expired, NotWatchable::Expired(rv(1000)));
    assert_eq!(kind.watch(Some(1001)).unwrap_err(), not_synced);
    assert_eq!(kind.watch(None).unwrap_err(), not_synced);
    kind.list(&["n/a"], 50);
    for (after, expected) in [
        (49, Err(NotWatchable::Expired(rv(50)))),
        (50, Ok(())),
        (1000, Err(NotWatchable::Expired(rv(50)))),
        (1001, Ok(())),
    ] {
        let watch = kind.watch(Some(after)).map(drop);
        assert_eq!(watch, expected, "{after}");
    }
}

/// Whose versions memory holds is known only once the informer has resumed: another cluster would take one that is too old
/// for this one's memory for a version that is yet to come.
#[tokio::test(start_paused = true)]
async fn a_version_is_not_judged_before_the_cluster_is_known() {
    let mut kind = Kind::listed(&[]);
    kind.put("n/a", 11);
    tokio::time::advance(Duration::from_secs(301)).await;
    kind.informer.history().trim();
    let informer = Arc::clone(&kind.informer);
    let watch = |after| {
        let watch = informer.watch_after(GENERATION, ALL, rv(after));
        watch.map(|watch| watch.map(drop))
    };
    assert_eq!(watch(10).await, Err(NotWatchable::TooOld));

    informer.suspend();
    let mut resumed = Box::pin(watch(10));
    assert_eq!((&mut resumed).now_or_never(), None);
    kind.publish();
    assert_eq!(resumed.await, Err(NotWatchable::TooOld));

    // Who has the new cluster's list already, has its version from there.
    informer.clear();
    let mut listed = Box::pin(watch(11));
    assert_eq!((&mut listed).now_or_never(), None);
    kind.list(&[], 11);
    assert_eq!(listed.await, Ok(()));

    informer.clear();
    assert_eq!(watch(11).await, Err(NotWatchable::Expired(rv(11))));
}

#[tokio::test]
async fn versions_do_not_expire_with_their_informer() {
    let kind = Kind::listed(&["n/a"]);
    let mut watcher = kind.watch(Some(10)).unwrap();
    kind.informer.close();
    assert_eq!(told(&mut watcher), ".");
    let not_synced = NotWatchable::NotServable(NotServable::NotSynced);
    assert_eq!(kind.watch(Some(10)).unwrap_err(), not_synced);
    let page = kind.informer.read_exact((GENERATION, EPOCH), ALL, rv(10));
    assert_eq!(page.unwrap_err(), NotServable::NotSynced);
}

#[tokio::test]
async fn another_cluster_may_not_write_bookmarks_as_the_one_before() {
    let mut kind = Kind::listed(&[]);
    let form = BookmarkForm::learn(END, "9").unwrap();
    kind.informer.history().learn_bookmark(form, true);
    assert!(kind.informer.streams_lists());
    kind.list(&[], 20);
    assert!(kind.informer.streams_lists());
    kind.informer.clear();
    assert!(!kind.informer.streams_lists());
}
