//! A listening address that can be closed and opened again without losing its port.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// How many connections may wait to be accepted; the default of the standard library.
const BACKLOG: u32 = 128;

/// One address, listening or refusing.
///
/// A second socket stays bound to the port without listening. Thereby the port cannot be taken by anyone else
/// while the door is closed, and the kernel answers a SYN with a reset.
#[derive(Debug)]
pub struct Door {
    address: SocketAddr,
    _reservation: TcpSocket,
    /// Held while polling, never across an await, so that closing takes effect before it returns.
    listener: Mutex<Option<TcpListener>>,
    opened: AtomicWaker,
}

impl Door {
    /// Binds and listens. Port 0 takes a free one.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let reservation = bind(address)?;
        let address = reservation.local_addr()?;
        let listener = Mutex::new(Some(bind(address)?.listen(BACKLOG)?));
        Ok(Self {
            address,
            _reservation: reservation,
            listener,
            opened: AtomicWaker::new(),
        })
    }

    /// The address, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on connecting is refused; connections that nobody accepted yet are reset.
    pub fn close(&self) {
        *self.listener.lock() = None;
    }

    /// Listens again.
    ///
    /// # Errors
    /// If the kernel has no socket left.
    pub fn reopen(&self) -> io::Result<()> {
        let mut listener = self.listener.lock();
        if listener.is_none() {
            *listener = Some(bind(self.address)?.listen(BACKLOG)?);
            self.opened.wake();
        }
        Ok(())
    }

    /// The next connection. Waits while the door is closed; for one caller at a time.
    ///
    /// # Errors
    /// As the kernel's accept.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        // Registered before the check, so that a door opened in between wakes this task.
        self.opened.register(context.waker());
        match self.listener.lock().as_ref() {
            Some(listener) => listener.poll_accept(context).map_ok(|(stream, _)| stream),
            None => Poll::Pending,
        }
    }
}

/// `SO_REUSEPORT` lets the reservation and the listener share the port; the kernel gives it to no other user's
/// process, and never picks such a port for an outgoing connection or for port 0.
fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn a_closed_door_refuses_and_opens_at_the_same_port() {
        let door = Door::open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = door.address();
        let (accepted, connected) = tokio::join!(door.accept(), TcpStream::connect(address));
        accepted.and(connected).unwrap();

        door.close();
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);

        let (accepted, connected) = tokio::join!(door.accept(), async {
            door.reopen()?;
            TcpStream::connect(address).await
        });
        accepted.and(connected).unwrap();
    }
}
