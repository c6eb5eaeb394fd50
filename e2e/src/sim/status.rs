//! Errors of the simulated API, in the words of the apiserver.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::json;
use super::resource::Resource;

/// A failed request: what the apiserver answers as a `Status` of kind Failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason; some internal errors have none.
    pub reason: &'static str,
    /// The human-readable text, which clients match on too.
    pub message: String,
    /// The value of a `Retry-After` header.
    pub(super) retry_after: Option<u32>,
    /// Boxed, since most results are no errors.
    details: Option<Box<Details>>,
    /// An expired page carries a token to go on with.
    continue_token: Option<String>,
    /// Unknown API groups are answered outside the API machinery.
    plain_text: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Cause {
    reason: &'static str,
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Value,
    status: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    code: u16,
}

impl Status {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            retry_after: None,
            details: None,
            continue_token: None,
            plain_text: false,
        }
    }

    fn with_details(self, details: Details) -> Self {
        Self {
            details: Some(Box::new(details)),
            ..self
        }
    }

    fn about(self, resource: &Resource, name: &str) -> Self {
        self.with_details(Details {
            name: name.to_owned(),
            group: resource.group,
            kind: resource.plural,
            ..Details::default()
        })
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(super) fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let message = format!("forbidden: User {user:?} cannot {verb} path {path:?}");
        Self::new(403, "Forbidden", message).with_details(Details::default())
    }

    pub(super) fn forbidden(
        user: &str,
        verb: &str,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Self {
        let place = match namespace {
            Some(namespace) => format!("in the namespace {namespace:?}"),
            None => "at the cluster scope".to_owned(),
        };
        let object = if name.is_empty() {
            String::new()
        } else {
            format!(" {name:?}")
        };
        let message = format!(
            "{}{object} is forbidden: User {user:?} cannot {verb} resource {:?} in API group {:?} {place}",
            resource.qualified(),
            resource.plural,
            resource.group
        );
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    pub(super) fn may_not_impersonate(user: &str, whom: &str) -> Self {
        let message = format!(
            "users {whom:?} is forbidden: User {user:?} cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
        );
        Self::new(403, "Forbidden", message).with_details(Details {
            name: whom.to_owned(),
            kind: "users",
            ..Details::default()
        })
    }

    pub(super) fn protected_namespace(resource: &Resource, name: &str) -> Self {
        let message =
            format!("namespaces {name:?} is forbidden: this namespace may not be deleted");
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    pub(super) fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} {name:?} not found", resource.qualified()),
        )
        .about(resource, name)
    }

    /// A path below a known group version that leads nowhere.
    pub(super) fn no_such_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(Details::default())
    }

    /// A path outside every known group version.
    pub(super) fn no_such_page() -> Self {
        Self {
            plain_text: true,
            ..Self::new(404, "NotFound", "404 page not found")
        }
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(Details::default())
    }

    pub(super) fn not_acceptable() -> Self {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json";
        Self::new(406, "NotAcceptable", message).with_details(Details::default())
    }

    pub(super) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource.qualified());
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    /// A precondition on the uid is checked below the layer that knows the resource: the kind stands for it.
    pub(super) fn wrong_uid(resource: &Resource, name: &str, given: &str, found: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: the UID in the precondition ({given}) does not match the \
             UID in record ({found}). The object might have been deleted and then recreated",
            resource.kind
        );
        Self::new(409, "Conflict", message).with_details(Details {
            name: name.to_owned(),
            kind: resource.kind,
            ..Details::default()
        })
    }

    pub(super) fn modified(resource: &Resource, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: the object has been modified; please apply your changes to \
             the latest version and try again",
            resource.qualified()
        );
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// The watch's resourceVersion is older than what is remembered.
    pub(super) fn expired_watch(asked: u64, oldest: u64) -> Self {
        Self::new(
            410,
            "Expired",
            format!("too old resource version: {asked} ({oldest})"),
        )
    }

    /// The list's resourceVersion is older than what is remembered.
    pub(super) fn expired_list() -> Self {
        Self::new(
            410,
            "Expired",
            "The resourceVersion for the provided list is too old.",
        )
    }

    /// A page's snapshot is gone; `token` goes on at the same key, without consistency.
    pub(super) fn expired_page(token: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You can \
                       start a new list without the continue parameter, or use the continue token in this response \
                       to retrieve the remainder of the results. Continuing with the provided token results in an \
                       inconsistent list - objects that were created, modified, or deleted between the time the \
                       first chunk was returned and now may show up in the list.";
        Self {
            continue_token: Some(token),
            ..Self::new(410, "Expired", message)
        }
    }

    pub(super) fn unsupported_media_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            .with_details(Details::default())
    }

    pub(super) fn unsupported_body() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types include: application/json, application/vnd.kubernetes.protobuf";
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// Options of a LIST or WATCH that contradict each other; one `(reason, field, message)` each.
    pub(super) fn invalid_options(causes: Vec<(&'static str, &'static str, String)>) -> Self {
        let causes: Vec<Cause> = causes
            .into_iter()
            .map(|(reason, field, message)| Cause {
                reason,
                message,
                field,
            })
            .collect();
        let one = |cause: &Cause| format!("{}: {}", cause.field, cause.message);
        let text = match causes.as_slice() {
            [only] => one(only),
            several => format!(
                "[{}]",
                several.iter().map(one).collect::<Vec<_>>().join(", ")
            ),
        };
        Self::new(
            422,
            "Invalid",
            format!("ListOptions.meta.k8s.io \"\" is invalid: {text}"),
        )
        .with_details(Details {
            group: "meta.k8s.io",
            kind: "ListOptions",
            causes,
            ..Details::default()
        })
    }

    pub(super) fn name_required(resource: &Resource) -> Self {
        let cause = Cause {
            reason: "FieldValueRequired",
            message: "Required value: name or generateName is required".to_owned(),
            field: "metadata.name",
        };
        let message = format!(
            "{} \"\" is invalid: {}: {}",
            resource.kind, cause.field, cause.message
        );
        Self::new(422, "Invalid", message).with_details(Details {
            group: resource.group,
            kind: resource.kind,
            causes: vec![cause],
            ..Details::default()
        })
    }

    /// An error that the API machinery did not expect; it has no reason.
    pub(super) fn unexpected(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// What a failing apiserver (or a load balancer before it) answers with `code`.
    pub(super) fn faulty(code: u16) -> Self {
        let reason = match code {
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        Self::new(code, reason, "an injected fault answers this request")
            .with_details(Details::default())
    }

    /// The client asks for a resourceVersion that this cluster has not reached.
    pub(super) fn too_large(resource: &Resource, asked: u64, current: u64) -> Self {
        let retry_after = resource.watch_cache.then_some(1);
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".to_owned(),
            field: "",
        };
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self {
            retry_after,
            ..Self::new(504, "Timeout", message)
        }
        .with_details(Details {
            causes: vec![cause],
            retry_after_seconds: retry_after,
            ..Details::default()
        })
    }

    /// The body as the apiserver writes it, without the newline at its end.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let metadata = match &self.continue_token {
            Some(token) => json!({ "continue": token }),
            None => json!({}),
        };
        json::encode(&Body {
            kind: "Status",
            api_version: "v1",
            metadata,
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details.as_deref(),
            code: self.code,
        })
    }

    /// The content type and body of the HTTP answer.
    pub(super) fn to_http(&self) -> (&'static str, Vec<u8>) {
        if self.plain_text {
            return (
                "text/plain; charset=utf-8",
                format!("{}\n", self.message).into_bytes(),
            );
        }
        let mut body = self.to_json();
        body.push(b'\n');
        ("application/json", body)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_read_as_the_apiservers() {
        let widgets = Resource::named("widgets").unwrap();
        let configmaps = Resource::named("configmaps").unwrap();
        let check = |status: Status, expected: &str| {
            assert_eq!(String::from_utf8(status.to_json()).unwrap(), expected);
        };
        check(
            Status::not_found(widgets, "nope"),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"widgets.example.com \"nope\" not found","reason":"NotFound","details":{"name":"nope","group":"example.com","kind":"widgets"},"code":404}"#,
        );
        check(
            Status::too_large(configmaps, 99_999_999, 245),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large resource version: 99999999, current: 245","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
        );
        check(
            Status::no_such_resource(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
        );
    }
}
