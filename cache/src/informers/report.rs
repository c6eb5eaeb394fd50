//! What is told of a cluster's informers: one line for each kind that is kept, or that is known not to be.

use std::time::SystemTime;

use super::{Informers, Refusal, State};
use crate::gvr::Gvr;
use crate::holding::Holding;
use crate::informer::{Informer, LastError};
use crate::resource_version::ResourceVersion;

/// Kinds that are not kept of which it is told.
const MOST_REFUSED_TOLD: usize = 32;

/// Where an informer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InformerState {
    /// It is being filled for the first time.
    Syncing,
    /// It may be read.
    Synced,
    /// It holds what it held on an earlier connection, and has yet to make sure that this is still so.
    Resuming,
    /// There is none: the kind stays live for a while.
    Refused(Refusal),
}

impl InformerState {
    /// The state as written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syncing => "Syncing",
            Self::Synced => "Synced",
            Self::Resuming => "Resuming",
            Self::Refused(_) => "Refused",
        }
    }
}

/// What is told of one kind.
#[derive(Clone, Debug)]
pub struct InformerReport {
    /// The kind.
    pub gvr: Gvr,
    /// In which encoding its objects are held.
    pub holding: Holding,
    /// Where its informer stands.
    pub state: InformerState,
    /// The version through which it is complete.
    pub resource_version: Option<ResourceVersion>,
    /// When the server was last heard on its connection, once it has synced.
    pub last_heard: Option<SystemTime>,
    /// Objects held.
    pub objects: usize,
    /// Bytes of them, of their recent changes and of what is kept for pages.
    pub bytes: usize,
    /// Open watches.
    pub watchers: usize,
    /// What went wrong last, since it was started.
    pub last_error: Option<LastError>,
}

impl InformerReport {
    fn of(informer: &Informer, generation: Option<u64>) -> Self {
        let resource_version = informer.resource_version();
        let state = match resource_version {
            None => InformerState::Syncing,
            Some(_) if generation.is_some_and(|on| informer.is_readable_on(on)) => {
                InformerState::Synced
            }
            Some(_) => InformerState::Resuming,
        };
        let (objects, bytes) = informer.size();
        Self {
            gvr: informer.gvr.clone(),
            holding: informer.holding,
            state,
            resource_version,
            last_heard: resource_version
                .and_then(|_| SystemTime::now().checked_sub(informer.age())),
            objects,
            bytes,
            watchers: informer.history().watchers(),
            last_error: informer.last_error(),
        }
    }

    fn refused((gvr, holding): (Gvr, Holding), refusal: Refusal) -> Self {
        Self {
            gvr,
            holding,
            state: InformerState::Refused(refusal),
            resource_version: None,
            last_heard: None,
            objects: 0,
            bytes: 0,
            watchers: 0,
            last_error: None,
        }
    }
}

impl State {
    /// A kind was refused: names come from requests, so only some of them are remembered.
    pub(super) fn note_refused(&mut self, kind: (Gvr, Holding)) {
        self.lately_refused.retain(|known| *known != kind);
        self.lately_refused.push_back(kind);
        if self.lately_refused.len() > MOST_REFUSED_TOLD {
            self.lately_refused.pop_front();
        }
    }
}

impl Informers {
    /// What there is to tell of each kind, in the order of their names.
    pub fn report(&self) -> Vec<InformerReport> {
        let connection = self.connections.borrow();
        let generation = connection.as_ref().map(|connection| connection.generation);
        drop(connection);
        let lately: Vec<_> = self.state.lock().lately_refused.iter().cloned().collect();
        let refused = lately.into_iter().filter_map(|kind| {
            let refusal = self.refused.get(&kind)?;
            Some(InformerReport::refused(kind, refusal))
        });
        let informers = self.all().into_iter();
        let mut report: Vec<_> = informers
            .map(|informer| InformerReport::of(&informer, generation))
            .chain(refused)
            .collect();
        report.sort_by(|a, b| (&a.gvr, a.holding).cmp(&(&b.gvr, b.holding)));
        report
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::watch;
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::eviction::Fleet;
    use crate::informers::{InformersConfig, Lookup};

    #[tokio::test]
    async fn it_tells_of_kinds_that_are_kept_and_of_those_that_are_not() {
        let stop = CancellationToken::new();
        let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &stop);
        let (_connections, connected) = watch::channel(None);
        let informers = Informers::new("a", &fleet, connected, &stop);
        let (pods, things) = (
            Gvr::new("", "v1", "pods"),
            Gvr::new("ex.io", "v1", "things"),
        );
        informers.note_list(&pods, Holding::Objects);
        informers.note_list(&pods, Holding::Protobuf);
        informers.refuse(&things, Holding::Objects, Refusal::Forbidden);
        let Lookup::Informer(informer) = informers.lookup(&pods, Holding::Objects) else {
            panic!("no informer of pods");
        };
        informer.failed("no answer".to_owned());
        let report = informers.report();
        let told: Vec<_> = report
            .iter()
            .map(|it| (&it.gvr, it.holding, it.state))
            .collect();
        let refused = InformerState::Refused(Refusal::Forbidden);
        let syncing = InformerState::Syncing;
        let expected = [
            (&pods, Holding::Objects, syncing),
            (&pods, Holding::Protobuf, syncing),
            (&things, Holding::Objects, refused),
        ];
        assert_eq!(told, expected);
        let error = report[0].last_error.as_ref().unwrap();
        assert_eq!(error.message, "no answer");
        assert!(report[0].last_heard.is_none() && Arc::strong_count(&informer) > 1);
        stop.cancel();
    }
}
