//! What passing answers tell about a storage, told to its floor before the client has the whole answer.

use std::sync::Arc;

use fleetcache_cache::floor::Floor;
use fleetcache_cache::gvr::{Gvr, Storage};
use fleetcache_cache::informers::Informers;
use fleetcache_cache::store::key;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;

use crate::answer::{self, Answer, Deletion};
use crate::body::Body;
use crate::query::query_pairs;
use crate::request_info::{RequestInfo, ResourcePath, Verb, is_watch};

mod json_scan;
mod list;
mod observed_body;
mod protobuf_scan;
mod read_body;
mod reading;
mod scan;
mod seen;

use list::ListReading;
use observed_body::ObservedBody;
use read_body::ReadBody;
use reading::{Of, Reader, Reading};
use scan::Scan;

/// Subresources whose writes do not change the object: they act on what it stands for, or answer a question.
const NOT_COUNTED: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "token"];

/// Subresources that are read as the object or with its version. Others may stream, and are not held up.
const PARTS: [&str; 2] = ["scale", "status"];

/// Groups whose objects are questions.
const REVIEWS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// What one live request may tell about a storage. A write that is dropped before its answer was read leaves the
/// storage unconfirmed: it may have been done.
#[derive(Debug)]
pub struct Observation {
    informers: Arc<Informers>,
    generation: u64,
    epoch: u64,
    storage: Storage,
    namespace: String,
    /// `None` where the request names no object, or where what its answer tells is not about it.
    name: Option<String>,
    effect: Effect,
    patches: bool,
    /// What has been told of a list by the end of its answer, and of a watch by the end of its initial events.
    list: Option<ListReading>,
    settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Reads one object, or tries a write of it.
    Read,
    /// Reads a list.
    List,
    /// Reads events.
    Watch,
    /// Changes one object, which the answer tells.
    Write,
    /// Deletes one object.
    Delete,
    /// Changes objects that the answer does not tell.
    Unknown,
}

impl Observation {
    /// What a request may tell, where it may tell something, on a connection's generation and epoch.
    pub fn of(
        info: &RequestInfo<'_>,
        informers: &Arc<Informers>,
        (generation, epoch): (u64, u64),
    ) -> Option<Self> {
        let (resource, effect) = resource_and_effect(info)?;
        // A Binding binds a pod.
        let storage = if &*resource.gvr.resource == "bindings" && resource.gvr.group.is_empty() {
            Gvr::new("", "v1", "pods").storage()
        } else {
            resource.gvr.storage()
        };
        let lists = resource.name.is_none() && effect.is_read();
        Some(Self {
            informers: Arc::clone(informers),
            generation,
            epoch,
            storage,
            list: lists.then(|| ListReading::of(resource.namespace.as_deref(), info.query)),
            namespace: resource.namespace.map(String::from).unwrap_or_default(),
            name: resource
                .name
                .filter(|_| resource.subresource.is_none())
                .map(String::from),
            effect,
            patches: info.verb == Verb::Patch,
            settled: effect.is_read(),
        })
    }

    /// The request was certainly not sent.
    pub fn not_sent(mut self) {
        self.settled = true;
    }

    /// Watches the answer on its way to the client.
    pub fn answer(mut self, response: Response<Body>) -> Response<Body> {
        let status = response.status();
        let floor = self.informers.floor(&self.storage);
        // An informer may start while a watch is open.
        if floor.is_none() && self.effect != Effect::Watch {
            self.settled = true;
            return response;
        }
        if !status.is_success() {
            self.refused(status);
            return response;
        }
        if self.effect == Effect::Unknown {
            self.unconfirmed();
            return response;
        }
        let (parts, body) = response.into_parts();
        if self.effect.is_read() {
            let reader = self.reader(floor, &parts.headers);
            let body = ReadBody { body, reader };
            return Response::from_parts(parts, body.boxed_unsync());
        }
        let content_type = readable_content_type(&parts.headers);
        let body = ObservedBody::new(body, move |read| self.complete(&content_type, read));
        Response::from_parts(parts, body.boxed_unsync())
    }

    /// What reads the answer to a read while it passes.
    fn reader(&mut self, floor: Option<Arc<Floor>>, headers: &HeaderMap) -> Reader {
        let list = self.list.take();
        let is_watch = self.effect == Effect::Watch;
        let of = match self.effect {
            Effect::List => Of::List(list),
            Effect::Watch => Of::Watch {
                initial: list,
                row: None,
            },
            Effect::Read | Effect::Write | Effect::Delete | Effect::Unknown => {
                Of::Object { row: None }
            }
        };
        let content_type = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
        let content_type = String::from_utf8_lossy(content_type.unwrap_or_default());
        let reading = Reading {
            informers: Arc::clone(&self.informers),
            on: (self.generation, self.epoch),
            storage: self.storage.clone(),
            floor,
            scan: Scan::of(&content_type, is_watch),
            of,
        };
        let encoding = headers.get(CONTENT_ENCODING).map(|value| value.as_bytes());
        Reader::new(reading, encoding)
    }

