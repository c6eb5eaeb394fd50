//! The data path: one request, read top to bottom.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use fleetcache_auth::{Authenticated, Credentials, KeptCredentials};
use fleetcache_cache::cluster_accessor::ClusterAccessor;
use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::connection::Connection;
use fleetcache_cache::panics::caught;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::{Answered, Audit, Record};
use crate::authentication::{Authentication, Refusals, authenticate};
use crate::authorization::{Access, AuthorizationMode, AuthorizationSettings};
use crate::body::Body;
use crate::cache_control::CacheControl;
use crate::decision::LiveReason;
use crate::documents::DocumentRequest;
use crate::error::Error;
use crate::fleet_api::{FleetApi, FleetRequest};
use crate::identity::{AsWhom, Identity, own_authorization};
use crate::limits::{ClusterLimits, Limits};
use crate::listener::{AnswerWriter, ClientAddress, ClientChain};
use crate::memory;
use crate::metrics::Metrics;
use crate::question;
use crate::read_settings::ReadSettings;
use crate::recheck::{Recheck, Shows, while_allowed};
use crate::request_info::{RequestInfo, Verb};
use crate::status;

mod asked;
mod changes;
mod forwarding;
mod outcome;

use asked::Asked;
use outcome::Outcome;

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

impl ClusterSettings {
    /// Whether the cluster is asked what users may do: the users are its own then, and so may its own tokens be.
    pub fn asks_about_users(&self) -> bool {
        self.identity != Identity::Proxy
            && self.authorization.mode == AuthorizationMode::SubjectAccessReview
    }
}

/// What a handler needs.
pub struct HandlerParts {
    /// All clusters.
    pub clusters: Arc<ClusterCache>,
    /// What is served at the root.
    pub fleet_api: FleetApi,
    /// Who is asking; none where nobody need say so.
    pub authentication: Arc<ArcSwapOption<Authentication>>,
    /// What was asked, by whom.
    pub audit: Audit,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The settings of clusters, by name.
    pub limits: Arc<Limits>,
    /// Tunnels outlive their request; they are counted here.
    pub tunnels: TaskTracker,
    /// Fires when the process drains: open watches and streams end.
    pub draining: CancellationToken,
}

/// Who asks a cluster, what for, and as whom the cluster is asked.
struct Caller<'a> {
    access: &'a Access,
    as_whom: AsWhom,
    info: &'a RequestInfo<'a>,
    limits: &'a ClusterLimits,
}

/// Answers requests.
pub struct Handler {
    parts: HandlerParts,
    refusals: Refusals,
}

impl Handler {
    /// A handler over its parts.
    pub fn new(parts: HandlerParts) -> Self {
        let refusals = Refusals::default();
        Self { parts, refusals }
    }

    /// Answers one request: times it, counts it, and writes its lines in the access log and in the audit log.
    pub async fn handle(&self, mut request: Request<Incoming>) -> Response<Body> {
        let started = Instant::now();
        let method = request.method().clone();
        let target = request
            .uri()
            .path_and_query()
            .map_or("/", |target| target.as_str())
            .to_owned();
        let audit_id = status::audit_id(request.headers());
        let audit = &self.parts.audit;
        let record = audit.begin(&mut request, &target, &audit_id).await;
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
            if let Some(record) = &record {
                record.panicked();
            }
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
        let Some(record) = record else {
            return outcome.response;
        };
        let answered = Answered {
            code: outcome.response.status().as_u16(),
            source: outcome.source,
            reason: outcome.reason,
        };
        let long_running = match (&info, &root) {
            (Some(info), _) => info.is_long_running(),
            (None, root) => root.as_ref().is_some_and(|it| it.verb == Verb::Watch),
        };
        record.answer(outcome.response, answered, long_running)
    }

    /// Who is asking; whoever asks to be somebody else is refused. `target` is the cluster whose own tokens count.
    async fn authenticate(
        &self,
        request: &Request<Incoming>,
        target: Option<&Arc<ClusterAccessor>>,
    ) -> Result<Authenticated, Error> {
        let headers = request.headers();
        let chain = request.extensions().get::<ClientChain>();
        let credentials = Credentials {
            headers,
            certificates: chain.map(|ClientChain(sent)| &**sent),
        };
        let authenticated = authenticate(&self.parts.authentication, credentials, target).await;
        let authenticated = authenticated.map_err(|error| {
            let address = request.extensions().get::<ClientAddress>();
            self.refusals.tell(&error, address.map(|it| it.0));
            Error::from(error)
        })?;
        if let Some(record) = request.extensions().get::<Record>() {
            record.known(&authenticated.user, authenticated.method.as_str());
        }
        if impersonates(headers) {
            return Err(Error::ImpersonationRefused);
        }
        Ok(authenticated)
    }

