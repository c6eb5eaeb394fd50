//! A request that goes to its cluster and its answer, both streamed.
//!
//! Nothing is held back and nothing is rewritten but headers (see [`forwarded_headers`]) and redirects (see
//! [`location`]). Dropping the future or the answer's body ends the request upstream, so a client that goes away takes
//! its request with it: but a write of which all has passed goes on to its answer, see `live/goes_on.rs`.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use fleetcache_cache::cluster_accessor::{NotConnected, NotConnectedReason};
use fleetcache_cache::connection::Connection;
use fleetcache_cache::upstream::{RequestBody, UpstreamError};
use http::header::{LOCATION, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;
use tokio::time::{Instant, sleep_until};

use crate::body::{Body, empty};
use crate::error::Error;
use crate::forwarded_headers::{self, Forwarding};
use crate::identity::AsWhom;
use crate::upgrade::Terms;
use crate::{location, upgrade};

mod answer_body;
mod client_body;
mod forbidden;
mod goes_on;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod unauthorized;
mod upstream;

use answer_body::AnswerBody;
pub(crate) use client_body::{ClientBody, Passed};
pub(crate) use forbidden::heed;
pub(crate) use goes_on::GoesOn;
use upstream::Upstream;

/// A live request, told apart by what may be done with it.
#[derive(Debug)]
pub struct LiveRequest {
    /// The cluster's name.
    pub cluster: String,
    /// What follows `/clusters/<name>` in the request's target, byte for byte (`/` where nothing follows).
    pub path_and_query: String,
    /// Watches, logs, exec, attach, port-forward and proxy: no timeout until headers.
    pub long_running: bool,
    /// A watch: it stays silent for `watch_disconnect_grace` after a disconnect, then ends cleanly.
    pub watch: bool,
    /// GET, HEAD or OPTIONS: it changes nothing, so a lost answer is a 503 and not a 504 "outcome unknown".
    pub read_only: bool,
    /// Time until response headers.
    pub request_timeout: Duration,
    /// See `watch`.
    pub watch_disconnect_grace: Duration,
    /// Whose request it is to the cluster.
    pub as_whom: AsWhom,
}

/// Sends a request to its cluster and streams the answer back; upgrades become tunnels, on these terms.
///
/// # Errors
/// What the proxy answers instead.
pub(crate) async fn forward(
    connection: &Arc<Connection>,
    live: &LiveRequest,
    request: Request<ClientBody>,
    terms: Terms,
) -> Result<Response<Body>, Error> {
    exchange(connection, live, request, terms).await
}

/// [`forward`], over anything that can send.
async fn exchange<U: Upstream>(
    upstream: &Arc<U>,
    live: &LiveRequest,
    mut request: Request<ClientBody>,
    terms: Terms,
) -> Result<Response<Body>, Error> {
    // Its target is an authority and no path, so there is nothing below `/clusters/<name>` that it could mean.
    if request.method() == Method::CONNECT {
        return Err(Error::MethodNotAllowed);
    }
    let client_upgrade = upgrade::requested(&mut request);
    let (parts, body) = request.into_parts();
    let mut headers = forwarded_headers::request(
        &parts.headers,
        Forwarding {
            plain_answer: !live.read_only,
            upgrade: client_upgrade.is_some(),
        },
    );
    // After the client's own were taken out, which may not say who it is.
    live.as_whom.say(&mut headers)?;
    announce_length(&body, &mut headers);
    let repeat = client_upgrade
        .is_none()
        .then(|| (parts.method.clone(), headers.clone()));
    let passed = body.passed();
    let until = (!live.long_running).then(|| Instant::now() + live.request_timeout);

    let mut upstream = Arc::clone(upstream);
    let mut credential = upstream.credential_number();
    let body = body.boxed_unsync();
    let request = to_cluster(&upstream, live, parts.method, headers, body);
    let mut uri = request.uri().clone();
    let mut answer = wait_for_answer(&upstream, live, until, request, &passed).await?;

    if unauthorized::refuses_the_proxy(live, &answer)
        && let Some((method, headers)) = repeat
        && let Some(body) = passed.again()
        && let Some(other) = unauthorized::another_credential(&upstream, credential, until).await
    {
        upstream = other;
        credential = upstream.credential_number();
        let request = to_cluster(&upstream, live, method, headers, body);
        uri = request.uri().clone();
        answer = wait_for_answer(&upstream, live, until, request, &passed).await?;
    }
    if unauthorized::refuses_the_proxy(live, &answer) {
        unauthorized::tell(&upstream, credential);
        return Err(credential_rejected(&live.cluster));
    }
    if answer.status() == StatusCode::UNAUTHORIZED && !live.as_whom.is_caller() {
        // Whoever said it, a probe tells whether the proxy's own credential still works.
        upstream.suspect();
    }

    let headers = answer_headers(&answer, live, &uri);
    let reason = answer.extensions().get::<ReasonPhrase>().cloned();
    let status = answer.status();
    let body = if status == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = client_upgrade else {
            return Err(not_asked_for(live));
        };
        upgrade::tunnel(&live.cluster, client, answer, terms);
        empty()
    } else {
        // An error answer to a watch is a Status of known length like any other.
        let grace = (live.watch && status == StatusCode::OK).then_some(live.watch_disconnect_grace);
        AnswerBody::new(&live.cluster, answer.into_body(), &upstream, grace).boxed_unsync()
    };

    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if let Some(reason) = reason {
        response.extensions_mut().insert(reason);
    }
    Ok(response)
}

