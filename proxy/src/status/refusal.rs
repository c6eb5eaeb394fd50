//! What the fleet's API refuses, as a Status.

use http::StatusCode;

use super::{Cause, Details, Failure};
use crate::fleet_api::{GROUP, RESOURCE, Refusal};

impl From<&Refusal> for Failure {
    fn from(refusal: &Refusal) -> Self {
        let plain = |code, reason, message: String| Self {
            code,
            reason,
            message,
            details: None,
        };
        match refusal {
            Refusal::BadRequest(message) => {
                plain(StatusCode::BAD_REQUEST, "BadRequest", message.clone())
            }
            Refusal::InvalidOptions(errors) => {
                let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
                let what = match &texts[..] {
                    [one] => one.clone(),
                    several => format!("[{}]", several.join(", ")),
                };
                let causes = errors.iter().map(|error| Cause {
                    reason: Some(error.reason),
                    message: Some(error.message.clone().into()),
                    field: Some(error.field),
                });
                Self {
                    code: StatusCode::UNPROCESSABLE_ENTITY,
                    reason: "Invalid",
                    message: format!("ListOptions.meta.k8s.io \"\" is invalid: {what}"),
                    details: Some(Details {
                        group: Some("meta.k8s.io"),
                        kind: Some("ListOptions"),
                        causes: causes.collect(),
                        ..Details::default()
                    }),
                }
            }
            Refusal::InvalidVersion(message) => {
                plain(StatusCode::INTERNAL_SERVER_ERROR, "", message.clone())
            }
            Refusal::TooLarge { asked, current } => Self {
                code: StatusCode::GATEWAY_TIMEOUT,
                reason: "Timeout",
                message: format!(
                    "Timeout: Too large resource version: {asked}, current: {current}"
                ),
                details: Some(Details {
                    causes: vec![Cause {
                        reason: Some("ResourceVersionTooLarge"),
                        message: Some("Too large resource version".into()),
                        field: None,
                    }],
                    retry_after_seconds: Some(1),
                    ..Details::default()
                }),
            },
            Refusal::Expired => plain(
                StatusCode::GONE,
                "Expired",
                "The resourceVersion for the provided list is too old.".to_owned(),
            ),
            Refusal::NotFound { name } => Self {
                code: StatusCode::NOT_FOUND,
                reason: "NotFound",
                message: format!("{RESOURCE}.{GROUP} {name:?} not found"),
                details: Some(Details {
                    name: Some(name.clone()),
                    ..of_kind()
                }),
            },
            Refusal::Forbidden {
                user,
                verb,
                name,
                subresource,
            } => {
                let object = match name.is_empty() {
                    true => String::new(),
                    false => format!(" {name:?}"),
                };
                let part = match subresource.is_empty() {
                    true => String::new(),
                    false => format!("/{subresource}"),
                };
                Self {
                    code: StatusCode::FORBIDDEN,
                    reason: "Forbidden",
                    message: format!(
                        "{RESOURCE}.{GROUP}{object} is forbidden: User {user:?} cannot {verb} resource \"{RESOURCE}{part}\" \
                         in API group {GROUP:?} at the cluster scope"
                    ),
                    details: Some(Details {
                        name: (!name.is_empty()).then(|| name.clone()),
                        ..of_kind()
                    }),
                }
            }
            Refusal::ForbiddenPath { user, verb, path } => Self {
                code: StatusCode::FORBIDDEN,
                reason: "Forbidden",
                message: format!("forbidden: User {user:?} cannot {verb} path {path:?}"),
                details: Some(Details::default()),
            },
            Refusal::NotAcceptable(message) => {
                plain(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message.clone())
            }
            Refusal::NotAList => plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "",
                "content is not a list".to_owned(),
            ),
            Refusal::Unsupported { verb } => Self {
                code: StatusCode::METHOD_NOT_ALLOWED,
                reason: "MethodNotAllowed",
                message: format!(
                    "{verb} is not supported on resources of kind \"{RESOURCE}.{GROUP}\""
                ),
                details: Some(of_kind()),
            },
            Refusal::PageNotFound => plain(
                StatusCode::NOT_FOUND,
                "NotFound",
                "404 page not found".to_owned(),
            ),
        }
    }
}

fn of_kind() -> Details {
    Details {
        group: Some(GROUP),
        kind: Some(RESOURCE),
        ..Details::default()
    }
}
