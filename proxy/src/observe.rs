//! What passing answers tell about a storage, told to its floor before the client has the whole answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use fleetcache_cache::gvr::{Gvr, Storage};
use fleetcache_cache::informers::Informers;
use fleetcache_cache::store::key;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

use crate::answer::{self, Answer, Deletion};
use crate::body::{Body, BoxError};
use crate::query::query_pairs;
use crate::request_info::{RequestInfo, ResourcePath, Verb};

/// An answer that is longer is not read; its object is larger than a server takes.
const READ_BYTES: usize = 16 << 20;

/// Subresources whose writes do not change the object: they act on what it stands for, or answer a question.
const NOT_COUNTED: [&str; 6] = ["attach", "exec", "log", "portforward", "proxy", "token"];

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
            name: resource.name.map(String::from),
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
        let body = ObservedBody {
            body,
            content_type,
            read: BytesMut::new(),
            held: None,
            ended: false,
            observation: Some(self),
        };
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
        let writes = self.effect != Effect::Read;
        match answer::read(content_type, bytes) {
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
            }
            Some(Answer::Success { uid }) if self.effect == Effect::Delete && !uid.is_empty() => {
                let name = self.name.as_deref().unwrap_or_default();
                self.informers
                    .gone(&self.storage, self.epoch, &key(&self.namespace, name), &uid);
            }
            Some(Answer::Success { .. }) | None if writes => self.unconfirmed(),
            Some(Answer::Success { .. }) | None => {}
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
        return (resource.name.is_some() && subresource.is_none()).then_some(Effect::Read);
    }
    let counts = info.verb.is_write()
        && !subresource.is_some_and(|subresource| NOT_COUNTED.contains(&subresource))
        && !REVIEWS.contains(&&*resource.gvr.group)
        && !query_pairs(info.query).any(|(key, value)| key == "dryRun" && value == "All");
    if !counts {
        return None;
    }
    let of_another_kind = matches!(subresource, Some("eviction" | "binding"))
        || &*resource.gvr.resource == "bindings";
    Some(match info.verb {
        _ if of_another_kind => Effect::Unknown,
        Verb::DeleteCollection => Effect::Unknown,
        Verb::Delete => Effect::Delete,
        _ => Effect::Write,
    })
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

/// A body that keeps its last piece back until what it tells has been told.
struct ObservedBody {
    body: Body,
    content_type: String,
    read: BytesMut,
    held: Option<Bytes>,
    ended: bool,
    observation: Option<Observation>,
}

impl ObservedBody {
    /// Takes a piece and gives the one before it.
    fn exchange(&mut self, piece: Bytes) -> Option<Bytes> {
        if self.read.len() <= READ_BYTES {
            self.read.extend_from_slice(&piece);
        }
        self.held.replace(piece)
    }
}

impl hyper::body::Body for ObservedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while !self.ended {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => {
                        if let Some(before) = self.exchange(piece) {
                            return Poll::Ready(Some(Ok(Frame::data(before))));
                        }
                    }
                    // Trailers end the data. Nobody in Kubernetes sends them; they need no order beyond coming last.
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                // Dropping the observation leaves a write unconfirmed.
                Poll::Ready(Some(Err(error))) => {
                    self.observation = None;
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => {
                    self.ended = true;
                    let read = std::mem::take(&mut self.read);
                    if let Some(observation) = self.observation.take() {
                        observation.complete(&self.content_type, &read);
                    }
                }
            }
        }
        Poll::Ready(self.held.take().map(|last| Ok(Frame::data(last))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.held.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.held.as_ref().map_or(0, |held| held.len() as u64);
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + held);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn what_a_request_may_change_is_told_from_its_path() {
        for (method, path, expected) in [
            ("GET", "/api/v1/namespaces/x/pods/p", Some(Effect::Read)),
            ("GET", "/api/v1/namespaces/x/pods/p/status", None),
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
