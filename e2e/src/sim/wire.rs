//! The sockets of a simulated cluster: they can be frozen, thawed and reset.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// All connections that are open.
#[derive(Debug, Default)]
pub(super) struct Wires(Mutex<Vec<Arc<Switch>>>);

/// One connection. Dropping it closes it, by a reset if it was cut.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    switch: Arc<Switch>,
    wires: Arc<Wires>,
}

#[derive(Debug, Default)]
struct Switch {
    frozen: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
    cut: CancellationToken,
}

impl Wires {
    pub(super) fn connect(self: &Arc<Self>, stream: TcpStream) -> Wire {
        let switch = Arc::new(Switch::default());
        self.0.lock().push(switch.clone());
        Wire {
            stream,
            switch,
            wires: self.clone(),
        }
    }

    /// Stops reading and writing on the connections of the moment.
    pub(super) fn freeze(&self) {
        for switch in self.0.lock().iter() {
            switch.frozen.store(true, Ordering::SeqCst);
        }
    }

    pub(super) fn thaw(&self) {
        for switch in self.0.lock().iter() {
            switch.frozen.store(false, Ordering::SeqCst);
            switch.reader.wake();
            switch.writer.wake();
        }
    }

    /// Resets the connections of the moment.
    pub(super) fn cut(&self) {
        for switch in self.0.lock().iter() {
            switch.cut.cancel();
        }
    }
}

impl Wire {
    /// Cancelled when the connection is cut; whoever serves it must then drop it.
    pub(super) fn cut_token(&self) -> CancellationToken {
        self.switch.cut.clone()
    }
}

impl Switch {
    /// Registers before it checks, so that a thaw in between wakes the task.
    fn poll_thawed(&self, waker: &AtomicWaker, context: &Context<'_>) -> Poll<()> {
        waker.register(context.waker());
        if self.frozen.load(Ordering::SeqCst) {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.wires
            .0
            .lock()
            .retain(|switch| !Arc::ptr_eq(switch, &self.switch));
        if self.switch.cut.is_cancelled() {
            // It fails only on a socket that the peer has closed, and then there is nothing left to reset.
            drop(self.stream.set_zero_linger());
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        std::task::ready!(this.switch.poll_thawed(&this.switch.reader, context));
        Pin::new(&mut this.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        std::task::ready!(this.switch.poll_thawed(&this.switch.writer, context));
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        std::task::ready!(this.switch.poll_thawed(&this.switch.writer, context));
        Pin::new(&mut this.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        std::task::ready!(this.switch.poll_thawed(&this.switch.writer, context));
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        std::task::ready!(this.switch.poll_thawed(&this.switch.writer, context));
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}
