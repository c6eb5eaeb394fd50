//! An address where packets vanish, without the rights to configure a firewall.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

/// On loopback the kernel completes a handshake within the call that starts it, so that a connect which takes this
/// long was dropped.
const DROPPED_AFTER: Duration = Duration::from_millis(100);

/// A listener whose queue is full: the kernel drops every SYN, and whoever connects waits for its own timeout.
#[derive(Debug)]
pub struct BlackHole {
    listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl BlackHole {
    /// The address that never answers.
    ///
    /// # Panics
    /// Never: the listener is bound.
    pub fn address(&self) -> SocketAddr {
        self.listener
            .local_addr()
            .expect("a listener has an address")
    }
}

/// Makes a black hole on a free port of 127.0.0.1.
///
/// # Errors
/// If no port can be bound or connected to.
pub async fn black_hole() -> io::Result<BlackHole> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    let listener = socket.listen(0)?;
    let address = listener.local_addr()?;
    let mut waiting = Vec::new();
    // A queue of length 0 holds one connection on Linux; other kernels round up.
    while let Ok(connected) = timeout(DROPPED_AFTER, TcpStream::connect(address)).await {
        waiting.push(connected?);
    }
    Ok(BlackHole {
        listener,
        _waiting: waiting,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connecting_to_a_black_hole_takes_for_ever() {
        let hole = black_hole().await.unwrap();
        timeout(DROPPED_AFTER * 3, TcpStream::connect(hole.address()))
            .await
            .unwrap_err();
    }
}
