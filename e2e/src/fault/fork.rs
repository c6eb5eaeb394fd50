//! A relay that leads informers one way and everything else another.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Door;

/// What a TLS client offers that would rather speak HTTP/2, as the list stands in its hello. The proxy's informers do;
/// its live requests and probes offer HTTP/1.1 alone.
const OFFERS_HTTP2: &[u8] = b"\x02h2\x08http/1.1";

/// The bytes of a TLS record's header.
const RECORD_HEADER: usize = 5;

/// A fork on loopback: connections that offer HTTP/2 go to one address, all others to another.
///
/// Both may be [`super::Relay`]s, which can be switched, cut and moved.
#[derive(Debug)]
pub struct Fork {
    address: SocketAddr,
    http2: watch::Sender<SocketAddr>,
    http1: watch::Sender<SocketAddr>,
    stop: CancellationToken,
}

impl Fork {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If no port can be bound.
    pub fn start(http2: SocketAddr, http1: SocketAddr) -> io::Result<Self> {
        let door = Door::open(([127, 0, 0, 1], 0).into())?;
        let fork = Self {
            address: door.address(),
            http2: watch::Sender::new(http2),
            http1: watch::Sender::new(http1),
            stop: CancellationToken::new(),
        };
        let targets = (fork.http2.subscribe(), fork.http1.subscribe());
        let accept = fork.stop.clone().run_until_cancelled_owned(accept_all(
            door,
            targets,
            fork.stop.clone(),
        ));
        tokio::spawn(accept);
        Ok(fork)
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends new connections that offer HTTP/2 elsewhere.
    pub fn lead_http2(&self, target: SocketAddr) {
        self.http2.send_replace(target);
    }

    /// Sends all other new connections elsewhere.
    pub fn lead_http1(&self, target: SocketAddr) {
        self.http1.send_replace(target);
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

type Targets = (watch::Receiver<SocketAddr>, watch::Receiver<SocketAddr>);

async fn accept_all(door: Door, targets: Targets, stop: CancellationToken) {
    let door = Arc::new(door);
    let tasks = TaskTracker::new();
    loop {
        // A peer that is gone before it was accepted is no reason to stop.
        if let Ok(client) = door.accept().await {
            let pass = pass(client, targets.clone());
            tasks.spawn(stop.clone().run_until_cancelled_owned(pass));
        }
    }
}

async fn pass(mut client: TcpStream, (http2, http1): Targets) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut hello = vec![0; RECORD_HEADER];
    client.read_exact(&mut hello).await?;
    let length = usize::from(u16::from_be_bytes([hello[3], hello[4]]));
    hello.resize(RECORD_HEADER + length, 0);
    client.read_exact(&mut hello[RECORD_HEADER..]).await?;
    let offers_http2 = hello
        .windows(OFFERS_HTTP2.len())
        .any(|part| part == OFFERS_HTTP2);
    let target = *if offers_http2 { http2 } else { http1 }.borrow();
    let mut server = TcpStream::connect(target).await?;
    server.set_nodelay(true)?;
    server.write_all(&hello).await?;
    // However one side ends, dropping both ends the other.
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
