//! HTTPS: accepts connections, speaks TLS, HTTP/1.1 and HTTP/2, and drains.

mod connection;
mod contained_body;
mod form;
mod limits;
mod patience;
mod places;
mod plain_http;
mod slow_reader;
mod stream;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fleetcache_auth::{ClientCertificates, accept_any};
use fleetcache_cache::panics::run_again;
use http::{Request, Response};
use hyper::body::Incoming;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::authentication::Refusals;
use crate::body::Body;
use crate::rarely::Rarely;
pub use limits::Timeouts;
pub use places::{Place, Places, Refused};
pub use slow_reader::{AnswerGuard, AnswerWriter};

/// Bytes of one connection that wait in the kernel to be sent, beside those under way. By default they may be megabytes, and
/// a client that does not read would not be noticed before it owes them.
const UNSENT: u32 = 128 << 10;

/// A client that vanished is noticed within a minute and a half, also where nothing is sent to it: a watch over HTTP/1.1 may
/// be silent for as long as it was asked to last. Over HTTP/2 pings notice it, too.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(15))
    .with_retries(4);

/// The certificates that a client sent when it connected, its own first, beside each of its requests. All that is known of
/// them is that the client holds the key of its own.
#[derive(Clone, Debug)]
pub struct ClientChain(pub Arc<[CertificateDer<'static>]>);

/// The address that a connection came from, beside each of its requests: what is between, if anything, and nothing that it
/// says.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub IpAddr);

/// TLS with HTTP/2 and HTTP/1.1; clients are asked for a certificate where there are `clients` that have one.
///
/// # Errors
/// The certificate and its key do not fit.
pub fn tls_config(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    clients: Option<&ClientCertificates>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()?;
    let config = match clients {
        Some(clients) => config.with_client_cert_verifier(accept_any(clients.hints())),
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_single_cert(chain.to_vec(), key.clone_key())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config.into())
}

/// Serves until `draining` fires and the connections have ended, or their time has. Each connection begins with what `tls` is
/// then.
///
/// Each request is answered by `service`; one that panics is answered 500.
pub async fn serve<S, F>(
    listener: TcpListener,
    tls: Arc<ArcSwap<ServerConfig>>,
    timeouts: Timeouts,
    places: Arc<Places>,
    service: S,
    draining: CancellationToken,
) where
    S: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let tasks = TaskTracker::new();
    let abort = CancellationToken::new();
    let refusals = Arc::new(Refusals::default());
    let start = |stream: TcpStream| {
        let Some(place) = place(&places, &stream) else {
            return;
        };
        let server = connection::Server {
            acceptor: TlsAcceptor::from(tls.load_full()),
            timeouts,
            draining: draining.clone(),
            tasks: tasks.clone(),
            refusals: Arc::clone(&refusals),
        };
        let (service, abort) = (service.clone(), abort.clone());
        tasks.spawn(async move {
            let aborted = Rarely::new(abort.cancelled());
            tokio::select! {
                biased;
                () = server.serve(stream, service) => {}
                () = aborted => {}
            }
            drop(place);
        });
    };
    accept_until(&listener, &draining, start).await;
    drop(listener);
    tasks.close();
    if tokio::time::timeout(timeouts.drain, tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            tasks = tasks.len(),
            "connections did not end in time and are closed"
        );
        abort.cancel();
        // An HTTP/2 stream is a task of its own; it ends when it meets its closed connection, or at the latest with the
        // runtime.
        let _ = tokio::time::timeout(Duration::from_secs(1), tasks.wait()).await;
    }
}

/// A connection's place among all; it is closed where there is none.
pub fn place(places: &Arc<Places>, stream: &TcpStream) -> Option<Place> {
    // Who has no address has hung up.
    places.take(stream.peer_addr().ok()?.ip())
}

/// Gives each connection to `start` until `stop` fires. Where that panics, the port still goes on.
pub async fn accept_until(
    listener: &TcpListener,
    stop: &CancellationToken,
    start: impl Fn(TcpStream),
) {
    let accepting = run_again("listener", || async {
        loop {
            start(accept(listener).await);
        }
    });
    tokio::select! {
        never = accepting => never,
        () = stop.cancelled() => {}
    }
}

/// The next connection; errors pass.
pub async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are written in whole frames: waiting for more to send would only delay them.
                let _ = stream.set_nodelay(true);
                let socket = SockRef::from(&stream);
                let _ = socket.set_tcp_notsent_lowat(UNSENT);
                let _ = socket.set_tcp_keepalive(&KEEPALIVE);
                return stream;
            }
            Err(err) if is_of_one_connection(&err) => {}
            Err(err) => {
                // No file descriptor, no memory: the next try would fail as well, and this loop would spin.
                tracing::warn!(error = %err, "cannot accept a connection, pausing");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Whether an accept failed because of the connection itself: the next one may be fine.
fn is_of_one_connection(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests;
