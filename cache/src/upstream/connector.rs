//! How a cluster is dialled: DNS, TCP, a proxy, TLS, all within one timeout.

use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::{self, BoxFuture};
use http::{HeaderValue, Uri};
use hyper_rustls::{
    DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, MaybeHttpsStream,
};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower_service::Service;

use super::BoxError;
use super::heard::{Heard, HeardStream};
use super::resolver::Resolver;
use crate::cluster_accessor::Turn;
use crate::cluster_config::EndpointConfig;

/// Idle time after which the kernel asks a silent peer, the pause between its questions and their number: a dead peer of
/// an idle connection is found in 5 + 2 × 3 seconds. Bytes sent and not acknowledged are the probe's affair: with
/// TCP_USER_TIMEOUT the kernel would also end a healthy upload whose reader pauses (a closed window), such as `kubectl
/// exec -i` into a program that does not read.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;

/// Informers upload nothing, so a window never closes on them and bytes that stay unacknowledged mean a dead peer.
const INFORMER_USER_TIMEOUT: Duration = Duration::from_secs(11);

/// What is under TLS.
pub(crate) type Tcp = HeardStream<TokioIo<TcpStream>>;

/// A dialled connection.
pub(crate) type Stream = MaybeHttpsStream<Tcp>;

/// Dialling took longer than the connect timeout.
#[derive(Debug, thiserror::Error)]
#[error("dialling timed out")]
pub(crate) struct DialTimeout;

/// Whatever happened, it happened on the way to the proxy.
#[derive(Debug, thiserror::Error)]
#[error("dialling the proxy failed")]
pub(crate) struct ProxyDialFailed(#[source] BoxError);

/// Dials one cluster. The whole of it, DNS to the end of the TLS handshake, has one timeout: hyper's own covers TCP only,
/// and a peer that accepts and stays mute would hold a request for ever.
#[derive(Clone)]
pub(crate) struct Connector {
    https: HttpsConnector<TcpConnector>,
    timeout: Duration,
}

impl Connector {
    /// A connector for `endpoint`, speaking TLS as `tls` says; with a stamp it is an informer's. It keeps to a turn while that
    /// lasts.
    pub(crate) fn new(
        endpoint: &EndpointConfig,
        tls: Arc<rustls::ClientConfig>,
        heard: Option<Arc<Heard>>,
        timeout: Duration,
        turn: Option<&Arc<Turn>>,
    ) -> Result<Self, BoxError> {
        let mut tcp = TcpConnector::new(endpoint, heard, timeout)?;
        tcp.turn = turn.map(Arc::downgrade).unwrap_or_default();
        let https = match &endpoint.tls_server_name {
            Some(name) => {
                let name = ServerName::try_from(name.clone())?;
                let names = Arc::new(FixedServerNameResolver::new(name));
                HttpsConnector::new(tcp, tls, false, names)
            }
            None => {
                let names = Arc::new(DefaultServerNameResolver::default());
                HttpsConnector::new(tcp, tls, false, names)
            }
        };
        Ok(Self { https, timeout })
    }

    /// Dials once, outside a pool.
    pub(crate) async fn dial(&self, server: Uri) -> Result<Stream, BoxError> {
        let mut connector = self.clone();
        std::future::poll_fn(|cx| connector.poll_ready(cx)).await?;
        connector.call(server).await
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Stream, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(cx)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let dial = tokio::time::timeout(self.timeout, self.https.call(server));
        Box::pin(async move { dial.await.map_err(|_elapsed| DialTimeout)? })
    }
}

/// Dials a server and returns at the first sign of it: that it accepts, and over TLS the first byte of its answer to `hello`,
/// which is asked for when somebody has accepted.
///
/// # Errors
/// It cannot be dialled, or the connection ends without a sign.
pub(crate) async fn first_sign(
    endpoint: &EndpointConfig,
    timeout: Duration,
    hello: impl Future<Output = Result<Option<Vec<u8>>, BoxError>>,
) -> Result<(), BoxError> {
    let mut tcp = TcpConnector::new(endpoint, None, timeout)?;
    std::future::poll_fn(|cx| tcp.poll_ready(cx)).await?;
    let mut stream = TokioIo::new(tcp.call(endpoint.server.clone()).await?);
    if let Some(hello) = hello.await? {
        stream.write_all(&hello).await?;
        stream.read_u8().await?;
    }
    Ok(())
}

/// Opens the byte stream under TLS: directly, or through a proxy.
#[derive(Clone)]
struct TcpConnector {
    http: HttpConnector<Resolver>,
    proxy: Option<Proxy>,
    heard: Option<Arc<Heard>>,
    turn: Weak<Turn>,
}

#[derive(Clone)]
enum Proxy {
    /// HTTP CONNECT.
    Tunnel {
        address: Uri,
        authorization: Option<HeaderValue>,
    },
    /// SOCKS5; the proxy resolves the name.
    Socks5 {
        address: Uri,
        login: Option<(String, String)>,
    },
}

impl TcpConnector {
    fn new(
        endpoint: &EndpointConfig,
        heard: Option<Arc<Heard>>,
        timeout: Duration,
    ) -> Result<Self, BoxError> {
        let resolver = Resolver {
            refuse_link_local: endpoint.refuse_link_local,
        };
        let mut http = HttpConnector::new_with_resolver(resolver);
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(timeout));
        http.set_keepalive(Some(KEEPALIVE_IDLE));
        http.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
        http.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        if heard.is_some() {
            http.set_tcp_user_timeout(Some(INFORMER_USER_TIMEOUT));
        }
        let proxy = endpoint.proxy_url.as_ref().map(Proxy::new).transpose()?;
        Ok(Self {
            http,
            proxy,
            heard,
            turn: Weak::new(),
        })
    }
}

