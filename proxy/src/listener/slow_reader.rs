//! Ends an HTTP/1.1 connection whose client does not take the answer that is being written to it.
//!
//! hyper asks a body for more only while it can write, so a body never learns that its client stopped reading: that of a watch
//! would hold its place among the watchers, that of a list a whole state of its kind, and either its connection and up to half
//! a megabyte of buffers for as long as the client likes. The connection sees it, below TLS: a write that stays pending. A watch
//! has less time than other answers; a log, an exec or what a proxied service says may take as long as it takes: a follower
//! may pause for hours. Over HTTP/2 each stream has its own window, see `stream.rs`, and pings find out who is gone.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::patience::Patience;

/// How long a client may take nothing at all of a watch that has something for it.
const WATCH_PATIENCE: Duration = Duration::from_secs(30);
/// And of any other answer, whose reader may look at it page by page.
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(300);

/// What is written now.
const ANSWER: u8 = 0;
const WATCH: u8 = 1;
const PAUSABLE: u8 = 2;

/// Among the extensions of a request: says what the answer is that is written to it.
#[derive(Clone, Debug, Default)]
pub struct AnswerWriter(Arc<State>);

/// Held by the body of an answer that has another time than others, while there may be more to write. What was written until
/// then has that time still.
#[derive(Debug)]
pub struct AnswerGuard {
    state: Arc<State>,
    kind: u8,
}

#[derive(Debug, Default)]
struct State {
    watches: AtomicUsize,
    pausable: AtomicUsize,
    /// Set with a guard, and taken back once there is none and all that was written has left: the bytes of an answer outlive
    /// its body.
    kind: AtomicU8,
}

impl State {
    fn count(&self, kind: u8) -> &AtomicUsize {
        match kind {
            WATCH => &self.watches,
            _ => &self.pausable,
        }
    }

    fn hold(self: &Arc<Self>, kind: u8) -> AnswerGuard {
        self.count(kind).fetch_add(1, Ordering::Relaxed);
        self.kind.store(kind, Ordering::Relaxed);
        AnswerGuard {
            state: Arc::clone(self),
            kind,
        }
    }
}

impl AnswerWriter {
    /// It is a watch, until the guard is dropped: the connection ends when its client takes nothing for half a minute.
    pub fn watching(&self) -> AnswerGuard {
        self.0.hold(WATCH)
    }

    /// It is something that its reader may pause, until the guard is dropped.
    pub fn pausable(&self) -> AnswerGuard {
        self.0.hold(PAUSABLE)
    }

    /// The connection is no HTTP any more; what it says may be paused.
    pub fn left_http(&self) {
        self.0.pausable.fetch_add(1, Ordering::Relaxed);
        self.0.kind.store(PAUSABLE, Ordering::Relaxed);
    }

