//! How clusters are reached.

use http::{HeaderMap, HeaderValue, Method, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::cluster_accessor::NotConnectedReason;
use crate::upstream::fake::Authority;

async fn get_as_informer(connection: &Connection, path: &str) -> String {
    let shard = connection.informer_shard();
    let request = connection.informer_request(path, "application/json");
    let answer = within(Box::pin(connection.send_informer(&shard, request)))
        .await
        .unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn live_speaks_http_1_and_informers_http_2_behind_the_base_path() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.endpoint.server = format!("{}/k8s/c1", server.url()).parse().unwrap();
    config.credential = CredentialConfig::Token("t".into());
    let connection = Running::start(config).connected().await;
    assert_eq!((connection.generation, connection.epoch), (1, 1));

    let mut headers = HeaderMap::new();
    headers.insert("x-one", HeaderValue::from_static("1"));
    headers.insert("authorization", HeaderValue::from_static("Bearer theirs"));
    headers.insert("host", HeaderValue::from_static("proxy"));
    let path = "/api/v1/pods?labelSelector=a%3Db&x=+";
    let request = connection.request(Method::POST, path, headers, empty_body());
    connection.send_live(request).await.unwrap();
    let seen = server.asked(|seen| seen.method == Method::POST).await;
    assert_eq!(seen.target, format!("/k8s/c1{path}"));
    assert_eq!(seen.version, Version::HTTP_11);
    assert_eq!(seen.headers["authorization"], "Bearer t");
    assert_eq!(seen.headers["host"], server.address.to_string());
    assert_eq!(seen.headers["x-one"], "1");

    get_as_informer(&connection, "/api/v1/nodes").await;
    let seen = server.asked(|seen| seen.target.ends_with("/nodes")).await;
    assert_eq!(seen.target, "/k8s/c1/api/v1/nodes");
    assert_eq!(seen.version, Version::HTTP_2);
    assert_eq!(seen.headers["authorization"], "Bearer t");
    assert_eq!(seen.headers["accept"], "application/json");
    assert!(!seen.headers.contains_key("host"));
    assert_eq!(seen.authority, Some(server.address.to_string()));
}

#[tokio::test]
async fn a_path_that_climbs_out_of_the_base_path_is_not_sent() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.endpoint.server = format!("{}/k8s/c1", server.url()).parse().unwrap();
    let connection = Running::start(config).connected().await;
    let error = get(&connection, "/../c2/api").await.unwrap_err();
    assert!(!error.sent());
    assert!(!server.seen.borrow().iter().any(|s| s.target.contains("c2")));
}

/// A plain server that connects, then answers every request with 101 and echoes.
async fn echo_server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                loop {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    if head.starts_with(b"POST") {
                        break;
                    }
                    let no = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
                    stream.write_all(no).await.unwrap();
                }
                let switch =
                    b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
                stream.write_all(switch).await.unwrap();
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn upgrades_work_and_outlive_the_connection() {
    let address = echo_server().await;
    let running = Running::start(config(&format!("http://{address}")));
    let connection = running.connected().await;
    let mut headers = HeaderMap::new();
    headers.insert("connection", HeaderValue::from_static("upgrade"));
    headers.insert("upgrade", HeaderValue::from_static("echo"));
    let request = connection.request(Method::POST, "/exec", headers, empty_body());
    let mut answer = connection.send_live(request).await.unwrap();
    assert_eq!(answer.status(), 101);
    let upgraded = within(hyper::upgrade::on(&mut answer)).await.unwrap();
    running.accessor.remove();
    within(connection.closed().cancelled()).await;
    let mut tunnel = TokioIo::new(upgraded);
    tunnel.write_all(b"hello").await.unwrap();
    let mut echo = [0; 5];
    within(tunnel.read_exact(&mut echo)).await.unwrap();
    assert_eq!(&echo, b"hello");
}

#[tokio::test]
async fn eighty_informers_share_a_connection_and_dial_it_once() {
    let server = FakeServer::start("127.0.0.1").await;
    let connection = Running::start(config_of(&server)).connected().await;
    let before = server.connections();
    let shards: Vec<_> = (0..81).map(|_| connection.informer_shard()).collect();
    let requests = shards.iter().map(|shard| {
        let request = connection.informer_request("/x", "*/*");
        connection.send_informer(shard, request)
    });
    for answer in within(futures_util::future::join_all(requests)).await {
        answer.unwrap();
    }
    assert_eq!(server.connections() - before, 2);
    drop(shards);
    // All places are free again.
    let _shards: Vec<_> = (0..160).map(|_| connection.informer_shard()).collect();
    assert_eq!(server.connections() - before, 2);
}