    /// A watch lasts as long as its user may see what it shows.
    fn recheck(&self, request: &Request<Incoming>, shows: Shows) -> Arc<Recheck> {
        let chain = request.extensions().get::<ClientChain>();
        let certificates = chain.map(|ClientChain(sent)| sent);
        Arc::new(Recheck {
            authentication: Arc::clone(&self.parts.authentication),
            limits: Arc::clone(&self.parts.limits),
            credentials: KeptCredentials::of(request.headers(), certificates),
            shows,
        })
    }

    /// A watch from memory: it ends with the process, and its connection where the client does not read.
    fn watch(
        &self,
        response: Response<Body>,
        request: &Request<Incoming>,
        shows: Shows,
    ) -> Response<Body> {
        let recheck = self.recheck(request, shows);
        let response = response.map(|body| while_allowed(body, recheck));
        let writer = request.extensions().get::<AnswerWriter>();
        self.until_draining(response, writer.map(AnswerWriter::watching))
    }

    /// A request that is below no cluster: the fleet's own API.
    async fn root(
        &self,
        asked: &FleetRequest<'_>,
        request: &Request<Incoming>,
        audit_id: &HeaderValue,
    ) -> Result<Outcome, Error> {
        let headers = request.headers();
        let user = self.authenticate(request, None).await?.user;
        let fleet_api = &self.parts.fleet_api;
        let answer = fleet_api.answer(&user, asked, request.method(), headers);
        let mut response = answer.await?;
        if asked.verb == Verb::Watch {
            response = self.watch(response, request, Shows::Fleet);
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
        // both or none of them, where it was removed a moment ago
        let cluster = self.parts.clusters.get(info.cluster);
        let cluster = cluster.zip(self.parts.limits.get(info.cluster));
        // 2 who is asking → 401. One look at the settings: whom the cluster knows never acts as the proxy
        let own_users = |limits: &ClusterLimits| limits.settings.asks_about_users();
        let target = cluster.as_ref().filter(|(_, limits)| own_users(limits));
        let target = target.map(|(cluster, _)| cluster);
        let authenticated = self.authenticate(&request, target).await?;
        let (cluster, limits) = cluster.ok_or_else(|| Error::ClusterNotFound {
            cluster: info.cluster.to_owned(),
        })?;
        let settings = &limits.settings;
        let identity = settings.identity.for_whom(authenticated.method);
        let access = Access::of(&cluster, &limits, identity, &authenticated.user);
        let own = own_authorization(identity, &authenticated, request.headers());
        let as_whom = identity.of(&authenticated.user, own);
        let as_whom = as_whom.ok_or_else(|| Error::TokenNeeded {
            cluster: info.cluster.to_owned(),
        })?;
        let caller = Caller {
            access: &access,
            as_whom,
            info,
            limits: &limits,
        };
        // 3 reachable? waits for nothing but a connect in flight, and not long → 503, or what is known of the cluster
        let document = DocumentRequest::of(info, request.headers());
        let connection = match (cluster.connected().await, document) {
            (Ok(connection), Some(document)) => {
                return self
                    .document(&caller, &connection, document, request, audit_id)
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
                let response = match &info.resource {
                    Some(resource) if info.verb == Verb::Watch => {
                        let question = Box::new(question::of_read(info, resource));
                        let shows = Shows::Memory(Arc::clone(&cluster), question);
                        self.watch(response, &request, shows)
                    }
                    _ => response,
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
        let response = self.forward(&caller, &connection, request, reason.as_str());
        let response = response.await?;
        if response.status().is_success() {
            start_informer(&cluster, info, reason);
        }
        Ok(Outcome::live(response, reason))
    }

    /// What a cluster says about itself: it is asked each time, and need not repeat what is held.
    async fn document(
        &self,
        caller: &Caller<'_>,
        connection: &Arc<Connection>,
        document: DocumentRequest,
        mut request: Request<Incoming>,
        audit_id: &HeaderValue,
    ) -> Result<Outcome, Error> {
        let (access, epoch) = (caller.access, connection.epoch);
        let asked = document.ask(&access.cluster, epoch, request.headers_mut());
        let question = || question::of_document(caller.info);
        let may = access.asks(epoch, question);
        match self.forward(caller, connection, request, "document").await {
            Ok(response) => {
                may.answered(response.status());
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
}

/// Whether a request asks to be somebody else, which would be done with the proxy's own rights.
pub(crate) fn impersonates(headers: &HeaderMap) -> bool {
    // Some servers read `_` as `-`.
    let mut names = headers.keys().map(HeaderName::as_str);
    names.any(|name| name.starts_with("impersonate-") || name.starts_with("impersonate_"))
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
    let LiveReason::NotStarted(holding) = reason else {
        return;
    };
    match info.verb {
        Verb::List | Verb::Watch => cluster.informers().note_list(&resource.gvr, holding),
        Verb::Get => cluster.informers().note_get(&resource.gvr, holding),
        _ => {}
    }
}
