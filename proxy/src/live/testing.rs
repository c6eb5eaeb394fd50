//! A proxy of one path and a cluster that plays a script, both on loopback.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use fleetcache_cache::upstream::{RequestBody, UpstreamError};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::combinators::BoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::upstream::Upstream;
use super::{ClientBody, GoesOn, LiveRequest, exchange};
use crate::body::{Body, BoxError};
use crate::identity::AsWhom;
use crate::status;
use crate::upgrade::Terms;

/// A connection to a scripted cluster, which remembers what its owner was told.
pub(crate) struct FakeConnection {
    client: Client<HttpConnector, RequestBody>,
    address: SocketAddr,
    base_path: &'static str,
    pub(crate) closed: CancellationToken,
    pub(crate) lost: CancellationToken,
    pub(crate) replaced: CancellationToken,
    pub(crate) suspected: AtomicUsize,
    pub(crate) rejected: AtomicUsize,
    /// The number of the credential, which goes along in a header from the second one on.
    pub(crate) credential: watch::Sender<u64>,
    pub(crate) successor: OnceLock<Arc<Self>>,
}

impl FakeConnection {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            address,
            base_path: "",
            closed: CancellationToken::new(),
            lost: CancellationToken::new(),
            replaced: CancellationToken::new(),
            suspected: AtomicUsize::new(0),
            rejected: AtomicUsize::new(0),
            credential: watch::Sender::new(0),
            successor: OnceLock::new(),
        }
    }

    /// As where the cluster is gone.
    pub(crate) fn disconnect(&self) {
        self.closed.cancel();
        self.lost.cancel();
    }
}

impl Upstream for FakeConnection {
    fn request(
        &self,
        method: Method,
        path_and_query: &str,
        headers: HeaderMap,
        body: RequestBody,
    ) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = format!("http://{}{}{path_and_query}", self.address, self.base_path)
            .parse()
            .unwrap();
        *request.headers_mut() = headers;
        let number = self.credential_number();
        if number > 0 {
            request.headers_mut().insert("x-credential", number.into());
        }
        request
    }

    fn request_of_caller(
        &self,
        method: Method,
        path_and_query: &str,
        headers: HeaderMap,
        body: RequestBody,
        authorization: HeaderValue,
    ) -> Request<RequestBody> {
        let mut request = self.request(method, path_and_query, headers, body);
        request.headers_mut().insert(AUTHORIZATION, authorization);
        request
    }

    async fn send_live(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        self.client.request(request).await.map_err(|error| {
            if error.is_connect() {
                UpstreamError::Refused(error.into())
            } else {
                UpstreamError::Broken(error.into())
            }
        })
    }

    fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    fn replaced(&self) -> &CancellationToken {
        &self.replaced
    }

    fn suspect(&self) {
        self.suspected.fetch_add(1, Ordering::SeqCst);
    }

    fn credential_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::SeqCst);
    }

    fn credential_number(&self) -> u64 {
        *self.credential.borrow()
    }

    async fn another_credential(&self, refused: u64) -> bool {
        let mut numbers = self.credential.subscribe();
        let another = async { numbers.wait_for(|number| *number != refused).await.is_ok() };
        let another = self.closed.run_until_cancelled(another).await;
        another.unwrap_or(false)
    }

    fn successor(&self) -> Option<Arc<Self>> {
        self.successor.get().cloned()
    }
}

/// What of a live request a test chooses.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) long_running: bool,
    pub(crate) watch: bool,
    pub(crate) request_timeout: Duration,
    pub(crate) watch_disconnect_grace: Duration,
    /// The `Authorization` of the caller's own, where requests are sent as it.
    pub(crate) as_caller: Option<&'static str>,
}

pub(crate) const PLAIN: Kind = Kind {
    long_running: false,
    watch: false,
    request_timeout: Duration::from_secs(60),
    watch_disconnect_grace: Duration::ZERO,
    as_caller: None,
};

pub(crate) const WATCH: Kind = Kind {
    long_running: true,
    watch: true,
    ..PLAIN
};

pub(crate) const LONG: Kind = Kind {
    long_running: true,
    ..PLAIN
};

/// A proxy of cluster `a`: its listener, its connection, its tunnels.
pub(crate) struct Proxy {
    address: SocketAddr,
    pub(crate) connection: Arc<FakeConnection>,
    pub(crate) tunnels: TaskTracker,
    /// Ends its tunnels.
    pub(crate) ends: CancellationToken,
    pub(crate) gone: UnboundedReceiver<Gone>,
}

/// What is seen of a client that goes away before its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// The proxy has found out.
    Client,
    /// Its write was answered so, thereafter.
    Answered(u16),
}

/// Tells that the client is gone, unless its answer came before.
struct Present(Option<UnboundedSender<Gone>>);

impl Drop for Present {
    fn drop(&mut self) {
        let _ = self.0.take().map(|tell| tell.send(Gone::Client));
    }
}

