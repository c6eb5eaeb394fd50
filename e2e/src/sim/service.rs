//! One request: count it, hold it up as the faults say, authenticate, answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, ETAG, RETRY_AFTER, VARY};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use parking_lot::{Mutex, RwLock};

use super::body::{self, Body};
use super::counters::Counters;
use super::defaults;
use super::discovery;
use super::faults::Faults;
use super::filling::Filling;
use super::list;
use super::options::ListOptions;
use super::query::Query;
use super::representation::Representation;
use super::reviews;
use super::status::Status;
use super::store::Store;
use super::target::{ResourcePath, Target};
use super::users::{ADMIN, Users};
use super::watch;
use super::write::Write;

const AUDIT_ID: &str = "audit-id";

/// What answers requests: the state and settings of one cluster.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) store: Store,
    pub(super) counters: Counters,
    pub(super) faults: Faults,
    /// The tokens accepted. Held for a comparison.
    pub(super) tokens: RwLock<Vec<String>>,
    pub(super) users: Users,
    pub(super) watch_list: bool,
    pub(super) bookmark_interval: Duration,
    pub(super) fresh_wait: Duration,
    pub(super) git_version: String,
    pub(super) listed_fields: Vec<String>,
    /// What is yet to be filled in. Held while it is, so that nobody sees half of it.
    pub(super) filling: Mutex<Option<Filling>>,
}

impl Service {
    pub(super) async fn handle(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let audit_id = request.headers().get(AUDIT_ID).cloned();
        let answered = self.answer(request).await;
        let mut response = answered.unwrap_or_else(|status| failure(&status));
        let audit_id = audit_id.or_else(|| HeaderValue::from_str(&defaults::uid()).ok());
        if let Some(audit_id) = audit_id {
            response.headers_mut().insert(AUDIT_ID, audit_id);
        }
        response
    }

    async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Status> {
        let (parts, incoming) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let target = Target::parse(parts.uri.path());
        self.count(&parts, &query, &target);
        self.faults.delay().await;
        let faults = self.faults.in_force();
        if let Some(status) = faults.answer(parts.uri.path()) {
            return Err(status);
        }
        let token = bearer_token(&parts);
        // A real apiserver looks at the credential before the path: a wrong one is refused where none is needed.
        let sender = token.and_then(|token| self.user(token));
        if token.is_some() && (faults.refuses_credentials() || sender.is_none()) {
            return Err(Status::unauthorized());
        }
        if let Some(response) = self.public(parts.uri.path()) {
            return Ok(response);
        }
        let sender = sender.ok_or_else(Status::unauthorized)?;
        let user = Users::acting(sender, header(&parts, "impersonate-user"))?;
        let forbidden = faults.forbids(parts.uri.path());
        let is_forbidden = |path: &ResourcePath| {
            let verb = verb(&parts.method, path, &query);
            forbidden
                || !self
                    .users
                    .may(&user, verb, path.resource.plural, &path.namespace)
        };
        match target? {
            Target::Resource(path) if is_forbidden(&path) => {
                let (verb, namespace) =
                    (verb(&parts.method, &path, &query), path.namespace_or_none());
                Err(Status::forbidden(
                    &user,
                    verb,
                    path.resource,
                    namespace,
                    &path.name,
                ))
            }
            Target::Other(path) if forbidden => Err(Status::forbidden_path(
                &user,
                &parts.method.as_str().to_lowercase(),
                &path,
            )),
            Target::Resource(path) => self.resource(&parts, incoming, &path, &query).await,
            Target::Other(path) => self.other(&parts, incoming, &path, &user).await,
        }
    }

    fn count(&self, parts: &Parts, query: &Query, target: &Result<Target, Status>) {
        match target {
            Ok(Target::Resource(path)) => {
                let verb = verb(&parts.method, path, query);
                if verb == "list" && query.get("resourceVersionMatch") == Some("Exact") {
                    self.counters.exact_list(path.resource.plural);
                } else {
                    self.counters.request(verb, path.resource.plural);
                }
            }
            Ok(Target::Other(_)) | Err(_) => {
                let path = parts.uri.path();
                if path == "/readyz" {
                    self.counters.probe(Instant::now());
                }
                self.counters.other_request(path);
            }
        }
    }

    /// What the apiserver tells anyone.
    fn public(&self, path: &str) -> Option<Response<Body>> {
        match path.split('/').nth(1)? {
            "healthz" | "livez" | "readyz" => {
                Some(body::full(200, "text/plain; charset=utf-8", "ok"))
            }
            "version" => Some(body::json(discovery::version(&self.git_version))),
            _ => None,
        }
    }

    /// Whom a token stands for.
    fn user(&self, token: &str) -> Option<String> {
        let accepted = self.tokens.read().iter().any(|accepted| accepted == token);
        let user = accepted.then(|| ADMIN.to_owned());
        user.or_else(|| self.users.of_token(token))
    }