fn to_cluster<U: Upstream>(
    upstream: &Arc<U>,
    live: &LiveRequest,
    method: Method,
    headers: HeaderMap,
    body: RequestBody,
) -> Request<RequestBody> {
    let path = &live.path_and_query;
    match &live.as_whom {
        AsWhom::Caller(authorization) => {
            upstream.request_of_caller(method, path, headers, body, authorization.clone())
        }
        AsWhom::Proxy | AsWhom::User(_) => upstream.request(method, path, headers, body),
    }
}

/// Waits until the cluster answered, was disconnected, or took too long.
async fn wait_for_answer<U: Upstream>(
    upstream: &Arc<U>,
    live: &LiveRequest,
    until: Option<Instant>,
    request: Request<RequestBody>,
    passed: &Passed,
) -> Result<Response<Incoming>, Error> {
    let cluster = || live.cluster.clone();
    // What has not passed whole is nothing to the cluster, and has no chance to pass any more.
    let outcome_unknown = || !live.read_only && !passed.break_off();
    tokio::select! {
        // An answer that is there already wins.
        biased;
        answer = Box::pin(upstream.send_live(request)) => answer.map_err(|source| {
            // A body that the client never finished says nothing about the cluster.
            if !passed.failed() {
                upstream.suspect();
            }
            Error::Upstream {
                cluster: cluster(),
                outcome_unknown: source.sent() && outcome_unknown(),
                source,
            }
        }),
        () = upstream.lost().cancelled() => Err(Error::ConnectionEnded { cluster: cluster(), outcome_unknown: outcome_unknown() }),
        () = at(until) => Err(Error::UpstreamTimeout { cluster: cluster(), outcome_unknown: outcome_unknown() }),
    }
}

async fn at(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}

/// Says that a body of unknown length follows. hyper takes a GET or HEAD without any length for one without a body.
fn announce_length(body: &ClientBody, headers: &mut HeaderMap) {
    if !body.is_end_stream() && body.size_hint().exact().is_none() {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

fn answer_headers(answer: &Response<Incoming>, live: &LiveRequest, uri: &Uri) -> HeaderMap {
    let upgraded = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    let mut headers = forwarded_headers::response(answer.headers(), upgraded);
    let rewritten = headers
        .get(LOCATION)
        .and_then(|location| location.to_str().ok())
        .and_then(|location| {
            let upstream = location::Upstream::of(uri, &live.path_and_query)?;
            location::rewrite(location, &live.cluster, upstream)
        })
        .and_then(|location| HeaderValue::try_from(location).ok());
    if let Some(location) = rewritten {
        headers.insert(LOCATION, location);
    }
    headers
}

/// The client's own credential was accepted: a 401 would make it look for a fault where there is none.
fn credential_rejected(cluster: &str) -> Error {
    Error::ClusterNotConnected {
        cluster: cluster.to_owned(),
        why: NotConnected {
            reason: NotConnectedReason::Unauthorized,
            message: "the server does not accept the proxy's credential".to_owned(),
            next_attempt: None,
        },
    }
}

/// A 101 to a request without `Upgrade`: what follows is no HTTP, and nobody would read it.
fn not_asked_for(live: &LiveRequest) -> Error {
    Error::Upstream {
        cluster: live.cluster.clone(),
        outcome_unknown: !live.read_only,
        source: UpstreamError::Broken("switched protocols without being asked".into()),
    }
}
