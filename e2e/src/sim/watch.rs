//! WATCH: the state, then what changes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::Response;
use rand::Rng;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::Service;
use super::body::{self, Body};
use super::counters::OpenWatch;
use super::history::Event;
use super::list::wait_for;
use super::object::Object;
use super::options::{ListOptions, version_or_unexpected};
use super::representation::Representation;
use super::resource::Resource;
use super::selector::Selector;
use super::status::Status;
use super::store::{Lost, PageRequest, Position};
use super::target::ResourcePath;

/// Events taken from the store at once; what piled up meanwhile goes out in one piece.
const BATCH: usize = 256;

/// How long before its deadline a watch sends a last bookmark, as the apiserver does.
const BOOKMARK_BEFORE_DEADLINE: Duration = Duration::from_secs(2);

/// Answers a WATCH. Errors that come after the first checks are events of the stream.
pub(super) fn watch(
    service: &Arc<Service>,
    path: &ResourcePath,
    options: ListOptions,
    representation: Representation,
) -> Result<Response<Body>, Status> {
    let version = version_or_unexpected(&options.resource_version)?;
    let watcher = Watcher::new(service.clone(), path, options, version, representation);
    let ended = service.faults.end_of_watches();
    let pieces = stream::unfold(watcher, |mut watcher| async move {
        let piece = watcher.next().await?;
        Some((piece, watcher))
    });
    let lines = body::streamed(pieces.take_until(Box::pin(ended)));
    Ok(body::held_up(lines, service.faults.lists_go_on(path)))
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// With the present state, at least as new as this; `true` to mark its end by a bookmark.
    State(u64, bool),
    /// After this revision, or with the next event.
    After(Option<u64>),
}

/// One open watch.
struct Watcher {
    service: Arc<Service>,
    resource: &'static Resource,
    namespace: String,
    selector: Selector,
    encoder: Encoder,
    bookmarks: bool,
    /// `None` once the watch is under way.
    start: Option<Start>,
    /// Everything up to here was sent or is none of this watch's business.
    position: Position,
    positions: watch::Receiver<Position>,
    /// The newest revision that the client was told.
    told: u64,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    ready: VecDeque<io::Result<Bytes>>,
    ended: bool,
    /// Counts this watch as open.
    _open: OpenWatch,
}

impl Watcher {
    fn new(
        service: Arc<Service>,
        path: &ResourcePath,
        options: ListOptions,
        version: Option<u64>,
        representation: Representation,
    ) -> Self {
        let at_least = version.unwrap_or_default();
        let start = match (options.initial_events, version) {
            (Some(true), _) => Start::State(at_least, true),
            (Some(false), version) => Start::After(version.filter(|version| *version > 0)),
            // Servers with initial events turn them on for watches without a revision.
            (None, None | Some(0)) => Start::State(0, service.knows_watch_list()),
            (None, Some(version)) => Start::After(Some(version)),
        };
        let seconds = options.timeout_seconds.map_or_else(
            || rand::rng().random_range(1800..3600),
            |seconds| u64::try_from(seconds).unwrap_or_default(),
        );
        let now = Instant::now();
        Self {
            resource: path.resource,
            namespace: path.namespace.clone(),
            selector: options.selector,
            encoder: Encoder {
                resource: path.resource,
                representation,
                columns: true,
            },
            bookmarks: options.bookmarks,
            start: Some(start),
            position: service.store.position(),
            positions: service.store.positions(),
            told: at_least,
            deadline: now + Duration::from_secs(seconds),
            next_bookmark: None,
            ready: VecDeque::new(),
            ended: false,
            _open: service.counters.watch(path.resource.plural),
            service,
        }
    }

