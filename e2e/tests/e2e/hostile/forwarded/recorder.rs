//! What a cluster is sent, as its server reads it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A request as its server read it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

/// A server that refuses everything, and remembers what it was.
pub(super) struct Recorder {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Mutex<Vec<Seen>>>,
    _stop: DropGuard,
}

impl Recorder {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (stop, recorded) = (CancellationToken::new(), Arc::clone(&seen));
        let accepting = async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let recorded = Arc::clone(&recorded);
                let service = service_fn(move |request| record(Arc::clone(&recorded), request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(accepting));
        Self {
            address,
            seen,
            _stop: stop.drop_guard(),
        }
    }

    /// The requests that have this in their target.
    pub(super) fn seen(&self, part: &str) -> Vec<Seen> {
        let seen = self.seen.lock();
        let found = seen.iter().filter(|it| it.target.contains(part));
        found.cloned().collect()
    }
}

async fn record(
    recorded: Arc<Mutex<Vec<Seen>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap();
    recorded.lock().push(Seen {
        target: parts.uri.to_string(),
        headers: parts.headers,
        trailers: body.trailers().cloned(),
        body: body.to_bytes(),
    });
    let mut answer = Response::new(Full::from("{}"));
    *answer.status_mut() = http::StatusCode::FORBIDDEN;
    Ok(answer)
}
