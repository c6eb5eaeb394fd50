//! A listening address that can be closed, or made a black hole, and opened again without losing its port.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::black_hole::FullQueue;

/// How many connections may wait to be accepted; the default of the standard library.
const BACKLOG: u32 = 128;

/// One address: listening, refusing, or a black hole.
///
/// A second socket stays bound to the port without listening. Thereby the port cannot be taken by anyone else
/// while the door is closed, and the kernel answers a SYN with a reset.
#[derive(Debug)]
pub struct Door {
    address: SocketAddr,
    _reservation: TcpSocket,
    /// Held while polling, never across an await, so that closing takes effect before it returns.
    state: Mutex<State>,
    opened: AtomicWaker,
}

#[derive(Debug)]
struct State {
    /// None while it refuses.
    listener: Option<TcpListener>,
    /// While it is a black hole.
    full: Option<FullQueue>,
    /// Filled the queue of the last black hole, and is still to be accepted: it is no client.
    filler: Option<SocketAddr>,
}

impl Door {
    /// Binds and listens. Port 0 takes a free one.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let reservation = bind(address)?;
        let address = reservation.local_addr()?;
        let state = State {
            listener: Some(bind(address)?.listen(BACKLOG)?),
            full: None,
            filler: None,
        };
        Ok(Self {
            address,
            _reservation: reservation,
            state: Mutex::new(state),
            opened: AtomicWaker::new(),
        })
    }

    /// The address, with its real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on connecting is refused; connections that nobody accepted yet are reset.
    pub fn close(&self) {
        *self.state.lock() = State {
            listener: None,
            full: None,
            filler: None,
        };
    }

    /// From now on it is a black hole: whoever connects hears nothing. Connections that were accepted are left alone.
    ///
    /// # Errors
    /// If the kernel has no socket left.
    pub fn swallow(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.full.is_some() {
            return Ok(());
        }
        let listener = match state.listener.take() {
            Some(listener) => listener,
            None => bind(self.address)?.listen(1)?,
        };
        state.full = Some(FullQueue::of(&listener)?);
        state.listener = Some(listener);
        Ok(())
    }

    /// Listens again.
    ///
    /// # Errors
    /// If the kernel has no socket left.
    pub fn reopen(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let full = state.full.take();
        match (&state.listener, full) {
            (None, _) => state.listener = Some(bind(self.address)?.listen(BACKLOG)?),
            (Some(listener), Some(full)) => {
                SockRef::from(listener).listen(BACKLOG.cast_signed())?;
                state.filler = full.peer();
            }
            (Some(_), None) => return Ok(()),
        }
        self.opened.wake();
        Ok(())
    }

    /// The next connection. Waits while the door is closed or a black hole; for one caller at a time.
    ///
    /// # Errors
    /// As the kernel's accept.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        // Registered before the check, so that a door opened in between wakes this task.
        self.opened.register(context.waker());
        let mut state = self.state.lock();
        loop {
            let Some(listener) = state.listener.as_ref().filter(|_| state.full.is_none()) else {
                return Poll::Pending;
            };
            let (stream, peer) = std::task::ready!(listener.poll_accept(context))?;
            if state.filler != Some(peer) {
                return Poll::Ready(Ok(stream));
            }
            state.filler = None;
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
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Long enough for loopback, short enough to wait for in vain.
    const IN_VAIN: Duration = Duration::from_millis(100);

    /// Longer than the kernel waits before it sends a SYN again.
    const PATIENCE: Duration = Duration::from_secs(30);

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

    #[tokio::test]
    async fn a_black_hole_swallows_and_opens_at_the_same_port() {
        let door = Door::open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let address = door.address();
        for closed_before in [false, true, false] {
            if closed_before {
                door.close();
            }
            door.swallow().unwrap();
            door.swallow().unwrap();
            let connecting = TcpStream::connect(address);
            tokio::pin!(connecting);
            timeout(IN_VAIN, &mut connecting).await.unwrap_err();
            timeout(IN_VAIN, door.accept()).await.unwrap_err();

            door.reopen().unwrap();
            // The SYN that was dropped is sent again by itself, and what comes is the client.
            let both = async { tokio::join!(door.accept(), connecting) };
            let (accepted, connected) = timeout(PATIENCE, both).await.unwrap();
            let (accepted, connected) = (accepted.unwrap(), connected.unwrap());
            assert_eq!(
                accepted.peer_addr().unwrap(),
                connected.local_addr().unwrap()
            );
        }
        door.swallow().unwrap();
        door.close();
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[tokio::test]
    async fn who_waits_when_it_becomes_a_black_hole_is_let_in_when_it_opens() {
        let door = Door::open((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let waiting = TcpStream::connect(door.address()).await.unwrap();
        door.swallow().unwrap();
        timeout(IN_VAIN, door.accept()).await.unwrap_err();
        door.reopen().unwrap();
        let accepted = timeout(PATIENCE, door.accept()).await.unwrap().unwrap();
        assert_eq!(accepted.peer_addr().unwrap(), waiting.local_addr().unwrap());
    }
}
