//! One connection: its handshake, the protocol it chose, its requests and its end.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
use super::limits::{
    CONNECTION_WINDOW, MAX_HEADER_FIELDS, MAX_HEADERS, MAX_RESETS, MAX_STREAMS, STREAM_WINDOW,
    Timeouts,
};
use super::slow_reader::ClientStream;
use super::stream::{self, Streams};
use super::{ClientAddress, ClientChain, form, plain_http};
use crate::authentication::Refusals;
use crate::body::Body;
use crate::error::Error;
use crate::rarely::Rarely;
use crate::status::{self, AUDIT_ID};

/// What a connection needs.
pub(super) struct Server {
    pub(super) acceptor: TlsAcceptor,
    pub(super) timeouts: Timeouts,
    pub(super) draining: CancellationToken,
    pub(super) tasks: TaskTracker,
    pub(super) refusals: Arc<Refusals>,
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
                .inspect_err(|err| {
                    tracing::debug!(error = %err, "TLS handshake failed");
                    self.refusals.tell_handshake(err, address.map(|it| it.0));
                })
                .ok()
                .map(Box::new)
        });
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(self.timeouts.handshake, handshake) => accepted,
            () = self.draining.cancelled() => return,
        };
        let Ok(Some(stream)) = accepted else { return };
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let writer = (!is_http2).then(|| stream.get_ref().0.writer());
        let chain = stream.get_ref().1.peer_certificates();
        let chain = chain.map(|sent| ClientChain(sent.into()));
        let asked = Arc::new(AtomicBool::new(false));
        let service = {
            let asked = Arc::clone(&asked);
            service_fn(move |mut request: Request<Incoming>| {
                asked.store(true, Ordering::Relaxed);
                if let Some(address) = address {
                    request.extensions_mut().insert(address);
                }
                if let Some(chain) = &chain {
                    request.extensions_mut().insert(chain.clone());
                }
                let (service, writer) = (service.clone(), writer.clone());
                // hyper keeps the room of this future as well; in a box it is given back when the answer begins.
                Box::pin(async move {
                    if let Some(refusal) = form::refusal(&request) {
                        return Ok(ContainedBody::of(refusal));
                    }
                    // Here and not above: over HTTP/2 the call is the connection's, and its future the stream's.
                    if let Some(writer) = writer.or_else(stream::writer) {
                        request.extensions_mut().insert(writer);
                    }
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
            let streams = Streams::new(self.tasks.clone());
            let connection = http2::Builder::new(streams.clone())
                .timer(TokioTimer::new())
                .max_concurrent_streams(MAX_STREAMS)
                .initial_stream_window_size(STREAM_WINDOW)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .max_header_list_size(MAX_HEADERS)
                .max_pending_accept_reset_streams(MAX_RESETS)
                .keep_alive_interval(self.timeouts.ping)
                .keep_alive_timeout(self.timeouts.pong)
                .serve_connection(stream, service);
            let finish = http2::Connection::graceful_shutdown;
            self.drive(Box::pin(connection), finish, &asked, Some(&streams))
                .await
        } else {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .max_headers(MAX_HEADER_FIELDS)
                .max_buf_size(MAX_HEADERS as usize)
                .header_read_timeout(self.timeouts.next_request)
                .serve_connection(stream, service)
                .with_upgrades();
            let finish = http1::UpgradeableConnection::graceful_shutdown;
            self.drive(Box::pin(connection), finish, &asked, None).await
        };
        if let Err(err) = ended {
            tracing::debug!(error = %err, "connection ended early");
        }
    }

    /// Runs a connection; tells it once when to end; ends it when no request comes at all, or none any more. Over HTTP/1.1
    /// hyper itself looks after the latter.
    async fn drive<C>(
        &self,
        mut connection: Pin<Box<C>>,
        finish: fn(Pin<&mut C>),
        asked: &AtomicBool,
        streams: Option<&Streams>,
    ) -> hyper::Result<()>
    where
        C: Future<Output = hyper::Result<()>>,
    {
        let idle = |limit| async move {
            match streams {
                Some(streams) => streams.idle(limit).await,
                None => pending().await,
            }
        };
        let mut draining = Rarely::new(self.draining.cancelled());
        let mut patience = Rarely::new(tokio::time::sleep(self.timeouts.first_request));
        let mut idling = Rarely::new(Box::pin(idle(self.timeouts.next_request)));
        let mut is_told = false;
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
                () = &mut idling => {
                    if is_told {
                        return Ok(());
                    }
                    // A request that was on its way is still answered.
                    finish(connection.as_mut());
                    is_told = true;
                    idling = Rarely::new(Box::pin(idle(self.timeouts.first_request)));
                }
            }
        }
    }
}
