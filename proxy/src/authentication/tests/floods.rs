//! Tokens that strangers send without end.

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::*;

impl Judged {
    /// What a cluster says of these tokens, asked at once.
    async fn all(
        &self,
        at: &Arc<ClusterAccessor>,
        cluster: &Arc<Cluster>,
        tokens: &[String],
    ) -> Vec<Result<Option<TokenUser>, TokenError>> {
        let asking = tokens.iter();
        join_all(asking.map(|token| self.judge(at, cluster, token, &[]))).await
    }
}

fn tokens(count: usize) -> Vec<String> {
    (0..count).map(|at| format!("bogus-{at}")).collect()
}

fn refused(said: &[Result<Option<TokenUser>, TokenError>]) -> usize {
    let said = said.iter();
    said.filter(|it| matches!(it, Err(TokenError::Invalid(_))))
        .count()
}

/// Lets what was begun come as far as it can.
async fn begin<T>(future: &mut (impl Future<Output = T> + Unpin)) {
    for _ in 0..20 {
        assert!(future.now_or_never().is_none());
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_answer_keeps_nobody_from_another() {
    let (clusters, judged) = (Clusters::start(), Judged::default());
    let (a, b) = (clusters.get("a"), clusters.get("b"));
    let (slow, well) = (Cluster::that_knows(&[]), Cluster::that_knows(&["good"]));
    slow.answers(0);
    let bogus = tokens(1000);
    let mut flood = Box::pin(judged.all(&a, &slow, &bogus));
    begin(&mut flood).await;
    assert_eq!(slow.reviews(), 32);
    let began = Instant::now();
    let user = judged.judge(&b, &well, "good", &[]).await;
    assert_eq!(user.unwrap().unwrap().user.name, SERVICE_ACCOUNT);
    assert_eq!(Instant::now(), began);
}

#[tokio::test(start_paused = true)]
async fn tokens_wait_their_turn_in_a_line_that_ends() {
    let (clusters, judged) = (Clusters::start(), Judged::default());
    let (a, cluster) = (clusters.get("a"), Cluster::that_knows(&[]));
    cluster.answers(0);
    let bogus = tokens(300);
    let mut flood = Box::pin(judged.all(&a, &cluster, &bogus));
    begin(&mut flood).await;
    assert_eq!(cluster.reviews(), 32);
    cluster.answers(256);
    let said = flood.await;
    assert_eq!((refused(&said), cluster.reviews()), (256, 256));
    let others = said
        .iter()
        .filter(|it| matches!(it, Err(TokenError::Unavailable(_))));
    assert_eq!(others.count(), 300 - 256);
    // Nobody waits for long.
    cluster.answers(0);
    let began = Instant::now();
    let said = judged.judge(&a, &cluster, "another", &[]).await;
    assert!(matches!(said, Err(TokenError::Unavailable(_))), "{said:?}");
    assert_eq!(Instant::now() - began, Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn who_was_known_does_not_stand_in_line_with_strangers() {
    let (clusters, judged) = (Clusters::start(), Judged::default());
    let (a, cluster) = (clusters.get("a"), Cluster::that_knows(&["good"]));
    let good = || judged.judge(&a, &cluster, "good", &[]);
    assert!(good().await.is_ok());
    // It is to be asked about again.
    advance(Duration::from_secs(10)).await;
    cluster.answers(0);
    let bogus = tokens(300);
    let mut flood = Box::pin(judged.all(&a, &cluster, &bogus));
    begin(&mut flood).await;
    let mut again = Box::pin(good());
    begin(&mut again).await;
    assert_eq!(cluster.reviews(), 1 + 32 + 1);
    cluster.answers(33);
    assert!(again.await.unwrap().is_some());
    // Nor does it stand elsewhere when it was taken back.
    cluster.tokens.lock().clear();
    cluster.answers(256);
    flood.await;
    advance(Duration::from_secs(10)).await;
    assert!(good().await.is_err());
    advance(Duration::from_secs(10)).await;
    cluster.answers(0);
    let mut flood = Box::pin(judged.all(&a, &cluster, &bogus));
    begin(&mut flood).await;
    let said = good().await;
    assert!(matches!(said, Err(TokenError::Unavailable(_))), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn one_user_leaves_half_of_the_line_to_others_who_are_known() {
    let (clusters, judged) = (Clusters::start(), Judged::default());
    let ones = tokens(200);
    let names: Vec<_> = ones.iter().map(String::as_str).collect();
    let (a, cluster) = (clusters.get("a"), Cluster::that_knows(&names));
    for token in &ones {
        assert!(judged.judge(&a, &cluster, token, &[]).await.is_ok());
    }
    advance(Duration::from_secs(10)).await;
    cluster.answers(0);
    let said = judged.all(&a, &cluster, &ones);
    let mut said = Box::pin(said);
    begin(&mut said).await;
    cluster.answers(200);
    let said = said.await;
    assert_eq!(said.iter().filter(|it| it.is_ok()).count(), 128);
}

#[tokio::test(start_paused = true)]
async fn bad_tokens_push_no_good_one_out() {
    let clusters = Clusters::start();
    let judged = Judged::with_room(16 << 10, 16 << 10, 16 << 10);
    let (a, cluster) = (clusters.get("a"), Cluster::that_knows(&["good"]));
    assert!(judged.judge(&a, &cluster, "good", &[]).await.is_ok());
    for token in tokens(500) {
        assert!(judged.judge(&a, &cluster, &token, &[]).await.is_err());
    }
    assert_eq!(cluster.reviews(), 501);
    assert!(judged.judge(&a, &cluster, "good", &[]).await.is_ok());
    // The last of the others is known, and the first is not any more.
    assert!(judged.judge(&a, &cluster, "bogus-499", &[]).await.is_err());
    assert_eq!(cluster.reviews(), 501);
    assert!(judged.judge(&a, &cluster, "bogus-0", &[]).await.is_err());
    assert_eq!(cluster.reviews(), 502);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_calls_all_tokens_good_pushes_out_no_others() {
    let clusters = Clusters::start();
    let judged = Judged::with_room(64 << 10, 16 << 10, 16 << 10);
    let (a, honest) = (clusters.get("a"), Cluster::that_knows(&["good"]));
    assert!(judged.judge(&a, &honest, "good", &[]).await.is_ok());
    let made_up = tokens(500);
    let all: Vec<_> = made_up.iter().map(String::as_str).collect();
    let (b, dishonest) = (clusters.get("b"), Cluster::that_knows(&all));
    for token in &made_up {
        assert!(judged.judge(&b, &dishonest, token, &[]).await.is_ok());
    }
    assert_eq!(dishonest.reviews(), 500);
    assert!(judged.judge(&a, &honest, "good", &[]).await.is_ok());
    assert_eq!(honest.reviews(), 1);
    // Its first ones are known, and no more of them than it has room for.
    for token in &made_up {
        assert!(judged.judge(&b, &dishonest, token, &[]).await.is_ok());
    }
    let again = dishonest.reviews() - 500;
    assert!((450..500).contains(&again), "{again}");
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_at_once_of_one_bad_token_is_one_question() {
    let (clusters, judged) = (Clusters::start(), Judged::default());
    let (a, cluster) = (clusters.get("a"), Cluster::that_knows(&[]));
    let same = vec!["bogus".to_owned(); 100];
    assert_eq!(refused(&judged.all(&a, &cluster, &same).await), 100);
    assert_eq!(cluster.reviews(), 1);
}
