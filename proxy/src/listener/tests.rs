//! A listener with a service of its own, and clients that behave well and badly.

mod certificates;
mod drain;
mod hostile;
mod panics;

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::body::full;
use crate::state_dir::StateDir;
use crate::telemetry;

const LONG: Duration = Duration::from_secs(60);
/// For clients that do nothing: whenever it ends, they are hung up on.
const SHORT: Duration = Duration::from_millis(50);
/// For clients that do something in time, on a busy machine too.
const MEDIUM: Duration = Duration::from_millis(500);
const PATIENT: Timeouts = Timeouts::all(LONG);

/// Requests for `/stall` wait until they may go on.
#[derive(Clone)]
struct Stall {
    arrived: Arc<Semaphore>,
    go_on: CancellationToken,
}

impl Stall {
    async fn arrived(&self, count: u32) {
        self.arrived.acquire_many(count).await.unwrap().forget();
    }
}

type Stream = TokioIo<TlsStream<TcpStream>>;
type ClientBody = BoxBody<Bytes, std::convert::Infallible>;

struct TestServer {
    addr: SocketAddr,
    ca_pem: String,
    draining: CancellationToken,
    stall: Stall,
    task: JoinHandle<()>,
    /// What the next connection begins with.
    tls: Arc<ArcSwap<ServerConfig>>,
}

impl TestServer {
    async fn start(timeouts: Timeouts) -> Self {
        Self::with_places(timeouts, Places::new(1000, 1000)).await
    }

    async fn with_places(timeouts: Timeouts, places: Arc<Places>) -> Self {
        telemetry::watch_panics();
        let temp = tempfile::tempdir().unwrap();
        let certificates = StateDir::open(temp.path())
            .unwrap()
            .certificates(&[])
            .unwrap();
        let ca_pem = certificates.ca_pem.clone();
        let tls = tls_config(&certificates.chain, &certificates.key, None).unwrap();
        let tls = Arc::new(ArcSwap::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let draining = CancellationToken::new();
        let stall = Stall {
            arrived: Arc::new(Semaphore::new(0)),
            go_on: CancellationToken::new(),
        };
        let service = {
            let stall = stall.clone();
            move |request| answer(request, stall.clone())
        };
        let serve = serve(
            listener,
            Arc::clone(&tls),
            timeouts,
            Arc::clone(&places),
            service,
            draining.clone(),
        );
        let task = tokio::spawn(serve);
        Self {
            addr,
            ca_pem,
            draining,
            stall,
            task,
            tls,
        }
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    async fn tls(&self, alpn: &[&str]) -> Stream {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes()).unwrap();
        roots.add(ca).unwrap();
        let mut config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        TokioIo::new(connector.connect(name, self.tcp().await).await.unwrap())
    }

    async fn http1(&self) -> http1::SendRequest<ClientBody> {
        let (sender, connection) = http1::handshake(self.tls(&["http/1.1"]).await)
            .await
            .unwrap();
        tokio::spawn(connection.with_upgrades());
        sender
    }

    async fn http2(
        &self,
    ) -> (
        http2::SendRequest<ClientBody>,
        JoinHandle<hyper::Result<()>>,
    ) {
        let stream = self.tls(&["h2", "http/1.1"]).await;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream)
            .await
            .unwrap();
        (sender, tokio::spawn(connection))
    }
}