    pub(super) fn may_pause(&self) -> bool {
        self.0.kind.load(Ordering::Relaxed) == PAUSABLE
    }
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        self.state.count(self.kind).fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connection of one client.
pub(super) struct ClientStream<S> {
    stream: S,
    state: Arc<State>,
    patience: Patience,
}

impl<S> ClientStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            state: Arc::default(),
            patience: Patience::default(),
        }
    }

    pub(super) fn writer(&self) -> AnswerWriter {
        AnswerWriter(Arc::clone(&self.state))
    }

    /// What becomes of a write for which the socket said `written`.
    fn within_patience(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let kind = self.state.kind.load(Ordering::Relaxed);
        let limit = match kind {
            WATCH => WATCH_PATIENCE,
            _ => ANSWER_PATIENCE,
        };
        if written.is_ready() || kind == PAUSABLE {
            self.patience.done();
            return written;
        }
        ready!(self.patience.poll(cx, u64::from(kind), limit));
        tracing::debug!("a client does not read its answer, its connection is ended");
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within_patience(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.within_patience(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // TLS and hyper flush only after they have written everything.
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        let is_held = |kind| self.state.count(kind).load(Ordering::Relaxed) > 0;
        if !is_held(WATCH) && !is_held(PAUSABLE) {
            self.state.kind.store(ANSWER, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::Response;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;

    /// What the client has not read fits in this.
    const WINDOW: usize = 1000;
    const HOUR: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);

    /// A server's end, full to the brim, and its client.
    async fn full() -> (ClientStream<DuplexStream>, DuplexStream) {
        let (server, client) = tokio::io::duplex(WINDOW);
        let mut server = ClientStream::new(server);
        server.write_all(&[0; WINDOW]).await.unwrap();
        (server, client)
    }

    fn write(mut server: ClientStream<DuplexStream>) -> JoinHandle<io::Result<()>> {
        tokio::spawn(async move {
            server.write_all(&[0; WINDOW]).await?;
            server.flush().await
        })
    }

    /// Fails unless the task ends after the client's time, and with an error.
    async fn ends_in_time<T: Send + 'static, E: Send + 'static>(
        task: JoinHandle<Result<T, E>>,
        limit: Duration,
    ) -> E {
        let began = Instant::now();
        let ended = tokio::time::timeout(HOUR, task).await.unwrap().unwrap();
        let took = began.elapsed();
        assert!((limit..limit + SECOND).contains(&took), "{took:?}");
        ended.err().unwrap()
    }

    async fn read(client: &mut DuplexStream, count: usize) {
        client.read_exact(&mut vec![0; count]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_nobody_takes_is_ended() {
        let (server, _client) = full().await;
        let _guard = server.writer().watching();
        let err = ends_in_time(write(server), WATCH_PATIENCE).await;
        assert_eq!(err.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn every_byte_that_is_taken_gives_it_new_time() {
        let (server, mut client) = full().await;
        let _guard = server.writer().watching();
        let writing = write(server);
        for _ in 0..10 {
            tokio::time::sleep(WATCH_PATIENCE - SECOND).await;
            read(&mut client, 1).await;
        }
        tokio::time::sleep(WATCH_PATIENCE - SECOND).await;
        read(&mut client, WINDOW - 10).await;
        writing.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_is_ended_later() {
        let (server, _client) = full().await;
        ends_in_time(write(server), ANSWER_PATIENCE).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_be_paused_may_take_hours() {
        let (server, mut client) = full().await;
        let _guard = server.writer().pausable();
        let writing = write(server);
        tokio::time::sleep(10 * HOUR).await;
        assert!(!writing.is_finished());
        read(&mut client, 2 * WINDOW).await;
        writing.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_watch_wrote_last_is_still_waited_for() {
        let (server, _client) = full().await;
        drop(server.writer().watching());
        let err = ends_in_time(write(server), WATCH_PATIENCE).await;
        assert_eq!(err.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_after_a_watch_has_its_own_time() {
        let (mut server, mut client) = full().await;
        drop(server.writer().watching());
        read(&mut client, WINDOW).await;
        server.write_all(&[0; WINDOW]).await.unwrap();
        server.flush().await.unwrap();
        ends_in_time(write(server), ANSWER_PATIENCE).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_http_may_take_hours() {
        let (mut server, mut client) = full().await;
        server.writer().left_http();
        read(&mut client, WINDOW).await;
        server.write_all(&[0; WINDOW]).await.unwrap();
        server.flush().await.unwrap();
        let writing = write(server);
        tokio::time::sleep(10 * HOUR).await;
        assert!(!writing.is_finished());
        read(&mut client, 2 * WINDOW).await;
        writing.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_watch_lives_on() {
        let (server, mut client) = tokio::io::duplex(WINDOW);
        let mut server = ClientStream::new(server);
        let _guard = server.writer().watching();
        for _ in 0..10 {
            tokio::time::sleep(HOUR).await;
            server.write_all(b"event").await.unwrap();
            server.flush().await.unwrap();
            read(&mut client, 5).await;
        }
    }

    /// hyper neither asks the body for more nor drops it while its client does not read.
    #[tokio::test(start_paused = true)]
    async fn the_connection_ends_with_all_that_it_held() {
        let (server, mut client) = tokio::io::duplex(WINDOW);
        let server = ClientStream::new(server);
        let writer = server.writer();
        let state = Arc::clone(&writer.0);
        let service = service_fn(move |_| {
            let guard = writer.watching();
            let events = futures_util::stream::repeat_with(move || {
                let _held = &guard;
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0; 100])))
            });
            async { Ok::<_, Infallible>(Response::new(StreamBody::new(events))) }
        });
        let serving = http1::Builder::new().serve_connection(TokioIo::new(server), service);
        let serving = tokio::spawn(serving);
        client
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .await
            .unwrap();
        // It takes a little, and then no more.
        read(&mut client, 10 * WINDOW).await;
        ends_in_time(serving, WATCH_PATIENCE).await;
        assert_eq!(state.watches.load(Ordering::Relaxed), 0);
    }
}
