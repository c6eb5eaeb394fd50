//! From the proxy's own errors to `metav1.Status`: the only mapping.
//!
//! Clients match on these words, so they are the apiserver's own: its reasons, its sentences, its key order, and the
//! newline at the end. What only an operator should read (addresses, TLS details) is in the log and never here.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use fleetcache_auth::Unavailable;
use fleetcache_cache::cluster_accessor::{NotConnected, NotConnectedReason};
use fleetcache_cache::protobuf;
use fleetcache_cache::resource_version::ResourceVersion;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::body::{Body, full};
use crate::error::{Error, cause};
use crate::fleet_api::Refusal;
use crate::indent::Indented;

mod form;
mod refusal;
mod too_many;

use form::{Cause, Details, ListMeta, Status};

/// The header that names a request in the audit logs of whoever handled it.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Said in addition to the cause where a write got no answer.
const OUTCOME_UNKNOWN: &str = "OutcomeUnknown";

/// What an apiserver says of a page that came too late.
const PAGE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// The answer for an error: a JSON Status in the apiserver's own words and key order. Its `Audit-ID` is a fresh one,
/// for the caller to overwrite with [`audit_id`] of the request.
pub fn response(error: &Error) -> Response<Body> {
    written(error, false)
}

/// The same, indented.
pub fn indented_response(error: &Error) -> Response<Body> {
    written(error, true)
}

fn written(error: &Error, indented: bool) -> Response<Body> {
    let failure = Failure::from(error);
    let mut json = Bytes::from(failure.to_json(error));
    if indented {
        json.truncate(json.len() - 1);
        json = Indented::new([json].into_iter())
            .collect::<Vec<_>>()
            .concat()
            .into();
    }
    let mut response = Response::new(full(json));
    *response.status_mut() = failure.code;
    let headers = response.headers_mut();
    headers.insert(AUDIT_ID, mint());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if failure.code == StatusCode::FORBIDDEN {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    // Only here: client-go repeats any 429 or 5xx that carries the header, up to ten times. A 503 with it would turn an
    // answer in milliseconds into a minute of waiting.
    if failure.code == StatusCode::TOO_MANY_REQUESTS
        || matches!(error, Error::Refused(Refusal::TooLarge { .. }))
    {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if matches!(error, Error::Refused(Refusal::PageNotFound)) {
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/plain; charset=utf-8"),
        );
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        *response.body_mut() = full(failure.message + "\n");
    }
    response
}

/// The event that ends a watch for an error of the fleet's API.
pub(crate) fn error_event(refusal: Refusal) -> Bytes {
    let error = Error::Refused(refusal);
    let status = Failure::from(&error).to_json(&error);
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status.trim_end()).into()
}

/// The `Warning` that says which cluster cannot be asked, where that is the error.
pub fn warning(error: &Error) -> Option<HeaderValue> {
    // Without the time of the next attempt: a client shows equal warnings once.
    let text = if let Error::ClusterNotConnected { cluster, why } = error {
        format!("cluster {cluster:?} is not connected: {}", why.message)
    } else if let Error::ClusterNotFound { cluster } = error {
        format!("clusters {cluster:?} not found")
    } else {
        return None;
    };
    quote(&text)
}

/// The `Warning` of an answer that is the last known state of a cluster which was lost at a time.
pub fn warning_last_known(cluster: &str, lost_at: SystemTime) -> Option<HeaderValue> {
    let since = jiff::Timestamp::try_from(lost_at).unwrap_or_default();
    // The same throughout an outage: a client shows equal warnings once.
    quote(&format!(
        "cluster {cluster:?} is not connected since {since:.0}; this is its last known state, which may be stale"
    ))
}

/// The event that ends a watch whose version is from before what is known; newer ones begin at `from`.
pub fn too_old_event(asked: ResourceVersion, from: ResourceVersion) -> Bytes {
    format!(
        "{{\"type\":\"ERROR\",\"object\":{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"too old resource version: {asked} ({from})\",\"reason\":\"Expired\",\"code\":410}}}}\n"
    )
    .into()
}

/// The same in protobuf.
pub fn too_old_frame(asked: ResourceVersion, from: ResourceVersion) -> Bytes {
    let mut frame = BytesMut::new();
    protobuf::event(&mut frame, "ERROR", |to| {
        protobuf::object(to, "v1", "Status", |to| {
            // A list's metadata, all of it empty.
            protobuf::message(to, 1, |to| {
                (1..=3).for_each(|field| protobuf::text(to, field, ""))
            });
            protobuf::text(to, 2, "Failure");
            protobuf::text(to, 3, format!("too old resource version: {asked} ({from})"));
            protobuf::text(to, 4, "Expired");
            protobuf::number(to, 6, 410);
        });
    });
    frame.freeze()
}

