//! `fleetcache why`: what would become of a request, and what to do about it. The request goes through the data path's own
//! decision and is dropped there: it is not sent on and starts nothing. Only a read that is to be consistent has the
//! cluster asked whether memory is what it holds now, as the decision rests on that.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use fleetcache_cache::cluster_accessor::{
    ClusterAccessor, ClusterStatus, May, NotConnectedReason, Right,
};
use fleetcache_cache::cluster_cache::ClusterCache;
use fleetcache_cache::connection::Connection;
use fleetcache_cache::holding::Holding;
use fleetcache_cache::informers::Lookup;
use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::authorization::{Access, Subject};
use crate::cache_control::CacheControl;
use crate::clusters::FEW;
use crate::decision::LiveReason;
use crate::documents::DocumentRequest;
use crate::error::{Error, cause};
use crate::handler::{ClusterSettings, impersonates};
use crate::identity::Identity;
use crate::limits::Limits;
use crate::memory;
use crate::read_settings::OnMissingInformer;
use crate::request_info::{RequestInfo, ResourcePath};
use crate::writing::Writing;

mod client;
mod fleet;
mod question;
mod sentences;
#[cfg(test)]
mod tests;

pub use client::ask;
pub use question::Question;
use sentences::sentence;

/// What would become of a request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The request in Kubernetes' words.
    pub request: String,
    /// Who would answer.
    pub answer: Answer,
    /// Why, as in logs, metrics and `Cache-Status`; empty for an answer from memory.
    pub reason: String,
    /// The same as a sentence, and what to do.
    pub sentence: String,
    /// Whether memory answers only users whom the cluster allows it; who asks is not known here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allowed_users_only: bool,
    /// What there is of the kind in memory.
    pub informer: Option<InformerState>,
}

/// Who would answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Memory.
    Memory,
    /// The cluster.
    Live,
    /// The proxy itself: it is about the fleet.
    Local,
    /// The proxy itself, with an error.
    Error,
}

/// What there is of a kind in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InformerState {
    /// `not started`, `syncing` or `synced`.
    pub state: String,
    /// `json` or `protobuf`: in which encoding it holds the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// The version it is complete through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The newest version that anybody was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<String>,
    /// Seconds since the server was last heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Objects held.
    pub objects: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// What would become of a request now.
