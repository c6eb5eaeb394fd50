//! Ends of an answer, on paused time.

use std::convert::Infallible;
use std::sync::atomic::Ordering;

use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use tokio::time::Instant;

use super::super::testing::FakeConnection;
use super::*;

const GRACE: Duration = Duration::from_secs(60);

type Frames = Vec<Result<Frame<Bytes>, BoxError>>;

fn connection() -> Arc<FakeConnection> {
    Arc::new(FakeConnection::to(([127, 0, 0, 1], 1).into()))
}

/// A body of these frames that then stays silent.
fn silent_after(frames: Frames) -> impl Body<Data = Bytes, Error = BoxError> + Unpin {
    use futures_util::StreamExt;
    StreamBody::new(stream::iter(frames).chain(stream::pending()))
}

fn data() -> Result<Frame<Bytes>, BoxError> {
    Ok(Frame::data(Bytes::from_static(b"x")))
}

fn broken() -> Result<Frame<Bytes>, BoxError> {
    Err("reset".into())
}

/// Runs a body to its end: the data frames, whether it ended cleanly, and after how long.
async fn end(
    mut body: impl Body<Data = Bytes, Error = BoxError> + Unpin,
) -> (usize, bool, Duration) {
    let start = Instant::now();
    let mut frames = 0;
    loop {
        match body.frame().await {
            Some(Ok(_)) => frames += 1,
            Some(Err(_)) => {
                assert!(body.frame().await.is_none(), "nothing follows an error");
                return (frames, false, start.elapsed());
            }
            None => return (frames, true, start.elapsed()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_answer_fails_as_soon_as_its_cluster_is_disconnected() {
    let connection = connection();
    let body = AnswerBody::new("a", silent_after(vec![data()]), &connection, None);
    connection.disconnect();
    assert_eq!(end(body).await, (0, false, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn another_connection_ends_watches_and_no_other_answer() {
    let connection = connection();
    let body = || silent_after(vec![data()]);
    let mut plain = AnswerBody::new("a", body(), &connection, None);
    let watch = AnswerBody::new("a", silent_after(Vec::new()), &connection, Some(GRACE));
    connection.closed.cancel();
    connection.replaced.cancel();
    assert_eq!(end(watch).await, (0, true, Duration::ZERO));
    assert!(plain.frame().await.unwrap().is_ok());
    connection.disconnect();
    assert_eq!(end(plain).await, (0, false, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn an_endless_answer_fails_too() {
    let connection = connection();
    let frames = stream::repeat_with(|| Ok::<_, Infallible>(Frame::data(Bytes::new())));
    let mut body = AnswerBody::new("a", StreamBody::new(frames), &connection, None);
    assert!(body.frame().await.unwrap().is_ok());
    connection.disconnect();
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_watch_stays_silent_for_the_grace() {
    let connection = connection();
    let body = AnswerBody::new("a", silent_after(vec![data()]), &connection, Some(GRACE));
    let closed = connection.closed.clone();
    let disconnect = async {
        sleep(Duration::from_secs(1)).await;
        closed.cancel();
    };
    let (ended, ()) = tokio::join!(end(body), disconnect);
    assert_eq!(ended, (1, true, Duration::from_secs(1) + GRACE));
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_ends_when_its_cluster_is_back() {
    let connection = connection();
    let body = AnswerBody::new("a", silent_after(vec![data()]), &connection, Some(GRACE));
    let (closed, replaced) = (connection.closed.clone(), connection.replaced.clone());
    let outage = async {
        sleep(Duration::from_secs(1)).await;
        closed.cancel();
        sleep(Duration::from_secs(3)).await;
        replaced.cancel();
    };
    let (ended, ()) = tokio::join!(end(body), outage);
    assert_eq!(ended, (1, true, Duration::from_secs(4)));
}

#[tokio::test(start_paused = true)]
async fn a_broken_plain_answer_fails_and_is_reported() {
    let connection = connection();
    let body = AnswerBody::new("a", silent_after(vec![data(), broken()]), &connection, None);
    assert_eq!(end(body).await, (1, false, Duration::ZERO));
    assert_eq!(connection.suspected.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_ends_soon_while_its_cluster_is_connected() {
    let connection = connection();
    let frames = silent_after(vec![data(), broken()]);
    let body = AnswerBody::new("a", frames, &connection, Some(GRACE));
    assert_eq!(end(body).await, (1, true, VERDICT));
    assert_eq!(connection.suspected.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_stays_silent_once_its_cluster_is_disconnected() {
    let connection = connection();
    let frames = silent_after(vec![broken()]);
    let body = AnswerBody::new("a", frames, &connection, Some(GRACE));
    let closed = connection.closed.clone();
    let disconnect = async {
        sleep(VERDICT / 2).await;
        closed.cancel();
    };
    let (ended, ()) = tokio::join!(end(body), disconnect);
    assert_eq!(ended, (0, true, VERDICT / 2 + GRACE));
}

#[tokio::test(start_paused = true)]
async fn a_finished_answer_ends_as_it_was() {
    let connection = connection();
    let frames: Frames = vec![data(), data()];
    for grace in [None, Some(GRACE)] {
        let frames: Frames = frames.iter().map(|_| data()).collect();
        let body = AnswerBody::new(
            "a",
            StreamBody::new(stream::iter(frames)),
            &connection,
            grace,
        );
        assert_eq!(end(body).await, (2, true, Duration::ZERO));
    }
    assert_eq!(connection.suspected.load(Ordering::SeqCst), 0);
}
