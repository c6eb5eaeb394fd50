//! A cluster in which the proxy's credential may not ask what users may do.

use super::*;
use crate::reload::fleetcache;

const WHY: &str = "/clusters/sim/api/v1/namespaces/default/configmaps";

/// What is told of it, and that it becomes true without any read when the right is granted.
#[tokio::test]
async fn where_the_proxy_may_not_ask_the_cluster_answers_and_the_fleet_says_so() {
    let users = Users::start("authorization: { fleetReaders: { users: [bob] } }").await;
    let (alice, bob) = (users.client("alices"), users.root("bobs"));
    let reviews = async || {
        let connection = bob.get(CONNECTION).await?.ok()?.json()?;
        let conditions = connection["status"]["conditions"].as_array().cloned();
        let reviews = conditions.unwrap_or_default();
        let reviews = reviews.iter().find(|it| it["type"] == "AccessReviews");
        anyhow::Ok(reviews.cloned().unwrap_or_default())
    };
    assert_eq!(reviews().await.unwrap()["status"], "Unknown");
    users
        .cluster
        .fault(Fault::Forbidden(vec![REVIEWS.to_owned()]));
    users.cluster.restrict("alice", vec![reads()]);
    wait_for("a read that is not allowed", PATIENCE, async || {
        let answer = alice.get(CONFIGMAPS).await?.ok()?;
        let status = answer.cache_status();
        ensure!(status.ends_with("detail=not-allowed"), "{status}");
        anyhow::Ok(())
    })
    .await
    .unwrap();
    let told = wait_for("the condition", PATIENCE, async || {
        let told = reviews().await?;
        ensure!(told["status"] == "False", "{told}");
        anyhow::Ok(told)
    });
    let told = told.await.unwrap();
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("`fleetcache rbac`"), "{message}");
    for _ in 0..20 {
        assert_eq!(status(&alice, CONFIGMAPS).await, 200);
    }
    let told = |args: &'static [&'static str]| {
        let args = [args, &["--admin", users.proxy.admin()]].concat();
        async move { fleetcache(&args).await }
    };
    let why = || told(&["why", WHY]);
    let (_, text) = why().await;
    assert!(
        text.contains(" of cluster \"sim\": live (not-allowed)\n")
            && text.contains("`fleetcache rbac`"),
        "{text}"
    );
    let mine = users.with_kubeconfig("bobs");
    let broken = async || {
        let mine = mine.to_str().unwrap();
        let (code, text) = fleetcache(&["status", "--broken", "--fleet-kubeconfig", mine]).await;
        assert_eq!(code, Some(0), "{text}");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let shown = broken().await;
    assert!(
        shown.len() == 2 && shown[1].starts_with("sim    Connected   AccessReviewsForbidden "),
        "{shown:?}"
    );
    let metrics = users.proxy.metrics().unwrap();
    let labels = [("state", "Connected"), ("reason", "AccessReviewsForbidden")];
    assert_eq!(metrics.sum("fleetcache_clusters", &labels), Some(1.0));
    let refresh = || told(&["refresh", "sim"]);
    let (code, text) = refresh().await;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("\nthe proxy's credential may not create subjectaccessreviews"),
        "{text}"
    );

    // Nobody reads any more: that it may is found out all the same.
    users.cluster.heal().unwrap();
    let (code, text) = refresh().await;
    assert_eq!((code, text.lines().count()), (Some(0), 1), "{text}");
    let (_, text) = why().await;
    assert!(
        text.contains(" of cluster \"sim\": from memory, for a user whom the cluster allows it\n"),
        "{text}"
    );
    wait_for("the condition", PATIENCE, async || {
        let told = reviews().await?;
        ensure!(told["status"] == "True", "{told}");
        anyhow::Ok(())
    })
    .await
    .unwrap();
    assert_eq!(broken().await, ["nothing is broken"]);
    let log = users.proxy.log();
    assert_eq!(
        log.matches("may not create subjectaccessreviews").count(),
        1
    );

    // Who is no reader of the fleet is told so as by an apiserver.
    let alice = users.root("alices");
    let refused = alice.get(CONNECTION).await.unwrap();
    assert_eq!(refused.status, 403);
    let message = "clusterconnections.fleetcache.dev \"sim\" is forbidden: User \"alice\" cannot get resource \"clusterconnections\" \
                   in API group \"fleetcache.dev\" at the cluster scope";
    assert_eq!(refused.json().unwrap()["message"], message);
    assert_eq!(status(&alice, "/apis").await, 200);
}
