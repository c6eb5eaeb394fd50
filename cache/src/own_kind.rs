//! A kind whose objects this process makes itself: an informer without a reflector.
//!
//! Whoever reads or watches it does so as with any other informer. Its owner alone changes it, and there is no server that
//! could know better: what is held is what there is, on the one connection that never ends.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::bookmark::BookmarkForm;
use crate::envelope::Envelope;
use crate::gvr::Gvr;
use crate::informer::Informer;
use crate::object::ObjectHead;
use crate::resource_version::ResourceVersion;
use crate::store::{Element, Event, Store};

/// What readers of such a kind name as the connection's generation and its epoch.
pub const CONNECTION: (u64, u64) = (1, 1);

/// The objects of one cluster-scoped kind, changed by its owner alone.
#[derive(Debug)]
pub struct OwnKind {
    informer: Arc<Informer>,
    envelope: Arc<Envelope>,
    store: Store,
}

impl OwnKind {
    /// Without any object yet, at a version: changes count on from there.
    pub fn new(gvr: Gvr, kind: &str, at: ResourceVersion) -> Self {
        let api_version = gvr.api_version();
        let envelope = Arc::new(Envelope::of_own_kind(&api_version, kind));
        let informer = Informer::new(gvr, Arc::default(), CancellationToken::new());
        let informer = Arc::new(informer);
        let history = informer.history();
        history.begin(CONNECTION.1, at, Arc::clone(&envelope));
        if let Some(form) = BookmarkForm::of_initial_events_end(&api_version, kind) {
            history.learn_bookmark(form, true);
        }
        let mut store = Store::default();
        store.complete(at);
        let own = Self {
            informer,
            envelope,
            store,
        };
        own.publish();
        own
    }

    /// For readers.
    pub fn informer(&self) -> &Arc<Informer> {
        &self.informer
    }

    /// The version of the last change.
    pub fn resource_version(&self) -> ResourceVersion {
        self.store.resource_version()
    }

    /// Takes changes, in the order of their versions: an object as JSON, its keys in alphabetical order, and whether it is
    /// there. Those that are no objects are left out.
    pub fn change(&mut self, objects: impl IntoIterator<Item = (Bytes, bool)>) {
        let changes: Vec<_> = objects
            .into_iter()
            .filter_map(|(object, is_there)| {
                let element = element(&object)?;
                self.store.apply(match is_there {
                    true => Event::Applied(element),
                    false => Event::Deleted(element),
                })
            })
            .collect();
        // As a reflector does: who is told of a change finds it in the snapshot.
        self.publish();
        let through = self.store.resource_version();
        self.informer.history().append(changes.into_iter(), through);
    }

    /// Lets go of old changes, and of states that nobody has read a page of for long.
    pub fn trim(&self) {
        self.informer.history().trim();
        self.informer.trim_pages();
    }

    fn publish(&self) {
        let snapshot = self.store.snapshot(&self.envelope);
        self.informer.publish(CONNECTION, false, snapshot);
    }
}

fn element(object: &Bytes) -> Option<Element> {
    let head = ObjectHead::parse(object).ok()?;
    Element::new(&head.metadata, object, object.clone())
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::informer::Scope;
    use crate::selector::BoundSelector;
    use crate::watcher::{NotWatchable, Told};

    const ALL: Scope = Scope {
        namespace: false,
        name: false,
    };

    fn rv(number: u64) -> ResourceVersion {
        ResourceVersion::from_number(number)
    }

    fn own() -> OwnKind {
        OwnKind::new(Gvr::new("ex.io", "v1", "widgets"), "Widget", rv(100))
    }

    fn object(name: &str, version: u64) -> Bytes {
        format!(
            r#"{{"apiVersion":"ex.io/v1","kind":"Widget","metadata":{{"name":"{name}","resourceVersion":"{version}","uid":"u"}}}}"#
        )
        .into()
    }

    #[tokio::test]
    async fn it_is_read_and_watched_like_any_kind() {
        let mut own = own();
        let informer = Arc::clone(own.informer());
        let empty = informer.read_latest(CONNECTION, ALL).await.unwrap();
        assert!(
            empty.is_empty() && !empty.may_be_removed(),
            "nobody takes it away"
        );
        assert_eq!(empty.resource_version, rv(100));
        let watch = informer.watch(CONNECTION.0, ALL, Some(rv(100)));
        let (watcher, _) = watch.unwrap();
        let mut watcher = watcher.of(None, BoundSelector::default());
        own.change([(object("a", 101), true), (object("b", 102), true)]);
        own.change([(object("a", 103), false)]);
        let mut told = String::new();
        while let Told::Lines(lines) = watcher.tell(Waker::noop()).unwrap() {
            told += str::from_utf8(&lines).unwrap();
        }
        let types = told.lines().map(|line| &line[..16]);
        let types: Vec<_> = types.collect();
        assert_eq!(types.len(), 3, "{told}");
        assert!(types[0].contains("ADDED") && types[2].contains("DELET"));
        let bookmark = watcher.bookmark().unwrap();
        assert_eq!(
            bookmark,
            "{\"type\":\"BOOKMARK\",\"object\":{\"apiVersion\":\"ex.io/v1\",\"kind\":\"Widget\",\"metadata\":{\"resourceVersion\":\"103\"}}}\n"
        );
        let held = informer.read_latest(CONNECTION, ALL).await.unwrap();
        assert_eq!((held.len(), own.resource_version()), (1, rv(103)));
        assert!(informer.streams_lists());
    }

    #[tokio::test]
    async fn a_version_from_before_its_first_is_too_old() {
        let own = own();
        let watch = own.informer().watch(CONNECTION.0, ALL, Some(rv(99)));
        assert_eq!(watch.unwrap_err(), NotWatchable::TooOld);
    }
}
