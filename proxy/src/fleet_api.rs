//! The fleet's own API at the proxy's root: `clusterconnections.fleetcache.dev`, to be read and watched like any resource.
//!
//! ```text
//!  ClusterCache ──changed()──► Publisher ──► OwnKind: snapshot and history
//!                                                 │
//!  GET /apis/fleetcache.dev/… ──► options ──► answer ──► JSON, Table or metadata
//! ```
//! Objects, lists, pages and watches come out of the same code as those of clusters. There is no server behind it that could
//! be asked instead, so what is left to the server elsewhere is refused here, in its words (`refusal.rs`).

use std::sync::Arc;
use std::time::SystemTime;

use fleetcache_auth::UserInfo;
use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::gvr::Gvr;
use fleetcache_cache::informer::Informer;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Response};
use hyper::body::Body as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body::{Body, empty};
use crate::error::Error;
use crate::limits::Limits;
use crate::negotiation::{Offer, indents_errors, is_for_people};
use crate::query::percent_decode;
use crate::request_info::{ResourcePath, Verb, is_watch};

mod answer;
mod conditions;
mod documents;
mod figures;
mod lines;
mod object;
mod openapi;
mod options;
mod publisher;
mod readers;
mod refusal;
mod representation;
mod selectors;
mod self_review;
mod table;

use documents::Documents;
use publisher::Publisher;
pub use readers::FleetReaders;
pub use refusal::{FieldError, Refusal};
use representation::Representation;

/// The API group.
pub const GROUP: &str = "fleetcache.dev";

/// The plural name of the only resource.
pub const RESOURCE: &str = "clusterconnections";

const VERSION: &str = "v1alpha1";
const API_VERSION: &str = "fleetcache.dev/v1alpha1";
const KIND: &str = "ClusterConnection";
const SHORT_NAME: &str = "cc";
const VERBS: [&str; 3] = ["get", "list", "watch"];

fn gvr() -> Gvr {
    Gvr::new(GROUP, VERSION, RESOURCE)
}

/// The fleet's API.
#[derive(Debug)]
pub struct FleetApi {
    clusters: Arc<ClusterCache>,
    limits: Arc<Limits>,
    informer: Arc<Informer>,
    documents: Documents,
}

/// A request to the root, taken apart.
#[derive(Debug)]
pub struct FleetRequest<'a> {
    /// What it asks for.
    pub verb: Verb,
    /// In lower case.
    method: String,
    path: String,
    query: &'a str,
    resource: Option<ResourcePath<'static>>,
}

impl<'a> FleetRequest<'a> {
    /// Reads the target of a request that is below no `/clusters/<name>`.
    pub fn parse(method: &Method, target: &'a str) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = percent_decode(path).trim_matches('/').to_owned();
        let segments: Vec<_> = path.split('/').collect();
        let resource = match &segments[..] {
            ["apis", GROUP, VERSION, RESOURCE, rest @ ..] => Some(ResourcePath {
                gvr: gvr(),
                namespace: None,
                name: rest.first().map(|name| (*name).to_owned().into()),
                subresource: rest.get(1).map(|it| (*it).to_owned().into()),
            }),
            _ => None,
        };
        let is_named = resource.as_ref().is_none_or(|it| it.name.is_some());
        let verb = match *method {
            Method::GET | Method::HEAD if is_named => Verb::Get,
            Method::GET | Method::HEAD if is_watch(query) => Verb::Watch,
            Method::GET | Method::HEAD => Verb::List,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if is_named => Verb::Delete,
            Method::DELETE => Verb::DeleteCollection,
            _ => Verb::Other,
        };
        Self {
            verb,
            method: method.as_str().to_lowercase(),
            path,
            query,
            resource,
        }
    }

    /// Whether an error is written for people.
    pub fn indents_errors(&self, headers: &HeaderMap) -> bool {
        self.resource.is_some() && indents_errors(Offer::Json, self.query, headers)
    }