pub async fn explain(clusters: &ClusterCache, limits: &Limits, question: &Question) -> Explanation {
    let Question {
        method, headers, ..
    } = question;
    let target = question.path_and_query();
    let error = |request: String, reason: &str, sentence: String| Explanation {
        request,
        answer: Answer::Error,
        reason: reason.to_owned(),
        sentence,
        allowed_users_only: false,
        informer: None,
    };
    let Some(info) = RequestInfo::parse(method, target) else {
        let readers = limits.fleet_readers();
        return fleet::explain(clusters, &readers, method, target, headers);
    };
    let request = described(&info);
    if impersonates(headers) {
        let reason = cause(&Error::ImpersonationRefused);
        return error(request, reason, sentences::IMPERSONATES.to_owned());
    }
    let (Some(cluster), Some(limits)) = (clusters.get(info.cluster), limits.get(info.cluster))
    else {
        let sentence = format!(
            "There is no cluster {:?}; there are: {}.",
            info.cluster,
            known_names(clusters)
        );
        return error(request, "not-found", sentence);
    };
    let settings = &limits.settings;
    // Who may have it is for the cluster to say, of each user: it is told for one who may.
    let asks_about_users = settings.asks_about_users();
    let access = Access {
        cluster: Arc::clone(&cluster),
        decisions: Arc::clone(&limits.decisions),
        settings: settings.authorization,
        subject: match asks_about_users {
            true => Subject::Allowed,
            false => Subject::Nobody,
        },
    };
    let Some(connection) = cluster.current() else {
        let (reason, sentence) = not_connected(cluster.status());
        let error = error(request, reason.as_str(), sentence);
        return while_disconnected(error, &access, settings, &info, headers).await;
    };
    if DocumentRequest::of(&info, headers).is_some() {
        return Explanation {
            request,
            answer: Answer::Live,
            reason: "document".to_owned(),
            sentence: sentences::DOCUMENT.to_owned(),
            allowed_users_only: false,
            informer: None,
        };
    }
    // Its answer is made as it is read, and nobody reads it. Whatever is configured: nothing is to start.
    let on_missing = OnMissingInformer::Live;
    let outcome = memory::answer(&access, &connection, &info, headers, settings, on_missing);
    let outcome = match outcome.await {
        Ok(outcome) => outcome.map(drop),
        Err(expired @ Error::PageExpired { .. }) => {
            return error(request, cause(&expired), sentences::PAGE_EXPIRED.to_owned());
        }
        // Only where one is configured.
        Err(_) => Err(LiveReason::NotSynced),
    };
    let informer = info.resource.as_ref();
    let writing = Writing::of(info.verb, info.query, headers);
    let tables_are_off = informer.is_some_and(|resource| {
        writing.needs_tables_that_are_off(&resource.gvr, cluster.informers())
    });
    let informer =
        informer.map(|resource| informer_state(&cluster, &connection, resource, writing));
    let (answer, reason, mut sentence) = match outcome {
        Ok(()) if asks_about_users => (Answer::Memory, "", sentences::ALLOWED.to_owned()),
        Ok(()) => (Answer::Memory, "", "It is answered from memory.".to_owned()),
        Err(reason @ LiveReason::Representation) if tables_are_off => {
            let sentence = sentences::TABLES_ARE_OFF.to_owned();
            (Answer::Live, reason.as_str(), sentence)
        }
        Err(reason) => (Answer::Live, reason.as_str(), sentence(reason).to_owned()),
    };
    let mut explanation = Explanation {
        request,
        answer,
        reason: reason.to_owned(),
        sentence: String::new(),
        allowed_users_only: asks_about_users && answer == Answer::Memory,
        // Of no use where nothing is ever kept for it.
        informer: informer
            .filter(|_| !matches!(outcome, Err(LiveReason::Never | LiveReason::Method))),
    };
    let is_missing = matches!(
        outcome,
        Err(LiveReason::NotStarted(_) | LiveReason::NotSynced)
    );
    match settings.reads.on_missing_informer {
        OnMissingInformer::Fail if is_missing => {
            explanation.answer = Answer::Error;
            sentence += " Until then it is answered 503, as `onMissingInformer: fail` says; asking starts the informer.";
        }
        OnMissingInformer::Wait if is_missing => {
            sentence += " It waits for that, as `onMissingInformer: wait` says; asking starts the informer.";
        }
        _ => {}
    }
    let only_if_cached = info.is_plain_read() && CacheControl::of(headers).only_if_cached;
    if only_if_cached && explanation.answer == Answer::Live {
        if is_missing && settings.reads.on_missing_informer == OnMissingInformer::Wait {
            sentence += " Where that takes too long it is answered 504, as its Cache-Control has only-if-cached.";
        } else {
            explanation.answer = Answer::Error;
            sentence += " Its Cache-Control has only-if-cached, so it is answered 504.";
        }
    }
    if explanation.answer == Answer::Live
        && settings.identity == Identity::Impersonate
        && cluster.may(Right::Impersonation) == May::No
    {
        sentence += " The cluster refuses it all the same: ";
        sentence += Right::Impersonation.refused();
        sentence += ".";
    }
    explanation.sentence = sentence;
    explanation
}

/// The names of all clusters where they are few, else how many there are.
pub(crate) fn known_names(clusters: &ClusterCache) -> String {
    let known = clusters.all();
    if known.is_empty() {
        "none".to_owned()
    } else if known.len() <= FEW {
        let names: Vec<_> = known.iter().map(|it| it.name()).collect();
        names.join(", ")
    } else {
        format!("{}, which `fleetcache status` lists", known.len())
    }
}

/// An error, unless the request is one that is answered all the same.
async fn while_disconnected(
    mut error: Explanation,
    access: &Access,
    settings: &ClusterSettings,
    info: &RequestInfo<'_>,
    headers: &HeaderMap,
) -> Explanation {
    let audit_id = HeaderValue::from_static("");
    let document = DocumentRequest::of(info, headers);
    if document.is_some_and(|it| it.while_disconnected(&access.cluster, &audit_id).is_some()) {
        error.sentence += " This one is answered with what is known of the cluster.";
    } else if memory::last_known(access, info, headers, &settings.reads)
        .await
        .is_some()
    {
        error.sentence +=
            " This one is answered with what was known last, as `whenDisconnected: stale` says.";
    } else {
        return error;
    }
    let allowed_users_only = settings.asks_about_users();
    if allowed_users_only {
        error.sentence += sentences::WAS_ALLOWED;
    }
    Explanation {
        answer: Answer::Memory,
        reason: "disconnected".to_owned(),
        allowed_users_only,
        ..error
    }
}

