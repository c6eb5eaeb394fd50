//! Whatever the next questions are about, these hold for them.

use std::sync::atomic::AtomicUsize;

use tokio::sync::Semaphore;

use super::*;
use crate::upstream::fake::within;

type Reviews = Facts<&'static str, bool, &'static str>;

fn reviews() -> Arc<Reviews> {
    Facts::new(1000, |_, _| 1)
}

/// A server that counts what it is asked, and answers when it is let.
#[derive(Clone, Default)]
struct Server {
    asked: Arc<AtomicUsize>,
    may_answer: Option<Arc<Semaphore>>,
}

impl Server {
    fn slow() -> Self {
        Self {
            may_answer: Some(Arc::new(Semaphore::new(0))),
            ..Self::default()
        }
    }

    fn let_answer(&self) {
        self.may_answer.as_ref().unwrap().add_permits(1);
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Allows for ten seconds, denies for two.
    fn ask(
        &self,
        answer: Result<bool, &'static str>,
    ) -> impl Future<Output = Result<(bool, Option<Instant>), &'static str>> + Send + use<> {
        let server = self.clone();
        async move {
            server.asked.fetch_add(1, Ordering::Relaxed);
            if let Some(may_answer) = &server.may_answer {
                may_answer.acquire().await.unwrap().forget();
            }
            let ttl = |allowed| Duration::from_secs(if allowed { 10 } else { 2 });
            answer.map(|allowed| (allowed, Some(Instant::now() + ttl(allowed))))
        }
    }
}

