//! The relay's modes, over real sockets.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;

/// Long enough for loopback, short enough to wait for in vain.
const IN_VAIN: Duration = Duration::from_millis(100);

/// A server that sends everything back.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await
            });
        }
    });
    address
}

async fn ask(stream: &mut TcpStream, text: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(text).await?;
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn forwards_both_ways_and_passes_the_end_on() {
    let relay = Relay::start(echo().await).unwrap();
    let mut stream = TcpStream::connect(relay.address()).await.unwrap();
    assert_eq!(ask(&mut stream, b"hello").await.unwrap(), b"hello");
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    relay.stop().await;
}

#[tokio::test]
async fn refuses_new_connections_and_keeps_the_old() {
    let relay = Relay::start(echo().await).unwrap();
    let mut old = TcpStream::connect(relay.address()).await.unwrap();
    ask(&mut old, b"a").await.unwrap();
    relay.set(Mode::Refuse).unwrap();
    let refused = TcpStream::connect(relay.address()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    ask(&mut old, b"b").await.unwrap();
    relay.set(Mode::Forward).unwrap();
    let mut new = TcpStream::connect(relay.address()).await.unwrap();
    ask(&mut new, b"c").await.unwrap();
}

#[tokio::test]
async fn stalls_old_and_new_connections_until_it_forwards_again() {
    let relay = Relay::start(echo().await).unwrap();
    let mut old = TcpStream::connect(relay.address()).await.unwrap();
    ask(&mut old, b"a").await.unwrap();
    relay.set(Mode::Stall).unwrap();
    let mut new = TcpStream::connect(relay.address()).await.unwrap();
    for stream in [&mut old, &mut new] {
        stream.write_all(b"b").await.unwrap();
        timeout(IN_VAIN, stream.read(&mut [0])).await.unwrap_err();
    }
    relay.set(Mode::Forward).unwrap();
    for stream in [&mut old, &mut new] {
        let mut answer = [0];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"b");
    }
}

#[tokio::test]
async fn cutting_resets_what_is_open_and_nothing_else() {
    let relay = Relay::start(echo().await).unwrap();
    let mut old = TcpStream::connect(relay.address()).await.unwrap();
    ask(&mut old, b"a").await.unwrap();
    relay.cut();
    let reset = old.read(&mut [0]).await.unwrap_err();
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    let mut new = TcpStream::connect(relay.address()).await.unwrap();
    ask(&mut new, b"b").await.unwrap();
}

#[tokio::test]
async fn a_target_that_refuses_shows_as_a_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = listener.local_addr().unwrap();
    drop(listener);
    let relay = Relay::start(gone).unwrap();
    let mut stream = TcpStream::connect(relay.address()).await.unwrap();
    let reset = stream.read(&mut [0]).await.unwrap_err();
    assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
    relay.retarget(echo().await);
    let mut stream = TcpStream::connect(relay.address()).await.unwrap();
    ask(&mut stream, b"a").await.unwrap();
}

/// What a TLS client that offers these protocols says first, as far as anybody on the way looks.
fn hello(protocols: &[u8]) -> Vec<u8> {
    let mut record = vec![0x16, 3, 1, 0, 20 + protocols.len() as u8];
    record.extend([0; 20]);
    record.extend(protocols);
    record
}

#[tokio::test]
async fn a_fork_leads_http2_another_way() {
    let (http2, http1) = (
        Relay::start(echo().await).unwrap(),
        Relay::start(echo().await).unwrap(),
    );
    http2.set(Mode::Stall).unwrap();
    let fork = Fork::start(http2.address(), http1.address()).unwrap();
    let mut live = TcpStream::connect(fork.address()).await.unwrap();
    ask(&mut live, &hello(b"\x08http/1.1")).await.unwrap();
    let mut informer = TcpStream::connect(fork.address()).await.unwrap();
    let hello = hello(b"\x02h2\x08http/1.1");
    timeout(IN_VAIN, ask(&mut informer, &hello))
        .await
        .unwrap_err();
    fork.lead_http2(http1.address());
    let mut informer = TcpStream::connect(fork.address()).await.unwrap();
    assert_eq!(ask(&mut informer, &hello).await.unwrap(), hello);
}

#[tokio::test]
async fn a_lag_holds_back_answers() {
    let lag = Lag::start(echo().await).unwrap();
    let mut stream = TcpStream::connect(lag.address()).await.unwrap();
    ask(&mut stream, b"at once").await.unwrap();
    lag.set(IN_VAIN);
    let started = tokio::time::Instant::now();
    assert_eq!(ask(&mut stream, b"late").await.unwrap(), b"late");
    assert!(started.elapsed() >= IN_VAIN, "{:?}", started.elapsed());
}
