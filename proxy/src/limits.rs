//! What the configuration says about live requests to each cluster. It is replaced while requests are in flight.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fleetcache_auth::UserInfo;
use fleetcache_cache::cluster_accessor::{ClusterAccessor, May, Right};

use crate::authorization::{Authorizer, ClusterDecisions};
use crate::fleet_api::FleetReaders;
use crate::handler::ClusterSettings;
use crate::identity::Identity;
use crate::shares::{Full, Holder, LongRunning, Share, Shares};

/// The settings of all clusters, and how many requests are in flight to each.
#[derive(Debug, Default)]
pub struct Limits {
    authorizer: Authorizer,
    fleet_readers: ArcSwap<FleetReaders>,
    /// Read by every live request, without a lock.
    clusters: ArcSwap<HashMap<String, Arc<ClusterLimits>>>,
    /// Live watches, logs, tunnels and what is proxied.
    pub long_running: LongRunning,
}

/// Those of one cluster.
#[derive(Debug)]
pub struct ClusterLimits {
    /// What the configuration says.
    pub settings: ClusterSettings,
    /// What the cluster allows users.
    pub decisions: Arc<ClusterDecisions>,
    in_flight: Arc<Shares>,
}

impl Limits {
    /// From now on these hold, and only these clusters have any. Requests in flight are counted on.
    pub fn set(&self, settings: impl IntoIterator<Item = (String, ClusterSettings)>) {
        let before = self.clusters.load();
        let mut other = Vec::new();
        let now = settings.into_iter().map(|(name, settings)| {
            let known = before.get(&name);
            let in_flight = known.map_or_else(Arc::default, |it| Arc::clone(&it.in_flight));
            let decisions = known.map_or_else(
                || self.authorizer.of_cluster(),
                |it| Arc::clone(&it.decisions),
            );
            if known.is_some_and(|it| it.settings.authorization != settings.authorization) {
                other.push(Arc::clone(&decisions));
            }
            let limits = ClusterLimits {
                settings,
                decisions,
                in_flight,
            };
            (name, Arc::new(limits))
        });
        let now = now.collect();
        self.clusters.store(Arc::new(now));
        // How long each counts was said when it was made: after this none is made that counts as before.
        other.iter().for_each(|decisions| decisions.forget());
    }

    /// From now on these may read of the fleet.
    pub fn set_fleet_readers(&self, readers: FleetReaders) {
        self.fleet_readers.store(Arc::new(readers));
    }

    /// Who may read of the fleet.
    pub fn fleet_readers(&self) -> Arc<FleetReaders> {
        self.fleet_readers.load_full()
    }

    /// Those of the clusters that are asked what users may do.
    pub fn asked_about_users(&self) -> Vec<(String, Arc<ClusterLimits>)> {
        let clusters = self.clusters.load();
        let asked = clusters
            .iter()
            .filter(|(_, limits)| limits.settings.asks_about_users());
        asked
            .map(|(name, limits)| (name.clone(), Arc::clone(limits)))
            .collect()
    }

    /// Those of the cluster of that name.
    pub fn get(&self, name: &str) -> Option<Arc<ClusterLimits>> {
        self.clusters.load().get(name).cloned()
    }
}

impl ClusterLimits {
    /// The rights that the proxy's credential needs in this cluster, whose settings these are, and whether it has them.
    pub fn rights(&self, cluster: &ClusterAccessor) -> Vec<(Right, May)> {
        let all = Right::ALL.map(|right| (right, cluster.may(right)));
        let is_needed = |&(right, may): &(Right, May)| match right {
            Right::Impersonation => self.settings.identity == Identity::Impersonate,
            // By whom tokens are judged is no setting of the cluster's.
            Right::TokenReviews => may != May::Unknown,
            Right::AccessReviews => self.settings.asks_about_users(),
        };
        all.into_iter().filter(is_needed).collect()
    }

    /// A place for one more request in flight: half of them for one user, all where everybody is the same.
    ///
    /// # Errors
    /// There is none.
    pub fn acquire(&self, user: Option<&Arc<UserInfo>>) -> Result<Share, Full> {
        let max = self.settings.max_in_flight;
        self.in_flight.take(max, Holder::user(user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::testing;

    fn settings(max_in_flight: usize) -> ClusterSettings {
        ClusterSettings {
            max_in_flight,
            ..testing::settings()
        }
    }

    #[test]
    fn decisions_are_made_again_where_they_would_count_otherwise() {
        let limits = Limits::default();
        let set = |settings: ClusterSettings| {
            limits.set([("a".to_owned(), settings)]);
            limits.get("a").unwrap().decisions.changes()
        };
        let first = set(settings(1));
        assert_eq!(set(settings(2)), first);
        let mut shorter = settings(2);
        shorter.authorization.allow_ttl /= 2;
        assert_eq!(set(shorter.clone()), first + 1);
        assert_eq!(set(shorter), first + 1);
    }

    #[tokio::test]
    async fn a_cluster_is_asked_about_users_where_requests_are_theirs() {
        use crate::authorization::AuthorizationMode;

        let (limits, clusters) = (Limits::default(), testing::Clusters::start(&["a"]));
        let cluster = clusters.cache.get("a").unwrap();
        for (identity, mode, asks) in [
            (
                Identity::Impersonate,
                AuthorizationMode::SubjectAccessReview,
                true,
            ),
            (
                Identity::Token,
                AuthorizationMode::SubjectAccessReview,
                true,
            ),
            (
                Identity::Proxy,
                AuthorizationMode::SubjectAccessReview,
                false,
            ),
            (Identity::Impersonate, AuthorizationMode::AlwaysAllow, false),
        ] {
            let mut settings = settings(1);
            settings.identity = identity;
            settings.authorization.mode = mode;
            limits.set([("a".to_owned(), settings)]);
            let rights = limits.get("a").unwrap().rights(&cluster);
            let reviews = (Right::AccessReviews, May::Unknown);
            assert_eq!(rights.contains(&reviews), asks, "{identity:?} {mode:?}");
            let impersonates = rights.contains(&(Right::Impersonation, May::Unknown));
            assert_eq!(impersonates, identity == Identity::Impersonate);
            assert_eq!(limits.asked_about_users().len(), usize::from(asks));
        }
    }

    #[test]
    fn requests_in_flight_are_counted_over_a_change() {
        let limits = Limits::default();
        let set = |max| limits.set([("a".to_owned(), settings(max))]);
        let acquire = || limits.get("a").unwrap().acquire(None);
        set(2);
        let (one, two) = (acquire().unwrap(), acquire().unwrap());
        assert!(acquire().is_err());
        set(3);
        let three = acquire().unwrap();
        assert!(acquire().is_err());
        set(1);
        drop((one, two));
        assert!(acquire().is_err(), "one is in flight still");
        drop(three);
        assert!(acquire().is_ok());
        limits.set([]);
        assert!(limits.get("a").is_none());
    }
}