/// Polls it until it waits for somebody else.
async fn begin<T>(future: &mut (impl Future<Output = T> + Unpin)) {
    for _ in 0..10 {
        assert!(future.now_or_never().is_none());
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_allow_and_a_deny_are_known_each_for_its_time() {
    let (server, facts) = (Server::default(), reviews().of_cluster());
    for (after, asked, known) in [
        (0, 2, [Some(true), Some(false)]),
        (1, 2, [Some(true), Some(false)]),
        (1, 3, [Some(true), None]),
        (7, 4, [Some(true), None]),
        (1, 5, [None, Some(false)]),
    ] {
        tokio::time::advance(Duration::from_secs(after)).await;
        if after > 0 {
            assert_eq!([facts.get(&"alice"), facts.get(&"bob")], known, "{asked}");
        }
        for (who, allowed) in [("alice", true), ("bob", false)] {
            let answer = facts.get_or_ask(who, server.ask(Ok(allowed))).await;
            assert_eq!(answer, Ok(allowed));
        }
        assert_eq!(server.asked(), asked);
    }
}

#[tokio::test]
async fn equal_questions_are_asked_once_and_others_do_not_wait() {
    let (server, facts) = (Server::slow(), reviews().of_cluster());
    let ask = |who| facts.get_or_ask(who, server.ask(Ok(true)));
    let mut many: Vec<_> = (0..100).map(|_| Box::pin(ask("alice"))).collect();
    for one in &mut many {
        begin(one).await;
    }
    assert_eq!(server.asked(), 1);
    let quick = Server::default();
    assert_eq!(
        facts.get_or_ask("bob", quick.ask(Ok(false))).await,
        Ok(false)
    );
    server.let_answer();
    for one in many {
        assert_eq!(within(one).await, Ok(true));
    }
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn who_asked_first_may_go_away() {
    let (server, facts) = (Server::slow(), reviews().of_cluster());
    // More often than moka's own joining bears.
    for _ in 0..500 {
        begin(&mut Box::pin(
            facts.get_or_ask("alice", server.ask(Ok(true))),
        ))
        .await;
    }
    let mut waiting = Box::pin(facts.get_or_ask("alice", server.ask(Ok(true))));
    begin(&mut waiting).await;
    assert_eq!(server.asked(), 1);
    server.let_answer();
    assert_eq!(within(waiting).await, Ok(true));
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_is_kept_all_the_same() {
    let (server, facts) = (Server::slow(), reviews().of_cluster());
    begin(&mut Box::pin(
        facts.get_or_ask("alice", server.ask(Ok(true))),
    ))
    .await;
    server.let_answer();
    within(async {
        while facts.get(&"alice").is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_failure_is_told_to_all_who_wait_and_kept_for_nobody() {
    let (server, facts) = (Server::slow(), reviews().of_cluster());
    let mut first = Box::pin(facts.get_or_ask("alice", server.ask(Err("no answer"))));
    let mut second = Box::pin(facts.get_or_ask("alice", server.ask(Ok(true))));
    begin(&mut first).await;
    begin(&mut second).await;
    server.let_answer();
    let failed = || Err(NoFact::Failed("no answer"));
    assert_eq!(
        (within(first).await, within(second).await),
        (failed(), failed())
    );
    assert_eq!(facts.get(&"alice"), None);
    server.let_answer();
    let answer = facts.get_or_ask("alice", server.ask(Ok(true))).await;
    assert_eq!((answer, server.asked()), (Ok(true), 2));
}

#[tokio::test]
async fn a_question_that_panics_leaves_the_way_free() {
    let (server, facts) = (Server::default(), reviews().of_cluster());
    let panics = async { panic!("a bug in a question") };
    assert_eq!(facts.get_or_ask("alice", panics).await, Err(NoFact::Ended));
    let answer = facts.get_or_ask("alice", server.ask(Ok(true))).await;
    assert_eq!(answer, Ok(true));
}

#[tokio::test]
async fn a_flush_is_of_one_cluster_and_of_what_is_being_asked_too() {
    let (server, reviews) = (Server::default(), reviews());
    let (a, b) = (reviews.of_cluster(), reviews.of_cluster());
    for (cluster, allowed) in [(&a, true), (&b, false)] {
        let answer = cluster.get_or_ask("alice", server.ask(Ok(allowed))).await;
        assert_eq!(answer, Ok(allowed), "clusters have facts of their own");
    }
    let slow = Server::slow();
    let mut waiting = Box::pin(a.get_or_ask("bob", slow.ask(Ok(true))));
    begin(&mut waiting).await;
    a.flush();
    assert_eq!(within(waiting).await, Err(NoFact::Ended));
    assert_eq!([a.get(&"alice"), b.get(&"alice")], [None, Some(false)]);
    // Bob's question is asked anew, although the old one may not have ended.
    let mut waiting = Box::pin(a.get_or_ask("bob", slow.ask(Ok(false))));
    begin(&mut waiting).await;
    assert_eq!(slow.asked(), 2);
    slow.let_answer();
    assert_eq!(within(waiting).await, Ok(false));
    assert_eq!(a.get(&"bob"), Some(false));
}

#[tokio::test]
async fn a_cluster_that_goes_leaves_no_fact_and_no_question() {
    let reviews = reviews();
    let (stays, goes) = (reviews.of_cluster(), reviews.of_cluster());
    stays.put("alice", true, None);
    for who in ["alice", "bob"] {
        goes.put(who, true, None);
    }
    let server = Server::slow();
    begin(&mut Box::pin(
        goes.get_or_ask("carol", server.ask(Ok(true))),
    ))
    .await;
    reviews.known.run_pending_tasks();
    assert_eq!(reviews.known.weighted_size(), 3);
    drop(goes);
    assert_eq!(reviews.known.weighted_size(), 1);
    assert!(reviews.asked.lock().is_empty());
    // The question's own task ends: nobody holds its server but this test.
    within(async {
        while Arc::strong_count(&server.asked) > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(stays.get(&"alice"), Some(true));
}

#[tokio::test]
async fn past_the_weight_the_least_recently_read_are_forgotten() {
    let facts: Arc<Facts<u32, u32, ()>> = Facts::new(100, |_, weight| *weight);
    let cluster = facts.of_cluster();
    for key in 0..10 {
        cluster.put(key, 10, None);
        facts.known.run_pending_tasks();
    }
    assert_eq!(cluster.get(&0), Some(10));
    cluster.put(10, 15, None);
    facts.known.run_pending_tasks();
    let known: Vec<_> = (0..=10).filter(|key| cluster.get(key).is_some()).collect();
    assert_eq!(known, [0, 3, 4, 5, 6, 7, 8, 9, 10]);
}

#[tokio::test(start_paused = true)]
async fn what_has_no_end_is_known_until_it_is_forgotten() {
    let facts = reviews().of_cluster();
    facts.put("alice", true, None);
    tokio::time::advance(Duration::from_secs(1 << 30)).await;
    assert_eq!(facts.get(&"alice"), Some(true));
    facts.put("alice", false, None);
    assert_eq!(facts.get(&"alice"), Some(false));
    facts.forget(&"alice");
    assert_eq!(facts.get(&"alice"), None);
}

/// The drop of a question must not meet the lock that its asker holds.
#[test]
fn a_runtime_that_shuts_down_ends_questions() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let facts = Arc::new(reviews().of_cluster());
    let asking = Arc::clone(&facts);
    runtime.spawn(async move {
        loop {
            let answer = asking
                .get_or_ask("alice", std::future::pending())
                .now_or_never();
            assert!(answer.is_none_or(|answer| answer == Err(NoFact::Ended)));
            asking.flush();
            tokio::task::yield_now().await;
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(60));
    assert!(facts.facts.asked.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_holder_has_its_share_and_pushes_out_no_others() {
    // By the first character.
    let holder = |key: &String| u64::from(key.as_bytes()[0]);
    let all: Arc<Facts<String, (), ()>> = Facts::in_shares(12, |_, ()| 1, 4, holder);
    let facts = all.of_cluster();
    let count = |holder: &str| {
        let names = (0..50).map(|at| format!("{holder}{at}"));
        names.filter(|name| facts.get(name).is_some()).count()
    };
    facts.put("b0".to_owned(), (), None);
    for at in 0..50 {
        facts.put(format!("a{at}"), (), None);
        all.known.run_pending_tasks();
    }
    assert_eq!((count("a"), count("b")), (4, 1));
    // What is there may be put anew, and what goes makes room.
    facts.put("a0".to_owned(), (), None);
    assert_eq!(count("a"), 4);
    facts.forget(&"a0".to_owned());
    for at in 40..50 {
        let asked = async { Ok(((), None)) };
        facts.get_or_ask(format!("a{at}"), asked).await.unwrap();
    }
    assert_eq!((count("a"), count("b")), (4, 1));
    facts.flush();
    all.known.run_pending_tasks();
    assert!(all.shares.as_ref().unwrap().held.lock().is_empty());
}