    /// An answer other than 2xx.
    fn refused(&mut self, status: StatusCode) {
        match (self.effect, status.as_u16()) {
            // What is written for is not what the cluster holds: whoever is told so has seen something newer.
            (Effect::Write | Effect::Delete | Effect::Unknown, 404 | 409 | 500..) => {
                self.unconfirmed()
            }
            // Likewise what the patch tested for.
            (Effect::Write, 422) if self.patches => self.unconfirmed(),
            // Of a dry run: no read is answered so.
            (Effect::Read, 409 | 422) => self.unconfirmed(),
            (Effect::Read, 404) if self.is_held() => self.unconfirmed(),
            _ => self.settled = true,
        }
    }

    fn is_held(&self) -> bool {
        let Some(name) = &self.name else {
            return false;
        };
        self.informers
            .holds(&self.storage, &key(&self.namespace, name))
    }

    fn unconfirmed(&mut self) {
        self.settled = true;
        self.informers.unconfirmed(&self.storage, self.epoch);
    }

    /// The whole answer has arrived and the client has all but its last piece.
    fn complete(mut self, content_type: &str, bytes: &[u8]) {
        let Some(floor) = self.informers.floor(&self.storage) else {
            self.settled = true;
            return;
        };
        let told = match answer::read(content_type, bytes) {
            Some(Answer::Object {
                namespace,
                name,
                uid,
                resource_version,
                deletion,
            }) => {
                if let Some(version) = resource_version {
                    floor.raise(self.epoch, version);
                }
                let gone = match self.effect {
                    Effect::Delete => deletion != Deletion::Pending,
                    Effect::Write => deletion == Deletion::Finished,
                    Effect::Read | Effect::List | Effect::Watch | Effect::Unknown => false,
                };
                if gone && !uid.is_empty() {
                    self.informers
                        .gone(&self.storage, self.epoch, &key(&namespace, &name), &uid);
                }
                if gone {
                    !uid.is_empty()
                } else {
                    resource_version.is_some()
                }
            }
            Some(Answer::Success { uid }) if self.effect == Effect::Delete && !uid.is_empty() => {
                let name = self.name.as_deref().unwrap_or_default();
                self.informers
                    .gone(&self.storage, self.epoch, &key(&self.namespace, name), &uid);
                true
            }
            Some(Answer::Success { .. }) | None => false,
        };
        if !told {
            self.unconfirmed();
        }
        self.settled = true;
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        if !self.settled {
            self.unconfirmed();
        }
    }
}

impl Effect {
    fn is_read(self) -> bool {
        match self {
            Self::Read | Self::List | Self::Watch => true,
            Self::Write | Self::Delete | Self::Unknown => false,
        }
    }
}

/// What a request is about and what it does with it, where that counts.
fn resource_and_effect<'i>(info: &'i RequestInfo<'_>) -> Option<(ResourcePath<'i>, Effect)> {
    let is_get = matches!(info.verb, Verb::Get | Verb::List | Verb::Watch);
    if is_get && let Some(resource) = ResourcePath::parse_legacy_watch(info.path()) {
        return Some((resource, Effect::Watch));
    }
    let resource = ResourcePath::parse_lenient(info.path())?;
    let effect = if is_get {
        read(info, &resource)?
    } else {
        write(info, &resource)?
    };
    Some((resource, effect))
}

fn read(info: &RequestInfo<'_>, resource: &ResourcePath<'_>) -> Option<Effect> {
    match (&resource.name, resource.subresource.as_deref()) {
        (Some(_), Some(subresource)) if !PARTS.contains(&subresource) => None,
        (Some(_), _) => Some(Effect::Read),
        (None, _) if is_watch(info.query) => Some(Effect::Watch),
        (None, _) => Some(Effect::List),
    }
}

fn write(info: &RequestInfo<'_>, resource: &ResourcePath<'_>) -> Option<Effect> {
    let subresource = resource.subresource.as_deref();
    let counts = info.verb.is_write()
        && !subresource.is_some_and(|subresource| NOT_COUNTED.contains(&subresource))
        && !REVIEWS.contains(&&*resource.gvr.group);
    if !counts {
        return None;
    }
    let dry_run = query_pairs(info.query).any(|(key, value)| key == "dryRun" && value == "All");
    let of_another_kind = matches!(subresource, Some("eviction" | "binding"))
        || &*resource.gvr.resource == "bindings";
    match info.verb {
        Verb::DeleteCollection => Some(Effect::Unknown),
        // The server reads the options of a DELETE from its body, and from the query only where there is no body: this
        // may be no dry run.
        Verb::Delete if dry_run || subresource.is_some() => Some(Effect::Unknown),
        // It changes nothing, and its answer is made from what the cluster holds, in its version.
        Verb::Patch | Verb::Update if dry_run => Some(Effect::Read),
        _ if dry_run => None,
        _ if of_another_kind => Some(Effect::Unknown),
        Verb::Delete => Some(Effect::Delete),
        _ => Some(Effect::Write),
    }
}