/// The service under test.
async fn answer(request: Request<Incoming>, stall: Stall) -> Response<Body> {
    match request.uri().path() {
        "/panic" => panic!("on purpose"),
        "/panic-half-way" => {
            let first = Ok(Frame::data(Bytes::from("first")));
            // What has been made is on its way by then.
            let second = stream::once(async {
                tokio::task::yield_now().await;
                panic!("on purpose")
            });
            let frames = stream::iter([first]).chain(second);
            Response::new(StreamBody::new(frames).boxed_unsync())
        }
        "/stall" => {
            stall.arrived.add_permits(1);
            stall.go_on.cancelled().await;
            Response::new(full("went on"))
        }
        "/upload" => {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            Response::new(full(body.len().to_string()))
        }
        "/upgrade" => {
            let upgrade = hyper::upgrade::on(request);
            tokio::spawn(async move {
                let mut tunnel = TokioIo::new(upgrade.await.unwrap());
                tunnel.write_all(b"hello").await.unwrap();
                tunnel.shutdown().await.unwrap();
            });
            let mut answer = Response::new(full(""));
            *answer.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
            answer
        }
        "/chain" => {
            let chain = request.extensions().get::<ClientChain>();
            let sent = chain.map(|ClientChain(sent)| sent.iter().map(|it| it.len()).collect());
            let sent: Vec<usize> = sent.unwrap_or_default();
            Response::new(full(format!("{sent:?}")))
        }
        "/watch" => {
            let writer = request.extensions().get::<AnswerWriter>();
            Response::new(full(writer.is_some().to_string()))
        }
        _ => Response::new(full(format!("{:?}", request.version()))),
    }
}

fn get(path: &str) -> Request<ClientBody> {
    let body = Empty::new().boxed();
    // hyper's client adds none, and no HTTP/1.1 is without.
    Request::get(format!("https://localhost{path}"))
        .header("host", "localhost")
        .body(body)
        .unwrap()
}

async fn text(answer: Response<Incoming>) -> String {
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Reads until the other side ends the connection, gracefully or not.
async fn read_to_end(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        all.extend_from_slice(&chunk[..read]);
    }
    all
}

#[tokio::test]
async fn the_protocol_follows_from_alpn() {
    let server = TestServer::start(PATIENT).await;
    let (mut sender, _) = server.http2().await;
    assert_eq!(
        text(sender.send_request(get("/")).await.unwrap()).await,
        "HTTP/2.0"
    );
    let mut sender = server.http1().await;
    assert_eq!(
        text(sender.send_request(get("/")).await.unwrap()).await,
        "HTTP/1.1"
    );
    // A client without ALPN, such as an old one, speaks HTTP/1.1.
    let (mut sender, connection) = http1::handshake(server.tls(&[]).await).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(
        text(sender.send_request(get("/")).await.unwrap()).await,
        "HTTP/1.1"
    );
}

#[tokio::test]
async fn answers_may_have_their_own_time() {
    let server = TestServer::start(PATIENT).await;
    let mut sender = server.http1().await;
    let answer = sender.send_request(get("/watch")).await.unwrap();
    assert_eq!(text(answer).await, "true");
    let (mut sender, _) = server.http2().await;
    let answer = sender.send_request(get("/watch")).await.unwrap();
    assert_eq!(text(answer).await, "true");
}

#[tokio::test]
async fn little_waits_in_the_kernel_for_a_client_that_does_not_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (_client, stream) = tokio::join!(client, accept(&listener));
    let unsent = SockRef::from(&stream).tcp_notsent_lowat().unwrap();
    assert_eq!(unsent, UNSENT);
}

#[tokio::test]
async fn a_client_that_vanished_is_noticed_by_the_kernel() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap());
    let (_client, stream) = tokio::join!(client, accept(&listener));
    let socket = SockRef::from(&stream);
    assert!(socket.keepalive().unwrap());
    let patience = socket.tcp_keepalive_time().unwrap()
        + socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
    assert_eq!(patience, Duration::from_secs(90));
}

#[tokio::test]
async fn a_client_without_a_handshake_is_hung_up_on() {
    let server = TestServer::start(Timeouts {
        handshake: SHORT,
        ..PATIENT
    })
    .await;
    // Nothing at all, and the start of a TLS record without its rest.
    for sent in [&b""[..], &[22, 3, 1, 2, 0]] {
        let mut stream = server.tcp().await;
        stream.write_all(sent).await.unwrap();
        assert_eq!(read_to_end(&mut stream).await, b"");
    }
}

