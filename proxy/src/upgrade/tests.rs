//! Tunnels over real sockets, and what may become one.

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::*;
use crate::live::testing::{LONG, Proxy, cluster, cluster_saying, gone, read_head, read_until};
use crate::telemetry;

const ASK: &str = "POST /clusters/a/api/v1/namespaces/n/pods/p/exec HTTP/1.1\r\nhost: p\r\nconnection: Upgrade\r\n\
    upgrade: SPDY/3.1\r\nx-stream-protocol-version: v4.channel.k8s.io\r\ncontent-length: 0\r\n\r\n";

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
    x-stream-protocol-version: v4.channel.k8s.io\r\n\r\n";

/// A cluster that switches and then hands its end of the tunnel out.
async fn switching(first: &'static str) -> (Proxy, mpsc::UnboundedReceiver<(String, TcpStream)>) {
    let (told, ends) = mpsc::unbounded_channel();
    let address = cluster(move |mut stream| {
        let told = told.clone();
        async move {
            let head = read_head(&mut stream).await;
            let answer = format!("{SWITCH}{first}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            told.send((head, stream)).unwrap();
        }
    })
    .await;
    (Proxy::start(address, LONG).await, ends)
}

#[tokio::test]
async fn bytes_pass_both_ways_until_both_sides_have_ended() {
    // The first bytes come together with the 101.
    let (proxy, mut ends) = switching("hello").await;
    let mut client = proxy.send(ASK).await;
    let head = read_head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("upgrade: SPDY/3.1\r\n"), "{head}");
    assert!(
        head.to_lowercase().contains("connection: upgrade\r\n"),
        "{head}"
    );
    assert!(
        head.contains("x-stream-protocol-version: v4.channel.k8s.io\r\n"),
        "{head}"
    );
    let (head, mut cluster) = ends.recv().await.unwrap();
    assert!(
        head.starts_with("POST /api/v1/namespaces/n/pods/p/exec HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains("upgrade: SPDY/3.1\r\n"), "{head}");
    assert!(
        head.to_lowercase().contains("connection: upgrade\r\n"),
        "{head}"
    );

    read_until(&mut client, "hello").await;
    client.write_all(b"ping").await.unwrap();
    read_until(&mut cluster, "ping").await;

    // The tunnel outlives the connection that made it.
    proxy.connection.closed.cancel();

    // The client ends its side; the cluster still has something to say.
    client.shutdown().await.unwrap();
    assert_eq!(cluster.read(&mut [0]).await.unwrap(), 0);
    cluster.write_all(b"the rest").await.unwrap();
    read_until(&mut client, "the rest").await;
    drop(cluster);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    proxy.tunnels.close();
    proxy.tunnels.wait().await;
}

#[tokio::test]
async fn a_tunnel_ends_when_its_time_is_over() {
    let (proxy, mut ends) = switching("").await;
    let mut client = proxy.send(ASK).await;
    read_head(&mut client).await;
    let (_, mut cluster) = ends.recv().await.unwrap();
    client.write_all(b"ping").await.unwrap();
    read_until(&mut cluster, "ping").await;
    proxy.ends.cancel();
    gone(&mut client).await;
    gone(&mut cluster).await;
    proxy.tunnels.close();
    proxy.tunnels.wait().await;
}

#[tokio::test]
async fn much_passes_unchanged() {
    let (proxy, mut ends) = switching("").await;
    let mut client = proxy.send(ASK).await;
    read_head(&mut client).await;
    let (_, mut cluster) = ends.recv().await.unwrap();
    let sent: Vec<u8> = (0..4_000_000_u32).map(|i| (i % 251) as u8).collect();
    let (mut cluster_reader, mut cluster_writer) = cluster.split();
    let echo = async {
        tokio::io::copy(&mut cluster_reader, &mut cluster_writer)
            .await
            .unwrap();
        cluster_writer.shutdown().await.unwrap();
    };
    let (mut client_reader, mut client_writer) = client.split();
    let write = async {
        client_writer.write_all(&sent).await.unwrap();
        client_writer.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let ((), (), read) = tokio::join!(echo, write, client_reader.read_to_end(&mut received));
    read.unwrap();
    assert!(received == sent);
}

#[tokio::test]
async fn a_side_that_breaks_takes_the_other_with_it() {
    for client_breaks in [true, false] {
        let (proxy, mut ends) = switching("").await;
        let mut client = proxy.send(ASK).await;
        read_head(&mut client).await;
        let (_, cluster) = ends.recv().await.unwrap();
        let (breaking, mut other) = if client_breaks {
            (client, cluster)
        } else {
            (cluster, client)
        };
        breaking.set_zero_linger().unwrap();
        drop(breaking);
        gone(&mut other).await;
        proxy.tunnels.close();
        proxy.tunnels.wait().await;
    }
}

#[tokio::test]
async fn a_tunnel_that_panics_is_counted_and_ends_alone() {
    telemetry::watch_panics();
    let before = telemetry::panics();
    let (proxy, mut ends) = switching("").await;
    let mut tunnel = async || {
        let mut client = proxy.send(ASK).await;
        read_head(&mut client).await;
        (client, ends.recv().await.unwrap().1)
    };
    let (mut neighbour, mut neighbours_cluster) = tunnel().await;
    for panics_at_client in [true, false] {
        let (mut client, mut cluster) = tunnel().await;
        let (side, other) = match panics_at_client {
            true => (&mut client, &mut cluster),
            false => (&mut cluster, &mut client),
        };
        side.write_all(b"panic").await.unwrap();
        gone(side).await;
        gone(other).await;
    }
    assert!(telemetry::panics() >= before + 2);
    neighbour.write_all(b"ping").await.unwrap();
    read_until(&mut neighbours_cluster, "ping").await;
    drop((neighbour, neighbours_cluster));
    proxy.tunnels.close();
    proxy.tunnels.wait().await;
}

#[tokio::test]
async fn a_refusal_passes() {
    let (address, _requests) = cluster_saying(
        "HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: 17\r\n\r\n{\"code\":403,\"a\":1",
    )
    .await;
    let proxy = Proxy::start(address, LONG).await;
    let mut client = proxy.send(ASK).await;
    let head = read_head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{head}");
    read_until(&mut client, "{\"code\":403,\"a\":1").await;
    assert!(proxy.tunnels.is_empty());
}

#[tokio::test]
async fn an_ordinary_request_cannot_become_a_tunnel() {
    for upgrade in [
        "",
        "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n",
    ] {
        let (address, mut requests) = cluster_saying(SWITCH).await;
        let proxy = Proxy::start(address, LONG).await;
        let mut client = proxy
            .send(&format!(
                "GET /clusters/a/api HTTP/1.1\r\nhost: p\r\n{upgrade}\r\n"
            ))
            .await;
        let head = read_head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        let head = requests.recv().await.unwrap().to_lowercase();
        assert!(
            !head.contains("upgrade") && !head.contains("http2"),
            "{head}"
        );
        assert!(proxy.tunnels.is_empty());
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_101_leaves_no_tunnel() {
    let (told, mut events) = mpsc::unbounded_channel();
    let address = cluster(move |mut stream| {
        let told = told.clone();
        async move {
            read_head(&mut stream).await;
            told.send("asked").unwrap();
            gone(&mut stream).await;
            told.send("gone").unwrap();
        }
    })
    .await;
    let proxy = Proxy::start(address, LONG).await;
    let client = proxy.send(ASK).await;
    assert_eq!(events.recv().await, Some("asked"));
    drop(client);
    assert_eq!(events.recv().await, Some("gone"));
    assert!(proxy.tunnels.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_half_closed_tunnel_does_not_stay_silent_forever() {
    let (client, mut proxy_client) = duplex(64);
    let (mut cluster, proxy_cluster) = duplex(64);
    let spliced = tokio::spawn(async move { splice(&mut proxy_client, proxy_cluster).await });

    // Open on both sides it may be silent for as long as it likes.
    tokio::time::sleep(100 * HALF_CLOSED_SILENCE).await;
    assert!(!spliced.is_finished());

    let (_client_reader, mut client_writer) = split(client);
    client_writer.shutdown().await.unwrap();
    for _ in 0..3 {
        tokio::time::sleep(HALF_CLOSED_SILENCE / 2).await;
        cluster.write_all(b"x").await.unwrap();
    }
    assert!(!spliced.is_finished());
    let error = spliced.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn what_asks_for_a_tunnel() {
    #[track_caller]
    fn check(version: Version, connection: &str, protocol: &str, expected: bool) {
        let mut request = Request::builder()
            .version(version)
            .header(CONNECTION, connection)
            .header(UPGRADE, protocol)
            .body(())
            .unwrap();
        assert_eq!(
            requested(&mut request).is_some(),
            expected,
            "{connection} {protocol}"
        );
    }
    check(Version::HTTP_11, "Upgrade", "websocket", true);
    check(Version::HTTP_11, "keep-alive, upgrade", "SPDY/3.1", true);
    check(Version::HTTP_11, "Upgrade", "tcp", true);
    check(Version::HTTP_11, "keep-alive", "websocket", false);
    check(Version::HTTP_11, "Upgrade", "", false);
    check(Version::HTTP_11, "Upgrade", "h2c", false);
    check(Version::HTTP_11, "Upgrade", "websocket, H2C", false);
    check(Version::HTTP_11, "Upgrade", "HTTP/2.0", false);
    check(Version::HTTP_11, "Upgrade", "TLS/1.2", false);
    check(Version::HTTP_10, "Upgrade", "websocket", false);
    check(Version::HTTP_2, "Upgrade", "websocket", false);
}
