//! What a live request may have changed, told when its answer comes.

use std::sync::Arc;

use http::Response;

use crate::authorization::ClusterDecisions;
use crate::body::Body;
use crate::error::Error;
use crate::live::Passed;
use crate::observe::Observation;
use crate::request_info::{RequestInfo, ResourcePath};

/// The group of roles and their bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// What a live request may have changed. Dropped before its answer it was broken off, and has changed nothing; or nobody
/// will ever know what it has.
pub(super) struct Changes {
    passed: Passed,
    /// Of a write that may change who may do what: what was decided is forgotten when its answer comes.
    roles: Option<Arc<ClusterDecisions>>,
    observation: Option<Observation>,
}

impl Changes {
    pub(super) fn new(
        passed: Passed,
        info: &RequestInfo<'_>,
        decisions: &Arc<ClusterDecisions>,
        observation: Option<Observation>,
    ) -> Self {
        Self {
            passed,
            roles: changes_roles(info).then(|| Arc::clone(decisions)),
            observation,
        }
    }

    /// Watches the answer on its way to the client.
    pub(super) fn answered(
        mut self,
        answer: Result<Response<Body>, Error>,
    ) -> Result<Response<Body>, Error> {
        let (roles, observation) = (self.roles.take(), self.observation.take());
        let may_have_changed = match &answer {
            Ok(answer) => answer.status().is_success() || answer.status().is_server_error(),
            Err(error) => error.outcome_unknown(),
        };
        if let Some(decisions) = roles.filter(|_| may_have_changed) {
            decisions.flush();
        }
        match (answer, observation) {
            (Ok(response), Some(observation)) => Ok(observation.answer(response)),
            (Err(error), Some(observation)) if !error.outcome_unknown() => {
                observation.not_sent();
                Err(error)
            }
            (answer, _) => answer,
        }
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
