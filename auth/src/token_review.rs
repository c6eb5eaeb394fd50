//! Tokens that another cluster judges: the question as a `TokenReview`, and what its answer says.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::token_user::{TokenError, TokenUser};
use crate::user::UserInfo;

const API_VERSION: &str = "authentication.k8s.io/v1";
const KIND: &str = "TokenReview";

/// Has tokens reviewed. A trait, as only whoever knows clusters can ask one.
pub trait ReviewTokens: Send + Sync {
    /// Whose token it is; `None` where the cluster knows of nobody.
    fn review<'a>(&'a self, token: &'a str)
    -> BoxFuture<'a, Result<Option<TokenUser>, TokenError>>;
}

/// The body of a `TokenReview`: is this token good, and for one of these audiences? None are the cluster's own.
pub fn token_review(token: &str, audiences: &[String]) -> Bytes {
    let review = Review {
        api_version: API_VERSION,
        kind: KIND,
        spec: Spec { token, audiences },
    };
    let body = serde_json::to_vec(&review).expect("strings and lists of strings are JSON");
    body.into()
}

/// Why the answer to a `TokenReview` tells of no user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReviewed {
    /// The token is not good, and why.
    Refused(String),
    /// It is no such answer, and why.
    NoAnswer(String),
}

/// What the answer to a `TokenReview` for these audiences says.
///
/// # Errors
/// The token is not good, or not for one of the audiences that were asked for: an answer that names none comes from a
/// server that does not know of audiences, and says nothing about them. Or it is no such answer.
pub fn reviewed(answer: &[u8], audiences: &[String]) -> Result<Option<TokenUser>, NotReviewed> {
    let no_answer = |why: String| NotReviewed::NoAnswer(format!("no {KIND}: {why}"));
    let answer: Answer =
        serde_json::from_slice(answer).map_err(|error| no_answer(error.to_string()))?;
    if answer.api_version != API_VERSION || answer.kind != KIND {
        let Answer {
            api_version, kind, ..
        } = answer;
        return Err(no_answer(format!("it is {kind:?} of {api_version:?}")));
    }
    let status = answer.status;
    if !status.authenticated {
        return match status.error.is_empty() {
            true => Ok(None),
            false => Err(NotReviewed::Refused(status.error)),
        };
    }
    let granted = status.audiences.unwrap_or_default();
    if !audiences.is_empty() && !granted.iter().any(|audience| audiences.contains(audience)) {
        let why = format!("it is for {granted:?}");
        return Err(NotReviewed::Refused(why));
    }
    if status.user.username.is_empty() {
        return Err(NotReviewed::Refused("its user has no name".to_owned()));
    }
    let user = UserInfo {
        name: status.user.username,
        uid: status.user.uid,
        groups: status.user.groups.unwrap_or_default(),
        extra: status.user.extra.unwrap_or_default(),
        // Whether it is one elsewhere, too, is for who asks to know.
        named_by: None,
    };
    Ok(Some(TokenUser {
        user,
        expires: None,
        known_until: None,
    }))
}

/// Who issued a token by its own word, where it is a JWT. Nothing is verified: it tells whom to ask, and no more.
pub fn unverified_issuer(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        iss: String,
    }
    let Claims { iss } = unverified_claims(token)?;
    Some(iss)
}

/// When a token stops being good by its own word, where it is a JWT. Nothing is verified: it tells how long that counts
/// which whoever has verified the token said of it.
pub fn unverified_expiry(token: &str) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Claims {
        exp: f64,
    }
    let Claims { exp } = unverified_claims(token)?;
    let since = Duration::try_from_secs_f64(exp).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(since)
}

