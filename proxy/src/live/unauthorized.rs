//! Whose credential a cluster's 401 is about, and what becomes of a request that met one.
//!
//! The proxy's own, as a rule. But a service behind the apiserver's proxy asks its own users to log in, an aggregated
//! API may refuse the apiserver, and a kubelet too. Any user can cause such an answer, and none may cost everybody the
//! cluster's connection.
//!
//! A request that the apiserver refused was not carried out (RFC 9110, 15.5.2), whatever its method, so it may be sent again.
//! While tokens are renewed one may meet the end of the old one a moment before the owner has the new one, so it waits a
//! little for that.

use std::sync::Arc;

use fleetcache_cache::credential::RENEWAL_PATIENCE;
use http::{HeaderMap, HeaderName, Response, StatusCode};
use tokio::time::{Instant, timeout_at};

use super::LiveRequest;
use super::upstream::Upstream;

/// The apiserver sets it on what passed its authentication, and impersonation, which are before priority and fairness.
const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");

/// Whether the answer refuses the proxy's own credential.
pub(super) fn refuses_the_proxy<B>(live: &LiveRequest, answer: &Response<B>) -> bool {
    answer.status() == StatusCode::UNAUTHORIZED
        && !live.as_whom.is_caller()
        && is_about_the_proxy(live, answer.headers())
}

/// Waits a little until there is another credential than that one, `until` at most, and tells which connection speaks for
/// it: the same, or the one that has taken its place meanwhile. All who wait, wait for the one load that the owner does for
/// them.
pub(super) async fn another_credential<U: Upstream>(
    upstream: &Arc<U>,
    refused: u64,
    until: Option<Instant>,
) -> Option<Arc<U>> {
    tell(upstream, refused);
    let patience = Instant::now() + RENEWAL_PATIENCE;
    let patience = until.map_or(patience, |until| until.min(patience));
    match timeout_at(patience, upstream.another_credential(refused)).await {
        Ok(true) => Some(Arc::clone(upstream)),
        Ok(false) => upstream.successor(),
        Err(_elapsed) => None,
    }
}

/// Tells the owner that this credential was refused, unless it has another by now.
pub(super) fn tell<U: Upstream>(upstream: &Arc<U>, refused: u64) {
    if upstream.credential_number() == refused {
        upstream.credential_rejected();
    }
}

/// Whether it is the proxy's own credential that was refused, by a 401 or as one that may not impersonate, as far as the answer can tell. Where it cannot (logs,
/// exec, proxied services: never subject to fairness), no.
pub(super) fn is_about_the_proxy(live: &LiveRequest, answer: &HeaderMap) -> bool {
    let under_fairness = live.watch || !live.long_running;
    under_fairness && !may_be_proxied(&live.path_and_query) && !passed_authentication(answer)
}

/// Whether the apiserver knew who asked, and as whom, as far as the answer tells.
pub(super) fn passed_authentication(answer: &HeaderMap) -> bool {
    answer.contains_key(FLOW_SCHEMA)
}

/// Whether the path may name something behind the apiserver's proxy; one that is written in an odd way may.
fn may_be_proxied(path_and_query: &str) -> bool {
    let path = path_and_query.split('?').next().unwrap_or(path_and_query);
    path.contains('%') || path.split('/').any(|segment| segment == "proxy")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;
    use crate::identity::AsWhom;

    #[track_caller]
    fn check(path_and_query: &str, long_running: bool, watch: bool, passed: bool, expected: bool) {
        let live = LiveRequest {
            cluster: "a".to_owned(),
            path_and_query: path_and_query.to_owned(),
            long_running,
            watch,
            read_only: true,
            request_timeout: Duration::ZERO,
            watch_disconnect_grace: Duration::ZERO,
            as_whom: AsWhom::Proxy,
        };
        let mut headers = HeaderMap::new();
        if passed {
            headers.insert(FLOW_SCHEMA, HeaderValue::from_static("u"));
        }
        assert_eq!(is_about_the_proxy(&live, &headers), expected);
    }

    #[test]
    fn the_apiserver_itself_refuses_the_proxy() {
        check("/api/v1/pods", false, false, false, true);
        check("/api/v1/pods?watch=1", true, true, false, true);
        check(
            "/apis/apps/v1/deployments?x=/proxy/",
            false,
            false,
            false,
            true,
        );
    }

    #[test]
    fn others_refuse_somebody_else() {
        check(
            "/apis/metrics.k8s.io/v1beta1/pods",
            false,
            false,
            true,
            false,
        );
        check("/api/v1/namespaces/n/pods/p/log", true, false, false, false);
        check(
            "/api/v1/namespaces/n/services/s/proxy/login",
            true,
            false,
            false,
            false,
        );
        check(
            "/api/v1/namespaces/n/services/s/proxy/login",
            false,
            false,
            false,
            false,
        );
        check(
            "/api/v1/namespaces/n/services/s/%70roxy/login",
            false,
            false,
            false,
            false,
        );
    }
}
