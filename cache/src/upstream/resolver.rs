//! Names to addresses, by the system's own resolver.
//!
//! A lookup holds a thread of the pool for blocking work until the resolver gives up, which is long after whoever asked has:
//! with seven hundred names that no server answers for, the pool would be theirs and nothing that reads a file would run.
//! So lookups are few at a time, and names that were slow or failed last time share a part of the places: they wait for each
//! other, never the others for them.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use hyper_util::client::legacy::connect::dns::Name;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tower_service::Service;

use crate::link_local;

/// Lookups at once, of tokio's 512 threads for blocking work.
const AT_ONCE: usize = 64;

/// Those of names that were slow last time.
const SLOW_AT_ONCE: usize = 16;

/// A name that takes longer is slow.
const SLOW: Duration = Duration::from_secs(1);

/// Names remembered as slow; clusters are thousands at most.
const MOST_SLOW: usize = 10_000;

/// The pool for blocking work is the process's, and so are its places.
static PLACES: LazyLock<Places> = LazyLock::new(|| Places {
    all: Arc::new(Semaphore::new(AT_ONCE)),
    slow: Arc::new(Semaphore::new(SLOW_AT_ONCE)),
    names: Mutex::default(),
});

struct Places {
    all: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    /// Names that were slow last time.
    names: Mutex<HashSet<String>>,
}

/// Asks the system, in its turn.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    /// Link-local addresses are left out. Here and not before the dial: a name may mean another address each time, and
    /// numbers in forms that only the system reads come here too.
    pub(crate) refuse_link_local: bool,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        #[cfg(test)]
        if let Some(address) = planned::answer(name.as_str()) {
            return Box::pin(std::future::ready(Ok(vec![address].into_iter())));
        }
        let refuse_link_local = self.refuse_link_local;
        Box::pin(async move {
            let look_up = |name: &str| (name, 0).to_socket_addrs();
            let found = PLACES.look_up(name.as_str().to_owned(), look_up).await?;
            match refuse_link_local {
                true => without_link_local(found),
                false => Ok(found),
            }
        })
    }
}

fn without_link_local(
    found: std::vec::IntoIter<SocketAddr>,
) -> io::Result<std::vec::IntoIter<SocketAddr>> {
    let allowed: Vec<_> = found
        .filter(|address| !link_local::is_address(address.ip()))
        .collect();
    if allowed.is_empty() {
        return Err(io::Error::other(
            "it leads to a link-local address, which a kubeconfig from a Secret may not name",
        ));
    }
    Ok(allowed.into_iter())
}

impl Places {
    async fn look_up(
        &'static self,
        name: String,
        look_up: impl FnOnce(&str) -> io::Result<std::vec::IntoIter<SocketAddr>> + Send + 'static,
    ) -> io::Result<std::vec::IntoIter<SocketAddr>> {
        let is_slow = self.names.lock().contains(&name);
        // Never closed.
        let slow = match is_slow {
            true => Arc::clone(&self.slow).acquire_owned().await.ok(),
            false => None,
        };
        let any = Arc::clone(&self.all).acquire_owned().await.ok();
        let looked_up = tokio::task::spawn_blocking(move || {
            // To the end of the lookup, which nobody can cut short.
            let _places = (slow, any);
            let began = Instant::now();
            let found = look_up(&name);
            self.remember(name, found.is_err() || began.elapsed() > SLOW);
            found
        });
        looked_up.await?
    }

    fn remember(&self, name: String, is_slow: bool) {
        let mut names = self.names.lock();
        if is_slow && names.len() < MOST_SLOW {
            names.insert(name);
        } else if !is_slow {
            names.remove(&name);
        }
    }
}

/// Answers that a test has planned, for its own thread.
#[cfg(test)]
pub(crate) mod planned {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::net::{IpAddr, SocketAddr};

    thread_local! {
        static ANSWERS: RefCell<HashMap<&'static str, IpAddr>> = RefCell::default();
    }

    /// From now on the name has this address.
    pub(crate) fn plan(name: &'static str, address: IpAddr) {
        ANSWERS.with_borrow_mut(|answers| answers.insert(name, address));
    }

    pub(super) fn answer(name: &str) -> Option<SocketAddr> {
        let address = ANSWERS.with_borrow(|answers| answers.get(name).copied());
        address.map(|address| SocketAddr::new(address, 0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn places(all: usize, slow: usize) -> &'static Places {
        Box::leak(Box::new(Places {
            all: Arc::new(Semaphore::new(all)),
            slow: Arc::new(Semaphore::new(slow)),
            names: Mutex::default(),
        }))
    }

    fn fails(_: &str) -> io::Result<std::vec::IntoIter<SocketAddr>> {
        Err(io::ErrorKind::NotFound.into())
    }

    #[tokio::test]
    async fn a_name_may_be_kept_from_link_local_addresses() {
        // In the form that only the system reads: no lookup leaves the machine.
        for (name, refused) in [
            ("2852039166", true),
            ("0xa9fea9fe", true),
            ("2130706433", false),
        ] {
            for refuse_link_local in [true, false] {
                let mut resolver = Resolver { refuse_link_local };
                let found = resolver.call(name.parse().unwrap()).await;
                assert_eq!(found.is_err(), refused && refuse_link_local, "{name}");
            }
        }
    }

    #[tokio::test]
    async fn names_that_failed_leave_places_to_the_others() {
        let places = places(2, 1);
        for name in ["a", "b"] {
            places.look_up(name.to_owned(), fails).await.unwrap_err();
        }
        // One of them hangs, and whoever asked gives up.
        let (end, ended) = mpsc::channel::<()>();
        let hangs = places.look_up("a".to_owned(), move |name| {
            let _ = ended.recv();
            fails(name)
        });
        let mut hangs = Box::pin(hangs);
        assert!(futures_util::poll!(&mut hangs).is_pending());
        drop(hangs);
        let mut next = Box::pin(places.look_up("b".to_owned(), fails));
        assert!(
            futures_util::poll!(&mut next).is_pending(),
            "the slow place is taken"
        );
        let good = places.look_up("good".to_owned(), |_| ("127.0.0.1", 0).to_socket_addrs());
        assert_eq!(good.await.unwrap().count(), 1);
        end.send(()).unwrap();
        next.await.unwrap_err();
        // Good again: it is with the others.
        let good = places.look_up("a".to_owned(), |_| ("127.0.0.1", 0).to_socket_addrs());
        good.await.unwrap();
        assert!(!places.names.lock().contains("a"));
    }
}
