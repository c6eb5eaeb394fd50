//! The exact bytes of every error.

use std::time::Duration;

use fleetcache_cache::upstream::UpstreamError;
use http_body_util::BodyExt;

use super::*;

/// The status code and the exact body, which always is one line.
#[track_caller]
fn check(error: &Error, code: u16, expected: &str) {
    let json = Failure::from(error).to_json(error);
    assert_eq!(json, format!("{expected}\n"));
    let answer = response(error);
    assert_eq!(answer.status().as_u16(), code);
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/json");
    assert_eq!(answer.headers()[CACHE_CONTROL], "no-cache, private");
    assert_eq!(answer.headers()[AUDIT_ID].len(), 36);
    assert_eq!(answer.headers().contains_key(RETRY_AFTER), code == 429);
    assert_eq!(
        answer.headers().contains_key(X_CONTENT_TYPE_OPTIONS),
        code == 403
    );
}

fn a() -> String {
    "a".to_owned()
}

fn not_connected(
    reason: NotConnectedReason,
    message: &str,
    next_attempt: Option<Duration>,
) -> Error {
    Error::ClusterNotConnected {
        cluster: a(),
        why: NotConnected {
            reason,
            message: message.to_owned(),
            next_attempt,
        },
    }
}

#[test]
fn unknown_cluster() {
    check(
        &Error::ClusterNotFound { cluster: a() },
        404,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"clusters \"a\" not found","reason":"NotFound","details":{"name":"a","kind":"clusters"},"code":404}"#,
    );
}

/// As a kube-apiserver 1.36 answered after a compaction.
#[test]
fn a_page_that_came_too_late() {
    check(
        &Error::PageExpired {
            continue_token: "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiZTFcdTAwMDAifQ"
                .to_owned(),
        },
        410,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiZTFcdTAwMDAifQ"},"status":"Failure","message":"The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.","reason":"Expired","code":410}"#,
    );
}

#[test]
fn names_are_written_as_go_writes_them() {
    check(
        &Error::ClusterNotFound {
            cluster: "<b>&".to_owned(),
        },
        404,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"clusters \"\u003cb\u003e\u0026\" not found","reason":"NotFound","details":{"name":"\u003cb\u003e\u0026","kind":"clusters"},"code":404}"#,
    );
}

#[test]
fn not_connected_names_the_cause_and_the_next_attempt() {
    check(
        &not_connected(
            NotConnectedReason::ConnectionRefused,
            "connection refused",
            Some(Duration::from_millis(2100)),
        ),
        503,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"cluster \"a\" is not connected: connection refused; next attempt in 3s","reason":"ServiceUnavailable","details":{"name":"a","kind":"clusters","causes":[{"reason":"ClusterNotConnected"},{"reason":"ConnectionRefused"}],"retryAfterSeconds":3},"code":503}"#,
    );
    check(
        &not_connected(
            NotConnectedReason::ClusterStarting,
            "first connect under way",
            None,
        ),
        503,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"cluster \"a\" is not connected: first connect under way","reason":"ServiceUnavailable","details":{"name":"a","kind":"clusters","causes":[{"reason":"ClusterStarting"}],"retryAfterSeconds":1},"code":503}"#,
    );
    check(
        &not_connected(NotConnectedReason::CredentialMissing, "no token file", None),
        503,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"cluster \"a\" is not connected: no token file","reason":"ServiceUnavailable","details":{"name":"a","kind":"clusters","causes":[{"reason":"CredentialMissing"}]},"code":503}"#,
    );
}

#[test]
fn a_lost_read_is_unavailable() {
    check(
        &Error::ConnectionEnded {
            cluster: a(),
            outcome_unknown: false,
        },
        503,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the connection to cluster \"a\" ended before the answer","reason":"ServiceUnavailable","details":{"name":"a","kind":"clusters","causes":[{"reason":"ConnectionEnded"}]},"code":503}"#,
    );
    check(
        &Error::Upstream {
            cluster: a(),
            outcome_unknown: false,
            source: UpstreamError::Refused("connect 10.0.0.1:6443".into()),
        },
        503,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"cluster \"a\" did not answer: connection refused","reason":"ServiceUnavailable","details":{"name":"a","kind":"clusters","causes":[{"reason":"ConnectionRefused"}]},"code":503}"#,
    );
}

#[test]
fn a_lost_write_says_that_its_outcome_is_unknown() {
    check(
        &Error::ConnectionEnded {
            cluster: a(),
            outcome_unknown: true,
        },
        504,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: the connection to cluster \"a\" ended before the answer; the request may have been carried out","reason":"Timeout","details":{"name":"a","kind":"clusters","causes":[{"reason":"ConnectionEnded"},{"reason":"OutcomeUnknown"}]},"code":504}"#,
    );
    check(
        &Error::Upstream {
            cluster: a(),
            outcome_unknown: true,
            source: UpstreamError::Broken("reset by 10.0.0.1".into()),
        },
        504,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: cluster \"a\" did not answer: the connection broke before an answer; the request may have been carried out","reason":"Timeout","details":{"name":"a","kind":"clusters","causes":[{"reason":"ConnectionBroken"},{"reason":"OutcomeUnknown"}]},"code":504}"#,
    );
}

