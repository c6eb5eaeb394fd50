//! What the owners of all clusters tell in one place: which clusters came, went or changed since somebody looked, and how
//! long connects took.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::connect_times::ConnectTimes;

/// Names, each once however often it is noted: nothing queues up behind a reader who is slow, and noting never waits.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Held for an insertion or while the set is taken, never across an await.
    names: Mutex<BTreeSet<String>>,
    noted: Notify,
    pub(crate) connect_times: ConnectTimes,
}

impl Changes {
    pub(crate) fn note(&self, name: &str) {
        let mut names = self.names.lock();
        if !names.contains(name) {
            names.insert(name.to_owned());
        }
        drop(names);
        self.noted.notify_one();
    }

    /// Waits until there is a name, and takes all. For one reader.
    pub(crate) async fn taken(&self) -> BTreeSet<String> {
        loop {
            let names = std::mem::take(&mut *self.names.lock());
            if !names.is_empty() {
                return names;
            }
            self.noted.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_name_is_told_once_however_often_it_was_noted() {
        let changes = Changes::default();
        assert!(changes.taken().now_or_never().is_none());
        changes.note("a");
        changes.note("b");
        changes.note("a");
        assert_eq!(
            changes.taken().await,
            BTreeSet::from(["a", "b"].map(str::to_owned))
        );
        assert!(changes.taken().now_or_never().is_none());
        changes.note("a");
        assert_eq!(changes.taken().await.len(), 1);
    }
}