fn quote(text: &str) -> Option<HeaderValue> {
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::try_from(format!("299 - \"{quoted}\"")).ok()
}

/// The `Audit-ID` of an answer: the request's own, as it is, or a fresh one. A copy, that does not keep the request's head in
/// memory.
pub fn audit_id(request: &HeaderMap) -> HeaderValue {
    let given = request.get(AUDIT_ID).filter(|given| !given.is_empty());
    let copied = given.and_then(|given| HeaderValue::from_bytes(given.as_bytes()).ok());
    copied.unwrap_or_else(mint)
}

/// A random (version 4) UUID.
fn mint() -> HeaderValue {
    let random: u128 = rand::random();
    let bits = random & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    HeaderValue::try_from(uuid(bits)).expect("hexadecimal digits and dashes are a header value")
}

/// A UUID as written.
pub(crate) fn uuid(bits: u128) -> String {
    let hex = format!("{bits:032x}");
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}

/// What differs between one failure and another.
struct Failure {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Details>,
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        match error {
            Error::ClusterNotFound { cluster } => Self {
                code: StatusCode::NOT_FOUND,
                reason: "NotFound",
                message: format!("clusters {cluster:?} not found"),
                details: Some(Details::of(cluster)),
            },
            Error::ClusterNotConnected { cluster, why } => not_connected(cluster, why),
            Error::ConnectionEnded {
                cluster,
                outcome_unknown,
            } => no_answer(
                error,
                cluster,
                *outcome_unknown,
                format!("the connection to cluster {cluster:?} ended before the answer"),
            ),
            Error::Upstream {
                cluster,
                outcome_unknown,
                source,
            } => no_answer(
                error,
                cluster,
                *outcome_unknown,
                format!("cluster {cluster:?} did not answer: {source}"),
            ),
            Error::UpstreamTimeout {
                cluster,
                outcome_unknown,
            } => timeout(
                error,
                cluster,
                *outcome_unknown,
                &format!("cluster {cluster:?} did not answer in time"),
            ),
            Error::TooManyRequests { cluster, of_user } => too_many::in_flight(cluster, *of_user),
            Error::TooManyLongRunning { cluster, full } => too_many::long_running(cluster, *full),
            Error::NotCached { cluster, reason } => timeout(
                error,
                cluster,
                false,
                &format!("the answer is not in memory ({reason}), and only-if-cached forbids to ask cluster {cluster:?}"),
            ),
            Error::InformerMissing { cluster, resource } => Self {
                code: StatusCode::SERVICE_UNAVAILABLE,
                reason: "ServiceUnavailable",
                message: format!(
                    "the cache of {resource:?} in cluster {cluster:?} is being filled, please try again"
                ),
                details: Some(Details {
                    causes: vec![Cause::because(cause(error))],
                    retry_after_seconds: Some(1),
                    ..Details::of(cluster)
                }),
            },
            Error::PageExpired { .. } => Self {
                code: StatusCode::GONE,
                reason: "Expired",
                message: PAGE_EXPIRED.to_owned(),
                details: None,
            },
            Error::Refused(refusal) => Self::from(refusal),
            Error::Unauthenticated => Self {
                code: StatusCode::UNAUTHORIZED,
                reason: "Unauthorized",
                message: "Unauthorized".to_owned(),
                details: None,
            },
            // Why, which may be about addresses and name other clusters, is not for somebody of whom nothing is known.
            Error::AuthenticationUnavailable(Unavailable { judge, .. }) => Self {
                code: StatusCode::SERVICE_UNAVAILABLE,
                reason: "ServiceUnavailable",
                message: format!(
                    "the credential cannot be checked now, since {judge} cannot be asked about it"
                ),
                details: Some(Details {
                    causes: vec![Cause::because(cause(error))],
                    retry_after_seconds: Some(1),
                    ..Details::default()
                }),
            },
            Error::TokenNeeded { cluster } => Self {
                code: StatusCode::UNAUTHORIZED,
                reason: "Unauthorized",
                message: format!(
                    "Unauthorized: cluster {cluster:?} is asked with its caller's own bearer token, and the caller was not \
                     known by one that it could be asked with"
                ),
                details: Some(Details {
                    causes: vec![Cause::because(cause(error))],
                    ..Details::of(cluster)
                }),
            },
            Error::ImpersonationRefused => Self {
                code: StatusCode::FORBIDDEN,
                reason: "Forbidden",
                message: "forbidden: requests with Impersonate-* headers are not served".to_owned(),
                details: Some(Details::default()),
            },
            Error::NotFound => Self {
                code: StatusCode::NOT_FOUND,
                reason: "NotFound",
                message: "the server could not find the requested resource; paths begin with /clusters/NAME/"
                    .to_owned(),
                details: Some(Details::default()),
            },
            Error::MethodNotAllowed => Self {
                code: StatusCode::METHOD_NOT_ALLOWED,
                reason: "MethodNotAllowed",
                message: "the server does not allow this method on the requested resource"
                    .to_owned(),
                details: Some(Details::default()),
            },
            Error::Internal => Self {
                code: StatusCode::INTERNAL_SERVER_ERROR,
                reason: "InternalError",
                message: "Internal error occurred: the proxy failed to answer".to_owned(),
                details: Some(Details {
                    causes: vec![Cause {
                        reason: None,
                        message: Some("the proxy failed to answer".into()),
                        field: None,
                    }],
                    ..Details::default()
                }),
            },
        }
    }
}