#[test]
fn too_slow() {
    check(
        &Error::UpstreamTimeout {
            cluster: a(),
            outcome_unknown: false,
        },
        504,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: cluster \"a\" did not answer in time","reason":"Timeout","details":{"name":"a","kind":"clusters","causes":[{"reason":"UpstreamTimeout"}]},"code":504}"#,
    );
    check(
        &Error::UpstreamTimeout {
            cluster: a(),
            outcome_unknown: true,
        },
        504,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: cluster \"a\" did not answer in time; the request may have been carried out","reason":"Timeout","details":{"name":"a","kind":"clusters","causes":[{"reason":"UpstreamTimeout"},{"reason":"OutcomeUnknown"}]},"code":504}"#,
    );
}

#[test]
fn refusals() {
    check(
        &Error::TooManyRequests {
            cluster: a(),
            of_user: false,
        },
        429,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too many requests in flight to cluster \"a\", please try again later","reason":"TooManyRequests","details":{"name":"a","kind":"clusters","retryAfterSeconds":1},"code":429}"#,
    );
    check(
        &Error::Unauthenticated,
        401,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#,
    );
    check(
        &Error::AuthenticationUnavailable(Unavailable {
            judge: "issuer \"https://i\"".to_owned(),
            why: "10.0.0.1 is down".to_owned(),
        }),
        503,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the credential cannot be checked now, since issuer \"https://i\" cannot be asked about it","reason":"ServiceUnavailable","details":{"causes":[{"reason":"AuthenticationUnavailable"}],"retryAfterSeconds":1},"code":503}"#,
    );
    check(
        &Error::ImpersonationRefused,
        403,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"forbidden: requests with Impersonate-* headers are not served","reason":"Forbidden","details":{},"code":403}"#,
    );
    check(
        &Error::NotFound,
        404,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource; paths begin with /clusters/NAME/","reason":"NotFound","details":{},"code":404}"#,
    );
    check(
        &Error::MethodNotAllowed,
        405,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405}"#,
    );
    check(
        &Error::Internal,
        500,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error occurred: the proxy failed to answer","reason":"InternalError","details":{"causes":[{"message":"the proxy failed to answer"}]},"code":500}"#,
    );
}

#[tokio::test]
async fn the_body_is_what_was_written() {
    let body = response(&Error::Unauthenticated).into_body();
    let bytes = body.collect().await.unwrap().to_bytes();
    let error = Error::Unauthenticated;
    assert_eq!(bytes, Failure::from(&error).to_json(&error));
}

#[test]
fn audit_ids_are_echoed_or_minted() {
    let mut request = HeaderMap::new();
    request.append(AUDIT_ID, HeaderValue::from_static("mine"));
    request.append(AUDIT_ID, HeaderValue::from_static("another"));
    assert_eq!(audit_id(&request), "mine");

    request.clear();
    let minted = audit_id(&request);
    let minted = minted.to_str().unwrap();
    let lengths: Vec<usize> = minted.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{minted}");
    assert_eq!(minted.as_bytes()[14], b'4', "{minted}");
    assert!(b"89ab".contains(&minted.as_bytes()[19]), "{minted}");
    assert_ne!(audit_id(&request), minted);
}

#[test]
fn a_warning_says_which_cluster_cannot_be_asked() {
    let why = NotConnected {
        reason: NotConnectedReason::ConnectionRefused,
        message: "connection refused".to_owned(),
        next_attempt: Some(Duration::from_secs(3)),
    };
    let cluster = "a".to_owned();
    let down = warning(&Error::ClusterNotConnected { cluster, why }).unwrap();
    assert_eq!(
        down,
        r#"299 - "cluster \"a\" is not connected: connection refused""#
    );
    assert!(warning(&Error::Unauthenticated).is_none());
}

#[test]
fn what_is_not_in_memory_and_may_not_be_asked_for() {
    check(
        &Error::NotCached {
            cluster: a(),
            reason: "below-floor",
        },
        504,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: the answer is not in memory (below-floor), and only-if-cached forbids to ask cluster \"a\"","reason":"Timeout","details":{"name":"a","kind":"clusters","causes":[{"reason":"NotCached"}]},"code":504}"#,
    );
    check(
        &Error::InformerMissing {
            cluster: a(),
            resource: "pods".to_owned(),
        },
        503,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the cache of \"pods\" in cluster \"a\" is being filled, please try again","reason":"ServiceUnavailable","details":{"name":"a","kind":"clusters","causes":[{"reason":"InformerMissing"}],"retryAfterSeconds":1},"code":503}"#,
    );
}

#[test]
fn the_last_known_state_is_told_with_its_time() {
    let lost_at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_900);
    assert_eq!(
        warning_last_known("a", lost_at).unwrap(),
        r#"299 - "cluster \"a\" is not connected since 2023-11-14T22:13:20Z; this is its last known state, which may be stale""#
    );
}

#[test]
fn a_version_that_is_over_is_told_in_protobuf_too() {
    let frame = too_old_frame(
        ResourceVersion::from_number(1),
        ResourceVersion::from_number(241),
    );
    // As kube-apiserver 1.36 told it.
    let expected = b"\0\0\0\x63\x0a\x05ERROR\x12\x5a\x0a\x58k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x40\x0a\x06\x0a\0\x12\0\x1a\0\x12\x07Failure\x1a\x21too old resource version: 1 (241)\x22\x07Expired\x30\x9a\x03\x1a\0\x22\0";
    assert_eq!(
        frame.escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
}
