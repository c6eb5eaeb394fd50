//! Places that many share, so that no one of them has all.

use std::collections::HashMap;
use std::sync::Arc;

use fleetcache_auth::UserInfo;
use parking_lot::Mutex;

use crate::open_files;

/// Long-running requests that go to clusters at once.
const MOST: usize = 32_768;

/// Places, of which each holder has half at most.
#[derive(Debug, Default)]
pub struct Shares {
    /// Held for a look.
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_holder: HashMap<Holder, usize>,
}

/// Whose a place is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A user.
    User {
        /// By name alone: how somebody was known is theirs to choose, and not each way to be known gives the same uid.
        name: String,
        /// See [`UserInfo::named_by`]. Else a cluster could name a user like one of all clusters, and take their places.
        named_by: Option<Arc<str>>,
    },
    /// A cluster.
    Cluster(String),
}

impl Holder {
    /// A user; nobody where all are the same and there is nobody to share with.
    pub fn user(user: Option<&Arc<UserInfo>>) -> Option<Self> {
        user.map(|user| Self::User {
            name: user.name.clone(),
            named_by: user.named_by.clone(),
        })
    }
}

/// A place that is taken, until it is dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    holders: Vec<Holder>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// All are taken.
    All,
    /// The user has half of all.
    User,
    /// The cluster has.
    Cluster,
}

impl Shares {
    /// Takes one of so many places, which is that of each of these holders.
    ///
    /// # Errors
    /// Which of them has too many.
    pub fn take(
        self: &Arc<Self>,
        of_all: usize,
        holders: impl IntoIterator<Item = Holder>,
    ) -> Result<Share, Full> {
        let holders: Vec<Holder> = holders.into_iter().collect();
        let of_one = of_all.div_ceil(2);
        let mut taken = self.taken.lock();
        if taken.all >= of_all {
            return Err(Full::All);
        }
        let of = |holder: &Holder| taken.by_holder.get(holder).copied().unwrap_or_default();
        if let Some(holder) = holders.iter().find(|holder| of(holder) >= of_one) {
            return Err(match holder {
                Holder::User { .. } => Full::User,
                Holder::Cluster(_) => Full::Cluster,
            });
        }
        taken.all += 1;
        for holder in &holders {
            *taken.by_holder.entry(holder.clone()).or_default() += 1;
        }
        drop(taken);
        Ok(Share {
            shares: Arc::clone(self),
            holders,
        })
    }

    /// How many are taken.
    pub fn count(&self) -> usize {
        self.taken.lock().all
    }
}

/// Places of requests that last as long as their clients like, over all clusters. Each takes a descriptor, which no cluster
/// would have to connect with, nor the operators' port to listen with.
#[derive(Debug)]
pub struct LongRunning {
    of_all: usize,
    shares: Arc<Shares>,
}

impl Default for LongRunning {
    /// As many as leave three quarters of the descriptors to others: half may be clients'.
    fn default() -> Self {
        Self {
            of_all: open_files::limit().map_or(MOST, |files| MOST.min(files / 4)),
            shares: Arc::default(),
        }
    }
}

impl LongRunning {
    /// Takes a place, of which a user has half at most, and so has a cluster.
    ///
    /// # Errors
    /// There is none.
    pub fn take(&self, cluster: &str, user: Option<&Arc<UserInfo>>) -> Result<Share, Full> {
        let cluster = Holder::Cluster(cluster.to_owned());
        let holders = Holder::user(user).into_iter().chain([cluster]);
        self.shares.take(self.of_all, holders)
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.shares.count()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        taken.all -= 1;
        for holder in &self.holders {
            if let Some(of_holder) = taken.by_holder.get_mut(holder) {
                *of_holder -= 1;
                if *of_holder == 0 {
                    taken.by_holder.remove(holder);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Holder {
        Holder::User {
            name: name.to_owned(),
            named_by: None,
        }
    }

    #[test]
    fn who_is_known_in_two_ways_is_one_and_whom_a_cluster_names_is_another() {
        let holder = |uid: &str, named_by: Option<&str>| {
            let user = UserInfo {
                name: "alice".to_owned(),
                uid: uid.to_owned(),
                named_by: named_by.map(Arc::from),
                ..UserInfo::default()
            };
            Holder::user(Some(&Arc::new(user)))
        };
        assert_eq!(holder("", None), holder("7", None));
        assert_ne!(holder("7", None), holder("7", Some("a")));
        assert_ne!(holder("7", Some("b")), holder("7", Some("a")));
    }

    #[test]
    fn nobody_has_more_than_half() {
        let shares = Arc::new(Shares::default());
        let take = |name| shares.take(5, [user(name)]);
        let alices = [take("alice"), take("alice"), take("alice")].map(Result::unwrap);
        assert_eq!(take("alice").unwrap_err(), Full::User);
        let other = Holder::User {
            name: "alice".to_owned(),
            named_by: Some("a".into()),
        };
        let others = [take("bob"), shares.take(5, [other])].map(Result::unwrap);
        assert_eq!(take("carol").unwrap_err(), Full::All);
        let [first, ..] = alices;
        drop(first);
        drop(take("carol").unwrap());
        drop(others);
        assert_eq!(shares.taken.lock().by_holder.len(), 1);
    }

    #[test]
    fn neither_a_user_nor_a_cluster_has_all_that_last_long() {
        let long_running = LongRunning {
            of_all: 4,
            shares: Arc::default(),
        };
        let user = |name: &str| {
            let name = name.to_owned();
            let user = UserInfo {
                name,
                ..UserInfo::default()
            };
            Arc::new(user)
        };
        let (alice, bob) = (user("alice"), user("bob"));
        let take = |cluster, user| long_running.take(cluster, user);
        let first = [take("a", Some(&alice)), take("b", Some(&alice))].map(Result::unwrap);
        assert_eq!(take("c", Some(&alice)).unwrap_err(), Full::User);
        let second = take("a", Some(&bob)).unwrap();
        assert_eq!(take("a", None).unwrap_err(), Full::Cluster);
        let third = take("b", None).unwrap();
        assert_eq!(take("c", None).unwrap_err(), Full::All);
        assert_eq!(long_running.taken(), 4);
        drop((first, second, third));
        assert_eq!(long_running.taken(), 0);
    }

    #[test]
    fn who_is_everybody_has_all_and_who_is_alone_has_one() {
        let shares = Arc::new(Shares::default());
        let all = [shares.take(2, None), shares.take(2, None)].map(Result::unwrap);
        assert_eq!(shares.take(2, None).unwrap_err(), Full::All);
        drop(all);
        drop(shares.take(1, [user("alice")]).unwrap());
        assert!(shares.taken.lock().by_holder.is_empty());
    }
}
