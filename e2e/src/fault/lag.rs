//! A relay behind which everything is heard late.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{CHUNK, Door};

/// A TCP relay on loopback that holds back what the server says for a while; what the client says passes at once.
#[derive(Debug)]
pub struct Lag {
    address: SocketAddr,
    delay: watch::Sender<Duration>,
    stop: CancellationToken,
}

impl Lag {
    /// Listens on a free port of 127.0.0.1 and forwards to `target`, without delay at first.
    ///
    /// # Errors
    /// If no port can be bound.
    pub fn start(target: SocketAddr) -> io::Result<Self> {
        let door = Door::open(([127, 0, 0, 1], 0).into())?;
        let lag = Self {
            address: door.address(),
            delay: watch::Sender::new(Duration::ZERO),
            stop: CancellationToken::new(),
        };
        let accept = accept_all(door, target, lag.delay.subscribe(), lag.stop.clone());
        tokio::spawn(lag.stop.clone().run_until_cancelled_owned(accept));
        Ok(lag)
    }

    /// Where to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How late everything that the server says from now on is heard, on every connection.
    pub fn set(&self, delay: Duration) {
        self.delay.send_replace(delay);
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept_all(
    door: Door,
    target: SocketAddr,
    delay: watch::Receiver<Duration>,
    stop: CancellationToken,
) {
    let tasks = TaskTracker::new();
    loop {
        // A peer that is gone before it was accepted is no reason to stop.
        if let Ok(client) = door.accept().await {
            let pass = pass(client, target, delay.clone());
            tasks.spawn(stop.clone().run_until_cancelled_owned(pass));
        }
    }
}

async fn pass(
    client: TcpStream,
    target: SocketAddr,
    delay: watch::Receiver<Duration>,
) -> io::Result<()> {
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    tokio::select! {
        sent = tokio::io::copy(&mut from_client, &mut to_server) => sent.map(drop),
        heard = hear(from_server, to_client, delay) => heard,
    }
}

/// Copies each piece when its time has come, in order.
async fn hear(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    delay: watch::Receiver<Duration>,
) -> io::Result<()> {
    let mut held: VecDeque<(Instant, Bytes)> = VecDeque::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        let due = held.front().map(|(due, _)| *due);
        tokio::select! {
            () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => {
                if let Some((_, piece)) = held.pop_front() {
                    to.write_all(&piece).await?;
                }
            }
            count = from.read(&mut buffer) => {
                let count = count?;
                if count == 0 {
                    return Ok(());
                }
                // A shorter delay does not overtake what is held already.
                let last = held.back().map_or_else(Instant::now, |(due, _)| *due);
                let due = last.max(Instant::now() + *delay.borrow());
                held.push_back((due, Bytes::copy_from_slice(&buffer[..count])));
            }
        }
    }
}
