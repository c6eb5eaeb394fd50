//! What passing answers tell about a storage, told to its floor before the client has the whole answer.

use std::sync::Arc;

use fleetcache_cache::gvr::{Gvr, Storage};
use fleetcache_cache::informers::Informers;
use fleetcache_cache::store::key;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;

use crate::answer::{self, Answer, Deletion};
use crate::body::Body;
use crate::query::query_pairs;
use crate::request_info::{RequestInfo, ResourcePath, Verb};

mod observed_body;

use observed_body::ObservedBody;

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
    epoch: u64,
    storage: Storage,
    namespace: String,
    /// `None` where the request names no object, or where what its answer tells is not about it.
    name: Option<String>,
    effect: Effect,
    settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Reads one object.
    Read,
    /// Changes one object, which the answer tells.
    Write,
    /// Deletes one object.
    Delete,
    /// Changes objects that the answer does not tell.
    Unknown,
}

impl Observation {
    /// What a request may tell, where it may tell something.
    pub fn of(info: &RequestInfo<'_>, informers: &Arc<Informers>, epoch: u64) -> Option<Self> {
        let resource = ResourcePath::parse_lenient(info.path())?;
        let effect = effect(info, &resource)?;
        // A Binding binds a pod.
        let storage = if &*resource.gvr.resource == "bindings" && resource.gvr.group.is_empty() {
            Gvr::new("", "v1", "pods").storage()
        } else {
            resource.gvr.storage()
        };
        Some(Self {
            informers: Arc::clone(informers),
            epoch,
            storage,
            namespace: resource.namespace.map(String::from).unwrap_or_default(),
            name: resource
                .name
                .filter(|_| resource.subresource.is_none())
                .map(String::from),
            effect,
            settled: effect == Effect::Read,
        })
    }

    /// The request was certainly not sent.
    pub fn not_sent(mut self) {
        self.settled = true;
    }

    /// Watches the answer on its way to the client.
    pub fn answer(mut self, response: Response<Body>) -> Response<Body> {
        let status = response.status();
        if self.informers.floor(&self.storage).is_none() {
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
        let content_type = readable_content_type(&parts.headers);
        let body = ObservedBody::new(body, move |read| self.complete(&content_type, read));
        Response::from_parts(parts, body.boxed_unsync())
    }

    /// An answer other than 2xx.
    fn refused(&mut self, status: StatusCode) {
        match (self.effect, status.as_u16()) {
            // What is written for is not what the cluster holds: whoever is told so has seen something newer.
            (Effect::Write | Effect::Delete | Effect::Unknown, 404 | 409 | 500..) => {
                self.unconfirmed()
            }
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
                    Effect::Read | Effect::Unknown => false,
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
        if !told && self.effect != Effect::Read {
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

fn effect(info: &RequestInfo<'_>, resource: &ResourcePath<'_>) -> Option<Effect> {
    let subresource = resource.subresource.as_deref();
    if info.verb == Verb::Get {
        let of_object = subresource.is_none_or(|subresource| PARTS.contains(&subresource));
        return (resource.name.is_some() && of_object).then_some(Effect::Read);
    }
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
            ("GET", "/api/v1/pods", None),
            ("GET", "/version", None),
            ("POST", "/api/v1/namespaces/x/pods", Some(Effect::Write)),
            ("POST", "/api/v1/namespaces/x/pods?dryRun=All", None),
            ("PUT", "/api/v1/namespaces/x/pods/p", Some(Effect::Write)),
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
            let resource = ResourcePath::parse_lenient(info.path());
            let told = resource.and_then(|resource| effect(&info, &resource));
            assert_eq!(told, expected, "{method} {path}");
        }
    }
}