#[tokio::test]
async fn a_client_without_a_request_is_hung_up_on() {
    let server = TestServer::start(Timeouts {
        first_request: SHORT,
        ..PATIENT
    })
    .await;
    for (alpn, sent) in [
        ("http/1.1", "GET / HTTP/1.1\r\nHost: a\r\n"),
        ("h2", ""),
        ("h2", "PRI * HT"),
    ] {
        let mut stream = server.tls(&[alpn]).await.into_inner();
        stream.write_all(sent.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        read_to_end(&mut stream).await;
    }
}

#[tokio::test]
async fn who_has_asked_may_wait_for_the_answer() {
    let server = TestServer::start(Timeouts {
        first_request: MEDIUM,
        next_request: MEDIUM,
        ..PATIENT
    })
    .await;
    let mut sender = server.http1().await;
    let answer = tokio::spawn(sender.send_request(get("/stall")));
    server.stall.arrived(1).await;
    tokio::time::sleep(2 * MEDIUM).await;
    server.stall.go_on.cancel();
    assert_eq!(text(answer.await.unwrap().unwrap()).await, "went on");
}

#[tokio::test]
async fn an_idle_connection_is_ended_after_its_time() {
    let server = TestServer::start(Timeouts {
        next_request: MEDIUM,
        ..PATIENT
    })
    .await;
    let mut stream = server.tls(&["http/1.1"]).await.into_inner();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .await
        .unwrap();
    let read = read_to_end(&mut stream).await;
    assert!(read.starts_with(b"HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn plain_http_is_told_what_it_met() {
    let server = TestServer::start(PATIENT).await;
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = server.tcp().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        // The client's end comes with its request; it need not wait for the server to give up.
        stream.shutdown().await.unwrap();
        let read = String::from_utf8(read_to_end(&mut stream).await).unwrap();
        assert_eq!(
            read,
            "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
        );
    }
}

#[tokio::test]
async fn an_upgrade_leaves_http_behind() {
    let server = TestServer::start(PATIENT).await;
    let mut sender = server.http1().await;
    let mut request = get("/upgrade");
    let headers = request.headers_mut();
    headers.insert("connection", "upgrade".parse().unwrap());
    headers.insert("upgrade", "test".parse().unwrap());
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 101);
    let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    assert_eq!(read_to_end(&mut tunnel).await, b"hello");
}

#[tokio::test]
async fn stalled_uploads_do_not_stop_other_streams() {
    let server = TestServer::start(PATIENT).await;
    let (mut sender, _) = server.http2().await;
    // More than a stream's window each, together many times a usual connection window; nobody reads them.
    let upload = |path: &str, chunks: usize, ends: bool| {
        let chunk = || Ok(Frame::data(Bytes::from(vec![0; 64 << 10])));
        let chunks = stream::iter((0..chunks).map(move |_| chunk()));
        let body = match ends {
            true => BoxBody::new(StreamBody::new(chunks)),
            false => BoxBody::new(StreamBody::new(chunks.chain(stream::pending()))),
        };
        Request::post(format!("https://localhost{path}"))
            .body(body)
            .unwrap()
    };
    let stalled: Vec<_> = (0..64)
        .map(|_| tokio::spawn(sender.send_request(upload("/stall", 6, false))))
        .collect();
    let answer = sender
        .send_request(upload("/upload", 16, true))
        .await
        .unwrap();
    assert_eq!(text(answer).await, (1 << 20).to_string());
    server.stall.go_on.cancel();
    for answer in stalled {
        assert_eq!(answer.await.unwrap().unwrap().status(), 200);
    }
}

#[test]
fn errors_of_one_connection_do_not_pause_the_loop() {
    let check = |code: i32, expect: bool| {
        assert_eq!(
            is_of_one_connection(&io::Error::from_raw_os_error(code)),
            expect,
            "{code}"
        );
    };
    let (emfile, enfile, enobufs, econnaborted, econnreset) = (24, 23, 105, 103, 104);
    check(econnaborted, true);
    check(econnreset, true);
    check(emfile, false);
    check(enfile, false);
    check(enobufs, false);
}
