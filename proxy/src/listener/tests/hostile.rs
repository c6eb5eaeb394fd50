//! Clients that take what they can get.

use super::*;

/// A client's hello for this version, and maybe with an extension that names another one.
fn hello(version: [u8; 2], supported: Option<[u8; 2]>) -> Vec<u8> {
    let extension = |kind: u8, content: &[u8]| {
        let length = u8::try_from(content.len()).unwrap();
        [&[0, kind, 0, length], content].concat()
    };
    let mut extensions = [
        // Groups x25519 and secp256r1, points uncompressed, ECDSA and RSA with SHA-256.
        extension(10, &[0, 4, 0, 29, 0, 23]),
        extension(11, &[1, 0]),
        extension(13, &[0, 6, 4, 3, 8, 4, 4, 1]),
    ]
    .concat();
    if let Some([major, minor]) = supported {
        extensions.extend(extension(43, &[2, major, minor]));
    }
    // ECDHE-ECDSA with AES-128-GCM, and two suites that TLS 1.0 has already.
    let suites = [0, 6, 0xc0, 0x2b, 0xc0, 0x09, 0xc0, 0x13];
    let length = u16::try_from(extensions.len()).unwrap().to_be_bytes();
    let hello = [
        &version[..],
        &[7; 32],
        &[0],
        &suites,
        &[1, 0],
        &length,
        &extensions,
    ]
    .concat();
    let handshake = [
        &[1, 0],
        &u16::try_from(hello.len()).unwrap().to_be_bytes()[..],
        &hello,
    ]
    .concat();
    let length = u16::try_from(handshake.len()).unwrap().to_be_bytes();
    [&[22, 3, 1][..], &length, &handshake].concat()
}

#[tokio::test]
async fn tls_is_1_2_at_least() {
    const HANDSHAKE: [u8; 1] = [22];
    // Fatal: protocol version.
    const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];
    let server = TestServer::start(PATIENT).await;
    for (version, supported, expected) in [
        ([3, 0], None, &ALERT[..]),
        ([3, 1], None, &ALERT),
        ([3, 2], None, &ALERT),
        ([3, 3], Some([3, 2]), &ALERT),
        ([3, 3], Some([3, 3]), &HANDSHAKE),
        ([3, 3], None, &HANDSHAKE),
    ] {
        let mut stream = server.tcp().await;
        stream.write_all(&hello(version, supported)).await.unwrap();
        let mut read = vec![0; expected.len()];
        stream.read_exact(&mut read).await.unwrap();
        assert_eq!(read, expected, "{version:?} {supported:?}");
    }
}

#[tokio::test]
async fn who_has_no_place_is_hung_up_on() {
    let places = Places::new(2, 2);
    let server = TestServer::with_places(PATIENT, Arc::clone(&places)).await;
    // One that has not even begun has a place, too.
    let silent = server.tcp().await;
    let mut sender = server.http1().await;
    assert_eq!(places.taken(), 2);
    let mut third = server.tcp().await;
    assert_eq!(read_to_end(&mut third).await, b"");
    assert_eq!(places.refused().total, 1);
    // Those that are there go on.
    assert_eq!(sender.send_request(get("/")).await.unwrap().status(), 200);
    drop(silent);
    while places.taken() > 1 {
        tokio::task::yield_now().await;
    }
    let mut again = server.http1().await;
    assert_eq!(again.send_request(get("/")).await.unwrap().status(), 200);
}

/// What comes back for these bytes until the connection ends.
async fn said(server: &TestServer, bytes: &[u8]) -> String {
    let mut stream = server.tls(&["http/1.1"]).await.into_inner();
    // It may hang up before all is there.
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    let read = read_to_end(&mut stream).await;
    String::from_utf8_lossy(&read).into_owned()
}

#[tokio::test]
async fn a_request_has_a_size() {
    let server = TestServer::start(PATIENT).await;
    let fields = |count: usize| "X-A: b\r\n".repeat(count - 2);
    let long = |length: usize| "a".repeat(length);
    for (path, headers, expected) in [
        (long(60_000), String::new(), "200 OK"),
        (long(70_000), String::new(), "414 URI Too Long"),
        (
            String::new(),
            format!("X-A: {}\r\n", long(300 << 10)),
            "200 OK",
        ),
        (
            String::new(),
            format!("X-A: {}\r\n", long(500 << 10)),
            "431 Request Header Fields Too Large",
        ),
        (String::new(), fields(1000), "200 OK"),
        (
            String::new(),
            fields(1001),
            "431 Request Header Fields Too Large",
        ),
    ] {
        let what = (path.len(), headers.len());
        let request =
            format!("GET /{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n");
        let said = said(&server, request.as_bytes()).await;
        let expected = format!("HTTP/1.1 {expected}\r\n");
        assert!(said.starts_with(&expected), "{what:?}: {said:.200}");
    }
}

#[tokio::test]
async fn a_body_that_nobody_reads_is_not_waited_for() {
    let server = TestServer::start(PATIENT).await;
    for body in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{body}\r\n\r\n");
        let said = said(&server, request.as_bytes()).await;
        assert!(said.starts_with("HTTP/1.1 200 OK\r\n"), "{body}: {said}");
    }
}

#[tokio::test]
async fn a_second_request_has_its_time_too() {
    let server = TestServer::start(Timeouts {
        next_request: MEDIUM,
        ..PATIENT
    })
    .await;
    let said = said(
        &server,
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHos",
    )
    .await;
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), 1, "{said}");
}

#[tokio::test]
async fn an_idle_http2_connection_is_told_to_go() {
    let server = TestServer::start(Timeouts {
        next_request: MEDIUM,
        ..PATIENT
    })
    .await;
    let (mut sender, connection) = server.http2().await;
    let stalled = tokio::spawn(sender.send_request(get("/stall")));
    server.stall.arrived(1).await;
    // A request under way is not idle, however long it takes.
    tokio::time::sleep(3 * MEDIUM).await;
    assert!(!connection.is_finished());
    server.stall.go_on.cancel();
    assert_eq!(text(stalled.await.unwrap().unwrap()).await, "went on");
    // Gracefully: a request that comes at that moment is answered.
    connection.await.unwrap().unwrap();
}

/// Where a client answers no ping, it has gone, or reads nothing.
#[tokio::test]
async fn an_http2_client_must_be_there() {
    let server = TestServer::start(Timeouts {
        ping: SHORT,
        pong: SHORT,
        ..PATIENT
    })
    .await;
    let mut stream = server.tls(&["h2"]).await.into_inner();
    // The preface, settings, and GET / on stream 1, whose answer keeps the connection.
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let request = [0, 0, 5, 1, 5, 0, 0, 0, 1, 0x82, 0x84, 0x87, 0x41, 0x00];
    let bytes = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &request].concat();
    stream.write_all(&bytes).await.unwrap();
    stream.flush().await.unwrap();
    read_to_end(&mut stream).await;
}