/// The content type, "" where the bytes cannot be read as they are.
fn readable_content_type(headers: &HeaderMap) -> String {
    let encoded = headers
        .get(CONTENT_ENCODING)
        .is_some_and(|encoding| encoding != "identity");
    let content_type = headers.get(CONTENT_TYPE).filter(|_| !encoded);
    content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn what_a_request_may_change_is_told_from_its_path() {
        for (method, path, expected) in [
            ("GET", "/api/v1/namespaces/x/pods/p", Some(Effect::Read)),
            (
                "GET",
                "/api/v1/namespaces/x/pods/p/status",
                Some(Effect::Read),
            ),
            (
                "GET",
                "/apis/apps/v1/namespaces/x/deployments/d/scale",
                Some(Effect::Read),
            ),
            ("GET", "/api/v1/namespaces/x/pods/p/log", None),
            ("GET", "/apis/ex.io/v1/namespaces/x/vms/v/console", None),
            ("GET", "/api/v1/pods", Some(Effect::List)),
            ("GET", "/api/v1//pods?watch=0", Some(Effect::List)),
            ("GET", "/api/v1/pods?watch=1", Some(Effect::Watch)),
            ("GET", "/api/v1//pods?watch", Some(Effect::Watch)),
            ("GET", "/api/v1/watch/pods", Some(Effect::Watch)),
            (
                "GET",
                "/api/v1/watch/namespaces/x/pods/p",
                Some(Effect::Watch),
            ),
            (
                "GET",
                "/api/v1/namespaces/x/pods/p?watch=1",
                Some(Effect::Read),
            ),
            ("HEAD", "/api/v1/pods", None),
            ("GET", "/version", None),
            ("POST", "/api/v1/namespaces/x/pods", Some(Effect::Write)),
            ("POST", "/api/v1/namespaces/x/pods?dryRun=All", None),
            ("PUT", "/api/v1/namespaces/x/pods/p", Some(Effect::Write)),
            (
                "PUT",
                "/api/v1/namespaces/x/pods/p?dryRun=All",
                Some(Effect::Read),
            ),
            (
                "PATCH",
                "/api/v1//namespaces/x/pods/%70",
                Some(Effect::Write),
            ),
            (
                "PATCH",
                "/api/v1/namespaces/x/pods/p/status",
                Some(Effect::Write),
            ),
            (
                "PUT",
                "/apis/apps/v1/namespaces/x/deployments/d/scale",
                Some(Effect::Write),
            ),
            ("PUT", "/api/v1/namespaces/x/finalize", Some(Effect::Write)),
            (
                "DELETE",
                "/api/v1/namespaces/x/pods/p",
                Some(Effect::Delete),
            ),
            ("DELETE", "/api/v1/namespaces/x/pods", Some(Effect::Unknown)),
            // Only without a body, which the path does not tell.
            (
                "DELETE",
                "/api/v1/namespaces/x/pods/p?dryRun=All",
                Some(Effect::Unknown),
            ),
            (
                "DELETE",
                "/api/v1/namespaces/x/pods?dryRun=All",
                Some(Effect::Unknown),
            ),
            ("PUT", "/api/v1/namespaces/x/pods%2Fp", Some(Effect::Write)),
            (
                "POST",
                "/api/v1/namespaces/x/pods/p/eviction",
                Some(Effect::Unknown),
            ),
            (
                "POST",
                "/api/v1/namespaces/x/pods/p/binding",
                Some(Effect::Unknown),
            ),
            (
                "POST",
                "/api/v1/namespaces/x/bindings",
                Some(Effect::Unknown),
            ),
            ("POST", "/api/v1/namespaces/x/pods/p/exec", None),
            ("DELETE", "/api/v1/namespaces/x/services/s/proxy/a", None),
            ("POST", "/api/v1/namespaces/x/serviceaccounts/s/token", None),
            (
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                None,
            ),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let target = format!("/clusters/a{path}");
            let info = RequestInfo::parse(&method, &target).unwrap();
            let told = resource_and_effect(&info).map(|(_, effect)| effect);
            assert_eq!(told, expected, "{method} {path}");
        }
    }
}