impl Proxy {
    /// Serves `/clusters/a/…` over the cluster at `address`.
    pub(crate) async fn start(address: SocketAddr, kind: Kind) -> Self {
        Self::start_below(address, "", kind).await
    }

    /// As [`Self::start`], for a cluster behind a base path.
    pub(crate) async fn start_below(
        address: SocketAddr,
        base_path: &'static str,
        kind: Kind,
    ) -> Self {
        let connection = Arc::new(FakeConnection {
            base_path,
            ..FakeConnection::to(address)
        });
        let tunnels = TaskTracker::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, gone) = mpsc::unbounded_channel();
        let ends = CancellationToken::new();
        let proxy = Self {
            address,
            connection: Arc::clone(&connection),
            tunnels: tunnels.clone(),
            ends: ends.clone(),
            gone,
        };
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (connection, tunnels) = (Arc::clone(&connection), tunnels.clone());
                let (tell, ends) = (tell.clone(), ends.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (connection, tunnels) = (Arc::clone(&connection), tunnels.clone());
                    let (tell, ends) = (tell.clone(), ends.clone());
                    async move {
                        let mut present = Present(Some(tell.clone()));
                        let target = request
                            .uri()
                            .path_and_query()
                            .map_or("/", |all| all.as_str());
                        let target = target.to_owned();
                        let own = kind.as_caller.map(HeaderValue::from_static);
                        let live = LiveRequest {
                            cluster: "a".to_owned(),
                            path_and_query: target
                                .strip_prefix("/clusters/a")
                                .unwrap_or(&target)
                                .to_owned(),
                            long_running: kind.long_running,
                            watch: kind.watch,
                            read_only: matches!(
                                *request.method(),
                                Method::GET | Method::HEAD | Method::OPTIONS
                            ),
                            request_timeout: kind.request_timeout,
                            watch_disconnect_grace: kind.watch_disconnect_grace,
                            as_whom: own.map_or(AsWhom::Proxy, AsWhom::Caller),
                        };
                        let request = request.map(ClientBody::new);
                        let passed = request.body().passed();
                        let goes_on = !live.long_running && !live.read_only;
                        let terms = Terms {
                            tunnels,
                            ends: Box::pin(ends.cancelled_owned()),
                            held: Box::new(()),
                        };
                        let exchange = async move {
                            let answer = exchange(&connection, &live, request, terms).await;
                            answer.unwrap_or_else(|error| status::response(&error))
                        };
                        let alone = move |answer: Response<Body>| {
                            let code = answer.status().as_u16();
                            tell.send(Gone::Answered(code)).unwrap();
                        };
                        let answer = match goes_on {
                            true => GoesOn::new(passed, exchange, alone).await,
                            false => exchange.await,
                        };
                        present.0 = None;
                        Ok::<_, std::convert::Infallible>(answer)
                    }
                });
                tokio::spawn(async move {
                    hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                        .serve_connection_with_upgrades(TokioIo::new(stream), service)
                        .await
                });
            }
        });
        proxy
    }

    /// A client's connection over HTTP/2.
    pub(crate) async fn http2(&self) -> SendRequest<BoxBody<Bytes, BoxError>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (client, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        client
    }

    /// A client's connection on which `request` was written.
    pub(crate) async fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The whole answer to a request that says `Connection: close`.
    pub(crate) async fn ask(&self, request: &str) -> String {
        let mut stream = self.send(request).await;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    pub(crate) fn suspected(&self) -> usize {
        self.connection.suspected.load(Ordering::SeqCst)
    }

    pub(crate) fn rejected(&self) -> usize {
        self.connection.rejected.load(Ordering::SeqCst)
    }
}

/// A cluster that plays `script` on each connection.
pub(crate) async fn cluster<F>(script: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(script(stream));
        }
    });
    address
}

/// A cluster that answers every request with the same bytes and closes; it tells the requests that it got.
pub(crate) async fn cluster_saying(
    answer: &'static str,
) -> (SocketAddr, UnboundedReceiver<String>) {
    let (seen, requests) = mpsc::unbounded_channel();
    let address = cluster(move |mut stream| {
        let seen = seen.clone();
        async move {
            let head = read_head(&mut stream).await;
            seen.send(head).unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    (address, requests)
}

/// An address at which nobody listens.
pub(crate) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// Reads up to the empty line.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    read_until(stream, "\r\n\r\n").await
}

/// Reads until the text ends with `end`, byte by byte so that nothing behind it is lost.
pub(crate) async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let byte = stream.read_u8().await.unwrap_or_else(|error| {
            panic!("{error} after {:?}", String::from_utf8_lossy(&text));
        });
        text.push(byte);
    }
    String::from_utf8(text).unwrap()
}

/// Waits until the other side has gone, in whichever way; what it sent until then is dropped.
pub(crate) async fn gone(stream: &mut TcpStream) {
    let mut buffer = [0; 1024];
    while !matches!(stream.read(&mut buffer).await, Ok(0) | Err(_)) {}
}
