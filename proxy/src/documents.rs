//! Discovery, `/version` and OpenAPI v3: what a cluster says about itself.
//!
//! While the cluster is connected every request for one of these goes there, as its caller, with the `ETag` of what is
//! held: the cluster alone decides who may read it and whether it is still the same, and need not send it again. While it
//! is not, what is held is the answer. A client that can read discovery gets on to its real question, and so to the
//! sentence that says why the cluster cannot be asked; without discovery kubectl would show nothing of it.

mod variants;

use std::sync::Arc;

use fleetcache_cache::cluster_accessor::ClusterAccessor;
use fleetcache_cache::documents::{Document, DocumentKey, MAX_BODY};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ACCEPT_RANGES, AGE, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING,
    CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, UPGRADE, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::body::{Body, empty, full};
use crate::error::Error;
use crate::forwarded_headers::tokens;
use crate::negotiation;
use crate::query::query_pairs;
use crate::request_info::{self, RequestInfo, Verb};
use crate::tee::Tee;

/// The index of OpenAPI v3, the one document that is the same whatever a request accepts.
const OPENAPI_INDEX: &str = "/openapi/v3";

/// A request with one of these goes live: the answer is a part, or no answer at all, or one that is told not to be from
/// memory.
const LEFT_TO_THE_SERVER: [HeaderName; 6] = [
    CACHE_CONTROL,
    IF_MATCH,
    IF_RANGE,
    IF_UNMODIFIED_SINCE,
    RANGE,
    UPGRADE,
];

/// A request for a document.
#[derive(Debug)]
pub struct DocumentRequest {
    key: DocumentKey,
    /// `If-None-Match` as the client sent it.
    if_none_match: Option<HeaderValue>,
    if_modified_since: bool,
}

/// An answer, and whether its bytes are from memory.
pub struct DocumentAnswer {
    /// The answer, with its `Cache-Status`.
    pub response: Response<Body>,
    /// Whether the cluster sent no body, or could not be asked.
    pub from_memory: bool,
}

/// Whether what the answer depends on ends at the proxy, since `Connection` names it: the cluster then answers another request
/// than the one that would be remembered.
fn takes_away(headers: &HeaderMap) -> bool {
    tokens(headers, &CONNECTION).any(|named| {
        [ACCEPT, USER_AGENT, IF_NONE_MATCH, IF_MODIFIED_SINCE]
            .iter()
            .any(|name| named.eq_ignore_ascii_case(name.as_str()))
    })
}

impl DocumentRequest {
    /// Reads a request; `None` where it is for no document.
    pub fn of(info: &RequestInfo<'_>, headers: &HeaderMap) -> Option<Self> {
        if info.verb != Verb::Get
            || info.resource.is_some()
            || takes_away(headers)
            || LEFT_TO_THE_SERVER
                .iter()
                .any(|name| headers.contains_key(name))
        {
            return None;
        }
        let path = path(info)?;
        let mut accepts = headers.get_all(ACCEPT).iter();
        let accept = accepts.next().map_or(Ok(""), HeaderValue::to_str).ok()?;
        // The server reads one of them. Which, need not be known here.
        if accepts.next().is_some() {
            return None;
        }
        let agent = headers.get(USER_AGENT);
        Some(Self {
            key: DocumentKey {
                path,
                accept: accept.to_owned(),
                indented: agent.is_some_and(|agent| negotiation::indents_for(agent.as_bytes())),
            },
            if_none_match: headers.get(IF_NONE_MATCH).cloned(),
            if_modified_since: headers.contains_key(IF_MODIFIED_SINCE),
        })
    }

    /// The answer while the cluster is not connected; `None` where nothing is held that the client could read.
    pub fn while_disconnected(
        &self,
        cluster: &ClusterAccessor,
        audit_id: &HeaderValue,
    ) -> Option<DocumentAnswer> {
        self.held(cluster, audit_id, "fleetcache; hit; detail=disconnected")
    }