/// The cluster is down, in words that name it, the cause and the next attempt.
fn not_connected(cluster: &str, why: &NotConnected) -> Failure {
    let mut message = format!("cluster {cluster:?} is not connected: {}", why.message);
    let next = why.next_attempt.map(whole_seconds);
    if let Some(seconds) = next {
        message += &format!("; next attempt in {seconds}s");
    }
    // While nothing is planned because the first connect is under way: it takes about a second where it works.
    let is_starting = why.reason.class() == NotConnectedReason::ClusterStarting.as_str();
    let retry_after_seconds = next.or_else(|| is_starting.then_some(1));
    // The class says what to do, the reason what happened.
    let mut causes = vec![Cause::because(why.reason.class())];
    if why.reason.as_str() != why.reason.class() {
        causes.push(Cause::because(why.reason.as_str()));
    }
    Failure {
        code: StatusCode::SERVICE_UNAVAILABLE,
        reason: "ServiceUnavailable",
        message,
        details: Some(Details {
            causes,
            retry_after_seconds,
            ..Details::of(cluster)
        }),
    }
}

/// A request was lost on its way: a 503 where nothing can have happened, else a 504 that says so.
fn no_answer(error: &Error, cluster: &str, outcome_unknown: bool, message: String) -> Failure {
    if outcome_unknown {
        return timeout(error, cluster, true, &message);
    }
    Failure {
        code: StatusCode::SERVICE_UNAVAILABLE,
        reason: "ServiceUnavailable",
        message,
        details: Some(Details {
            causes: vec![Cause::because(cause(error))],
            ..Details::of(cluster)
        }),
    }
}

/// A 504, with what the caller must know about a write.
fn timeout(error: &Error, cluster: &str, outcome_unknown: bool, message: &str) -> Failure {
    let mut causes = vec![Cause::because(cause(error))];
    let mut message = format!("Timeout: {message}");
    if outcome_unknown {
        causes.push(Cause::because(OUTCOME_UNKNOWN));
        message += "; the request may have been carried out";
    }
    Failure {
        code: StatusCode::GATEWAY_TIMEOUT,
        reason: "Timeout",
        message,
        details: Some(Details {
            causes,
            ..Details::of(cluster)
        }),
    }
}

/// A pause as whole seconds, upwards: a client that waits that long finds the attempt made.
fn whole_seconds(pause: Duration) -> u64 {
    pause.as_millis().div_ceil(1000).max(1) as u64
}

impl Failure {
    fn to_json(&self, error: &Error) -> String {
        let continue_token = match error {
            Error::PageExpired { continue_token } => Some(continue_token.as_str()),
            _ => None,
        };
        let status = Status {
            kind: "Status",
            api_version: "v1",
            metadata: ListMeta { continue_token },
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details.as_ref(),
            code: self.code.as_u16(),
        };
        let json = serde_json::to_string(&status).expect("strings and numbers always serialise");
        // A name from the request's path stays harmless wherever the body is shown.
        as_go_writes(json) + "\n"
    }
}

/// JSON as Go's encoder writes it. Outside of strings JSON has none of these characters.
pub(crate) fn as_go_writes(json: String) -> String {
    if !json.contains(['<', '>', '&']) {
        return json;
    }
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

#[cfg(test)]
mod tests;
