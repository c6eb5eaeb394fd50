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

    pub(super) fn read(&self, what: &str, hit: bool) {
        let from = if hit { "from memory" } else { "live" };
        self.count(&format!("{what} {from}"));
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
