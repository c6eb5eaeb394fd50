//! TLS and HTTP: accept, handshake, serve, until the cluster stops or the connection is cut.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::authority::Authority;
use super::service::Service;
use super::wire::{Wire, Wires};
use crate::fault::Door;

/// The settings that a real apiserver announces.
const FRAME_SIZE: u32 = 256 * 1024;
const WINDOW: u32 = 256 * 1024;

/// Accepting fails for a moment when the process has no descriptor left.
const PAUSE_AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(10);

/// What serves one cluster's connections.
pub(super) struct Server {
    pub(super) door: Arc<Door>,
    pub(super) wires: Arc<Wires>,
    pub(super) service: Arc<Service>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    pub(super) max_streams: u32,
    pub(super) authority: Arc<Authority>,
    pub(super) tls: TlsAcceptor,
}

impl Server {
    /// Accepts until the cluster stops.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let accepted = tokio::select! {
                accepted = self.door.accept() => accepted,
                () = self.stop.cancelled() => return,
            };
            match accepted {
                Ok(stream) => {
                    self.tasks.spawn(self.clone().serve_until_cut(stream));
                }
                Err(_) => tokio::time::sleep(PAUSE_AFTER_FAILED_ACCEPT).await,
            }
        }
    }

    async fn serve_until_cut(self: Arc<Self>, stream: TcpStream) {
        let _counted = self.service.counters.connection();
        // Without it, small answers wait for the peer's delayed acknowledgement; it fails only on a dead socket.
        drop(stream.set_nodelay(true));
        let wire = self.wires.connect(stream);
        let cut = wire.cut_token();
        tokio::select! {
            () = self.serve(wire) => {}
            () = cut.cancelled() => {}
            () = self.stop.cancelled() => {}
        }
    }

    async fn serve(&self, wire: Wire) {
        let handshake = self.authority.handshake();
        self.service.faults.before_handshake().await;
        // Clients that hang up or do not trust the CA are none of the server's business.
        let Ok(stream) = self.acceptor().accept(wire).await else {
            return;
        };
        drop(handshake);
        let service = service_fn(|request| {
            let service = self.service.clone();
            async move { Ok::<_, Infallible>(service.handle(request).await) }
        });
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new());
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.max_streams)
            .max_frame_size(FRAME_SIZE)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW * 4);
        // A connection ends in an error whenever a fault broke it or the client left.
        drop(
            builder
                .serve_connection(TokioIo::new(stream), service)
                .await,
        );
    }

    fn acceptor(&self) -> TlsAcceptor {
        let strange = self.service.faults.in_force().another_ca;
        let address = self.door.address().ip();
        let strange = strange.then(|| Authority::stranger()?.acceptor("stranger", address));
        match strange {
            Some(Ok(strange)) => strange,
            Some(Err(_)) | None => self.tls.clone(),
        }
    }
}