fn unverified_claims<T: DeserializeOwned>(token: &str) -> Option<T> {
    let mut parts = token.split('.');
    let (Some(_), Some(claims), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    serde_json::from_slice(&claims).ok()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'a str,
    kind: &'a str,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    token: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    audiences: &'a [String],
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    api_version: String,
    kind: String,
    status: Status,
}

/// Go writes lists and maps without entries as `null` where they are not left out.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: User,
    #[serde(default)]
    audiences: Option<Vec<String>>,
    #[serde(default)]
    error: String,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Option<Vec<String>>,
    #[serde(default)]
    extra: Option<BTreeMap<String, Vec<String>>>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn audiences(audiences: &[&str]) -> Vec<String> {
        audiences.iter().map(|&it| it.to_owned()).collect()
    }

    #[test]
    fn a_review_asks_for_audiences_where_there_are_any() {
        let body = |asked: &[&str]| -> Value {
            serde_json::from_slice(&token_review("s3cret", &audiences(asked))).unwrap()
        };
        assert_eq!(
            body(&[]),
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "s3cret"}})
        );
        assert_eq!(
            body(&["a", "b"])["spec"],
            json!({"token": "s3cret", "audiences": ["a", "b"]})
        );
    }

    fn answered(status: &Value, asked: &[&str]) -> Result<Option<TokenUser>, NotReviewed> {
        let answer = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {"token": "t"}, "status": status,
        });
        reviewed(answer.to_string().as_bytes(), &audiences(asked))
    }

    #[test]
    fn a_reviewed_token_has_a_user() {
        let status = json!({
            "authenticated": true,
            "user": {"username": "u", "uid": "1", "groups": ["a,b", "c"], "extra": {"k": ["v", "w"]}},
            "audiences": ["https://kubernetes.default.svc"],
        });
        let user = UserInfo {
            name: "u".to_owned(),
            uid: "1".to_owned(),
            groups: vec!["a,b".to_owned(), "c".to_owned()],
            extra: BTreeMap::from([("k".to_owned(), vec!["v".to_owned(), "w".to_owned()])]),
            named_by: None,
        };
        assert_eq!(
            answered(&status, &[]),
            Ok(Some(TokenUser {
                user,
                expires: None,
                known_until: None,
            }))
        );
        let bare = json!({"authenticated": true, "user": {"username": "u", "groups": null, "extra": null}});
        assert!(answered(&bare, &[]).unwrap().is_some());
    }

    #[test]
    fn audiences_that_were_asked_for_must_be_granted() {
        let check = |granted: Value, asked: &[&str], good: bool| {
            let status =
                json!({"authenticated": true, "user": {"username": "u"}, "audiences": granted});
            assert_eq!(answered(&status, asked).is_ok(), good, "{status} {asked:?}");
        };
        check(json!([]), &[], true);
        check(json!(["a"]), &[], true);
        check(json!(["a"]), &["a"], true);
        check(json!(["b", "a"]), &["c", "a"], true);
        check(json!(["b"]), &["a"], false);
        check(json!(["a,b"]), &["a", "b"], false);
        check(json!([]), &["a"], false);
        check(json!(null), &["a"], false);
        check(json!(null), &[], true);
        let silent = json!({"authenticated": true, "user": {"username": "u"}});
        assert!(matches!(
            answered(&silent, &["a"]),
            Err(NotReviewed::Refused(_))
        ));
    }

    #[test]
    fn anything_else_is_nobody() {
        assert_eq!(answered(&json!({}), &[]), Ok(None));
        assert_eq!(
            answered(
                &json!({"authenticated": false, "user": {"username": "u"}}),
                &[]
            ),
            Ok(None)
        );
        assert_eq!(
            answered(&json!({"error": "expired"}), &[]),
            Err(NotReviewed::Refused("expired".to_owned()))
        );
        let nameless = json!({"authenticated": true, "user": {"groups": ["a"]}});
        assert!(matches!(
            answered(&nameless, &[]),
            Err(NotReviewed::Refused(_))
        ));
        let no_user = json!({"authenticated": true});
        assert!(matches!(
            answered(&no_user, &[]),
            Err(NotReviewed::Refused(_))
        ));
        let odd = json!({"authenticated": "true", "user": {"username": "u"}});
        assert!(matches!(answered(&odd, &[]), Err(NotReviewed::NoAnswer(_))));
        for answer in [
            "",
            "{}",
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":403}"#,
            r#"{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1"}"#,
            r#"{"kind":"TokenReview","apiVersion":"v1","status":{"authenticated":true,"user":{"username":"u"}}}"#,
            r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"u"}}}"#,
        ] {
            let said = reviewed(answer.as_bytes(), &[]);
            assert!(
                matches!(said, Err(NotReviewed::NoAnswer(_))),
                "{answer} {said:?}"
            );
        }
    }

    #[test]
    fn a_jwt_says_when_it_ends() {
        let ends = |claims: &str| {
            let claims = URL_SAFE_NO_PAD.encode(claims);
            let at = unverified_expiry(&format!("e30.{claims}.sig"))?;
            Some(at.duration_since(SystemTime::UNIX_EPOCH).unwrap())
        };
        assert_eq!(ends(r#"{"exp":12}"#), Some(Duration::from_secs(12)));
        assert_eq!(ends(r#"{"exp":1.5}"#), Some(Duration::from_millis(1500)));
        for odd in ["{}", r#"{"exp":"12"}"#, r#"{"exp":-1}"#, r#"{"exp":1e300}"#] {
            assert_eq!(ends(odd), None, "{odd}");
        }
        assert_eq!(unverified_expiry("abc"), None);
    }

    #[test]
    fn a_jwt_names_its_issuer() {
        let jwt = |claims: &str| format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(claims));
        let issuer = |token: &str| unverified_issuer(token);
        assert_eq!(
            issuer(&jwt(r#"{"sub":"s","iss":"https://i"}"#)).as_deref(),
            Some("https://i")
        );
        for token in [
            "",
            "a",
            "a.b",
            "a.b.c",
            "..",
            &jwt("{}"),
            &jwt(r#"{"iss":1}"#),
            &jwt(r#"{"iss":"a","iss":"b"}"#),
            &jwt("[]"),
            &format!("{}.x", jwt(r#"{"iss":"a"}"#)),
        ] {
            assert_eq!(issuer(token), None, "{token}");
        }
    }
}
