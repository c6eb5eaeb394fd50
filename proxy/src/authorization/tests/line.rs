//! More questions than a cluster is asked at once.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_flood_of_users_is_no_flood_of_questions() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let access = clusters.access("a", &alice());
    cluster.hold();
    let many: Vec<_> = (0..2100)
        .map(|at| access.by(user(&format!("u{at}"), &[])))
        .collect();
    let question = pod("x");
    let mut asking: Vec<_> = many
        .iter()
        .map(|one| Box::pin(one.ask_it(&cluster, &question)))
        .collect();
    let mut unknown = 0;
    let mut in_line = Vec::new();
    for mut one in asking.drain(..) {
        let mut answered = false;
        for _ in 0..10 {
            if let Some(verdict) = one.as_mut().now_or_never() {
                assert_eq!(verdict, Verdict::Unknown);
                unknown += 1;
                answered = true;
                break;
            }
            tokio::task::yield_now().await;
        }
        if !answered {
            in_line.push(one);
        }
    }
    assert_eq!((cluster.asked(), unknown), (64, 52));
    // The others have their turn.
    for _ in 0..in_line.len() {
        cluster.let_answer();
    }
    for one in in_line {
        assert!(matches!(one.await, Verdict::Allowed { .. }));
    }
    assert_eq!(cluster.asked(), 2048);
}

#[tokio::test(start_paused = true)]
async fn one_user_leaves_room_in_the_line_for_others() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let access = clusters.access("a", &alice());
    cluster.hold();
    let began = Instant::now();
    let questions: Vec<_> = (0..1100)
        .map(|at| get(&format!("k{at}"), "default", "x"))
        .collect();
    let asking = questions
        .iter()
        .map(|question| access.ask_it(&cluster, question));
    let asking = join_all(asking);
    // By another credential it is the same user.
    let same = access.by(user("alice", &["other"]));
    let bob = access.by(user("bob", &[]));
    let others = async {
        tokio::task::yield_now().await;
        let refused = same.ask_it(&cluster, &pod("x")).await;
        assert_eq!((refused, Instant::now()), (Verdict::Unknown, began));
        let question = pod("x");
        let asking = bob.ask_it(&cluster, &question);
        (0..1025).for_each(|_| cluster.let_answer());
        assert!(matches!(asking.await, Verdict::Allowed { .. }));
    };
    let (verdicts, ()) = tokio::join!(asking, others);
    let unknown = verdicts.iter().filter(|it| **it == Verdict::Unknown);
    assert_eq!((unknown.count(), cluster.asked()), (1100 - 1024, 1025));
}

#[tokio::test(start_paused = true)]
async fn who_is_in_line_for_too_long_goes_live() {
    let (clusters, cluster) = (Clusters::start(&["a"]), Cluster::that(cluster_wide));
    let access = clusters.access("a", &alice());
    cluster.hold();
    let many: Vec<_> = (0..65)
        .map(|at| access.by(user(&format!("u{at}"), &[])))
        .collect();
    let question = pod("x");
    let began = Instant::now();
    let asking = many.iter().map(|one| one.ask_it(&cluster, &question));
    let verdicts = join_all(asking).await;
    assert!(verdicts.iter().all(|it| *it == Verdict::Unknown));
    assert_eq!(Instant::now() - began, Duration::from_secs(5));
}
