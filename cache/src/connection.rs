//! The live handles of a reachable cluster.

mod ask;
mod callers;
mod published;
mod signals;
mod target;

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use self::published::next_connection;
pub(crate) use self::signals::{Raised, Signals};
use self::target::{InvalidPath, Target};
use crate::clock::Clock;
use crate::cluster_accessor::Turn;
use crate::cluster_config::EndpointConfig;
use crate::credential::Credential;
use crate::upstream::connector::Connector;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::informer_shard::Shard;
use crate::upstream::live::LiveClient;
use crate::upstream::tls::{self, ALPN_INFORMER, ALPN_LIVE};
use crate::upstream::{BoxError, RequestBody, UpstreamError};

/// One connection generation of a cluster: made by its owner task, shared by all requests, closed once.
pub struct Connection {
    /// Counts the connections of this cluster in this process, from 1.
    pub generation: u64,
    /// Counts the clusters that have been behind this name: another `kube-system` uid or a resourceVersion that went
    /// back starts a new one. Nothing of an older epoch may be served.
    pub epoch: u64,
    /// It was made for a fresh start: informers list anew instead of going on where they were.
    pub(crate) lists_anew: bool,
    closed: CancellationToken,
    lost: CancellationToken,
    replaced: CancellationToken,
    /// The one that has taken its place.
    successor: OnceLock<Weak<Self>>,
    endpoint: Arc<Endpoint>,
    connect_timeout: Duration,
    target: Target,
    signals: Arc<Signals>,
    /// `Authorization`; swapped in place when a token rotates.
    authorization: ArcSwapOption<HeaderValue>,
    /// Counts the credentials that it has spoken for.
    credentials: watch::Sender<u64>,
    /// What TLS shows; the owner changes it together with the clients.
    tls: Mutex<TlsConfigs>,
    /// None after the close.
    live: ArcSwapOption<LiveClient>,
    /// For requests that show no credential of this connection's, where `live` would show a client certificate. Made for the
    /// first one.
    callers: ArcSwapOption<LiveClient>,
    /// Held for a moment only, never across an await.
    shards: Mutex<Vec<Arc<Shard>>>,
    /// The uid of `kube-system`, where the credential may read it.
    kube_system_uid: ArcSwapOption<String>,
}

#[derive(Clone)]
struct TlsConfigs {
    live: Arc<rustls::ClientConfig>,
    informer: Arc<rustls::ClientConfig>,
}

impl TlsConfigs {
    fn new(endpoint: &Endpoint, credential: &Credential) -> Result<Self, BoxError> {
        let (endpoint, identity) = (endpoint.tls()?, credential.certificate.as_ref());
        Ok(Self {
            live: tls::client_config(&endpoint, identity, ALPN_LIVE)?,
            informer: tls::client_config(&endpoint, identity, ALPN_INFORMER)?,
        })
    }
}

impl Connection {
    /// Handles for a cluster; nothing is dialled yet. What is dialled while `turn` lasts keeps to it. Whoever publishes them
    /// says which generation and epoch they are.
    ///
    /// # Errors
    /// The CA, the client certificate or the proxy cannot be used.
    pub(crate) fn new(
        endpoint: &Arc<Endpoint>,
        credential: &Credential,
        connect_timeout: Duration,
        turn: Option<&Arc<Turn>>,
    ) -> Result<Self, BoxError> {
        let tls = TlsConfigs::new(endpoint, credential)?;
        let live = Arc::clone(&tls.live);
        let live = Connector::new(endpoint.config(), live, None, connect_timeout, turn)?;
        let connection = Self {
            generation: 1,
            epoch: 1,
            lists_anew: false,
            closed: CancellationToken::new(),
            lost: CancellationToken::new(),
            replaced: CancellationToken::new(),
            successor: OnceLock::new(),
            endpoint: Arc::clone(endpoint),
            connect_timeout,
            target: Target::new(&endpoint.config().server)?,
            signals: Arc::default(),
            authorization: ArcSwapOption::empty(),
            credentials: watch::Sender::new(0),
            tls: Mutex::new(tls),
            live: ArcSwapOption::from_pointee(LiveClient::new(live)),
            callers: ArcSwapOption::empty(),
            shards: Mutex::default(),
            kube_system_uid: ArcSwapOption::empty(),
        };
        connection.set_authorization(credential);
        Ok(connection)
    }

    /// Fires when this is no longer the cluster's connection: it was disconnected, or another took its place. Informers and
    /// watches go on elsewhere then.
    pub fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Fires when the cluster is disconnected; what waits for an answer ends then. Where another connection takes the place
    /// of this one, what is in flight goes on to its end, or until the cluster is disconnected after all.
    pub fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Fires when the cluster is connected again after this connection was closed, or is gone for good: what waited for
    /// that may go on.
    pub fn replaced(&self) -> &CancellationToken {
        &self.replaced
    }

