//! The data path: one request, read top to bottom.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use fleetcache_auth::{
    Authenticated, AuthenticationError, Authenticator, Credentials, Method as KnownBy, UserInfo,
};
use fleetcache_cache::cluster_accessor::ClusterAccessor;
use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::connection::Connection;
use fleetcache_cache::panics::caught;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::authorization::{Access, AuthorizationSettings};
use crate::body::Body;
use crate::cache_control::CacheControl;
use crate::decision::LiveReason;
use crate::documents::DocumentRequest;
use crate::draining;
use crate::error::Error;
use crate::fleet_api::{FleetApi, FleetRequest};
use crate::identity::{AsWhom, Identity};
use crate::limits::{ClusterLimits, Limits};
use crate::listener::{ClientChain, WatchWriter};
use crate::live::{self, LiveRequest};
use crate::memory;
use crate::metrics::Metrics;
use crate::observe::Observation;
use crate::question;
use crate::read_settings::ReadSettings;
use crate::request_info::{RequestInfo, ResourcePath, Verb};
use crate::status;

mod asked;
mod outcome;

use asked::Asked;
use outcome::Outcome;

/// The group of roles and their bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// What the data path is told by the configuration, per cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Time until response headers of a live request.
    pub request_timeout: Duration,
    /// Time open watches stay silent after a disconnect.
    pub watch_disconnect_grace: Duration,
    /// Requests in flight to the cluster, watches, exec and logs apart.
    pub max_in_flight: usize,
    /// How new reads are, and where they may come from.
    pub reads: ReadSettings,
    /// As whom requests reach the cluster.
    pub identity: Identity,
    /// How it is found out what users may read.
    pub authorization: AuthorizationSettings,
}

/// What a handler needs.
pub struct HandlerParts {
    /// All clusters.
    pub clusters: Arc<ClusterCache>,
    /// What is served at the root.
    pub fleet_api: FleetApi,
    /// Who is asking; none where nobody need say so.
    pub authenticator: Arc<ArcSwapOption<Authenticator>>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The settings of clusters, by name.
    pub limits: Arc<Limits>,
    /// Tunnels outlive their request; they are counted here.
    pub tunnels: TaskTracker,
    /// Fires when the process drains: open watches and streams end.
    pub draining: CancellationToken,
}

/// Answers requests.
pub struct Handler {
    parts: HandlerParts,
}

impl Handler {
    /// A handler over its parts.
    pub fn new(parts: HandlerParts) -> Self {
        Self { parts }
    }

