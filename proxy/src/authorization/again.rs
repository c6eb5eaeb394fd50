//! Clusters that the proxy may not ask about users are asked again beside all requests: none waits for it, and what the
//! fleet's API tells becomes true by itself when somebody has granted the right.

use std::sync::Arc;
use std::time::Duration;

use fleetcache_cache::cluster_accessor::{ClusterAccessor, May, Right};
use futures_util::{StreamExt as _, stream};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::limits::Limits;
use crate::reviewer::Reviewer;

/// Time between two tries, as between two probes: each is one small request.
const EVERY: Duration = Duration::from_secs(10);

/// Clusters that are tried at once. One that hangs takes seconds.
const AT_ONCE: usize = 64;

/// Asks them for as long as it is polled. `now` has a cluster and who answers for it, where it is connected.
pub(crate) async fn ask_again<R: Reviewer>(
    limits: &Limits,
    now: impl Fn(&str) -> Option<(Arc<ClusterAccessor>, Arc<R>)>,
) {
    let mut ticks = interval_at(Instant::now() + EVERY, EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let asked = stream::iter(limits.asked_about_users());
        let tries = asked.for_each_concurrent(AT_ONCE, |(name, limits)| {
            let refuses = |cluster: &ClusterAccessor| cluster.may(Right::AccessReviews) == May::No;
            let now = now(&name).filter(|(cluster, _)| refuses(cluster));
            async move {
                if let Some((cluster, reviewer)) = now {
                    limits.decisions.try_again(&cluster, &*reviewer).await;
                }
            }
        });
        tries.await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;
    use crate::authorization::testing::{
        Cluster, Clusters, Says, alice, cluster_wide, pod, settings,
    };
    use crate::authorization::{Access, ClusterDecisions, Subject, Verdict};

    async fn ask(access: &Access, cluster: &Arc<Cluster>, name: &str) -> Verdict {
        access.verdict(cluster, || pod(name)).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_may_not_ask_asks_seldom_and_without_a_request() {
        let (clusters, cluster) = (
            Clusters::start(&["a"]),
            Cluster::that(|_| Says::Status(403)),
        );
        let limits = Limits::default();
        limits.set([("a".to_owned(), settings())]);
        let decisions: Arc<ClusterDecisions> = Arc::clone(&limits.get("a").unwrap().decisions);
        let mut access = clusters.access("a", &alice());
        access.decisions = Arc::clone(&decisions);
        let somebody = Access {
            subject: Subject::Allowed,
            ..access.clone()
        };
        let may_ask = || access.cluster.may(Right::AccessReviews);
        let now = |name: &str| Some((clusters.cache.get(name)?, Arc::clone(&cluster)));
        let mut again = Box::pin(ask_again(&limits, now));
        let mut after = async |time| {
            // Its timer begins when it is polled first.
            assert!((&mut again).now_or_never().is_none());
            advance(time).await;
            assert!((&mut again).now_or_never().is_none());
        };
        let news = clusters.cache.changed().await;
        assert_eq!(news.len(), 1, "it came");
        after(EVERY).await;
        assert_eq!((may_ask(), cluster.asked()), (May::Unknown, 0));
        assert_eq!(
            ask(&somebody, &cluster, "x").await,
            Verdict::Allowed { until: None }
        );
        for at in 0..100 {
            let verdict = ask(&access, &cluster, &format!("p{at}")).await;
            assert_eq!(verdict, Verdict::Unknown);
        }
        assert_eq!((may_ask(), cluster.asked()), (May::No, 1));
        assert!(clusters.cache.changed().now_or_never().is_some());
        assert_eq!(ask(&somebody, &cluster, "x").await, Verdict::Unknown);

        after(EVERY).await;
        assert_eq!((may_ask(), cluster.asked()), (May::No, 2));
        assert!(
            clusters.cache.changed().now_or_never().is_none(),
            "it is told once"
        );
        // Not even a request that comes after a long time.
        advance(Duration::from_secs(3600)).await;
        assert_eq!(ask(&access, &cluster, "x").await, Verdict::Unknown);
        assert_eq!(cluster.asked(), 2);

        cluster.now(cluster_wide);
        after(EVERY).await;
        assert_eq!((may_ask(), cluster.asked()), (May::Yes, 3));
        assert!(clusters.cache.changed().now_or_never().is_some());
        let verdict = ask(&access, &cluster, "x").await;
        assert!(matches!(verdict, Verdict::Allowed { until: Some(_) }));
        assert_eq!(cluster.asked(), 4);
        after(EVERY).await;
        assert_eq!(cluster.asked(), 4, "nothing is left to find out");
        assert_eq!(
            ask(&somebody, &cluster, "x").await,
            Verdict::Allowed { until: None }
        );
    }
}
