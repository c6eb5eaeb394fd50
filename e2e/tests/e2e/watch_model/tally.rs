//! What happened in a run, so that one that proved nothing is seen.

use std::collections::BTreeMap;
use std::fmt;

use parking_lot::Mutex;

/// Counts by what was counted.
#[derive(Default)]
pub(super) struct Tally(Mutex<BTreeMap<String, u64>>);

impl Tally {
    pub(super) fn count(&self, what: &str) {
        *self.0.lock().entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn watch(&self, hit: bool) {
        self.read("watches", hit);
    }

    pub(super) fn read(&self, what: &str, hit: bool) {
        let from = if hit { "from memory" } else { "live" };
        self.count(&format!("{what} {from}"));
    }

    pub(super) fn of(&self, what: &str) -> u64 {
        self.0.lock().get(what).copied().unwrap_or_default()
    }

    /// Of a hundred, how many came from memory.
    pub(super) fn hits(&self, what: &str) -> u64 {
        let (hits, live) = (
            self.of(&format!("{what} from memory")),
            self.of(&format!("{what} live")),
        );
        hits * 100 / (hits + live).max(1)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in self.0.lock().iter() {
            writeln!(out, "{count:>8} {what}")?;
        }
        Ok(())
    }
}
