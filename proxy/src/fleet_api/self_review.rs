//! Who is asking, as `kubectl auth whoami` asks the proxy's root: a SelfSubjectReview. What is posted says nothing that would
//! change the answer, so it is not read.

use std::collections::BTreeMap;
use std::time::SystemTime;

use fleetcache_auth::UserInfo;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use jiff::Timestamp;
use serde::Serialize;

use super::object::seconds;
use crate::body::Body;
use crate::sent::{indented, whole};
use crate::status::as_go_writes;

/// Where it is posted, without slashes at the ends.
pub(super) const PATH: &str = "apis/authentication.k8s.io/v1/selfsubjectreviews";

/// `authentication.k8s.io/v1.SelfSubjectReview`, in its key order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SelfSubjectReview<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Metadata,
    status: Status<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<Timestamp>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    user_info: Who<'a>,
}

/// `authentication.k8s.io/v1.UserInfo`, in its key order.
#[derive(Serialize)]
struct Who<'a> {
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

/// The answer to a user.
pub(super) fn answer(user: &UserInfo, now: SystemTime, pretty: bool) -> Response<Body> {
    let review = SelfSubjectReview {
        kind: "SelfSubjectReview",
        api_version: "authentication.k8s.io/v1",
        metadata: Metadata {
            creation_timestamp: seconds(now),
        },
        status: Status {
            user_info: Who {
                username: &user.name,
                uid: &user.uid,
                groups: &user.groups,
                extra: &user.extra,
            },
        },
    };
    let json = serde_json::to_string(&review).expect("strings and lists always serialise");
    let json = as_go_writes(json);
    let body = match pretty {
        true => indented([json.into()].into_iter()).0,
        false => whole(json + "\n").0,
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::CREATED;
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn all_that_is_known_of_a_user_is_told() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let text = async |user: &UserInfo| {
            let answer = answer(user, now, false);
            assert_eq!(answer.status(), 201);
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            String::from_utf8(body.to_vec()).unwrap()
        };
        let user = UserInfo {
            name: "a<b".to_owned(),
            uid: "7".to_owned(),
            groups: vec!["g,h".to_owned()],
            extra: BTreeMap::from([("k".to_owned(), vec!["v".to_owned()])]),
            named_by: None,
        };
        let head = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","metadata":{"creationTimestamp":"1970-01-01T00:00:01Z"},"status":{"userInfo":"#;
        assert_eq!(
            text(&user).await,
            format!(
                r#"{head}{{"username":"a\u003cb","uid":"7","groups":["g,h"],"extra":{{"k":["v"]}}}}}}}}{}"#,
                "\n"
            )
        );
        let user = UserInfo {
            name: "b".to_owned(),
            ..UserInfo::default()
        };
        assert_eq!(
            text(&user).await,
            format!("{head}{{\"username\":\"b\"}}}}}}\n")
        );
    }
}