#[tokio::test]
async fn a_server_without_http_2_serves_informers_too() {
    let server = FakeServer::start_with("127.0.0.1", &[b"http/1.1"]).await;
    let connection = Running::start(config_of(&server)).connected().await;
    assert_eq!(get_as_informer(&connection, "/nodes").await, "{}");
    let seen = server.asked(|seen| seen.target == "/nodes").await;
    assert_eq!(seen.version, Version::HTTP_11);
    assert_eq!(seen.headers["host"], server.address.to_string());
}

#[tokio::test]
async fn what_the_server_sends_is_stamped() {
    let server = FakeServer::start("127.0.0.1").await;
    let connection = Running::start(config_of(&server)).connected().await;
    let shard = connection.informer_shard();
    let request = || connection.informer_request("/x", "*/*");
    connection.send_informer(&shard, request()).await.unwrap();
    let silence = Duration::from_millis(20);
    within(async {
        while shard.heard_ago() < silence {
            tokio::task::yield_now().await;
        }
    })
    .await;
    connection.send_informer(&shard, request()).await.unwrap();
    assert!(shard.heard_ago() < silence);
}

#[tokio::test]
async fn a_plain_server_gets_no_credential() {
    let server = FakeServer::start_plain().await;
    let mut config = config(&server.url());
    config.credential = CredentialConfig::Token("secret".into());
    let connection = Running::start(config).connected().await;
    get(&connection, "/x").await.unwrap();
    get_as_informer(&connection, "/y").await;
    for seen in server.seen.borrow().iter() {
        assert!(!seen.headers.contains_key("authorization"), "{seen:?}");
    }
}

#[tokio::test]
async fn the_server_name_is_the_one_configured() {
    let server = FakeServer::start("inside.example").await;
    let mut config = config_of(&server);
    let running = Running::start(config.clone());
    let view = running.disconnected().await;
    assert_eq!(
        view.trouble.unwrap().message,
        "TLS failed: the server's certificate is for another name"
    );
    config.endpoint.tls_server_name = Some("inside.example".to_owned());
    Running::start(config).connected().await;
}

#[tokio::test]
async fn a_certificate_of_a_stranger_is_refused_unless_told_so() {
    let server = FakeServer::start("127.0.0.1").await;
    let mut config = config_of(&server);
    config.endpoint.certificate_authority = Some(Authority::new().pem.into_bytes());
    let running = Running::start(config.clone());
    let view = running.disconnected().await;
    assert_eq!(
        view.trouble.unwrap().message,
        "TLS failed: the server's certificate is signed by an unknown authority"
    );
    config.endpoint.certificate_authority = None;
    config.endpoint.insecure_skip_tls_verify = true;
    Running::start(config).connected().await;
}

#[tokio::test]
async fn nobody_listening_and_no_such_name_are_told_apart() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let running = Running::start(config(&format!("https://{address}")));
    running.disconnected().await;
    let why = running.accessor.connected().await.unwrap_err();
    assert_eq!(why.reason, NotConnectedReason::ConnectionRefused);
    assert_eq!(why.message, "connection refused");
    assert!(why.next_attempt.unwrap() <= Duration::from_secs(1));

    let mut config = config("https://no-such-name.invalid");
    // A resolver that is itself out of reach takes its time to say so.
    config.timing.connect_timeout = Duration::from_secs(15);
    let view = Running::start(config).disconnected().await;
    let trouble = view.trouble.unwrap();
    assert_eq!(trouble.reason, NotConnectedReason::NameNotResolved);
    assert_eq!(trouble.message, "the name of the server did not resolve");
}

#[tokio::test]
async fn a_server_that_accepts_and_stays_mute_times_out() {
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.mute = true);
    let mut config = config_of(&server);
    config.timing.connect_timeout = Duration::from_millis(200);
    let view = Running::start(config).disconnected().await;
    let trouble = view.trouble.unwrap();
    assert_eq!(trouble.reason, NotConnectedReason::ConnectTimeout);
    assert_eq!(trouble.message, "timed out while connecting");
}