    /// Whether nobody has looked into its store yet.
    pub(super) fn is_unfilled(&self) -> bool {
        self.filling.lock().is_some()
    }

    fn fill(&self) {
        let mut filling = self.filling.lock();
        if let Some(filling) = filling.take() {
            filling.fill(&self.store);
        }
    }

    async fn resource(
        self: &Arc<Self>,
        parts: &Parts,
        incoming: Incoming,
        path: &ResourcePath,
        query: &Query,
    ) -> Result<Response<Body>, Status> {
        check_subresource(path)?;
        if path.resource.plural != "namespaces" {
            self.fill();
        }
        let verb = verb(&parts.method, path, query);
        if matches!(verb, "get" | "list" | "watch") {
            return self.read(parts, path, query).await;
        }
        let body = read_body(incoming).await?;
        let content_type = header(parts, CONTENT_TYPE.as_str()).unwrap_or_default();
        let content_type = content_type.split(';').next().unwrap_or_default().trim();
        let write = Write {
            path,
            query,
            content_type,
            body,
        };
        match (verb, path.name.is_empty(), path.subresource.is_empty()) {
            ("create", true, true) => write.create(self),
            ("update", false, _) => write.replace(self),
            ("patch", false, _) => write.patch(self),
            ("delete", false, true) => write.delete(self),
            ("deletecollection", true, true) => write.delete_collection(self).await,
            _ => Err(Status::method_not_allowed()),
        }
    }

    async fn read(
        self: &Arc<Self>,
        parts: &Parts,
        path: &ResourcePath,
        query: &Query,
    ) -> Result<Response<Body>, Status> {
        let representation = Representation::negotiate(header(parts, ACCEPT.as_str()), query)?;
        if !path.name.is_empty() {
            return list::get(self, path, query, representation).await;
        }
        let options = ListOptions::parse(path.resource, query, self.knows_watch_list())?;
        if options.watch {
            watch::watch(self, path, options, representation)
        } else {
            list::list(self, path, &options, representation).await
        }
    }

    /// Whether `sendInitialEvents` is known now.
    pub(super) fn knows_watch_list(&self) -> bool {
        self.watch_list && !self.faults.in_force().no_watch_list
    }

    async fn other(
        &self,
        parts: &Parts,
        incoming: Incoming,
        path: &str,
        user: &str,
    ) -> Result<Response<Body>, Status> {
        if parts.method == Method::POST {
            let body = read_body(incoming).await?;
            let known = |token: &str| self.user(token);
            let answer = reviews::answer(path, user, &self.users, known, &body);
            let answer = answer.ok_or_else(Status::no_such_page)??;
            return Ok(body::full(201, "application/json", answer));
        }
        let accept = header(parts, ACCEPT.as_str()).unwrap_or_default();
        if let Some(answer) = discovery::shared_answer(path, accept) {
            return Ok(discovered(path, accept, answer));
        }
        let openapi =
            discovery::openapi(path, &self.listed_fields).ok_or_else(Status::no_such_page)?;
        Ok(body::json(openapi))
    }
}

/// Adds what lets clients keep aggregated discovery.
fn discovered(path: &str, accept: &str, answer: Bytes) -> Response<Body> {
    if !matches!(path, "/api" | "/apis") || !discovery::is_aggregated(accept) {
        return body::json(answer);
    }
    let mut response = body::full(200, discovery::AGGREGATED, answer);
    response
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("Accept"));
    // The resources never change, so neither does the tag.
    response
        .headers_mut()
        .insert(ETAG, HeaderValue::from_static("\"SIMULATED\""));
    response
}

/// `status` and `scale` of what has one; nothing else is served.
fn check_subresource(path: &ResourcePath) -> Result<(), Status> {
    match path.subresource.as_str() {
        "" => Ok(()),
        "status" if path.resource.status => Ok(()),
        "scale" if path.resource.scale => Ok(()),
        _ => Err(Status::no_such_resource()),
    }
}

/// The Kubernetes verb; empty for methods that the API does not have.
fn verb(method: &Method, path: &ResourcePath, query: &Query) -> &'static str {
    let collection = path.name.is_empty();
    match *method {
        Method::GET if !collection => "get",
        Method::GET if query.flag("watch") => "watch",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    }
}

fn failure(status: &Status) -> Response<Body> {
    let (content_type, body) = status.to_http();
    let mut response = body::full(status.code, content_type, body);
    if let Some(seconds) = status.retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// What is not a bearer token, or an empty one, is no credential.
fn bearer_token(parts: &Parts) -> Option<&str> {
    let token = header(parts, AUTHORIZATION.as_str())?.strip_prefix("Bearer ")?;
    Some(token.trim()).filter(|token| !token.is_empty())
}

async fn read_body(incoming: Incoming) -> Result<Bytes, Status> {
    let collected = incoming.collect().await;
    collected
        .map(|body| body.to_bytes())
        .map_err(|error| Status::bad_request(format!("unexpected EOF: {error}")))
}

fn header<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    parts
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
}