    /// What is held, as the answer to a request that the cluster has not seen.
    fn held(
        &self,
        cluster: &ClusterAccessor,
        audit_id: &HeaderValue,
        cache_status: &'static str,
    ) -> Option<DocumentAnswer> {
        let held = cluster.documents().of_path(&self.key.path);
        let chosen = variants::choose(&self.key, &held)?;
        let document = &chosen.document;
        let matched = document
            .etag()
            .is_some_and(|etag| self.is_matched_by(etag.as_bytes()));
        let mut response = if matched {
            not_modified(document)
        } else {
            whole(document)
        };
        let headers = response.headers_mut();
        headers.insert(AGE, chosen.age.as_secs().into());
        headers.insert("audit-id", audit_id.clone());
        headers.insert("cache-status", HeaderValue::from_static(cache_status));
        Some(DocumentAnswer {
            response,
            from_memory: true,
        })
    }

    /// Prepares a request on its way to the cluster.
    pub fn ask(self, cluster: &Arc<ClusterAccessor>, epoch: u64, headers: &mut HeaderMap) -> Asked {
        // Who gets these bytes next may not read gzip, and clusters share them by their hash. kube-apiserver compresses
        // nothing of OpenAPI, and of discovery only what is longer than 128 KiB.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let held = cluster.documents().get(epoch, &self.key);
        let own_condition = self.if_none_match.is_some() || self.if_modified_since;
        let etag = held.as_ref().filter(|_| !own_condition);
        let conditional = if let Some(etag) = etag.and_then(|held| held.etag()) {
            headers.insert(IF_NONE_MATCH, etag.clone());
            true
        } else {
            false
        };
        Asked {
            request: self,
            cluster: Arc::clone(cluster),
            epoch,
            at: Instant::now(),
            held,
            conditional,
        }
    }

    /// Whether the client has this entity already.
    fn is_matched_by(&self, etag: &[u8]) -> bool {
        let opaque = |tag: &[u8]| {
            let tag = tag.trim_ascii();
            tag.strip_prefix(b"W/").unwrap_or(tag).to_owned()
        };
        let etag = opaque(etag);
        self.if_none_match.as_ref().is_some_and(|tags| {
            let mut tags = tags.as_bytes().split(|byte| *byte == b',');
            tags.any(|tag| opaque(tag) == etag)
        })
    }
}

/// A request for a document that was sent to its cluster.
pub struct Asked {
    request: DocumentRequest,
    cluster: Arc<ClusterAccessor>,
    epoch: u64,
    at: Instant,
    held: Option<Arc<Document>>,
    /// The condition is the proxy's own: the client expects a whole answer.
    conditional: bool,
}

impl Asked {
    /// The cluster's answer, for the client. What is new in it is kept as it passes.
    pub fn answer(self, response: Response<Body>) -> DocumentAnswer {
        let documents = self.cluster.documents();
        let key = &self.request.key;
        let mut cache_status = match self.held {
            Some(_) => "fleetcache; fwd=stale; detail=document",
            None => "fleetcache; fwd=miss; detail=document",
        };
        let mut from_memory = false;
        let mut response = match (response.status(), &self.held) {
            (StatusCode::NOT_MODIFIED, Some(held)) if self.conditional => {
                documents.confirm(self.epoch, key, self.at);
                from_memory = true;
                revalidated(held, response.headers())
            }
            (StatusCode::NOT_MODIFIED, Some(held)) => {
                // The client holds something; perhaps it is what is held here.
                let etag = response.headers().get(ETAG);
                if etag.is_some() && etag == held.etag() {
                    documents.confirm(self.epoch, key, self.at);
                }
                response
            }
            (StatusCode::OK, _) if may_be_kept(response.headers()) => self.keep(response),
            (StatusCode::NOT_FOUND | StatusCode::GONE, _) => {
                documents.forget(self.epoch, &key.path);
                response
            }
            _ => response,
        };
        if from_memory {
            cache_status = "fleetcache; fwd=stale; fwd-status=304; detail=revalidated";
        }
        let cache_status = HeaderValue::from_static(cache_status);
        response.headers_mut().insert("cache-status", cache_status);
        DocumentAnswer {
            response,
            from_memory,
        }
    }

