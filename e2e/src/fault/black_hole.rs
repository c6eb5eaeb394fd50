//! An address where packets vanish, without the rights to configure a firewall.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpListener;

use super::Door;

/// On loopback the kernel completes a handshake within the call that starts it. Only where somebody else filled the queue
/// in the same moment is this waited for.
const FILL_TIMEOUT: Duration = Duration::from_millis(250);

/// Keeps the queue of a listener full: the kernel drops every SYN, and whoever connects waits for its own timeout. It costs
/// two descriptors beside the listener's, one in the queue and one here, of which the former is nobody's yet.
#[derive(Debug)]
pub(super) struct FullQueue {
    /// Waits in the queue, or somebody else does.
    _waiting: Option<TcpStream>,
    peer: Option<SocketAddr>,
}

impl FullQueue {
    /// Lets nobody in any more. Who waits in the queue already goes on waiting.
    pub(super) fn of(listener: &TcpListener) -> io::Result<Self> {
        // Of a socket that listens already, this changes the length of the queue. One of length 0 holds one connection.
        SockRef::from(listener).listen(0)?;
        let waiting = match TcpStream::connect_timeout(&listener.local_addr()?, FILL_TIMEOUT) {
            Ok(waiting) => Some(waiting),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => None,
            Err(error) => return Err(error),
        };
        let peer = waiting.as_ref().map(TcpStream::local_addr).transpose()?;
        Ok(Self {
            _waiting: waiting,
            peer,
        })
    }

    /// The address of the connection that fills the queue, for who accepts it in the end.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }
}

/// An address that never answers.
#[derive(Debug)]
pub struct BlackHole(Door);

impl BlackHole {
    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// Makes a black hole on a free port of 127.0.0.1.
///
/// # Errors
/// If no port can be bound or connected to.
pub fn black_hole() -> io::Result<BlackHole> {
    let door = Door::open(([127, 0, 0, 1], 0).into())?;
    door.swallow()?;
    Ok(BlackHole(door))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel sends a SYN again after a second.
    const IN_VAIN: Duration = Duration::from_millis(300);

    #[test]
    fn connecting_to_a_black_hole_takes_for_ever() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _entered = runtime.enter();
        let hole = black_hole().unwrap();
        let error = TcpStream::connect_timeout(&hole.address(), IN_VAIN).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
