//! How many connections there may be, so that clients who open them without end take neither the descriptors that clusters
//! and the operators' port need, nor all that other clients have.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::open_files;

/// More than this many connections are no clients, but a mistake or an attack: idle ones take 24 KiB each.
const MOST: usize = 65_536;

/// Time between two lines of the log about connections that are refused.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// Places for connections. What comes when there is none is closed at once: its client then knows that it must go elsewhere,
/// and an answer would cost a handshake.
#[derive(Debug)]
pub struct Places {
    of_all: usize,
    of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_source: HashMap<IpAddr, usize>,
    refused: Refused,
    /// When the log was told last.
    told: Option<Instant>,
}

/// Connections that had no place, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// There were too many altogether.
    pub total: u64,
    /// There were too many from their address.
    pub address: u64,
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    source: IpAddr,
}

impl Places {
    /// So many of all, and of one address.
    pub fn new(of_all: usize, of_one: usize) -> Arc<Self> {
        Arc::new(Self {
            of_all,
            of_one,
            taken: Mutex::default(),
        })
    }

    /// As many as leave half of the descriptors to clusters and others, and half of them for one address: behind a load
    /// balancer all clients may have its address, and where they do not, one of them leaves as many to the others.
    pub fn for_clients() -> Arc<Self> {
        let of_all = open_files::limit().map_or(MOST, |files| MOST.min(files / 2));
        Self::new(of_all, of_all / 2)
    }

    /// Takes a place for a connection from there.
    pub(super) fn take(self: &Arc<Self>, from: IpAddr) -> Option<Place> {
        let source = source(from);
        let mut taken = self.taken.lock();
        let of_source = taken.by_source.get(&source).copied().unwrap_or_default();
        let is_full = taken.all >= self.of_all;
        if is_full || of_source >= self.of_one {
            match is_full {
                true => taken.refused.total += 1,
                false => taken.refused.address += 1,
            }
            taken.tell(from);
            return None;
        }
        taken.all += 1;
        taken.by_source.insert(source, of_source + 1);
        Some(Place {
            places: Arc::clone(self),
            source,
        })
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.taken.lock().all
    }

    /// How many connections had none.
    pub fn refused(&self) -> Refused {
        self.taken.lock().refused
    }
}

impl Taken {
    fn tell(&mut self, from: IpAddr) {
        let now = Instant::now();
        if self.told.is_some_and(|told| now - told < LINE_INTERVAL) {
            return;
        }
        self.told = Some(now);
        let Refused { total, address } = self.refused;
        tracing::warn!(
            connections = self.all,
            %from,
            refused_total = total,
            refused_address = address,
            "too many connections, new ones are closed"
        );
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.all -= 1;
        if let Some(of_source) = taken.by_source.get_mut(&self.source) {
            *of_source -= 1;
            if *of_source == 0 {
                taken.by_source.remove(&self.source);
            }
        }
    }
}

/// Whom an address stands for: of IPv6, one client has at least all that begin with the same 64 bits.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(places: &Arc<Places>, address: &str) -> Option<Place> {
        places.take(address.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_so_many_for_all_and_so_many_for_one() {
        let places = Places::new(3, 2);
        let first = from(&places, "10.0.0.1");
        let second = from(&places, "::ffff:10.0.0.1");
        assert!(first.is_some() && second.is_some());
        assert!(from(&places, "10.0.0.1").is_none());
        let other = from(&places, "2001:db8::1");
        assert!(other.is_some());
        assert!(from(&places, "10.0.0.3").is_none());
        let expected = Refused {
            total: 1,
            address: 1,
        };
        assert_eq!((places.taken(), places.refused()), (3, expected));
        drop(first);
        let again = from(&places, "2001:db8::2");
        assert!(again.is_some());
        drop(second);
        assert!(
            from(&places, "2001:db8::ffff:0:0:3").is_none(),
            "it is one client"
        );
        drop((again, other));
        assert_eq!(places.taken(), 0);
        assert!(places.taken.lock().by_source.is_empty());
    }

    #[test]
    fn half_of_the_descriptors_are_for_others() {
        let places = Places::for_clients();
        let files = open_files::limit().unwrap_or(usize::MAX);
        assert!(places.of_all <= MOST && places.of_all <= files / 2);
        assert_eq!(places.of_one, places.of_all / 2);
    }
}
