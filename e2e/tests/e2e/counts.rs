//! How many reads came from memory, so that a test can tell that it tested something.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use fleetcache_e2e::client::Answer;

/// Where the reads of a test were answered, by step.
#[derive(Default)]
pub(crate) struct Counts {
    by_step: BTreeMap<&'static str, (AtomicU64, AtomicU64)>,
}

impl Counts {
    pub(crate) fn of(steps: &[&'static str]) -> Self {
        Self {
            by_step: steps
                .iter()
                .map(|step| (*step, Default::default()))
                .collect(),
        }
    }

    pub(crate) fn count(&self, step: &'static str, answer: &Answer) {
        let (cached, live) = &self.by_step[step];
        if answer.is_hit() { cached } else { live }.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cached(&self) -> u64 {
        self.by_step
            .values()
            .map(|(cached, _)| cached.load(Ordering::Relaxed))
            .sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (step, (cached, live)) in &self.by_step {
            let (cached, live) = (cached.load(Ordering::Relaxed), live.load(Ordering::Relaxed));
            if cached + live == 0 {
                continue;
            }
            writeln!(f, "{step:>28}: {cached:>6} cached {live:>6} live")?;
        }
        Ok(())
    }
}
