//! Places that many share, so that no one of them has all.

use std::collections::HashMap;
use std::sync::Arc;

use fleetcache_auth::UserInfo;
use parking_lot::Mutex;

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
    /// A user, by name and uid: users of the same name, whom different clusters have named, are not one.
    User(String, String),
}

impl Holder {
    /// A user; nobody where all are the same and there is nobody to share with.
    pub fn user(user: Option<&Arc<UserInfo>>) -> Option<Self> {
        user.map(|user| Self::User(user.name.clone(), user.uid.clone()))
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
                Holder::User(..) => Full::User,
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
        Holder::User(name.to_owned(), String::new())
    }

    #[test]
    fn nobody_has_more_than_half() {
        let shares = Arc::new(Shares::default());
        let take = |name| shares.take(5, [user(name)]);
        let alices = [take("alice"), take("alice"), take("alice")].map(Result::unwrap);
        assert_eq!(take("alice").unwrap_err(), Full::User);
        let other = Holder::User("alice".to_owned(), "of another cluster".to_owned());
        let others = [take("bob"), shares.take(5, [other])].map(Result::unwrap);
        assert_eq!(take("carol").unwrap_err(), Full::All);
        let [first, ..] = alices;
        drop(first);
        drop(take("carol").unwrap());
        drop(others);
        assert_eq!(shares.taken.lock().by_holder.len(), 1);
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
