//! Requests below no cluster: the fleet's own API.

use fleetcache_cache::cluster_cache::ClusterCache;
use http::{HeaderMap, Method};

use super::{Answer, Explanation, known_names};
use crate::error::{Error, cause};
use crate::fleet_api::{FleetReaders, FleetRequest};
use crate::handler::impersonates;
use crate::request_info::Verb;

/// What would become of it.
pub(super) fn explain(
    clusters: &ClusterCache,
    readers: &FleetReaders,
    method: &Method,
    target: &str,
    headers: &HeaderMap,
) -> Explanation {
    let asked = FleetRequest::parse(method, target);
    let (answer, reason, mut sentence) = outcome(clusters, &asked, headers);
    if answer == Answer::Local
        && asked.resource_path().is_some()
        && *readers != FleetReaders::default()
    {
        sentence += " `authorization.fleetReaders` names who may read it; others are answered 403.";
    }
    Explanation {
        request: described(&asked, method, target),
        answer,
        reason: reason.to_owned(),
        sentence,
        allowed_users_only: false,
        informer: None,
    }
}

fn outcome(
    clusters: &ClusterCache,
    asked: &FleetRequest<'_>,
    headers: &HeaderMap,
) -> (Answer, &'static str, String) {
    let error = |error: &Error, sentence: String| (Answer::Error, cause(error), sentence);
    let is_read = matches!(asked.verb, Verb::Get | Verb::List | Verb::Watch);
    let resource = asked.resource_path();
    let name = resource.and_then(|it| it.name.as_deref());
    if impersonates(headers) {
        error(
            &Error::ImpersonationRefused,
            super::sentences::IMPERSONATES.to_owned(),
        )
    } else if asked.asks_who_asks() && asked.verb == Verb::Create {
        let sentence = "The proxy answers it itself: who is asking, as it knows them.";
        (Answer::Local, "", sentence.to_owned())
    } else if asked.asks_who_asks() {
        let sentence = "A SelfSubjectReview is posted, and nothing else can be done with it.";
        error(&Error::MethodNotAllowed, sentence.to_owned())
    } else if resource.is_none() && !asked.is_document() {
        let sentence = "It names no cluster, and the fleet's own API has no such path: those of clusters start with \
                        /clusters/<name>, as in the kubeconfig that the proxy wrote.";
        (Answer::Error, "not-found", sentence.to_owned())
    } else if !is_read {
        let sentence =
            "The fleet's own API can be read and watched, and nothing in it can be changed.";
        error(&Error::MethodNotAllowed, sentence.to_owned())
    } else if resource.is_some_and(|it| it.subresource.is_some()) {
        let sentence = "Clusterconnections have no subresources.".to_owned();
        (Answer::Error, "not-found", sentence)
    } else if let Some(name) = name
        && clusters.get(name).is_none()
    {
        let known = known_names(clusters);
        let sentence = format!("There is no cluster {name:?}; there are: {known}.");
        (Answer::Error, "not-found", sentence)
    } else {
        let sentence = "The proxy answers it itself, with what it knows of its clusters, whether they are connected or not.";
        (Answer::Local, "", sentence.to_owned())
    }
}

fn described(asked: &FleetRequest<'_>, method: &Method, target: &str) -> String {
    match asked.resource_path() {
        Some(resource) => {
            let name = resource.name.as_deref();
            let name = name.map_or_else(String::new, |name| format!(" {name:?}"));
            format!(
                "{} {}{name} of the fleet",
                asked.verb.as_str(),
                resource.gvr
            )
        }
        None => format!("{method} {target}"),
    }
}
