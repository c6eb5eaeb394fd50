//! What reached the cluster: tests assert "one upstream watch" and "nothing dialled" with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The counts of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Connections open now.
    pub connections: u64,
    /// Requests by verb and resource; other paths count as verb `other` and their path.
    pub requests: BTreeMap<(String, String), u64>,
    /// Watches open now, by resource.
    pub watches: BTreeMap<String, u64>,
}

impl Counts {
    /// Requests with this Kubernetes verb (`list`, not GET) for this resource.
    pub fn requests(&self, verb: &str, resource: &str) -> u64 {
        self.requests
            .get(&(verb.to_owned(), resource.to_owned()))
            .copied()
            .unwrap_or_default()
    }

    /// Lists of one version of this resource, such as a proxy asks for to check itself whenever it likes.
    pub fn exact_lists(&self, resource: &str) -> u64 {
        self.requests(EXACT, resource)
    }

    /// All requests for resources, but for lists of one version.
    pub fn resource_requests(&self) -> u64 {
        let counts = self
            .requests
            .iter()
            .filter(|((verb, _), _)| verb != OTHER && verb != EXACT);
        counts.map(|(_, count)| count).sum()
    }

    /// Watches of this resource that are open.
    pub fn watches(&self, resource: &str) -> u64 {
        self.watches.get(resource).copied().unwrap_or_default()
    }
}

/// Probes since they are expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// Those that came within 120 % of the interval after the one before.
    pub on_time: u64,
    /// Those that came later, and one that is overdue now.
    pub late: u64,
}

/// Where probes are counted.
#[derive(Debug, Default)]
struct Expected {
    interval: Option<Duration>,
    last: Option<Instant>,
    probes: Probes,
}

/// The verb under which requests for anything but resources are counted.
const OTHER: &str = "other";

/// The verb under which lists of one version are counted.
const EXACT: &str = "list of one version";

/// Counts as requests come and go.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    accepted: AtomicU64,
    closed: AtomicU64,
    requests: Mutex<BTreeMap<(String, String), u64>>,
    watches: Mutex<BTreeMap<String, u64>>,
    expected: Mutex<Expected>,
}

/// A connection that counts as open.
#[derive(Debug)]
pub(super) struct OpenConnection(Arc<Inner>);

/// A watch that counts as open.
#[derive(Debug)]
pub(super) struct OpenWatch(Arc<Inner>, &'static str);

impl Counters {
    pub(super) fn request(&self, verb: &str, resource: &str) {
        *self
            .0
            .requests
            .lock()
            .entry((verb.to_owned(), resource.to_owned()))
            .or_default() += 1;
    }

    pub(super) fn exact_list(&self, resource: &str) {
        self.request(EXACT, resource);
    }

    pub(super) fn other_request(&self, path: &str) {
        self.request(OTHER, path);
    }

    pub(super) fn expect_probes(&self, interval: Option<Duration>) {
        *self.0.expected.lock() = Expected {
            interval,
            ..Expected::default()
        };
    }

    pub(super) fn probe(&self, now: Instant) {
        let mut expected = self.0.expected.lock();
        match expected.is_late(now) {
            Some(true) => expected.probes.late += 1,
            Some(false) => expected.probes.on_time += 1,
            None => {}
        }
        expected.last = Some(now);
    }

    pub(super) fn probes(&self) -> Probes {
        let expected = self.0.expected.lock();
        let overdue = expected.is_late(Instant::now()) == Some(true);
        Probes {
            late: expected.probes.late + u64::from(overdue),
            ..expected.probes
        }
    }

    /// Counts a connection as open until the guard is dropped.
    pub(super) fn connection(&self) -> OpenConnection {
        self.0.accepted.fetch_add(1, Ordering::Relaxed);
        OpenConnection(self.0.clone())
    }

    /// Counts a watch as open until the guard is dropped.
    pub(super) fn watch(&self, resource: &'static str) -> OpenWatch {
        *self
            .0
            .watches
            .lock()
            .entry(resource.to_owned())
            .or_default() += 1;
        OpenWatch(self.0.clone(), resource)
    }

    pub(super) fn counts(&self) -> Counts {
        // In this order a connection that closes in between cannot make the difference negative.
        let closed = self.0.closed.load(Ordering::Relaxed);
        let accepted = self.0.accepted.load(Ordering::Relaxed);
        Counts {
            accepted,
            connections: accepted.saturating_sub(closed),
            requests: self.0.requests.lock().clone(),
            watches: self.0.watches.lock().clone(),
        }
    }
}

impl Expected {
    /// Whether a probe that comes now is late; none where it is the first, or none is expected.
    fn is_late(&self, now: Instant) -> Option<bool> {
        let since = now.duration_since(self.last?);
        Some(since > self.interval? * 12 / 10)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        if let Some(open) = self.0.watches.lock().get_mut(self.1) {
            *open = open.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_count_while_they_live() {
        let counters = Counters::default();
        let connection = counters.connection();
        let watches = [counters.watch("pods"), counters.watch("pods")];
        counters.request("list", "pods");
        let counts = counters.counts();
        assert_eq!(
            (
                counts.connections,
                counts.watches("pods"),
                counts.requests("list", "pods")
            ),
            (1, 2, 1)
        );
        drop((connection, watches));
        let counts = counters.counts();
        assert_eq!(
            (counts.accepted, counts.connections, counts.watches("pods")),
            (1, 0, 0)
        );
    }

    #[test]
    fn probes_are_late_after_a_fifth_more_than_their_interval() {
        let counters = Counters::default();
        let start = Instant::now();
        let probe = |millis: u64| counters.probe(start + Duration::from_millis(millis));
        probe(0);
        assert_eq!(counters.probes(), Probes::default());
        counters.expect_probes(Some(Duration::from_secs(1000)));
        for millis in [0, 900_000, 2_100_000, 3_300_001, 3_400_000] {
            probe(millis);
        }
        let counted = Probes {
            on_time: 3,
            late: 1,
        };
        assert_eq!(counters.probes(), counted);
        counters.expect_probes(Some(Duration::ZERO));
        probe(0);
        assert_eq!(counters.probes().late, 1, "overdue");
    }
}
