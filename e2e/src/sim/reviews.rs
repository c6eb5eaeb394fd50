//! Reviews: who am I, whose is a token, and may I.

use serde_json::{Map, Value, json};

use super::json;
use super::protobuf;
use super::status::Status;
use super::users::Users;

/// Answers the POST of a review, if `path` is one. `known` is who a token stands for.
pub(super) fn answer(
    path: &str,
    user: &str,
    users: &Users,
    known: impl FnOnce(&str) -> Option<String>,
    body: &[u8],
) -> Option<Result<Vec<u8>, Status>> {
    let kind = match path {
        "/apis/authentication.k8s.io/v1/selfsubjectreviews" => "SelfSubjectReview",
        "/apis/authentication.k8s.io/v1/tokenreviews" => "TokenReview",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => "SelfSubjectAccessReview",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => "SubjectAccessReview",
        _ => return None,
    };
    let review = match protobuf::decode(kind, body) {
        Some(review) => Ok(review),
        None => serde_json::from_slice::<Value>(body),
    };
    let invalid =
        |error| Status::bad_request(format!("the object provided is unrecognized: {error}"));
    Some(review.map_err(invalid).map(|review| {
        let spec = &review["spec"];
        let group = path.split('/').nth(2).unwrap_or_default();
        let mut answer = Map::new();
        answer.insert("kind".to_owned(), kind.into());
        answer.insert("apiVersion".to_owned(), format!("{group}/v1").into());
        answer.insert("metadata".to_owned(), json!({}));
        if kind != "SelfSubjectReview" {
            answer.insert("spec".to_owned(), spec.clone());
        }
        let status = match kind {
            "SelfSubjectReview" => json!({"userInfo": user_info(user)}),
            "TokenReview" => match known(spec["token"].as_str().unwrap_or_default()) {
                Some(user) => json!({
                    "authenticated": true, "user": user_info(&user), "audiences": spec["audiences"],
                }),
                None => json!({"user": {}, "error": "[invalid bearer token]"}),
            },
            "SelfSubjectAccessReview" => json!({"allowed": users.may_as_asked(user, spec)}),
            _ => {
                let user = spec["user"].as_str().unwrap_or_default();
                json!({"allowed": users.may_as_asked(user, spec)})
            }
        };
        answer.insert("status".to_owned(), status);
        let mut answer = json::encode_built_in(&answer);
        answer.push(b'\n');
        answer
    }))
}

fn user_info(user: &str) -> Value {
    let groups = match user == super::users::ADMIN {
        true => json!(["system:masters", "system:authenticated"]),
        false => json!(["system:authenticated"]),
    };
    json!({"username": user, "groups": groups})
}
