//! The target of a request, as far as a log may have it.

use std::borrow::Cow;

use crate::query::query_pairs;

/// What stands for a parameter that is not Kubernetes' own.
const REDACTED: &str = "REDACTED";

/// The parameters of Kubernetes' API. Whatever else a query has may be a credential: of a dashboard behind a Service, of an
/// aggregated API, or in a URL that somebody signed.
const KNOWN: [&str; 42] = [
    // of reads
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeout",
    "timeoutSeconds",
    "watch",
    // of writes
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
    // of representations and documents
    "as",
    "exclude",
    "hash",
    "includeObject",
    "pretty",
    "verbose",
    // of logs, exec, attach and port-forward
    "command",
    "container",
    "follow",
    "insecureSkipTLSVerifyBackend",
    "limitBytes",
    "ports",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "stderr",
    "stdin",
    "stdout",
    "stream",
    "tailLines",
    "timestamps",
    "tty",
];

/// A target with the parameters of Kubernetes' API, and no others; with none where it is `proxied`.
pub(super) fn request_uri(target: &str, proxied: bool) -> Cow<'_, str> {
    let Some((path, query)) = target.split_once('?') else {
        return target.into();
    };
    let is_known = |pair: &str| {
        // Read as the server reads it, which leaves out what it cannot read.
        let mut pairs = query_pairs(pair);
        let known = |(key, _): (Cow<'_, str>, _)| KNOWN.contains(&&*key);
        // A second question mark is of an address that somebody put together from two.
        let known = pairs.next().is_some_and(known) && !pair.contains('?');
        pair.is_empty() || (known && !proxied)
    };
    if query.split('&').all(is_known) {
        return target.into();
    }
    let pairs = query.split('&');
    let pairs = pairs.map(|pair| if is_known(pair) { pair } else { REDACTED });
    let pairs: Vec<_> = pairs.collect();
    format!("{path}?{}", pairs.join("&")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_kubernetes_own_is_left_out() {
        let same = |target: &str| assert_eq!(request_uri(target, false), target);
        same("/api/v1/pods");
        same("/api/v1/pods?");
        same("/api/v1/pods?limit=5&&labelSelector=a%3Db&watch");
        same("/api/v1/namespaces/a/pods/p/exec?command=ls&command=-l&stdin=true&tty=true");
        let check = |target: &str, expect: &str| {
            assert_eq!(request_uri(target, false), expect);
            assert!(!request_uri(target, false).contains("secret"), "{target}");
        };
        check("/a?access_token=secret", "/a?REDACTED");
        check(
            "/a?limit=1&token=secret&limit=2",
            "/a?limit=1&REDACTED&limit=2",
        );
        check("/a?secret", "/a?REDACTED");
        check("/a?secret==", "/a?REDACTED");
        check("/a?limit=1;token=secret", "/a?REDACTED");
        check("/a?%74oken=secret", "/a?REDACTED");
        check("/a?limit%zz=secret", "/a?REDACTED");
        check("/a?Limit=secret", "/a?REDACTED");
        check("/a?limit=1?token=secret", "/a?REDACTED");
        // The same words may mean another thing to what is behind a proxy.
        let target = "/api/v1/namespaces/a/services/s/proxy/login?command=secret";
        let path = target.split('?').next().unwrap();
        assert_eq!(request_uri(target, true), format!("{path}?REDACTED"));
    }
}
