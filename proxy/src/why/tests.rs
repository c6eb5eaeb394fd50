//! What is told without a cluster; what needs one is tested end to end.

use super::*;

#[test]
fn paths_and_urls_are_questions() {
    let check = |target: &str, path: &str| {
        let question = Question::parse("get", target, &[""; 0]).unwrap();
        assert_eq!(question.path_and_query(), path, "{target}");
    };
    check(
        "/clusters/a/api/v1/pods?limit=500",
        "/clusters/a/api/v1/pods?limit=500",
    );
    check("https://proxy:8443/clusters/a/api#x", "/clusters/a/api");
    check("https://proxy", "/");
    check("/clusters/a/x?u=https://h/p", "/clusters/a/x?u=https://h/p");
}

#[test]
fn what_is_no_question() {
    let check = |method: &str, header: &str, expect: &str| {
        assert_eq!(Question::parse(method, "/", &[header]).unwrap_err(), expect);
    };
    let check_target = |target: &str, expect: &str| {
        let err = Question::parse("GET", target, &[""; 0]).unwrap_err();
        assert_eq!(err, expect);
    };
    check_target(
        "get",
        "the path or URL is missing: get of what? Such as /clusters/<name>/api/v1/pods",
    );
    for target in ["", "pods", "list", "proxy:8443/clusters/a"] {
        check_target(
            target,
            &format!("{target:?} is not a path such as /clusters/<name>/api/v1/pods, nor a URL"),
        );
    }
    check("LIST", "A: b", "\"LIST\" is not a method such as GET");
    check("G ET", "A: b", "\"G ET\" is not a method such as GET");
    check(
        "GET",
        "Accept",
        "\"Accept\" is not a header such as \"Accept: */*\"",
    );
    check(
        "GET",
        "a b: c",
        "\"a b: c\" is not a header such as \"Accept: */*\"",
    );
}

#[test]
fn an_explanation_is_printed_for_people() {
    let explanation = Explanation {
        request: "list pods.v1 of cluster \"a\"".to_owned(),
        answer: Answer::Live,
        reason: "below-floor".to_owned(),
        sentence: "So it is.".to_owned(),
        allowed_users_only: true,
        informer: Some(InformerState {
            state: "synced".to_owned(),
            encoding: Some("protobuf".to_owned()),
            resource_version: Some("7".to_owned()),
            floor: Some("9".to_owned()),
            age_seconds: Some(3),
            objects: 2,
            bytes: 100,
        }),
    };
    assert_eq!(
        explanation.to_string(),
        "list pods.v1 of cluster \"a\": live (below-floor), for a user whom the cluster allows it\n\
         So it is.\n\
         informer: synced, holds protobuf, complete through resourceVersion 7, floor 9, 2 objects, 100 bytes, server heard 3 s ago"
    );
    let json = serde_json::to_string(&explanation).unwrap();
    assert_eq!(
        serde_json::from_str::<Explanation>(&json).unwrap(),
        explanation
    );
}

#[tokio::test]
async fn the_fleet_is_answered_by_the_proxy_itself() {
    use fleetcache_cache::eviction::Fleet;
    use fleetcache_cache::informers::InformersConfig;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    const PATH: &str = "/apis/fleetcache.dev/v1alpha1/clusterconnections";
    let shutdown = CancellationToken::new();
    let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &shutdown);
    let clusters = ClusterCache::start(Vec::new(), 1, &fleet, &shutdown);
    let limits = Limits::default();
    for (method, target, expected) in [
        (
            "GET",
            PATH.to_owned(),
            "list clusterconnections.v1alpha1.fleetcache.dev of the fleet: by the proxy itself\nThe proxy answers",
        ),
        (
            "GET",
            format!("{PATH}?watch=1"),
            "watch clusterconnections.v1alpha1.fleetcache.dev of the fleet: by the proxy itself\n",
        ),
        (
            "GET",
            format!("{PATH}/a"),
            "get clusterconnections.v1alpha1.fleetcache.dev \"a\" of the fleet: error (not-found)\nThere is no cluster \"a\"; there are: none.",
        ),
        (
            "DELETE",
            format!("{PATH}/a"),
            "delete clusterconnections.v1alpha1.fleetcache.dev \"a\" of the fleet: error (MethodNotAllowed)\n",
        ),
        (
            "GET",
            "/apis".to_owned(),
            "GET /apis: by the proxy itself\n",
        ),
        (
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews".to_owned(),
            "POST /apis/authentication.k8s.io/v1/selfsubjectreviews: by the proxy itself\nThe proxy answers it itself: who",
        ),
        (
            "GET",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews".to_owned(),
            "GET /apis/authentication.k8s.io/v1/selfsubjectreviews: error (MethodNotAllowed)\n",
        ),
        (
            "GET",
            "/apis/apps/v1".to_owned(),
            "GET /apis/apps/v1: error (not-found)\nIt names no cluster, ",
        ),
    ] {
        let question = Question::parse(method, &target, &[""; 0]).unwrap();
        let told = explain(&clusters, &limits, &question).await.to_string();
        assert!(told.starts_with(expected), "{told}");
    }
    shutdown.cancel();
}