fn not_connected(status: ClusterStatus) -> (NotConnectedReason, String) {
    let reason = NotConnectedReason::ClusterStarting;
    let hint = status.hint;
    let Some(why) = status.not_connected else {
        // It was connected between two looks.
        return (
            reason,
            "The cluster has been connected just now; ask again.".to_owned(),
        );
    };
    let mut sentence = if why.reason.class() == reason.class() {
        format!(
            "The cluster has not been connected yet ({}). A request waits for that for a moment, and is answered 503 where it \
             takes longer.",
            why.message
        )
    } else {
        format!(
            "The cluster is not connected ({}), so requests to it are answered 503 at once.",
            why.message
        )
    };
    if let Some(next) = why.next_attempt {
        let _ = write!(sentence, " The next try is in {} s.", next.as_secs());
    }
    if let Some(hint) = hint {
        let _ = write!(sentence, " Hint: {hint}.");
    }
    (why.reason, sentence)
}

fn described(info: &RequestInfo<'_>) -> String {
    let mut text = info.verb.as_str().to_owned();
    match &info.resource {
        Some(resource) => {
            let _ = write!(text, " {}", resource.gvr);
            if let Some(namespace) = &resource.namespace {
                let _ = write!(text, " in namespace {namespace:?}");
            }
            if let Some(name) = &resource.name {
                let _ = write!(text, " {name:?}");
            }
            if let Some(subresource) = &resource.subresource {
                let _ = write!(text, ", subresource {subresource:?}");
            }
        }
        None => {
            let _ = write!(text, " {}", info.path());
        }
    }
    let _ = write!(text, " of cluster {:?}", info.cluster);
    text
}

fn informer_state(
    cluster: &Arc<ClusterAccessor>,
    connection: &Connection,
    resource: &ResourcePath<'_>,
    writing: Writing,
) -> InformerState {
    let informers = cluster.informers();
    let gvr = &resource.gvr;
    let found = match writing.of_gvr(gvr, informers) {
        Ok(written) => informers.find(gvr, written.form, connection.generation),
        // There is none for it: it is told of the one that most others have.
        Err(_) => informers.lookup(gvr, Holding::default()),
    };
    let Lookup::Informer(informer) = found else {
        return InformerState {
            state: "not started".to_owned(),
            ..InformerState::default()
        };
    };
    let (objects, bytes) = informer.size();
    let is_synced = informer.is_readable_on(connection.generation);
    let floor = informers.floor(&resource.gvr.storage());
    let floor = floor.map(|floor| floor.told(connection.epoch));
    let told = |version: u64| (version > 0).then(|| version.to_string());
    InformerState {
        state: if is_synced { "synced" } else { "syncing" }.to_owned(),
        encoding: Some(informer.holding.as_str().to_owned()),
        resource_version: informer.resource_version().and_then(|it| told(it.get())),
        floor: floor.and_then(|it| told(it.get())),
        age_seconds: is_synced.then(|| informer.age().as_secs()),
        objects,
        bytes,
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = match self.answer {
            Answer::Memory => "from memory",
            Answer::Live => "live",
            Answer::Local => "by the proxy itself",
            Answer::Error => "error",
        };
        write!(f, "{}: {answer}", self.request)?;
        if !self.reason.is_empty() {
            write!(f, " ({})", self.reason)?;
        }
        if self.allowed_users_only {
            write!(f, ", for a user whom the cluster allows it")?;
        }
        write!(f, "\n{}", self.sentence)?;
        if let Some(informer) = &self.informer {
            write!(f, "\ninformer: {}", informer.state)?;
            if let Some(encoding) = &informer.encoding {
                write!(f, ", holds {encoding}")?;
            }
            if let Some(version) = &informer.resource_version {
                let floor = informer.floor.as_deref().unwrap_or("none");
                write!(
                    f,
                    ", complete through resourceVersion {version}, floor {floor}, {} objects, {} bytes",
                    informer.objects, informer.bytes
                )?;
            }
            if let Some(age) = informer.age_seconds {
                write!(f, ", server heard {age} s ago")?;
            }
        }
        Ok(())
    }
}
