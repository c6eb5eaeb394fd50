//! What a live request may have changed, told when its answer comes.

use std::sync::Arc;

use fleetcache_auth::Question;
use fleetcache_cache::connection::Connection;
use http::{Response, StatusCode};

use crate::authorization::{Access, ClusterDecisions};
use crate::body::Body;
use crate::error::Error;
use crate::live::Passed;
use crate::observe::Observation;
use crate::question;
use crate::request_info::{RequestInfo, ResourcePath, Verb};

/// The group of roles and their bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// What a live request may have changed. Dropped before its answer it was broken off, and has changed nothing; or nobody
/// will ever know what it has.
pub(super) struct Changes {
    passed: Passed,
    /// Of a write that may change who may do what: what was decided is forgotten when its answer comes.
    roles: Option<Arc<ClusterDecisions>>,
    observation: Option<Observation>,
    /// Who writes what; `None` where it is no write of a resource.
    write: Option<(Access, Question)>,
    /// A server deletes one object after the other, and ends at the first that it may not.
    is_collection: bool,
}

impl Changes {
    pub(super) fn new(
        passed: Passed,
        info: &RequestInfo<'_>,
        access: &Access,
        observation: Option<Observation>,
    ) -> Self {
        let question = info.verb.is_write().then(|| question::of_write(info));
        Self {
            passed,
            roles: changes_roles(info).then(|| Arc::clone(&access.decisions)),
            observation,
            write: question.flatten().map(|it| (access.clone(), it)),
            is_collection: info.verb == Verb::DeleteCollection,
        }
    }

    /// Watches the answer on its way to the client.
    pub(super) async fn answered(
        mut self,
        answer: Result<Response<Body>, Error>,
        connection: &Arc<Connection>,
    ) -> Result<Response<Body>, Error> {
        let is_refused =
            |status: StatusCode| status.is_client_error() && status != StatusCode::UNAUTHORIZED;
        let may_be_half_done =
            matches!(&answer, Ok(answer) if self.is_collection && is_refused(answer.status()));
        let is_in_doubt = match &answer {
            Ok(answer) => may_be_half_done || answer.status().is_server_error(),
            Err(error) => error.outcome_unknown(),
        };
        let is_none = is_in_doubt && self.are_not_the_users(connection).await;
        let (roles, observation) = (self.roles.take(), self.observation.take());
        let is_success = matches!(&answer, Ok(answer) if answer.status().is_success());
        let may_have_changed = is_success || is_in_doubt && !is_none;
        if let Some(decisions) = roles.filter(|_| may_have_changed) {
            decisions.flush();
        }
        match (answer, observation) {
            (answer, Some(observation)) if is_none => {
                observation.not_sent();
                answer
            }
            (answer, Some(observation)) if may_be_half_done => {
                // Dropped without an answer it is in doubt.
                drop(observation);
                answer
            }
            (Ok(response), Some(observation)) => Ok(observation.answer(response)),
            (Err(error), Some(observation)) if !error.outcome_unknown() => {
                observation.not_sent();
                Err(error)
            }
            (answer, _) => answer,
        }
    }

    /// Whether the user may not do it, as the cluster says when it is asked now. What it answers to a write need not tell: with
    /// `timeout=1ns` anybody gets a 504, before the server has looked whether they may.
    async fn are_not_the_users(&self, connection: &Arc<Connection>) -> bool {
        let Some((access, question)) = &self.write else {
            return false;
        };
        if self.roles.is_none() && self.observation.is_none() {
            return false;
        }
        access.is_denied(connection, question).await
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let (roles, observation) = (self.roles.take(), self.observation.take());
        if !self.passed.is_broken_off() {
            roles.iter().for_each(|decisions| decisions.flush());
        } else if let Some(observation) = observation {
            observation.not_sent();
        }
    }
}

/// Whether a request may have changed who may do what.
fn changes_roles(info: &RequestInfo<'_>) -> bool {
    let resource = || ResourcePath::parse_lenient(info.path());
    // They have no subresources; what is long-running is none of theirs.
    info.verb.is_write()
        && !info.is_long_running()
        && resource().is_some_and(|it| &*it.gvr.group == RBAC)
}