    /// What is held, where the cluster could not be reached although it is thought to be there.
    pub fn instead_of(&self, error: &Error, audit_id: &HeaderValue) -> Option<DocumentAnswer> {
        match error {
            Error::ClusterNotConnected { .. }
            | Error::ConnectionEnded { .. }
            | Error::Upstream { .. }
            | Error::UpstreamTimeout { .. } => {
                let cache_status = "fleetcache; hit; detail=unreachable";
                self.request.held(&self.cluster, audit_id, cache_status)
            }
            Error::ClusterNotFound { .. }
            | Error::InformerMissing { .. }
            | Error::PageExpired { .. }
            | Error::NotCached { .. }
            | Error::TooManyRequests { .. }
            | Error::TooManyLongRunning { .. }
            | Error::Refused(_)
            | Error::Unauthenticated
            | Error::AuthenticationUnavailable(_)
            | Error::TokenNeeded { .. }
            | Error::ImpersonationRefused
            | Error::NotFound
            | Error::MethodNotAllowed
            | Error::Internal => None,
        }
    }

    /// Passes the answer on and keeps it once it was complete.
    fn keep(self, response: Response<Body>) -> Response<Body> {
        let (parts, body) = response.into_parts();
        let headers = parts.headers.clone();
        let body = Tee::new(body, MAX_BODY, move |bytes| {
            let documents = self.cluster.documents();
            documents.keep(self.epoch, &self.request.key, self.at, &headers, bytes);
        });
        Response::from_parts(parts, body.boxed_unsync())
    }
}

/// The path of a document in plain characters, with what of the query chooses among documents.
fn path(info: &RequestInfo<'_>) -> Option<String> {
    let path = info.path().strip_prefix('/')?;
    // The same document but for OpenAPI, where it is none.
    let path = match path.strip_suffix('/') {
        Some(_) if path.starts_with("openapi") => return None,
        Some(path) => path,
        None => path,
    };
    if !path.split('/').all(request_info::is_plain) {
        return None;
    }
    let mut segments = path.split('/');
    let rest = segments.clone().count() - 1;
    match (segments.next()?, rest) {
        ("version", 0) | ("api", 0) | ("apis", 0..=2) => {}
        ("api", 1) if segments.next() == Some("v1") => {}
        ("openapi", 1..) if segments.next() == Some("v3") => {}
        _ => return None,
    }
    let mut chosen = format!("/{path}");
    for (key, value) in query_pairs(info.query) {
        let plain = request_info::is_plain(&value);
        match &*key {
            // How long the client waits, which is no matter of the document.
            "timeout" => {}
            "hash" if plain && path.starts_with("openapi") && !chosen.contains('?') => {
                chosen += &format!("?hash={value}");
            }
            "profile" if value == "nopeer" && !chosen.contains('?') => chosen += "?profile=nopeer",
            _ => return None,
        }
    }
    Some(chosen)
}

fn may_be_kept(headers: &HeaderMap) -> bool {
    let encoded = headers
        .get(CONTENT_ENCODING)
        .is_some_and(|encoding| encoding != "identity");
    let forbidden = tokens(headers, &CACHE_CONTROL).any(|token| token == "no-store");
    !encoded && !forbidden
}

fn whole(document: &Document) -> Response<Body> {
    let body = document.body();
    let length = body.len();
    let mut response = Response::new(full(body));
    *response.headers_mut() = document.headers.clone();
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response
}

/// As the server says it: without what describes a body.
fn not_modified(document: &Document) -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    let mut headers = document.headers.clone();
    for name in [ACCEPT_RANGES, CONTENT_TYPE, LAST_MODIFIED] {
        headers.remove(name);
    }
    *response.headers_mut() = headers;
    response
}

/// The answer that the server would have sent: the headers of its 304, and of the document those that a 304 leaves out.
fn revalidated(document: &Document, fresh: &HeaderMap) -> Response<Body> {
    let mut response = whole(document);
    let headers = response.headers_mut();
    for name in fresh.keys() {
        headers.remove(name);
    }
    for (name, value) in fresh {
        headers.append(name, value.clone());
    }
    headers.insert(CONTENT_LENGTH, document.body().len().into());
    response
}

#[cfg(test)]
mod tests;
