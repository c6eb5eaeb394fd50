//! Whose credential a cluster's 401 is about.
//!
//! The proxy's own, as a rule. But a service behind the apiserver's proxy asks its own users to log in, an aggregated
//! API may refuse the apiserver, and a kubelet too. Any user can cause such an answer, and none may cost everybody the
//! cluster's connection.

use http::{HeaderMap, HeaderName};

use super::LiveRequest;

/// The apiserver sets it on what passed its authentication, which is before priority and fairness.
const FLOW_SCHEMA: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");

/// Whether it is the proxy's own credential that was refused, as far as the answer can tell. Where it cannot (logs,
/// exec, proxied services: never subject to fairness), no.
pub(super) fn is_about_the_proxy(live: &LiveRequest<'_>, answer: &HeaderMap) -> bool {
    let under_fairness = live.watch || !live.long_running;
    under_fairness && !may_be_proxied(live.path_and_query) && !answer.contains_key(FLOW_SCHEMA)
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

    #[track_caller]
    fn check(path_and_query: &str, long_running: bool, watch: bool, passed: bool, expected: bool) {
        let live = LiveRequest {
            cluster: "a",
            path_and_query,
            long_running,
            watch,
            read_only: true,
            request_timeout: Duration::ZERO,
            watch_disconnect_grace: Duration::ZERO,
            removed: &tokio_util::sync::CancellationToken::new(),
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
