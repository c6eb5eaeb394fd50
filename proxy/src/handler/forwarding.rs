//! A request goes to its cluster, within its limits, and its answer is watched on the way back.

use std::sync::Arc;

use fleetcache_cache::connection::Connection;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::changes::Changes;
use super::{Caller, Handler};
use crate::audit::{Answered, Record};
use crate::body::{self, Body};
use crate::draining;
use crate::error::{Error, cause};
use crate::listener::AnswerWriter;
use crate::live::{self, ClientBody, GoesOn, LiveRequest};
use crate::metrics::Source;
use crate::observe::Observation;
use crate::recheck::{Recheck, Shows, allowed_no_more, while_allowed};
use crate::request_info::Verb;
use crate::shares::Full;
use crate::status;
use crate::upgrade::Terms;

impl Handler {
    /// Asks the cluster. `reason` says why.
    pub(super) async fn forward(
        &self,
        caller: &Caller<'_>,
        connection: &Arc<Connection>,
        request: Request<Incoming>,
        reason: &'static str,
    ) -> Result<Response<Body>, Error> {
        let Caller {
            access,
            as_whom,
            info,
            limits,
        } = caller;
        let cluster = &access.cluster;
        let long_running = info.is_long_running();
        let (name, user) = (info.cluster, access.user());
        // As long as it lasts: an answer that its client does not take holds a connection of the cluster's.
        let place = match long_running {
            false => limits.acquire(user).map_err(|full| Error::TooManyRequests {
                cluster: name.to_owned(),
                of_user: full == Full::User,
            }),
            true => {
                let place = self.parts.limits.long_running.take(name, user);
                place.map_err(|full| Error::TooManyLongRunning {
                    cluster: name.to_owned(),
                    full,
                })
            }
        };
        let place = Arc::new(place?);
        let on = (connection.generation, connection.epoch);
        let observation = Observation::of(info, cluster.informers(), on);
        self.parts.metrics.upstream_request(info.verb.as_str());
        let live = LiveRequest {
            cluster: info.cluster.to_owned(),
            path_and_query: info.path_and_query.to_string(),
            long_running,
            watch: info.verb == Verb::Watch,
            read_only: matches!(
                *request.method(),
                Method::GET | Method::HEAD | Method::OPTIONS
            ),
            request_timeout: limits.settings.request_timeout,
            watch_disconnect_grace: limits.settings.watch_disconnect_grace,
            as_whom: as_whom.clone(),
        };
        let writer = request.extensions().get::<AnswerWriter>().cloned();
        let record = request.extensions().get::<Record>().cloned();
        // Not of exec and the like, which are the cluster's own from their beginning.
        let is_watch = long_running && !info.may_pause();
        let recheck = is_watch.then(|| {
            let (cluster, user) = (Arc::clone(cluster), access.user().cloned());
            self.recheck(&request, Shows::Live { cluster, user })
        });
        let request = request.map(ClientBody::new);
        let passed = request.body().passed();
        let changes = Changes::new(passed.clone(), info, access, observation);
        let (connection, cluster) = (Arc::clone(connection), Arc::clone(cluster));
        let terms = Terms {
            tunnels: self.parts.tunnels.clone(),
            ends: tunnel_ends(cluster.removed().clone(), recheck.clone()),
            held: Box::new((record.clone(), Arc::clone(&place))),
        };
        let exchange = async move {
            let answer = live::forward(&connection, &live, request, terms).await;
            let answer = answer.map(|response| live::heed(&live, &cluster, response));
            let answer = changes.answered(answer, &connection).await;
            answer.map(|response| response.map(|body| body::holding(body, place)))
        };
        let response = match info.verb.is_write() && !long_running {
            true => GoesOn::new(passed, exchange, move |it| recorded(record, it, reason)).await?,
            false => Box::pin(exchange).await?,
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            writer.iter().for_each(AnswerWriter::left_http);
        }
        if !long_running {
            return Ok(response);
        }
        let response = match recheck {
            Some(recheck) if response.status() == StatusCode::OK => {
                response.map(|body| while_allowed(body, recheck))
            }
            _ => response,
        };
        let writer = writer.as_ref().filter(|_| info.may_pause());
        Ok(self.until_draining(response, writer.map(AnswerWriter::pausable)))
    }

    pub(super) fn until_draining(
        &self,
        response: Response<Body>,
        held: impl Send + Unpin + 'static,
    ) -> Response<Body> {
        response.map(|body| draining::until(&self.parts.draining, body::holding(body, held)))
    }
}

/// A tunnel ends with its cluster; one that carries a watch when its user may not have it any more.
fn tunnel_ends(removed: CancellationToken, watch: Option<Arc<Recheck>>) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let Some(recheck) = watch else {
            return removed.cancelled().await;
        };
        removed.run_until_cancelled(allowed_no_more(recheck)).await;
    })
}

/// The audit log has what became of a write whose client was gone by then.
fn recorded(record: Option<Record>, answer: Result<Response<Body>, Error>, reason: &'static str) {
    let Some(record) = record else { return };
    let (response, source, reason) = match answer {
        Ok(response) => (response, Source::Live, reason),
        Err(error) => (status::response(&error), Source::Local, cause(&error)),
    };
    let answered = Answered {
        code: response.status().as_u16(),
        source,
        reason,
    };
    drop(record.answer(response, answered, false));
}