    /// Answers one request: times it, counts it, and writes its line in the access log.
    pub async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let started = Instant::now();
        let method = request.method().clone();
        let target = request
            .uri()
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned();
        let audit_id = status::audit_id(request.headers());
        let info = RequestInfo::parse(&method, &target);
        let root = info
            .is_none()
            .then(|| FleetRequest::parse(&method, &target));
        let indents = root
            .as_ref()
            .is_some_and(|root| root.indents_errors(request.headers()));
        let asked = Asked::of(info.as_ref(), root.as_ref());
        let answering = async {
            match (&info, &root) {
                (Some(info), _) => self.try_handle(info, request, &audit_id).await,
                (None, Some(root)) => self.root(root, &request, &audit_id).await,
                (None, None) => Err(Error::NotFound),
            }
        };
        let outcome = caught(answering).await.unwrap_or_else(|_| {
            tracing::error!(
                cluster = asked.cluster,
                verb = asked.verb,
                path = target.split('?').next().unwrap_or_default(),
                audit_id = audit_id.to_str().unwrap_or_default(),
                "request panicked"
            );
            Err(Error::Internal)
        });
        let outcome = outcome.unwrap_or_else(|error| {
            let discovery = info.as_ref().is_some_and(|info| info.resource.is_none());
            let outcome = Outcome::error(&error, &audit_id, discovery, indents);
            if outcome.response.status() == StatusCode::SERVICE_UNAVAILABLE {
                self.parts.metrics.fast_fail(outcome.reason);
            }
            if method == Method::HEAD {
                return outcome.without_body();
            }
            outcome
        });
        let elapsed = started.elapsed();
        asked.record(&outcome, &self.parts.metrics, &target, &audit_id, elapsed);
        outcome.response
    }

    /// Who is asking; whoever asks to be somebody else is refused.
    async fn authenticate(&self, request: &Request<Incoming>) -> Result<Authenticated, Error> {
        let headers = request.headers();
        let chain = request.extensions().get::<ClientChain>();
        let credentials = Credentials {
            headers,
            certificates: chain.map(|ClientChain(sent)| &**sent),
        };
        let authenticator = self.parts.authenticator.load_full();
        let authenticated = match authenticator {
            Some(it) => it.authenticate(credentials).await,
            // Everybody is who has the proxy's own token.
            None => Ok(Authenticated {
                user: Arc::new(UserInfo::admin()),
                expires: None,
                method: KnownBy::Generated,
            }),
        };
        let authenticated = authenticated.map_err(|error| match error {
            AuthenticationError::Unauthenticated => Error::Unauthenticated,
            AuthenticationError::Unavailable(why) => Error::AuthenticationUnavailable(why),
        })?;
        if impersonates(headers) {
            return Err(Error::ImpersonationRefused);
        }
        Ok(authenticated)
    }

    /// A watch from memory: it ends with the process, and its connection where the client does not read.
    fn watch(&self, response: Response<Body>, request: &Request<Incoming>) -> Response<Body> {
        let writer = request.extensions().get::<WatchWriter>();
        self.until_draining(response, writer.map(WatchWriter::watching))
    }

    /// A request that is below no cluster: the fleet's own API.
    async fn root(
        &self,
        asked: &FleetRequest<'_>,
        request: &Request<Incoming>,
        audit_id: &HeaderValue,
    ) -> Result<Outcome, Error> {
        let headers = request.headers();
        self.authenticate(request).await?;
        let answer = self
            .parts
            .fleet_api
            .answer(asked, request.method(), headers);
        let mut response = answer.await?;
        if asked.verb == Verb::Watch {
            response = self.watch(response, request);
        }
        Ok(Outcome::of_fleet(response, audit_id))
    }

    async fn try_handle(
        &self,
        info: &RequestInfo<'_>,
        request: Request<Incoming>,
        audit_id: &HeaderValue,
    ) -> Result<Outcome, Error> {
        #[cfg(test)]
        assert!(!request.headers().contains_key("x-panic"), "on purpose");
        // 1 where to: silently, so that nobody learns names without a credential
        let cluster = self.parts.clusters.get(info.cluster);
        // 2 who is asking → 401
        let Authenticated { user, method, .. } = self.authenticate(&request).await?;
        let cluster = cluster.ok_or_else(|| Error::ClusterNotFound {
            cluster: info.cluster.to_owned(),
        })?;
        let limits = self.limits(&cluster)?;
        let settings = &limits.settings;
        let access = Access {
            cluster: Arc::clone(&cluster),
            decisions: Arc::clone(&limits.decisions),
            settings: settings.authorization,
            user: acts_as(settings.identity, user, method),
        };
        // 3 reachable? waits for nothing but a connect in flight, and not long → 503, or what is known of the cluster
        let document = DocumentRequest::of(info, request.headers());
        let connection = match (cluster.connected().await, document) {
            (Ok(connection), Some(document)) => {
                return self
                    .document(&access, &connection, info, document, request, audit_id)
                    .await;
            }
            (Ok(connection), None) => connection,
            (Err(why), document) => {
                let epoch = cluster.status().epoch;
                let document = document
                    .filter(|_| access.was_allowed(epoch, || question::of_document(info)))
                    .and_then(|it| it.while_disconnected(&cluster, audit_id));
                if let Some(document) = document {
                    return Ok(document.into());
                }
                let headers = request.headers();
                let last_known = memory::last_known(&access, info, headers, &settings.reads);
                let last_known = last_known.await;
                let not_connected = || Error::ClusterNotConnected {
                    cluster: info.cluster.to_owned(),
                    why,
                };
                let response = last_known.ok_or_else(not_connected)?;
                return Ok(Outcome::hit(
                    response,
                    audit_id,
                    "fleetcache; hit; detail=disconnected",
                ));
            }
        };
        // 4 from memory?
        let (headers, on_missing) = (request.headers(), settings.reads.on_missing_informer);
        let answer = memory::answer(&access, &connection, info, headers, settings, on_missing);
        let reason = match answer.await? {
            Ok(response) => {
                let response = if info.verb == Verb::Watch {
                    self.watch(response, &request)
                } else {
                    response
                };
                return Ok(Outcome::hit(response, audit_id, "fleetcache; hit"));
            }
            Err(reason) => reason,
        };
        if info.is_plain_read() && CacheControl::of(request.headers()).only_if_cached {
            return Err(Error::NotCached {
                cluster: info.cluster.to_owned(),
                reason: reason.as_str(),
            });
        }
        // 5 live: the cluster itself authorizes and answers
        let response = self.forward(&access, &connection, info, request).await?;
        if response.status().is_success() {
            start_informer(&cluster, info, reason);
        }
        Ok(Outcome::live(response, reason))
    }

    /// What a cluster says about itself: it is asked each time, and need not repeat what is held.
    async fn document(
        &self,
        access: &Access,
        connection: &Arc<Connection>,
        info: &RequestInfo<'_>,
        document: DocumentRequest,
        mut request: Request<Incoming>,
        audit_id: &HeaderValue,
    ) -> Result<Outcome, Error> {
        let (cluster, epoch) = (&access.cluster, connection.epoch);
        let asked = document.ask(cluster, epoch, request.headers_mut());
        let question = || question::of_document(info);
        match self.forward(access, connection, info, request).await {
            Ok(response) => {
                let status = response.status();
                if status.is_success() || status == StatusCode::NOT_MODIFIED {
                    access.note_allowed(epoch, question);
                }
                Ok(asked.answer(response).into())
            }
            Err(error) => {
                let allowed = access.was_allowed(epoch, question);
                let held = allowed
                    .then(|| asked.instead_of(&error, audit_id))
                    .flatten();
                held.map(Outcome::from).ok_or(error)
            }
        }
    }

    /// Its limits; none where it was removed a moment ago.
    fn limits(&self, cluster: &ClusterAccessor) -> Result<Arc<ClusterLimits>, Error> {
        let limits = self.parts.limits.get(cluster.name());
        limits.ok_or_else(|| Error::ClusterNotFound {
            cluster: cluster.name().to_owned(),
        })
    }

    async fn forward(
        &self,
        access: &Access,
        connection: &Arc<Connection>,
        info: &RequestInfo<'_>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Error> {
        let cluster = &access.cluster;
        let limits = self.limits(cluster)?;
        let long_running = info.is_long_running();
        let permit = if long_running {
            None
        } else {
            Some(limits.acquire().ok_or_else(|| Error::TooManyRequests {
                cluster: info.cluster.to_owned(),
            })?)
        };
        let on = (connection.generation, connection.epoch);
        let observation = Observation::of(info, cluster.informers(), on);
        self.parts.metrics.upstream_request(info.verb.as_str());
        let live = LiveRequest {
            cluster: info.cluster,
            path_and_query: &info.path_and_query,
            long_running,
            watch: info.verb == Verb::Watch,
            read_only: matches!(
                *request.method(),
                Method::GET | Method::HEAD | Method::OPTIONS
            ),
            request_timeout: limits.settings.request_timeout,
            watch_disconnect_grace: limits.settings.watch_disconnect_grace,
            removed: cluster.removed(),
            as_whom: AsWhom::of(access.user.as_deref()),
        };
        let answer = live::forward(connection, live, request, &self.parts.tunnels).await;
        drop(permit);
        let answer = if long_running {
            answer.map(|response| self.until_draining(response, ()))
        } else {
            answer
        };
        if answer.as_ref().is_ok_and(|it| it.status().is_success()) && changes_roles(info) {
            access.decisions.flush();
        }
        match (answer, observation) {
            (Ok(response), Some(observation)) => Ok(observation.answer(response)),
            (Err(error), Some(observation)) if !error.outcome_unknown() => {
                observation.not_sent();
                Err(error)
            }
            (answer, _) => answer,
        }
    }

    fn until_draining(
        &self,
        response: Response<Body>,
        held: impl Send + Unpin + 'static,
    ) -> Response<Body> {
        response.map(|body| draining::until(&self.parts.draining, body, held))
    }
}

