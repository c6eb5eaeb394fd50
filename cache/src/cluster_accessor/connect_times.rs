//! How long connects take, over all clusters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds in milliseconds: from a neighbour to the default connect timeout and a credential plugin's deadline.
const BOUNDS: [u64; 11] = [10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000];

/// Connects that have ended, well or not, by how long they took.
#[derive(Debug, Default)]
pub(crate) struct ConnectTimes {
    /// By bound; the last holds those beyond.
    counts: [AtomicU64; BOUNDS.len() + 1],
    millis: AtomicU64,
}

/// The same at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectTimeTotals {
    /// Upper bounds in seconds, and how many took longer than the bound before and no longer than this one.
    pub buckets: Vec<(f64, u64)>,
    /// All of them, those beyond the last bound too.
    pub count: u64,
    /// Seconds that all took together.
    pub seconds: f64,
}

impl ConnectTimes {
    pub(super) fn note(&self, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| took > Duration::from_millis(*bound));
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.millis.fetch_add(millis, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> ConnectTimeTotals {
        let counts = self.counts.each_ref().map(|it| it.load(Ordering::Relaxed));
        let bounds = BOUNDS.iter().map(|bound| *bound as f64 / 1000.0);
        ConnectTimeTotals {
            buckets: bounds.zip(counts).collect(),
            count: counts.iter().sum(),
            seconds: self.millis.load(Ordering::Relaxed) as f64 / 1000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connect_is_in_one_bucket() {
        let times = ConnectTimes::default();
        for millis in [0, 10, 11, 3000, 3001, 30_000, 30_001] {
            times.note(Duration::from_millis(millis));
        }
        let totals = times.totals();
        let filled = totals.buckets.iter().filter(|(_, count)| *count > 0);
        let filled: Vec<_> = filled.copied().collect();
        assert_eq!(filled, [(0.01, 2), (0.025, 1), (5.0, 2), (30.0, 1)]);
        assert_eq!(totals.count, 7);
        assert!((totals.seconds - 66.023).abs() < 1e-9, "{totals:?}");
    }
}
