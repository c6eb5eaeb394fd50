//! What becomes of a request: an answer, where it came from, and why.

use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Response};
use hyper::body::Body as _;

use crate::body::{Body, empty};
use crate::decision::LiveReason;
use crate::documents::DocumentAnswer;
use crate::error::{Error, cause};
use crate::metrics::Source;
use crate::status;

/// An answer, where it came from, and why.
pub(super) struct Outcome {
    pub(super) response: Response<Body>,
    pub(super) source: Source,
    /// Why it was not answered from memory, or what went wrong; "" for an answer from memory.
    pub(super) reason: &'static str,
}

impl Outcome {
    /// An answer from memory, and what its `Cache-Status` says.
    pub(super) fn hit(
        mut response: Response<Body>,
        audit_id: &HeaderValue,
        status: &'static str,
    ) -> Self {
        set_header(&mut response, "audit-id", audit_id.clone());
        set_header(
            &mut response,
            "cache-status",
            HeaderValue::from_static(status),
        );
        Self {
            response,
            source: Source::Cached,
            reason: "",
        }
    }

    /// The cluster's own answer.
    pub(super) fn live(mut response: Response<Body>, reason: LiveReason) -> Self {
        let detail = format!(
            "fleetcache; fwd={}; detail={}",
            reason.forward(),
            reason.as_str()
        );
        if let Ok(detail) = HeaderValue::try_from(detail) {
            set_header(&mut response, "cache-status", detail);
        }
        Self {
            response,
            source: Source::Live,
            reason: reason.as_str(),
        }
    }

    /// The proxy's own answer about its fleet.
    pub(super) fn of_fleet(mut response: Response<Body>, audit_id: &HeaderValue) -> Self {
        set_header(&mut response, "audit-id", audit_id.clone());
        Self {
            response,
            source: Source::Local,
            reason: "",
        }
    }

    /// An error as a Status, indented or not, and to a question of discovery as a warning too.
    pub(super) fn error(
        error: &Error,
        audit_id: &HeaderValue,
        discovery: bool,
        indents: bool,
    ) -> Self {
        let mut response = match indents {
            true => status::indented_response(error),
            false => status::response(error),
        };
        set_header(&mut response, "audit-id", audit_id.clone());
        // kubectl shows the message of a resource's error, but not that of discovery; warnings it always shows.
        if let Some(warning) = status::warning(error).filter(|_| discovery) {
            set_header(&mut response, "warning", warning);
        }
        Self {
            response,
            source: Source::Local,
            reason: cause(error),
        }
    }

    /// The answer to a HEAD, of which hyper leaves the body out over HTTP/1.1 only.
    pub(super) fn without_body(mut self) -> Self {
        let (mut parts, body) = self.response.into_parts();
        if let Some(length) = body.size_hint().exact() {
            parts.headers.insert(CONTENT_LENGTH, length.into());
        }
        self.response = Response::from_parts(parts, empty());
        self
    }
}

impl From<DocumentAnswer> for Outcome {
    fn from(answer: DocumentAnswer) -> Self {
        let (source, reason) = match answer.from_memory {
            true => (Source::Cached, ""),
            false => (Source::Live, "document"),
        };
        Self {
            response: answer.response,
            source,
            reason,
        }
    }
}

fn set_header(response: &mut Response<Body>, name: &'static str, value: HeaderValue) {
    response.headers_mut().insert(name, value);
}
