//! One connection: its handshake, the protocol it chose, its requests and its end.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fleetcache_cache::panics::caught;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::contained_body::ContainedBody;
use super::slow_reader::ClientStream;
use super::{ClientAddress, ClientChain, Timeouts, plain_http};
use crate::body::Body;
use crate::error::Error;
use crate::rarely::Rarely;
use crate::status::{self, AUDIT_ID};

/// Requests at once on one connection: a controller opens a watch per kind and cluster, all on one connection.
const MAX_STREAMS: u32 = 4096;
/// Bytes of one request's body that may wait to be read.
const STREAM_WINDOW: u32 = 256 << 10;
/// Bytes of all bodies together: so much that every stream may stall and still none waits for another's window.
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;
/// As much as Go's servers take.
const MAX_HEADERS: u32 = 1 << 20;
/// Fields of a request on HTTP/1.1. Go's servers count bytes only; these are more than a client has words for.
const MAX_HEADER_FIELDS: usize = 1000;
/// Streams a client may open and reset before they are answered. The library's 20 is little for a client that cancels
/// many watches at once; still far below what a flood of resets needs.
const MAX_RESETS: usize = 1024;
/// Without pings a client that vanished would hold its watches for hours.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// What a connection needs.
pub(super) struct Server {
    pub(super) acceptor: TlsAcceptor,
    pub(super) timeouts: Timeouts,
    pub(super) draining: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// Runs the streams of an HTTP/2 connection where the drain can see them.
#[derive(Clone)]
struct Tracked(TaskTracker);

impl<F> hyper::rt::Executor<F> for Tracked
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

impl Server {
    /// Serves one connection to its end.
    pub(super) async fn serve<S, F>(self, stream: TcpStream, service: S)
    where
        S: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let address = stream.peer_addr().ok();
        let address = address.map(|it| ClientAddress(it.ip()));
        // What is large is in boxes of its own: the task has room for all that it ever needs, for as long as the connection
        // lives, which with an idle watch is long.
        let handshake = Box::pin(async {
            if plain_http::is_spoken_by(&stream).await {
                plain_http::refuse(stream).await;
                return None;
            }
            let accepted = self.acceptor.accept(ClientStream::new(stream)).await;
            accepted
                .inspect_err(|err| tracing::debug!(error = %err, "TLS handshake failed"))
                .ok()
                .map(Box::new)
        });
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(self.timeouts.handshake, handshake) => accepted,
            () = self.draining.cancelled() => return,
        };
        let Ok(Some(stream)) = accepted else { return };
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let watch_writer = (!is_http2).then(|| stream.get_ref().0.watch_writer());
        let chain = stream.get_ref().1.peer_certificates();
        let chain = chain.map(|sent| ClientChain(sent.into()));
        let asked = Arc::new(AtomicBool::new(false));
        let service = {
            let asked = Arc::clone(&asked);
            service_fn(move |mut request: Request<Incoming>| {
                asked.store(true, Ordering::Relaxed);
                if let Some(watch_writer) = &watch_writer {
                    request.extensions_mut().insert(watch_writer.clone());
                }
                if let Some(address) = address {
                    request.extensions_mut().insert(address);
                }
                if let Some(chain) = &chain {
                    request.extensions_mut().insert(chain.clone());
                }
                let service = service.clone();
                // hyper keeps the room of this future as well; in a box it is given back when the answer begins.
                Box::pin(async move {
                    let audit_id = request.headers().get(AUDIT_ID).cloned();
                    // The call itself may panic, not only what it returns.
                    let answer = caught(async { service(request).await }).await;
                    let answer = answer.unwrap_or_else(|_| {
                        let mut answer = status::response(&Error::Internal);
                        if let Some(audit_id) = audit_id {
                            answer.headers_mut().insert(AUDIT_ID, audit_id);
                        }
                        answer
                    });
                    Ok::<_, Infallible>(ContainedBody::of(answer))
                })
            })
        };
        let stream = TokioIo::new(stream);
        let ended = if is_http2 {
            let connection = http2::Builder::new(Tracked(self.tasks.clone()))
                .timer(TokioTimer::new())
                .max_concurrent_streams(MAX_STREAMS)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_header_list_size(MAX_HEADERS)
                .max_pending_accept_reset_streams(MAX_RESETS)
                .keep_alive_interval(PING_INTERVAL)
                .keep_alive_timeout(PING_TIMEOUT)
                .serve_connection(stream, service);
            let finish = http2::Connection::graceful_shutdown;
            self.drive(Box::pin(connection), finish, &asked).await
        } else {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .max_headers(MAX_HEADER_FIELDS)
                .header_read_timeout(self.timeouts.next_request)
                .serve_connection(stream, service)
                .with_upgrades();
            let finish = http1::UpgradeableConnection::graceful_shutdown;
            self.drive(Box::pin(connection), finish, &asked).await
        };
        if let Err(err) = ended {
            tracing::debug!(error = %err, "connection ended early");
        }
    }

    /// Runs a connection; tells it once when to end; ends it when no request comes at all.
    async fn drive<C>(
        &self,
        mut connection: Pin<Box<C>>,
        finish: fn(Pin<&mut C>),
        asked: &AtomicBool,
    ) -> hyper::Result<()>
    where
        C: Future<Output = hyper::Result<()>>,
    {
        let mut draining = Rarely::new(self.draining.cancelled());
        let mut patience = Rarely::new(tokio::time::sleep(self.timeouts.first_request));
        loop {
            // Each of the others is ready once and never again.
            tokio::select! {
                biased;
                ended = connection.as_mut() => return ended,
                () = &mut draining => finish(connection.as_mut()),
                () = &mut patience => {
                    if !asked.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                }
            }
        }
    }
}