    /// The next piece of the body, or its end.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                // A stalled server has accepted the watch and stays silent.
                self.service.faults.stalled().await;
                return Some(piece);
            }
            if self.ended || Instant::now() >= self.deadline {
                return None;
            }
            match self.start.take() {
                Some(start) => self.begin(start).await,
                None => self.go_on().await,
            }
        }
    }

    async fn begin(&mut self, start: Start) {
        self.schedule_bookmark();
        match start {
            Start::State(at_least, mark) => {
                if let Err(status) = wait_for(
                    &self.service.store,
                    self.resource,
                    at_least,
                    self.service.fresh_wait,
                )
                .await
                {
                    return self.fail(&status);
                }
                self.send_state(mark && self.bookmarks);
            }
            Start::After(None) => self.told = self.position.revision,
            Start::After(Some(version)) => {
                self.position.revision = version;
                let expired = match self
                    .service
                    .store
                    .events_after(self.resource, self.position, 1)
                {
                    Err(Lost::Expired(oldest)) => Some(oldest),
                    _ if self.service.faults.in_force().expire_watches => Some(version + 1),
                    _ => None,
                };
                if let Some(oldest) = expired {
                    self.fail(&Status::expired_watch(version, oldest));
                }
            }
        }
    }

    /// The present state as ADDED events, in the order of the keys.
    fn send_state(&mut self, mark: bool) {
        // The generation is read first: data replaced in between then ends the watch.
        self.position.generation = self.service.store.position().generation;
        let request = PageRequest {
            resource: self.resource,
            namespace: &self.namespace,
            selector: &self.selector,
            at: None,
            after: None,
            limit: None,
        };
        let page = self
            .service
            .store
            .page(&request)
            .expect("the newest revision is always there");
        for object in &page.items {
            let frame = self.encoder.event("ADDED", object);
            self.send(frame);
        }
        self.position.revision = page.revision;
        self.told = page.revision;
        if mark {
            let frame = self.encoder.bookmark(page.revision, true);
            self.ready.push_back(Ok(frame.into()));
        }
    }

    /// Sends what has happened, or waits until something does.
    async fn go_on(&mut self) {
        self.positions.borrow_and_update();
        match self
            .service
            .store
            .events_after(self.resource, self.position, BATCH)
        {
            // A watch that cannot keep up, or whose cluster was replaced, ends without a word.
            Err(Lost::Expired(_) | Lost::Replaced) => self.ended = true,
            Ok((events, complete_to)) => {
                self.position.revision = complete_to;
                self.send_events(&events);
                if self.ready.is_empty() {
                    self.wait().await;
                }
            }
        }
    }

    async fn wait(&mut self) {
        let wake = self
            .next_bookmark
            .unwrap_or(self.deadline)
            .min(self.deadline);
        tokio::select! {
            // The store outlives its watches: the sender is never dropped before.
            _ = self.positions.changed() => return,
            () = sleep_until(wake) => {}
        }
        if self.next_bookmark.is_some_and(|at| Instant::now() >= at) {
            self.schedule_bookmark();
            // What came since the last look goes first; the bookmark then waits for the next turn.
            if self.bookmarks && self.position.revision > self.told {
                self.told = self.position.revision;
                let frame = self.encoder.bookmark(self.told, false);
                self.ready.push_back(Ok(frame.into()));
            }
        }
    }

    fn send_events(&mut self, events: &[Event]) {
        if self.service.faults.in_force().lose_events {
            return;
        }
        for event in events {
            if let Some((kind, object)) = self.seen(event) {
                self.told = event.revision;
                let frame = self.encoder.event(kind, &object);
                self.send(frame);
                if self.ended {
                    return;
                }
            }
        }
        // A piece an event would be a packet an event.
        if self.ready.len() > 1 && self.ready.iter().all(Result::is_ok) {
            let pieces: Vec<Bytes> = self.ready.drain(..).filter_map(Result::ok).collect();
            self.ready.push_back(Ok(pieces.concat().into()));
        }
    }

    /// What this watch sees of `event`: an object that comes into the selection is added, one that leaves it is
    /// deleted, with its last matching state at the revision of the change.
    fn seen(&self, event: &Event) -> Option<(&'static str, Arc<Object>)> {
        let matches = |object: &Arc<Object>| {
            (self.namespace.is_empty() || object.namespace == self.namespace)
                && self.selector.matches(object)
        };
        let before = event.previous.as_ref().filter(|previous| matches(previous));
        let now = !event.removed && matches(&event.object);
        match (before, now) {
            (None, true) => Some(("ADDED", event.object.clone())),
            (Some(_), true) => Some(("MODIFIED", event.object.clone())),
            (Some(_), false) if event.removed => Some(("DELETED", event.object.clone())),
            (Some(before), false) => {
                let last = Object::new(self.resource, before.value(), event.revision);
                Some(("DELETED", Arc::new(last)))
            }
            (None, false) => None,
        }
    }

    /// Queues one frame, broken if a fault says so.
    fn send(&mut self, frame: Vec<u8>) {
        match self.service.faults.in_force().bad_bytes {
            None => self.ready.push_back(Ok(frame.into())),
            Some(bad) => {
                self.ready.extend(body::broken(bad, &frame));
                self.ended = bad.ends();
            }
        }
    }

    fn fail(&mut self, status: &Status) {
        let frame = frame("ERROR", &status.to_json());
        self.ready.push_back(Ok(frame.into()));
        self.ended = true;
    }

    /// On the interval, and once shortly before the deadline.
    fn schedule_bookmark(&mut self) {
        let now = Instant::now();
        let last = self
            .deadline
            .checked_sub(BOOKMARK_BEFORE_DEADLINE)
            .filter(|at| *at > now);
        let regular = now + self.service.bookmark_interval;
        self.next_bookmark = last.map(|last| last.min(regular));
    }
}

/// Makes frames; a table's columns go into the first one only.
struct Encoder {
    resource: &'static Resource,
    representation: Representation,
    columns: bool,
}

impl Encoder {
    fn event(&mut self, kind: &str, object: &Object) -> Vec<u8> {
        let columns = std::mem::take(&mut self.columns);
        frame(
            kind,
            &self.representation.encode(self.resource, object, columns),
        )
    }

    fn bookmark(&mut self, revision: u64, initial: bool) -> Vec<u8> {
        let columns = std::mem::take(&mut self.columns);
        frame(
            "BOOKMARK",
            &self
                .representation
                .encode_bookmark(self.resource, revision, initial, columns),
        )
    }
}

fn frame(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut frame = format!(r#"{{"type":"{kind}","object":"#).into_bytes();
    frame.extend_from_slice(object);
    frame.extend_from_slice(b"}\n");
    frame
}