#[tokio::test]
async fn a_server_that_was_silent_is_found_as_soon_as_it_answers() {
    // Accepted by the kernel, and by nobody else until the process goes on.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    let mut config = config(&server);
    config.timing.connect_timeout = Duration::from_millis(200);
    config.timing.backoff_min = Duration::from_secs(3600);
    config.timing.backoff_max = Duration::from_secs(3600);
    let server = FakeServer::start("127.0.0.1").await;
    config.endpoint.certificate_authority = Some(server.authority.pem.clone().into_bytes());
    let running = Running::start(config);
    running.disconnected().await;
    // What waits in the queue gets the real server, byte for byte.
    let address = server.address;
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(address).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    running.connected().await;
}

#[tokio::test]
async fn a_server_that_is_starting_is_asked_again_soon() {
    let server = FakeServer::start("127.0.0.1").await;
    server.change(|script| script.probe = http::StatusCode::INTERNAL_SERVER_ERROR);
    let mut config = config_of(&server);
    config.timing.backoff_min = Duration::from_secs(3600);
    config.timing.backoff_max = Duration::from_secs(3600);
    let running = Running::start(config);
    let view = running.disconnected().await;
    assert_eq!(
        view.trouble.unwrap().reason,
        NotConnectedReason::ServerError
    );
    let why = running.accessor.connected().await.unwrap_err();
    assert!(why.next_attempt.unwrap() <= Duration::from_secs(5));
    server.change(|script| script.probe = http::StatusCode::OK);
    running.connected().await;
}

/// Another server, or another path of the right one: its 404 to everything must not be taken for the cluster's.
#[tokio::test]
async fn who_does_not_know_kubernetes_is_no_cluster() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (answer, answers) = tokio::sync::watch::channel(("404 Not Found", "404 page not found"));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answers = answers.clone();
            tokio::spawn(async move {
                loop {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    let (status, body) = *answers.borrow();
                    let length = body.len();
                    let answer =
                        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    let mut config = config(&format!("http://{address}"));
    config.timing.backoff_max = Duration::from_millis(10);
    let running = Running::start(config);
    // Of a port that somebody else uses, of a login page, and of what leads to one.
    for other in [
        ("404 Not Found", "404 page not found"),
        ("200 OK", "<html>Please log in</html>"),
        ("302 Found", ""),
        // Whoever may not ask for a path is not told that nothing is there.
        (
            "403 Forbidden",
            r#"{"kind":"Status","message":"forbidden: User \"p\" cannot get path \"/k8s/c1/api/v1/namespaces/kube-system\""}"#,
        ),
    ] {
        answer.send_replace(other);
        let tried = running.accessor.status().connects.failed + 1;
        running
            .until(|view| {
                let trouble = view.trouble.as_ref();
                view.connects.failed > tried
                    && trouble.is_some_and(|it| it.reason == NotConnectedReason::NotKubernetes)
            })
            .await;
        assert_eq!(running.accessor.status().connects.succeeded, 0);
    }
    // An API server without that namespace, and without that path to probe.
    answer.send_replace((
        "404 Not Found",
        r#"{"kind":"Status","apiVersion":"v1","code":404}"#,
    ));
    running.connected().await;
}

#[tokio::test]
async fn a_server_that_shakes_hands_and_says_nothing_gets_its_pauses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // Without TLS there is no more to a handshake than what the kernel does.
    let mut config = config(&format!("http://{}", listener.local_addr().unwrap()));
    config.timing.connect_timeout = Duration::from_millis(100);
    config.timing.backoff_min = Duration::from_secs(3600);
    config.timing.backoff_max = Duration::from_secs(3600);
    let running = Running::start(config.clone());
    // The connect, the handshake that waited, and the one connect that this called for.
    running.until(|view| view.connects.failed == 2).await;
    running.disconnected().await;
    let mut relabelled = config.clone();
    relabelled.labels.insert("a".to_owned(), "b".to_owned());
    running.accessor.update(relabelled);
    // As long as it takes one without pauses to fail five times.
    config.timing.backoff_min = Duration::from_millis(1);
    config.timing.backoff_max = Duration::from_millis(1);
    let other = Running::start(config);
    other.until(|view| view.connects.failed >= 5).await;
    assert_eq!(running.accessor.status().connects.failed, 2);
}
