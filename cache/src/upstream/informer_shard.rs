//! One HTTP/2 connection shared by some informers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::client::legacy::connect::Connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;

use super::connector::Connector;
use super::heard::Heard;
use super::live::LiveClient;
use super::{BoxError, RequestBody, UpstreamError};
use crate::connection::Signals;

/// kube-apiserver allows 100 streams a connection; the 101st would wait without a word.
pub(crate) const PLACES: usize = 80;

/// A silent server is asked every 5 s and has 5 s to answer.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Windows for the LISTs of large kinds over a long way; a reflector reads as fast as it can, so they bound nothing that
/// matters.
const STREAM_WINDOW: u32 = 8 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;

/// Sends informers' requests over one HTTP/2 connection, dialled at need; over pooled HTTP/1.1 where the server does not
/// speak HTTP/2. hyper-util's pool is not used for HTTP/2: with ALPN all requests that meet an empty pool dial, and after
/// a break that would be 80 handshakes at once.
pub(crate) struct Shard {
    server: Uri,
    heard: Arc<Heard>,
    signals: Arc<Signals>,
    places: AtomicUsize,
    /// Held for a moment only, never across an await.
    route: Mutex<Route>,
    /// Held while dialling, so that one dials and the others wait for it.
    dialling: tokio::sync::Mutex<()>,
}

struct Route {
    /// Changes with the client certificate; none after the connection was closed.
    connector: Option<Connector>,
    client: Option<ShardClient>,
}

#[derive(Clone)]
enum ShardClient {
    Http2(SendRequest<RequestBody>),
    Http1(LiveClient),
}

impl Shard {
    /// A shard with no place taken that has not dialled.
    pub(crate) fn new(
        server: Uri,
        signals: Arc<Signals>,
        connector: impl FnOnce(Arc<Heard>) -> Result<Connector, BoxError>,
    ) -> Result<Arc<Self>, BoxError> {
        let heard = Heard::new();
        let connector = connector(Arc::clone(&heard))?;
        Ok(Arc::new(Self {
            server,
            heard,
            signals,
            places: AtomicUsize::new(0),
            route: Mutex::new(Route {
                connector: Some(connector),
                client: None,
            }),
            dialling: tokio::sync::Mutex::default(),
        }))
    }

    /// When the server was last heard here.
    pub(crate) fn heard(&self) -> &Arc<Heard> {
        &self.heard
    }

    /// Takes a place if one is free.
    pub(crate) fn take_place(&self) -> bool {
        self.places
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                (taken < PLACES).then_some(taken + 1)
            })
            .is_ok()
    }

    /// Gives a place back; the last one closes the connection when its streams have ended.
    pub(crate) fn give_place_back(&self) {
        if self.places.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.route.lock().client = None;
        }
    }

    /// Dials anew for the next request, with another connector where one is given. Streams in flight go on.
    pub(crate) fn redial(&self, connector: Option<Connector>) {
        let mut route = self.route.lock();
        if connector.is_some() && route.connector.is_some() {
            route.connector = connector;
        }
        route.client = None;
    }

    /// Never dials again.
    pub(crate) fn close(&self) {
        let mut route = self.route.lock();
        route.connector = None;
        route.client = None;
    }

    /// Sends a request.
    ///
    /// # Errors
    /// No answer came.
    pub(crate) async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let mut tries = 0;
        loop {
            let mut sender = match self.client().await? {
                ShardClient::Http1(client) => return client.send(request).await,
                ShardClient::Http2(sender) => sender,
            };
            // HTTP/2 has `:authority`, taken from the URI.
            request.headers_mut().remove(http::header::HOST);
            *request.version_mut() = http::Version::HTTP_2;
            let mut error = match sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            let unsent = error.take_message();
            let error: BoxError = error.into_error().into();
            self.forget_closed();
            tries += 1;
            match unsent {
                // The connection had broken before the request was on it.
                Some(unsent) if tries < 2 => request = unsent,
                Some(_) => return Err(UpstreamError::Connect(error)),
                None => return Err(UpstreamError::from_send(error)),
            }
        }
    }

    async fn client(&self) -> Result<ShardClient, UpstreamError> {
        if let Some(client) = self.open_client() {
            return Ok(client);
        }
        let _dialling = self.dialling.lock().await;
        if let Some(client) = self.open_client() {
            return Ok(client);
        }
        let Some(connector) = self.route.lock().connector.clone() else {
            return Err(UpstreamError::Connect("the connection is closed".into()));
        };
        let client = self.dial(connector).await?;
        let mut route = self.route.lock();
        if route.connector.is_none() {
            return Err(UpstreamError::Connect("the connection is closed".into()));
        }
        route.client = Some(client.clone());
        Ok(client)
    }

    async fn dial(&self, connector: Connector) -> Result<ShardClient, UpstreamError> {
        if self.server.scheme() == Some(&http::uri::Scheme::HTTP) {
            return Ok(ShardClient::Http1(LiveClient::new(connector)));
        }
        let stream = connector
            .dial(self.server.clone())
            .await
            .map_err(UpstreamError::from_dial)?;
        if !stream.connected().is_negotiated_h2() {
            // This one handshake is lost; the server is old or behind a proxy.
            return Ok(ShardClient::Http1(LiveClient::new(connector)));
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .adaptive_window(false)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(stream)
            .await
            .map_err(|error| UpstreamError::from_dial(error.into()))?;
        let signals = Arc::clone(&self.signals);
        hyper::rt::Executor::execute(&TokioExecutor::new(), async move {
            // A connection that ends is noticed even while no informer has anything to send. A server that goes away in
            // good order ends it without an error.
            match connection.await {
                Err(error) if error.is_timeout() => signals.silent(),
                Ok(()) | Err(_) => signals.suspect(),
            }
        });
        Ok(ShardClient::Http2(sender))
    }

    fn open_client(&self) -> Option<ShardClient> {
        self.forget_closed();
        self.route.lock().client.clone()
    }

    fn forget_closed(&self) {
        let mut route = self.route.lock();
        if let Some(ShardClient::Http2(sender)) = &route.client
            && sender.is_closed()
        {
            route.client = None;
        }
    }
}

impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("places", &self.places)
            .field("heard_ago", &self.heard.ago())
            .finish_non_exhaustive()
    }
}