    /// The resource that it is about, if it is about one.
    pub(crate) fn resource_path(&self) -> Option<&ResourcePath<'static>> {
        self.resource.as_ref()
    }

    /// Whether it is about what the API says of itself.
    pub(crate) fn is_document(&self) -> bool {
        documents::Name::of(&self.path).is_some()
    }

    /// Whether it is a SelfSubjectReview, or another request to where those are posted.
    pub(crate) fn asks_who_asks(&self) -> bool {
        self.path == self_review::PATH
    }

    /// The resource's name for metrics; "" for a path that is none.
    pub fn resource(&self) -> &'static str {
        match &self.resource {
            Some(_) => RESOURCE,
            None => "",
        }
    }
}

impl FleetApi {
    /// Over all clusters; tells what becomes of them until `stop` fires.
    pub async fn start(
        clusters: &Arc<ClusterCache>,
        limits: &Arc<Limits>,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let publisher = Publisher::start(clusters, limits).await;
        let informer = Arc::clone(publisher.informer());
        tasks.spawn(publisher.run(stop.clone()));
        Self {
            clusters: Arc::clone(clusters),
            limits: Arc::clone(limits),
            informer,
            documents: Documents::new(),
        }
    }

    /// Answers the request of a user.
    ///
    /// # Errors
    /// The server would refuse it, or there is nothing at that path.
    pub async fn answer(
        &self,
        user: &UserInfo,
        request: &FleetRequest<'_>,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Error> {
        self.limits.fleet_readers().check(user, request)?;
        let answer = match &request.resource {
            Some(resource) => self.resource(request, resource, headers).await?,
            None => self.document(user, request, headers)?,
        };
        if *method != Method::HEAD {
            return Ok(answer);
        }
        let (mut parts, body) = answer.into_parts();
        if let Some(length) = body.size_hint().exact() {
            parts.headers.insert(CONTENT_LENGTH, length.into());
        }
        Ok(Response::from_parts(parts, empty()))
    }

    fn document(
        &self,
        user: &UserInfo,
        request: &FleetRequest<'_>,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Error> {
        let agent = headers.get(http::header::USER_AGENT);
        let agent = agent.map_or(&[][..], |it| it.as_bytes());
        let pretty = is_for_people(request.query, agent);
        if request.asks_who_asks() {
            return match request.verb {
                Verb::Create => Ok(self_review::answer(user, SystemTime::now(), pretty)),
                _ => Err(Error::MethodNotAllowed),
            };
        }
        let answer = self
            .documents
            .answer(&request.path, request.query, headers, pretty);
        match answer {
            Some(_) if request.verb != Verb::Get => Err(Error::MethodNotAllowed),
            Some(answer) => Ok(answer),
            // A group's paths are the API's own; any other may be meant for a cluster, and so may `kubectl auth can-i`.
            None if request.path.starts_with("apis/authorization.k8s.io/") => Err(Error::NotFound),
            None if request.path.starts_with("apis/") => Err(Error::Refused(Refusal::PageNotFound)),
            None => Err(Error::NotFound),
        }
    }

    async fn resource(
        &self,
        request: &FleetRequest<'_>,
        resource: &ResourcePath<'_>,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Error> {
        match request.verb {
            Verb::Get | Verb::List | Verb::Watch => {}
            Verb::Other => return Err(Error::Refused(Refusal::Unsupported { verb: "" })),
            Verb::Create | Verb::Delete | Verb::DeleteCollection | Verb::Patch | Verb::Update => {
                return Err(Error::MethodNotAllowed);
            }
        }
        if let (Some(name), Some(_)) = (&resource.name, &resource.subresource) {
            let name = name.to_string();
            return Err(Error::Refused(Refusal::NotFound { name }));
        }
        let representation = Representation::of(request.query, headers)?;
        match request.verb {
            Verb::Watch => self.watch(request.query, resource, representation).await,
            _ => self.read(request, resource, representation).await,
        }
    }
}