impl Proxy {
    fn new(url: &Uri) -> Result<Self, BoxError> {
        let authority = url.authority().ok_or("the proxy's URL has no host")?;
        let (login, host) = match authority.as_str().rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority.as_str()),
        };
        let login = login.map(|login| {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            (percent_decoded(user), percent_decoded(password))
        });
        let host_has_port = Uri::builder()
            .scheme("http")
            .authority(host)
            .path_and_query("/")
            .build()?
            .port()
            .is_some();
        let with_port = |port: u16| {
            let authority = if host_has_port {
                host.to_owned()
            } else {
                format!("{host}:{port}")
            };
            Uri::builder()
                .scheme("http")
                .authority(authority)
                .path_and_query("/")
                .build()
        };
        match url.scheme_str() {
            Some("http") => {
                let authorization = login
                    .map(|(user, password)| basic_header(&user, &password))
                    .transpose()?;
                Ok(Self::Tunnel {
                    address: with_port(80)?,
                    authorization,
                })
            }
            Some("socks5" | "socks5h") => Ok(Self::Socks5 {
                address: with_port(1080)?,
                login,
            }),
            _ => Err("the proxy's URL is neither http nor socks5".into()),
        }
    }

    fn address(&self) -> &Uri {
        match self {
            Self::Tunnel { address, .. } | Self::Socks5 { address, .. } => address,
        }
    }

    /// Asks the proxy behind `stream` for `server`.
    async fn open(
        self,
        stream: TokioIo<TcpStream>,
        server: Uri,
    ) -> Result<TokioIo<TcpStream>, BoxError> {
        let dialled = Dialled(Some(stream));
        match self {
            Self::Tunnel {
                address,
                authorization,
            } => {
                let mut tunnel = Tunnel::new(address, dialled);
                if let Some(authorization) = authorization {
                    tunnel = tunnel.with_auth(authorization);
                }
                Ok(tunnel.call(server).await?)
            }
            Self::Socks5 { address, login } => {
                let mut socks = SocksV5::new(address, dialled);
                if let Some((user, password)) = login {
                    socks = socks.with_auth(user, password);
                }
                Ok(socks.call(server).await?)
            }
        }
    }
}

impl Service<Uri> for TcpConnector {
    type Response = Tcp;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Tcp, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let heard = self.heard.clone();
        let target = self.proxy.as_ref().map_or(&server, Proxy::address).clone();
        let dial = self.http.call(target);
        let (proxy, turn) = (self.proxy.clone(), self.turn.clone());
        Box::pin(async move {
            let stream = match proxy {
                Some(proxy) => {
                    let stream = dial.await.map_err(|error| ProxyDialFailed(error.into()))?;
                    proxy.open(stream, with_explicit_port(server)?).await?
                }
                None => dial.await?,
            };
            if let Some(turn) = turn.upgrade() {
                turn.answered().await;
            }
            if let Some(heard) = &heard {
                heard.stamp();
            }
            Ok(HeardStream::new(stream, heard))
        })
    }
}

/// A stream already dialled, handed to the proxy handshakes, which want to dial themselves: so the errors of the dial keep
/// their sources (`SocksError` has none).
struct Dialled(Option<TokioIo<TcpStream>>);

impl Service<Uri> for Dialled {
    type Response = TokioIo<TcpStream>;
    type Error = std::io::Error;
    type Future = future::Ready<Result<TokioIo<TcpStream>, std::io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let taken = self.0.take();
        future::ready(taken.ok_or_else(|| std::io::Error::other("dialled once")))
    }
}

/// The proxies' handshakes take 443 where a URL names no port, for `http` too.
fn with_explicit_port(server: Uri) -> Result<Uri, BoxError> {
    if server.port().is_some() || server.scheme() != Some(&http::uri::Scheme::HTTP) {
        return Ok(server);
    }
    let host = server.host().unwrap_or_default();
    let authority = format!("{host}:80");
    Ok(Uri::builder()
        .scheme("http")
        .authority(authority)
        .path_and_query("/")
        .build()?)
}

/// An `Authorization` value for a user name and password.
pub(crate) fn basic_header(user: &str, password: &str) -> Result<HeaderValue, BoxError> {
    let encoded = STANDARD.encode(format!("{user}:{password}"));
    let mut value = HeaderValue::try_from(format!("Basic {encoded}"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = after
            .get(..2)
            .and_then(|pair| std::str::from_utf8(pair).ok())
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        match hex {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
