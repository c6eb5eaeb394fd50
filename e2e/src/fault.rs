//! Faults of the network: a relay that can be switched, one that lags, a fork, and an address that swallows every packet.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

mod black_hole;
mod door;
mod fork;
mod lag;

pub use black_hole::{BlackHole, black_hole};
pub use door::Door;
pub use fork::Fork;
pub use lag::Lag;

/// Bytes copied at a time.
const CHUNK: usize = 16 * 1024;

/// What a relay does with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Copies both ways.
    Forward,
    /// Refuses new connections; existing ones go on.
    Refuse,
    /// Accepts and passes nothing on; existing connections freeze. Going back to `Forward` thaws them.
    Stall,
}

/// A TCP relay on loopback before any address.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

#[derive(Debug)]
struct Shared {
    door: Door,
    target: watch::Sender<SocketAddr>,
    mode: watch::Sender<Mode>,
    /// Cancelled to reset the connections of the moment; a new token follows.
    connections: watch::Sender<CancellationToken>,
    stop: CancellationToken,
}

impl Relay {
    /// Listens on a free port of 127.0.0.1 and forwards to `target`.
    ///
    /// # Errors
    /// If no port can be bound.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            door: Door::open(([127, 0, 0, 1], 0).into())?,
            target: watch::Sender::new(target),
            mode: watch::Sender::new(Mode::Forward),
            connections: watch::Sender::new(CancellationToken::new()),
            stop: CancellationToken::new(),
        });
        let tasks = TaskTracker::new();
        tasks.spawn(accept_all(shared.clone(), tasks.clone()));
        Ok(Self { shared, tasks })
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.shared.door.address()
    }

    /// Switches the mode, for new and for existing connections.
    ///
    /// # Errors
    /// If the port cannot be listened on again.
    pub fn set(&self, mode: Mode) -> io::Result<()> {
        self.shared.mode.send_replace(mode);
        if mode == Mode::Refuse {
            self.shared.door.close();
            Ok(())
        } else {
            self.shared.door.reopen()
        }
    }

    /// Resets every existing connection; the mode stays.
    pub fn cut(&self) {
        self.shared
            .connections
            .send_replace(CancellationToken::new())
            .cancel();
    }

    /// Sends new connections to another address, as if the target had moved.
    pub fn retarget(&self, target: SocketAddr) {
        self.shared.target.send_replace(target);
    }

    /// Ends the relay and waits for its connections to close.
    pub async fn stop(self) {
        self.shared.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

async fn accept_all(shared: Arc<Shared>, tasks: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            accepted = shared.door.accept() => accepted,
            () = shared.stop.cancelled() => return,
        };
        // A peer that is gone before it was accepted is no reason to stop.
        if let Ok(client) = accepted {
            tasks.spawn(relay(shared.clone(), client));
        }
    }
}

async fn relay(shared: Arc<Shared>, mut client: TcpStream) {
    let cut = shared.connections.borrow().clone();
    let broken = tokio::select! {
        forwarded = forward(&shared, &cut, &mut client) => forwarded.is_err(),
        () = shared.stop.cancelled() => false,
    };
    if broken {
        reset(&client);
    }
}

/// Fails where the client shall see its connection broken rather than finished.
async fn forward(
    shared: &Shared,
    cut: &CancellationToken,
    client: &mut TcpStream,
) -> io::Result<()> {
    let connect = async {
        wait_while_stalled(&mut shared.mode.subscribe()).await;
        let target = *shared.target.borrow();
        TcpStream::connect(target).await
    };
    // The relay has accepted already and can no longer refuse: a failure here becomes a reset.
    let mut server = tokio::select! {
        connected = connect => connected?,
        () = cut.cancelled() => return Err(io::ErrorKind::ConnectionReset.into()),
    };
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    let both = async {
        tokio::try_join!(
            copy(client_read, server_write, shared.mode.subscribe()),
            copy(server_read, client_write, shared.mode.subscribe()),
        )
    };
    let copied = tokio::select! {
        copied = both => copied.map(drop),
        () = cut.cancelled() => Err(io::ErrorKind::ConnectionReset.into()),
    };
    if copied.is_err() {
        reset(&server);
    }
    copied
}

/// Copies until the end of `from`, which then ends `to`; the other direction may go on.
async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut mode: watch::Receiver<Mode>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = from.read(&mut buffer).await?;
        wait_while_stalled(&mut mode).await;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}

/// The sender lives as long as the connections, so that the wait ends only by a change of mode.
async fn wait_while_stalled(mode: &mut watch::Receiver<Mode>) {
    drop(mode.wait_for(|mode| *mode != Mode::Stall).await);
}

/// Makes the close of this socket a reset.
fn reset(stream: &TcpStream) {
    // It fails only on a socket that is closed already.
    drop(stream.set_zero_linger());
}

#[cfg(test)]
mod tests;