    /// A request to this cluster: `path_and_query` as the client wrote it, byte for byte, behind the server's base
    /// path; `headers` as given plus `Host` and the connection's own `Authorization`.
    ///
    /// A path that does not start with `/`, or one that climbs (`..`) where the server has a base path, makes a request
    /// that is refused when sent: it could reach another cluster behind the same server.
    pub fn request(
        &self,
        method: Method,
        path_and_query: &str,
        mut headers: HeaderMap,
        body: RequestBody,
    ) -> Request<RequestBody> {
        headers.insert(HOST, self.target.host());
        match &*self.authorization.load() {
            Some(authorization) => {
                headers.insert(AUTHORIZATION, HeaderValue::clone(authorization));
            }
            None => {
                headers.remove(AUTHORIZATION);
            }
        }
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        match self.target.uri(path_and_query) {
            Ok(uri) => *request.uri_mut() = uri,
            Err(invalid) => {
                request.extensions_mut().insert(invalid);
            }
        }
        request
    }

    /// Sends a live request over HTTP/1.1; upgrades work on its response. A failure asks for a probe by itself. A request of
    /// [`Self::request_of_caller`] shows nothing of this connection's credential.
    ///
    /// # Errors
    /// Why no answer came. A request that was certainly not sent has been retried on a fresh connection already.
    pub async fn send_live(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        check(&request)?;
        let client = self.client_for(&request)?;
        let answer = client.send(request).await;
        answer.inspect_err(|_| self.suspect())
    }

    /// Sends an informer's request over HTTP/2 where the server speaks it. A failure asks for a probe by itself.
    ///
    /// # Errors
    /// Why no answer came.
    pub async fn send_informer(
        &self,
        shard: &InformerShard,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        check(&request)?;
        let Some(shard) = &shard.shard else {
            return Err(UpstreamError::Connect("the connection is closed".into()));
        };
        let sent = Timestamp::now();
        let answer = shard.send(request).await;
        answer
            .inspect(|answer| self.hear_clock(answer, sent))
            .inspect_err(|_| self.suspect())
    }

    /// Whether it dials as configured there.
    pub(crate) fn dials(&self, endpoint: &EndpointConfig, connect_timeout: Duration) -> bool {
        self.endpoint.config() == endpoint && self.connect_timeout == connect_timeout
    }

    /// How far the cluster's clock is ahead of this process's, to a second or less, by the answers to probes and informers.
    pub fn clock_offset(&self) -> Option<SignedDuration> {
        self.clock().offset()
    }

    /// The cluster's clock.
    pub(crate) fn clock(&self) -> &Arc<Clock> {
        self.endpoint.clock()
    }

    fn hear_clock(&self, answer: &Response<Incoming>, sent: Timestamp) {
        self.clock().heard(answer.headers(), sent, Timestamp::now());
    }

    /// A place on one of the informers' HTTP/2 connections (at most 80 informers share one), given back on drop.
    pub fn informer_shard(&self) -> InformerShard {
        let mut shards = self.shards.lock();
        if let Some(free) = shards.iter().find(|shard| shard.take_place()) {
            return InformerShard {
                shard: Some(Arc::clone(free)),
            };
        }
        // Under the lock: a close that came before is seen, one that comes after closes the new shard too.
        if self.closed.is_cancelled() {
            return InformerShard { shard: None };
        }
        let tls = Arc::clone(&self.tls.lock().informer);
        let shard = Shard::new(self.target.server(), Arc::clone(&self.signals), |heard| {
            let endpoint = self.endpoint.config();
            Connector::new(endpoint, tls, Some(heard), self.connect_timeout, None)
        });
        // The same endpoint has given a connector before.
        let Ok(shard) = shard else {
            return InformerShard { shard: None };
        };
        shard.take_place();
        shards.push(Arc::clone(&shard));
        InformerShard { shard: Some(shard) }
    }

    /// Asks the owner for a probe now: a request was refused, TLS failed or a watch broke.
    pub fn suspect(&self) {
        self.signals.suspect();
    }

    /// Tells the owner that the server answered 401 to this connection's own credential.
    pub fn credential_rejected(&self) {
        self.signals.credential_rejected();
    }

    /// The number of the credential that it speaks for. Taken before a request is made, it says which one a 401 to that
    /// request refuses: that one, or one that has come after it.
    pub fn credential_number(&self) -> u64 {
        *self.credentials.borrow()
    }

    /// Waits until it speaks for another credential than that one; false where it is closed before. The owner changes it,
    /// and need not: whoever asks sets a limit.
    pub async fn another_credential(&self, refused: u64) -> bool {
        let mut numbers = self.credentials.subscribe();
        let another = async { numbers.wait_for(|number| *number != refused).await.is_ok() };
        let another = self.closed.run_until_cancelled(another).await;
        another.unwrap_or(false)
    }

