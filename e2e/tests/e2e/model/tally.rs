//! How often what was read and written, and how many of the reads came from memory.

use std::collections::BTreeMap;
use std::fmt;

use fleetcache_e2e::client::Answer;
use parking_lot::Mutex;

/// Storage, verb, resourceVersion and representation of a read.
type Class = (&'static str, &'static str, &'static str, &'static str);

#[derive(Default)]
pub(crate) struct Tally {
    /// Hits and all.
    reads: Mutex<BTreeMap<Class, (u64, u64)>>,
    writes: Mutex<BTreeMap<u16, u64>>,
    events: Mutex<u64>,
}

impl Tally {
    pub(super) fn count_read(
        &self,
        storage: &'static str,
        verb: &'static str,
        version: &'static str,
        representation: &'static str,
        answer: &Answer,
    ) {
        let class = (storage, verb, version, representation);
        let mut reads = self.reads.lock();
        let (hits, all) = reads.entry(class).or_default();
        *hits += u64::from(answer.is_hit());
        *all += 1;
    }

    pub(super) fn count_write(&self, status: u16) {
        *self.writes.lock().entry(status).or_default() += 1;
    }

    pub(super) fn count_event(&self) {
        *self.events.lock() += 1;
    }

    /// Fails unless each class of these representations was answered from memory at least once.
    pub(crate) fn assert_hits(&self, representations: &[&str]) {
        let reads = self.reads.lock();
        let never: Vec<&Class> = reads
            .iter()
            .filter(|(class, (hits, _))| *hits == 0 && representations.contains(&class.3))
            .map(|(class, _)| class)
            .collect();
        assert!(
            !reads.is_empty() && never.is_empty(),
            "never from memory: {never:?}"
        );
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((storage, verb, version, representation), (hits, all)) in &*self.reads.lock() {
            let class = format!("{storage} {verb} resourceVersion {version} {representation}");
            writeln!(f, "{class:>48}: {hits:>5} of {all:>5} from memory")?;
        }
        write!(
            f,
            "writes by status: {:?}, events of watches: {}",
            self.writes.lock(),
            self.events.lock()
        )
    }
}
