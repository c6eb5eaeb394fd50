//! When the server was last heard on a connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::time::Instant;

/// A stamp renewed by every byte that comes from the server, answers to pings included.
#[derive(Debug)]
pub(crate) struct Heard {
    start: Instant,
    /// Milliseconds from `start` to the last byte.
    at: AtomicU64,
}

impl Heard {
    /// Heard now.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            at: AtomicU64::new(0),
        })
    }

    /// Heard now, again.
    pub(crate) fn stamp(&self) {
        let at = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.store(at, Ordering::Relaxed);
    }

    /// Time since then.
    pub(crate) fn ago(&self) -> Duration {
        let at = Duration::from_millis(self.at.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(at)
    }
}

/// A stream that renews a stamp with every read that brings bytes. It sits under TLS, so that HTTP/2 pings count.
#[derive(Debug)]
pub(crate) struct HeardStream<T> {
    inner: T,
    heard: Option<Arc<Heard>>,
}

impl<T> HeardStream<T> {
    /// Wraps a stream; without a stamp it only passes on.
    pub(crate) fn new(inner: T, heard: Option<Arc<Heard>>) -> Self {
        Self { inner, heard }
    }
}

impl<T: Read + Unpin> Read for HeardStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // The cursor does not tell how much was put in. End of stream stamps once too: the server was there to end it.
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        if let Some(heard) = &self.heard {
            heard.stamp();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: Write + Unpin> Write for HeardStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }
}

impl<T: Connection> Connection for HeardStream<T> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}