/// The user as whom a request reaches its cluster; none where it has the rights of the proxy's credential. No other method
/// gives them than the proxy's own token, also while the configuration passes from one to another.
fn acts_as(identity: Identity, user: Arc<UserInfo>, method: KnownBy) -> Option<Arc<UserInfo>> {
    match (identity, method) {
        (Identity::Proxy, KnownBy::Generated) => None,
        (Identity::Proxy | Identity::Impersonate | Identity::Token, _) => Some(user),
    }
}

/// Whether a request asks to be somebody else, which would be done with the proxy's own rights.
pub(crate) fn impersonates(headers: &HeaderMap) -> bool {
    let mut names = headers.keys();
    names.any(|name| name.as_str().starts_with("impersonate-"))
}

/// Whether a request may have changed who may do what.
fn changes_roles(info: &RequestInfo<'_>) -> bool {
    let resource = || ResourcePath::parse_lenient(info.path());
    info.verb.is_write() && resource().is_some_and(|it| &*it.gvr.group == RBAC)
}

/// A request that an informer of its kind could have answered was allowed: it may start one.
fn start_informer(cluster: &ClusterAccessor, info: &RequestInfo<'_>, reason: LiveReason) {
    let Some(resource) = info
        .resource
        .as_ref()
        .filter(|resource| resource.subresource.is_none())
    else {
        return;
    };
    match info.verb {
        Verb::List | Verb::Watch if reason == LiveReason::NotStarted => {
            cluster.informers().note_list(&resource.gvr)
        }
        Verb::Get if reason == LiveReason::NotStarted => {
            cluster.informers().note_get(&resource.gvr)
        }
        _ => {}
    }
}
