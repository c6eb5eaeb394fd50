//! One request over HTTP/2: it is counted while it lasts, and ends where its client takes nothing of the answer.
//!
//! While the client's window is closed hyper asks the body for nothing, so a body never learns that it is stalled: it would
//! hold its state of a kind, its place among the watchers and its stream for as long as the client likes. The stream's own
//! task sees it from outside: a piece was given, and no other is asked for.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::patience::Patience;
use super::slow_reader::{ANSWER_PATIENCE, AnswerWriter};

tokio::task_local! {
    /// Of the stream whose task runs.
    static STREAM: Arc<Stream>;
}

/// What the answer of one stream has come to.
#[derive(Debug, Default)]
struct Stream {
    /// Odd while a piece, or the answer itself, was given and nothing was asked for since.
    turns: AtomicU64,
    writer: AnswerWriter,
}

/// The answer was given, or a piece of it. Means nothing where the request came over HTTP/1.1.
pub(super) fn gave() {
    let _ = STREAM.try_with(|stream| stream.turns.fetch_or(1, Ordering::Relaxed));
}

/// A piece is asked for.
pub(super) fn asked() {
    let _ = STREAM.try_with(|stream| {
        let turns = stream.turns.load(Ordering::Relaxed);
        stream.turns.store((turns | 1) + 1, Ordering::Relaxed);
    });
}

/// What says of the answer on this stream how long it may take.
pub(super) fn writer() -> Option<AnswerWriter> {
    STREAM.try_with(|stream| stream.writer.clone()).ok()
}

/// Runs the streams of one connection where the drain can see them.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    tasks: TaskTracker,
    activity: Arc<Activity>,
}

impl Streams {
    pub(super) fn new(tasks: TaskTracker) -> Self {
        let activity = Arc::new(Activity {
            begun: Instant::now(),
            open: AtomicUsize::new(0),
            ended: AtomicU64::new(0),
        });
        Self { tasks, activity }
    }

    /// Ends once there was no request for so long.
    pub(super) async fn idle(&self, limit: Duration) {
        // Not told of each request, which would cost each of them more than this costs all.
        while let Some(rest) = limit
            .checked_sub(self.activity.quiet())
            .filter(|rest| !rest.is_zero())
        {
            tokio::time::sleep(rest).await;
        }
    }
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        let open = Open::new(&self.activity);
        let stream = Arc::new(Stream::default());
        let stalled = stalled(Arc::clone(&stream));
        self.tasks.spawn(STREAM.scope(stream, async move {
            let _open = open;
            let (task, stalled) = (pin!(task), pin!(stalled));
            // The task first: what it does is what the other one looks at.
            tokio::select! {
                biased;
                _ = task => {}
                () = stalled => tracing::debug!("a client does not read its answer, its stream is reset"),
            }
        }));
    }
}

/// Ends once the client has taken nothing of the answer for too long. Polled whenever the stream's task is.
async fn stalled(stream: Arc<Stream>) {
    let mut patience = Patience::default();
    poll_fn(move |cx| {
        let turns = stream.turns.load(Ordering::Relaxed);
        let waits = turns % 2 == 1 && !stream.writer.may_pause();
        if !waits {
            patience.done();
            return Poll::Pending;
        }
        patience.poll(cx, turns, ANSWER_PATIENCE)
    })
    .await;
}

/// The requests of a connection.
#[derive(Debug)]
struct Activity {
    begun: Instant,
    open: AtomicUsize,
    /// When the last one ended, in milliseconds after `begun`.
    ended: AtomicU64,
}

impl Activity {
    /// How long there has been no request.
    fn quiet(&self) -> Duration {
        if self.open.load(Ordering::Acquire) > 0 {
            return Duration::ZERO;
        }
        let ended = Duration::from_millis(self.ended.load(Ordering::Acquire));
        self.begun.elapsed().saturating_sub(ended)
    }
}

/// A request while it lasts.
struct Open(Arc<Activity>);

impl Open {
    fn new(activity: &Arc<Activity>) -> Self {
        activity.open.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(activity))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let now = u64::try_from(self.0.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.ended.fetch_max(now, Ordering::AcqRel);
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures_util::stream::repeat_with;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Empty, StreamBody};
    use hyper::body::{Frame, Incoming};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

    use super::*;
    use crate::listener::contained_body::ContainedBody;

    const HOUR: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);

    /// The body of an answer without end, to a client that has room for little of it.
    async fn endless(path: &str) -> Incoming {
        let (server, client) = tokio::io::duplex(64 << 10);
        let service = service_fn(|request: Request<Incoming>| async move {
            let pausable = request.uri().path() == "/log";
            let held = writer().filter(|_| pausable).map(|it| it.pausable());
            let pieces = repeat_with(move || {
                let _held = &held;
                Ok(Frame::data(Bytes::from_static(&[0; 1000])))
            });
            let body = StreamBody::new(pieces).boxed_unsync();
            Ok::<_, Infallible>(ContainedBody::of(Response::new(body)))
        });
        let serving = hyper::server::conn::http2::Builder::new(Streams::new(TaskTracker::new()))
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(server), service);
        tokio::spawn(serving);
        let (mut sender, connection) =
            hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(1500)
                .handshake::<_, Empty<Bytes>>(TokioIo::new(client))
                .await
                .unwrap();
        tokio::spawn(connection);
        let request = Request::get(format!("https://a{path}"));
        let request = request.body(Empty::new()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        // The connection stays.
        tokio::spawn(async move {
            tokio::time::sleep(100 * HOUR).await;
            drop(sender);
        });
        answer.into_body()
    }

    /// Takes so many pieces; the error that came instead.
    async fn read(body: &mut Incoming, pieces: usize) -> Option<String> {
        for _ in 0..pieces {
            if let Err(error) = body.frame().await.unwrap() {
                return Some(format!("{error:?}"));
            }
        }
        None
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_whose_client_takes_nothing_is_reset() {
        let mut body = endless("/list").await;
        for _ in 0..10 {
            tokio::time::sleep(ANSWER_PATIENCE - SECOND).await;
            assert_eq!(read(&mut body, 2).await, None);
        }
        tokio::time::sleep(ANSWER_PATIENCE + SECOND).await;
        let error = read(&mut body, 10).await.unwrap();
        assert!(error.contains("CANCEL"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_paused_is_not() {
        let mut body = endless("/log").await;
        tokio::time::sleep(10 * HOUR).await;
        assert_eq!(read(&mut body, 100).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_its_last_request_has_ended() {
        let streams = Streams::new(TaskTracker::new());
        let begun = Instant::now();
        hyper::rt::Executor::execute(&streams, tokio::time::sleep(HOUR));
        tokio::time::sleep(HOUR / 2).await;
        hyper::rt::Executor::execute(&streams, tokio::time::sleep(SECOND));
        streams.idle(60 * SECOND).await;
        let idle = begun.elapsed();
        assert!(
            (HOUR + 60 * SECOND..HOUR + 121 * SECOND).contains(&idle),
            "{idle:?}"
        );
    }
}
