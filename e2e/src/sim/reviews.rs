//! Reviews: who am I, and may I. In a simulated cluster everyone may.

use serde_json::{Map, Value, json};

use super::json;
use super::protobuf;
use super::status::Status;

/// Answers the POST of a review, if `path` is one.
pub(super) fn answer(path: &str, user: &str, body: &[u8]) -> Option<Result<Vec<u8>, Status>> {
    let kind = match path {
        "/apis/authentication.k8s.io/v1/selfsubjectreviews" => "SelfSubjectReview",
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
        let group = path.split('/').nth(2).unwrap_or_default();
        let mut answer = Map::new();
        answer.insert("kind".to_owned(), kind.into());
        answer.insert("apiVersion".to_owned(), format!("{group}/v1").into());
        answer.insert("metadata".to_owned(), json!({}));
        if kind == "SelfSubjectReview" {
            let groups = json!(["system:masters", "system:authenticated"]);
            answer.insert(
                "status".to_owned(),
                json!({"userInfo": {"username": user, "groups": groups}}),
            );
        } else {
            answer.insert("spec".to_owned(), review["spec"].clone());
            answer.insert("status".to_owned(), json!({"allowed": true}));
        }
        let mut answer = json::encode_built_in(&answer);
        answer.push(b'\n');
        answer
    }))
}
