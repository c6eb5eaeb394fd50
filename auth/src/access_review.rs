//! Whether a user may: the question as a `SubjectAccessReview`, and what its answer decides.

mod selector;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use selector::selected_name;

use crate::user::UserInfo;

const API_VERSION: &str = "authorization.k8s.io/v1";
const KIND: &str = "SubjectAccessReview";

/// What a user wants to do. Exact, as it is a part of the keys of decisions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Question {
    /// Something to objects.
    Resource(ResourceAttributes),
    /// Something to a path that is no resource, such as `/version`.
    NonResource(NonResourceAttributes),
}

/// What is wanted of which objects, as kube-apiserver reads it from a request; "" is what a request does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceAttributes {
    /// The verb in Kubernetes' words: `list` and not GET.
    pub verb: &'static str,
    /// The group; "" is the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The resource, in the plural.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace; "" is all of them. A Namespace is in the namespace of its own name.
    pub namespace: String,
    /// The object; of a list and a watch what [`selected_name`] says of its field selector.
    pub name: String,
    /// The field selector of a list, watch or deletecollection as it stands in the query, decoded; empty is none.
    pub field_selector: Option<String>,
    /// The label selector, likewise.
    pub label_selector: Option<String>,
}

/// What is wanted of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NonResourceAttributes {
    /// The method in lower case.
    pub verb: &'static str,
    /// The path, decoded, without the query.
    pub path: String,
}

/// What a cluster decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The user may.
    Allow,
    /// The user may not; the cluster has the words for it.
    Deny,
}

/// The body of a `SubjectAccessReview` that asks whether this user may do this.
pub fn subject_access_review(user: &UserInfo, question: &Question) -> Bytes {
    let (resource, non_resource) = match question {
        Question::Resource(attributes) => (Some(resource_body(attributes)), None),
        Question::NonResource(attributes) => (
            None,
            Some(NonResourceBody {
                path: &attributes.path,
                verb: attributes.verb,
            }),
        ),
    };
    let review = Review {
        api_version: API_VERSION,
        kind: KIND,
        spec: Spec {
            resource_attributes: resource,
            non_resource_attributes: non_resource,
            user: &user.name,
            groups: &user.groups,
            extra: &user.extra,
            uid: &user.uid,
        },
    };
    let body = serde_json::to_vec(&review).expect("strings, lists and maps of strings are JSON");
    body.into()
}

/// What the answer to a `SubjectAccessReview` decides.
///
/// `evaluationError` changes nothing: what was allowed in spite of it is allowed, and what was not the cluster itself
/// shall refuse.
///
/// # Errors
/// It is no such answer, or contradicts itself. Nothing but a clear word is an [`Decision::Allow`].
pub fn decision(answer: &[u8]) -> Result<Decision, String> {
    let answer: Answer =
        serde_json::from_slice(answer).map_err(|error| format!("no {KIND}: {error}"))?;
    if answer.api_version != API_VERSION || answer.kind != KIND {
        let Answer {
            api_version, kind, ..
        } = answer;
        return Err(format!("no {KIND} but {kind:?} of {api_version:?}"));
    }
    match answer.status {
        Some(Status {
            allowed: true,
            denied: false,
        }) => Ok(Decision::Allow),
        Some(Status { allowed: false, .. }) => Ok(Decision::Deny),
        Some(Status {
            allowed: true,
            denied: true,
        }) => Err("both allowed and denied".to_owned()),
        None => Err("no status".to_owned()),
    }
}

/// The questions whose Allow answers this one too, from the broadest to the question itself: about all namespaces,
/// about the whole namespace, both without name and selectors. Always for the same verb, as whoever may list need not
/// be allowed to get or to watch.
pub fn broader(question: &Question) -> impl Iterator<Item = Question> {
    let mut questions = Vec::with_capacity(3);
    if let Question::Resource(attributes) = question {
        let namespace = ResourceAttributes {
            name: String::new(),
            field_selector: None,
            label_selector: None,
            ..attributes.clone()
        };
        let all = ResourceAttributes {
            namespace: String::new(),
            ..namespace.clone()
        };
        questions.extend([all, namespace].map(Question::Resource));
    }
    questions.push(question.clone());
    questions.dedup();
    questions.into_iter()
}

fn resource_body(attributes: &ResourceAttributes) -> ResourceBody<'_> {
    fn selector<'a>(
        text: &'a Option<String>,
        requirements: fn(&str) -> Option<Vec<selector::Requirement>>,
    ) -> Option<SelectorBody<'a>> {
        // Neither form may be empty, nor both be there.
        let text = text.as_deref().filter(|text| !text.is_empty())?;
        Some(match requirements(text) {
            Some(requirements) => SelectorBody::Requirements(requirements),
            None => SelectorBody::RawSelector(text),
        })
    }
    ResourceBody {
        namespace: &attributes.namespace,
        verb: attributes.verb,
        group: &attributes.group,
        version: &attributes.version,
        resource: &attributes.resource,
        subresource: &attributes.subresource,
        name: &attributes.name,
        field_selector: selector(&attributes.field_selector, selector::of_fields),
        label_selector: selector(&attributes.label_selector, selector::of_labels),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'a str,
    kind: &'a str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_attributes: Option<ResourceBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    non_resource_attributes: Option<NonResourceBody<'a>>,
    user: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceBody<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    verb: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subresource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field_selector: Option<SelectorBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_selector: Option<SelectorBody<'a>>,
}

/// One of the two forms: the server refuses both together (KEP-4601).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum SelectorBody<'a> {
    Requirements(Vec<selector::Requirement>),
    RawSelector(&'a str),
}

#[derive(Serialize)]
struct NonResourceBody<'a> {
    path: &'a str,
    verb: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    api_version: String,
    kind: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
struct Status {
    allowed: bool,
    #[serde(default)]
    denied: bool,
}

#[cfg(test)]
mod tests;
