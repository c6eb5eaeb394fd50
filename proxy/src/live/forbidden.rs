//! A cluster's 403 that is about the proxy's own credential: it may not act as the user. Nobody who is told so can put that
//! right, and who can is not told.
//!
//! Impersonation comes right after authentication, so [`unauthorized`] knows what may be about it: neither what passed priority
//! and fairness nor what something behind the apiserver may have said.

use std::sync::Arc;
use std::time::Duration;

use fleetcache_cache::cluster_accessor::{ClusterAccessor, Right};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use serde::Deserialize;

use super::{LiveRequest, unauthorized};
use crate::body::Body;
use crate::identity::AsWhom;
use crate::protobuf;
use crate::tee::Tee;

/// A longer answer is not read: such a refusal is a sentence, in which names are.
const MAX_STATUS: usize = 16 << 10;

/// A role may name whom the credential may impersonate. Where it acted as somebody within this time, the right is there, and it
/// is the user who is none of those.
const SOMEBODY: Duration = Duration::from_secs(60);

/// Has the operator told where the cluster says that the proxy may not act as the user. Holds nothing back and changes nothing.
pub(crate) fn heed(
    live: &LiveRequest,
    cluster: &Arc<ClusterAccessor>,
    response: Response<Body>,
) -> Response<Body> {
    if !matches!(live.as_whom, AsWhom::User(_)) {
        return response;
    }
    let (status, headers) = (response.status(), response.headers());
    if status == StatusCode::FORBIDDEN && unauthorized::is_about_the_proxy(live, headers) {
        let cluster = Arc::clone(cluster);
        let read = move |body: &[u8]| {
            if let Some(why) = refusal(body)
                && !cluster.was_granted(Right::Impersonation, SOMEBODY)
            {
                cluster.refused(Right::Impersonation, Some(&why));
            }
        };
        return response.map(|body| Tee::new(body, MAX_STATUS, read).boxed_unsync());
    }
    if status.is_success() || unauthorized::passed_authentication(headers) {
        cluster.granted(Right::Impersonation);
    }
    response
}

/// What the apiserver says, for logs, where it says that whoever sent the request may not impersonate.
fn refusal(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Status {
        kind: String,
        message: String,
    }
    const LINE: usize = 400;
    let message = match protobuf::status_message(body) {
        Some(message) => message.to_owned(),
        None => {
            let status: Status = serde_json::from_slice(body).ok()?;
            (status.kind == "Status").then_some(status.message)?
        }
    };
    says_so(&message).then(|| message.chars().take(LINE).collect())
}

/// `users "a" is forbidden: User "p" cannot impersonate resource "users" …`. Where impersonation can be constrained (from 1.36 on)
/// also of what the user wanted, as in `cannot impersonate-on:user-info:list resource "pods" …` and `… path "/api"`. Names are
/// quoted as in Go, so none can have the last of these quotes in it.
fn says_so(message: &str) -> bool {
    let mut verbs = message.split("\" cannot impersonate").skip(1);
    verbs.any(|rest| {
        let after = rest.split_once(' ').map(|(_, after)| after);
        after.is_some_and(|it| it.starts_with("resource \"") || it.starts_with("path \""))
    })
}

#[cfg(test)]
mod tests {
    use fleetcache_cache::cluster_accessor::May;
    use http::{HeaderName, HeaderValue};
    use serde_json::json;
    use tokio::time::advance;

    use super::*;
    use crate::authorization::testing::{Clusters, alice};
    use crate::body::full;

    const REFUSED: &str = r#"users "alice" is forbidden: User "p" cannot impersonate resource "users" in API group "" at the cluster scope"#;

    fn live(path_and_query: &str, as_whom: AsWhom) -> LiveRequest {
        LiveRequest {
            cluster: "a".to_owned(),
            path_and_query: path_and_query.to_owned(),
            long_running: false,
            watch: false,
            read_only: true,
            request_timeout: Duration::ZERO,
            watch_disconnect_grace: Duration::ZERO,
            as_whom,
        }
    }

    fn answer(code: u16, message: &str) -> Response<Body> {
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "message": message, "code": code});
        let mut answer = Response::new(full(status.to_string()));
        *answer.status_mut() = StatusCode::from_u16(code).unwrap();
        answer
    }

    fn passed(mut answer: Response<Body>) -> Response<Body> {
        let header = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
        answer
            .headers_mut()
            .insert(header, HeaderValue::from_static("u"));
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_does_not_let_the_proxy_act_as_users_is_told_of() {
        let clusters = Clusters::start(&["a"]);
        let cluster = clusters.cache.get("a").unwrap();
        let user = || AsWhom::User(Arc::new(alice()));
        let told = async |live: &LiveRequest, answer: Response<Body>| {
            let (code, heeded) = (answer.status(), heed(live, &cluster, answer));
            assert_eq!(heeded.status(), code);
            heeded.into_body().collect().await.unwrap();
            cluster.may(Right::Impersonation)
        };
        let pods = live("/api/v1/pods", user());
        let own = r#"pods is forbidden: User "alice" cannot list resource "pods" in API group "" at the cluster scope"#;
        // What others say, or say to others.
        for (live, answer) in [
            (&pods, answer(403, own)),
            (&pods, answer(401, REFUSED)),
            (&pods, answer(500, REFUSED)),
            (&live("/api/v1/pods", AsWhom::Proxy), answer(403, REFUSED)),
            (
                &live("/api/v1/namespaces/n/services/s/proxy/", user()),
                answer(403, REFUSED),
            ),
        ] {
            assert_eq!(told(live, answer).await, May::Unknown);
        }
        assert_eq!(told(&pods, answer(403, REFUSED)).await, May::No);
        assert_eq!(told(&pods, answer(403, own)).await, May::No);
        // An admission's words come later than impersonation.
        assert_eq!(told(&pods, passed(answer(403, REFUSED))).await, May::Yes);
        // The role names some, and this one is none of them.
        assert_eq!(told(&pods, answer(403, REFUSED)).await, May::Yes);
        advance(SOMEBODY).await;
        assert_eq!(told(&pods, answer(200, "")).await, May::Yes);
        assert_eq!(told(&pods, answer(403, REFUSED)).await, May::Yes);
        advance(SOMEBODY).await;
        assert_eq!(told(&pods, answer(403, REFUSED)).await, May::No);
        assert_eq!(told(&pods, answer(200, "")).await, May::Yes);
    }

    #[test]
    fn only_a_status_that_says_so_counts() {
        let constrained = r#"pods is forbidden: User "p" cannot impersonate-on:user-info:list resource "pods" in API group """#;
        let of_path = r#"forbidden: User "p" cannot impersonate-on:user-info:get path "/api""#;
        let named = r#"x "a" is forbidden: User "x\" cannot impersonate resource \"y" cannot get resource "x""#;
        assert!(says_so(REFUSED) && says_so(constrained) && says_so(of_path));
        assert!(!says_so(named));
        assert!(!says_so(r#"User "p" cannot impersonate"#));
        // A name is told as it is beside the message.
        let details = json!({"name": "\" cannot impersonate resource \"users\""});
        let status = json!({"kind": "Status", "message": "no", "details": details});
        assert_eq!(refusal(status.to_string().as_bytes()), None);
        let other = json!({"kind": "Pod", "message": REFUSED});
        assert_eq!(refusal(other.to_string().as_bytes()), None);
        assert_eq!(refusal(REFUSED.as_bytes()), None);
    }
}