    /// Tells the owner that this is another cluster than before (another uid, or a resourceVersion that went back):
    /// it reconnects with a new epoch.
    pub fn epoch_ended(&self) {
        self.signals.epoch_ended();
    }

    /// Path and query with nothing of the client's headers: what informers ask.
    pub fn informer_request(
        &self,
        path_and_query: &str,
        accept: &'static str,
    ) -> Request<RequestBody> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        self.request(Method::GET, path_and_query, headers, empty_body())
    }

    pub(crate) fn set_kube_system_uid(&self, uid: Option<String>) {
        self.kube_system_uid.store(uid.map(Arc::new));
    }

    /// What requests and informers tell the owner.
    pub(crate) fn signals(&self) -> &Arc<Signals> {
        &self.signals
    }

    /// Speaks for another credential from now on. Streams in flight go on; with another client certificate nothing new is
    /// sent on the connections that showed the old one.
    ///
    /// # Errors
    /// The client certificate cannot be used; the old credential stays.
    pub(crate) fn rotate(&self, old: &Credential, new: &Credential) -> Result<(), BoxError> {
        if old.certificate != new.certificate {
            *self.tls.lock() = TlsConfigs::new(&self.endpoint, new)?;
            self.redial(true)?;
        }
        self.set_authorization(new);
        // When all of it can be used: who waited for it asks anew at once.
        self.credentials.send_modify(|number| *number += 1);
        Ok(())
    }

    /// Uses fresh connections for what is sent from now on; `informers` too, or live requests only.
    ///
    /// # Errors
    /// As of `new`.
    pub(crate) fn redial(&self, informers: bool) -> Result<(), BoxError> {
        let tls = self.tls.lock().clone();
        let (endpoint, timeout) = (self.endpoint.config(), self.connect_timeout);
        let live = Connector::new(endpoint, tls.live, None, timeout, None)?;
        // Under the lock, so that a close is not undone.
        let shards = self.shards.lock();
        if self.closed.is_cancelled() {
            return Ok(());
        }
        self.live.store(Some(Arc::new(LiveClient::new(live))));
        self.callers.store(None);
        if informers {
            for shard in shards.iter() {
                let heard = Arc::clone(shard.heard());
                let tls = Arc::clone(&tls.informer);
                let connector = Connector::new(endpoint, tls, Some(heard), timeout, None)?;
                shard.redial(Some(connector));
            }
        }
        Ok(())
    }

    /// The connection to the same cluster that has taken the place of this one, if one has and is there still.
    pub fn successor(&self) -> Option<Arc<Self>> {
        self.successor.get()?.upgrade()
    }

    /// Ends it: waiting requests end, pools close, tunnels stay until they break.
    pub(crate) fn close(&self) {
        self.end();
        self.lost.cancel();
        self.live.store(None);
        self.callers.store(None);
    }

    /// Another one has taken its place: whoever has it still may finish what it has begun.
    pub(crate) fn retire(&self, successor: &Arc<Self>) {
        // First: whoever finds it closed is to find the other. Set once: it is replaced once.
        let _ = self.successor.set(Arc::downgrade(successor));
        self.end();
    }

    fn end(&self) {
        let mut shards = self.shards.lock();
        self.closed.cancel();
        for shard in shards.drain(..) {
            shard.close();
        }
    }

    /// It takes the place of another one to the same cluster, whose requests end when this one is lost.
    pub(crate) fn take_over(&mut self, before: &Self) {
        self.lost = before.lost.clone();
    }

    fn set_authorization(&self, credential: &Credential) {
        // As client-go: over plain http everybody on the way could read it.
        let value = credential.authorization.clone();
        let value = value.filter(|_| self.endpoint.config().is_tls());
        self.authorization.store(value.map(Arc::new));
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("generation", &self.generation)
            .field("epoch", &self.epoch)
            .field("closed", &self.closed.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// A place on one informer HTTP/2 connection.
#[derive(Debug)]
pub struct InformerShard {
    /// None where the connection was closed before.
    shard: Option<Arc<Shard>>,
}

impl InformerShard {
    /// Time since any byte came from the server on this shard's connection: events, bookmarks, ping answers.
    pub fn heard_ago(&self) -> Duration {
        let shard = self.shard.as_ref();
        shard.map_or(Duration::MAX, |shard| shard.heard().ago())
    }
}

impl Drop for InformerShard {
    fn drop(&mut self) {
        if let Some(shard) = &self.shard {
            shard.give_place_back();
        }
    }
}

/// An empty request body.
pub fn empty_body() -> RequestBody {
    http_body_util::Empty::<Bytes>::new()
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn check(request: &Request<RequestBody>) -> Result<(), UpstreamError> {
    match request.extensions().get::<InvalidPath>() {
        Some(invalid) => Err(UpstreamError::Connect(invalid.clone().into())),
        None => Ok(()),
    }
}
