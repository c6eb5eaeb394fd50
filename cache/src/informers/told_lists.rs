//! Live lists that were told: what a reader needs to have seen of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::Informers;
use crate::floor::Floor;
use crate::holding::Holding;
use crate::informer::Informer;
use crate::panics::caught;
use crate::resource_version::ResourceVersion;
use crate::told_list::{PendingList, ToldList};

/// Time in which the events that a list has told of arrive; after that only a newer version shows it.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

impl Informers {
    /// A list was told on a connection's (generation, epoch). Readers need its version, unless an informer is found to
    /// hold the same objects. Of a selector that only the server can judge it tells nothing here: its objects may be those
    /// that are held, and its version would keep a quiet kind from memory.
    pub fn told_list(
        self: &Arc<Self>,
        floor: &Arc<Floor>,
        (generation, epoch): (u64, u64),
        list: ToldList,
    ) {
        let judges = |informer: &Arc<Informer>| {
            let held = informer.publications().newest(generation);
            held.is_none_or(|held| held.bind(&list.selector).is_some())
        };
        let (mut informers, others): (Vec<_>, Vec<_>) =
            self.of_floor(floor).into_iter().partition(judges);
        // Those in protobuf read nothing but metadata: there are selectors that any server judges, and they do not.
        let is_unjudged = informers.is_empty()
            && others
                .iter()
                .any(|informer| informer.holding == Holding::Protobuf);
        if is_unjudged {
            self.told_version(floor, epoch, list.resource_version);
            return;
        }
        for informer in &informers {
            let held = informer.publications().newest(generation);
            // Short ones are compared at once.
            let shown = held.and_then(|held| list.shown_by(&held).now_or_never().flatten());
            if let Some(at) = shown {
                floor.raise(epoch, at);
                return;
            }
        }
        let Some(informer) = informers.pop() else {
            return;
        };
        let list = Arc::new(PendingList::new(list));
        if !floor.told_list(epoch, &list) {
            self.told_version(floor, epoch, list.list().resource_version);
            return;
        }
        let (informers, floor) = (Arc::clone(self), Arc::clone(floor));
        self.fleet.tasks().spawn(async move {
            let stopped = informer.stopped().clone();
            // A list that nobody looks for any more would keep its readers from memory for good.
            let looking = caught(shown_by(&informer, generation, list.list()));
            let found = stopped.run_until_cancelled(looking).await;
            let found = found.and_then(|found| found.ok().flatten());
            let own = list.list().resource_version;
            floor.list_shown(epoch, &list, found.unwrap_or(own));
            if found.is_none() {
                informers.told_version(&floor, epoch, own);
            }
            for informer in informers.of_floor(&floor) {
                informer.wake_readers();
            }
        });
    }

    /// A version was told that need not be the one of an event: the informers are brought there, since a quiet kind's
    /// would hear only with the next bookmark that nothing happened before it.
    pub fn told_version(&self, floor: &Arc<Floor>, epoch: u64, version: ResourceVersion) {
        floor.raise(epoch, version);
        self.catch_up(floor);
    }

    /// The informers that read a floor.
    fn of_floor(&self, floor: &Arc<Floor>) -> Vec<Arc<Informer>> {
        let state = self.state.lock();
        state
            .all()
            .filter(|informer| Arc::ptr_eq(informer.floor(), floor))
            .cloned()
            .collect()
    }
}

/// Waits until an informer holds what a list told, and gives the version that shows it; `None` where that cannot be
/// expected any more.
async fn shown_by(
    informer: &Informer,
    generation: u64,
    list: &ToldList,
) -> Option<ResourceVersion> {
    #[cfg(test)]
    crate::panics::planned::here("told list");
    let mut publications = informer.publications();
    let mut held = match publications.newest(generation) {
        Some(held) => held,
        // The first list of an informer takes the time it takes.
        None => publications.next(generation).await?,
    };
    let looking = async {
        loop {
            if let Some(at) = list.shown_by(&held).await {
                return Some(at);
            }
            // A bookmark brings no other objects.
            let compared = held.last_event;
            while held.last_event == compared && held.resource_version < list.resource_version {
                held = publications.next(generation).await?;
            }
        }
    };
    tokio::time::timeout(SHOWN_WITHIN, looking).await.ok()?
}
