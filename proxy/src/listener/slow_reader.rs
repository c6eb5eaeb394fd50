//! Ends an HTTP/1.1 connection whose client does not take the watch that is being written to it.
//!
//! hyper asks a body for more only while it can write, so the body of a watch never learns that its client stopped reading:
//! it would hold its place among the watchers, its connection and up to half a megabyte of buffers for as long as the client
//! likes. The connection sees it, below TLS: a write that stays pending. Everything else may take as long as it takes: a
//! follower of a log may pause for hours. Over HTTP/2 a client bounds what is on its way for each stream by itself, a slow one
//! holds up nothing but its own stream, and pings find out who is gone.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How long a client may take nothing at all of a watch that has something for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Among the extensions of a request that came over HTTP/1.1: says that a watch is written on its connection.
#[derive(Clone, Debug, Default)]
pub struct WatchWriter(Arc<State>);

/// Held by the body of a watch while there may be more to write. What was written until then is still waited for no
/// longer than before.
#[derive(Debug)]
pub struct WatchGuard(Arc<State>);

#[derive(Debug, Default)]
struct State {
    watches: AtomicUsize,
    /// Set with the first guard, and taken back once there is none and all that was written has left: the bytes of a watch
    /// outlive its body.
    impatient: AtomicBool,
}

impl WatchWriter {
    /// From now on, and until the guard is dropped, the connection ends when its client takes nothing for half a minute.
    pub fn watching(&self) -> WatchGuard {
        self.0.watches.fetch_add(1, Ordering::Relaxed);
        self.0.impatient.store(true, Ordering::Relaxed);
        WatchGuard(Arc::clone(&self.0))
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The connection of one client.
pub(super) struct ClientStream<S> {
    stream: S,
    state: Arc<State>,
    /// There is one only while a write of a watch is pending: most connections never need one.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> ClientStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            state: Arc::default(),
            deadline: None,
        }
    }

    pub(super) fn watch_writer(&self) -> WatchWriter {
        WatchWriter(Arc::clone(&self.state))
    }

    /// What becomes of a write for which the socket said `written`.
    fn within_patience(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() || !self.state.impatient.load(Ordering::Relaxed) {
            self.deadline = None;
            return written;
        }
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(PATIENCE)));
        ready!(deadline.as_mut().poll(cx));
        tracing::debug!("a client does not read its watch, its connection is ended");
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
        if self.state.watches.load(Ordering::Relaxed) == 0 {
            self.state.impatient.store(false, Ordering::Relaxed);
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
    ) -> E {
        let began = Instant::now();
        let ended = tokio::time::timeout(HOUR, task).await.unwrap().unwrap();
        let took = began.elapsed();
        assert!((PATIENCE..PATIENCE + SECOND).contains(&took), "{took:?}");
        ended.err().unwrap()
    }

    async fn read(client: &mut DuplexStream, count: usize) {
        client.read_exact(&mut vec![0; count]).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_nobody_takes_is_ended() {
        let (server, _client) = full().await;
        let _guard = server.watch_writer().watching();
        let err = ends_in_time(write(server)).await;
        assert_eq!(err.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn every_byte_that_is_taken_gives_it_new_time() {
        let (server, mut client) = full().await;
        let _guard = server.watch_writer().watching();
        let writing = write(server);
        for _ in 0..10 {
            tokio::time::sleep(PATIENCE - SECOND).await;
            read(&mut client, 1).await;
        }
        tokio::time::sleep(PATIENCE - SECOND).await;
        read(&mut client, WINDOW - 10).await;
        writing.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_a_watch_may_take_hours() {
        let (server, mut client) = full().await;
        let writing = write(server);
        tokio::time::sleep(10 * HOUR).await;
        assert!(!writing.is_finished());
        read(&mut client, 2 * WINDOW).await;
        writing.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_watch_wrote_last_is_still_waited_for() {
        let (server, _client) = full().await;
        drop(server.watch_writer().watching());
        let err = ends_in_time(write(server)).await;
        assert_eq!(err.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_after_a_watch_may_take_hours() {
        let (mut server, mut client) = full().await;
        drop(server.watch_writer().watching());
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
        let _guard = server.watch_writer().watching();
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
        let writer = server.watch_writer();
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
        ends_in_time(serving).await;
        assert_eq!(state.watches.load(Ordering::Relaxed), 0);
    }
}
