//! Watches answered from an informer's history.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fleetcache_cache::informer::{Informer, NotServable};
use fleetcache_cache::resource_version::ResourceVersion;
use fleetcache_cache::store::Snapshot;
use fleetcache_cache::watcher::{Ended, NotWatchable, Told, Watcher};
use futures_util::stream;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body as HttpBody, Frame};
use tokio::time::{Instant, Sleep};

use crate::body::{Body, BoxError};
use crate::cached::from_memory;
use crate::decision::LiveReason;
use crate::decision::watch::{Begin, CachedWatch};
use crate::memory::{Reader, informer_for, scope, snapshot, young_enough};
use crate::rarely::Rarely;
use crate::request_info::ResourcePath;
use crate::sent::TURN_BYTES;
use crate::status;

/// A watch that does not say when it is to end lasts this long, and as much again at random: kube-apiserver's
/// `--min-request-timeout`.
const LASTS: Duration = Duration::from_secs(1800);

/// Time between bookmarks, and as much as a quarter of it again at random, as kube-apiserver takes.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// The last bookmark comes so long before the end.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// Begins a watch from memory, or says why it cannot. It ends where the server is silent for longer than `grace`.
///
/// # Errors
/// Why it goes live.
pub(crate) async fn answer(
    reader: &Reader<'_>,
    resource: &ResourcePath<'_>,
    watch: &CachedWatch,
    grace: Duration,
) -> Result<Response<Body>, LiveReason> {
    let (access, connection) = (reader.access, reader.connection);
    let informers = access.cluster.informers();
    let generation = connection.generation;
    let (informer, written) = informer_for(informers, &resource.gvr, watch.writing, generation)?;
    reader.may_see(resource).await?;
    let on = (generation, connection.epoch);
    let begun = begin(&informer, on, resource, watch);
    let begun = connection.closed().run_until_cancelled(begun).await;
    let (watcher, held) = match begun.unwrap_or_else(|| Err(NotServable::NotSynced.into())) {
        Ok(begun) => begun,
        Err(NotBegun::Live(why)) => return Err(why),
        Err(NotBegun::Expired { asked, from }) => {
            let event = match written.form.is_protobuf() {
                true => status::too_old_frame(asked, from),
                false => status::too_old_event(asked, from),
            };
            let body = one_line(event);
            let media_type = written.media_type_of_stream();
            return Ok(from_memory(body, media_type, Some(informer.age()), &[]));
        }
    };
    let age = young_enough(watch.max_age, informer.age())?;
    let written = watch.writing.of_kind(held.is_unstructured())?;
    let body = lines(watcher, watch, grace).boxed_unsync();
    let media_type = written.media_type_of_stream();
    Ok(from_memory(body, media_type, Some(age), held.warnings()))
}

/// Why a watch does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotBegun {
    /// Memory cannot answer it.
    Live(LiveReason),
    /// Its version is one that is over.
    Expired {
        /// The version asked for.
        asked: ResourceVersion,
        /// From this one on there is a watch.
        from: ResourceVersion,
    },
}

impl<R: Into<LiveReason>> From<R> for NotBegun {
    fn from(why: R) -> Self {
        Self::Live(why.into())
    }
}

/// Begins a watch of an informer, and gives a state that is not older. `on` is the connection's generation and epoch.
pub(crate) async fn begin(
    informer: &Arc<Informer>,
    on: (u64, u64),
    resource: &ResourcePath<'_>,
    watch: &CachedWatch,
) -> Result<(Watcher, Arc<Snapshot>), NotBegun> {
    let scope = scope(resource);
    let begun = match watch.begin {
        Begin::After(version) => informer.watch_after(on.0, scope, version).await,
        Begin::State {
            streaming_list: true,
            ..
        } if !informer.streams_lists() => return Err(LiveReason::Options.into()),
        Begin::State { .. } | Begin::Now(_) => informer.watch(on.0, scope, None),
    };
    let (watcher, held) = begun.map_err(|why| match (why, watch.begin) {
        (NotWatchable::NotServable(why), _) => why.into(),
        (NotWatchable::Expired(from), Begin::After(asked)) => NotBegun::Expired { asked, from },
        (NotWatchable::Expired(_) | NotWatchable::TooOld, _) => LiveReason::History.into(),
    })?;
    // The state is read after the watch has begun: what comes in between is in it, and not told again.
    let held = match watch.begin {
        Begin::After(_) => held,
        Begin::State { freshness, .. } | Begin::Now(freshness) => {
            snapshot(informer, on, scope, freshness).await?
        }
    };
    let written = watch.writing.of_kind(held.is_unstructured())?;
    if !held.writes(written.form) {
        return Err(LiveReason::Representation.into());
    }
    let selector = held.bind(&watch.selector).ok_or(LiveReason::Selector)?;
    let mut watcher = watcher
        .of(resource.namespace.as_deref(), selector)
        .written_as(written.form);
    match watch.begin {
        Begin::After(_) => {}
        Begin::Now(_) => watcher = watcher.after(&held),
        Begin::State { .. } if held.may_be_removed() => return Err(LiveReason::Empty.into()),
        Begin::State { .. } => {
            watcher = watcher.beginning_with(Arc::clone(&held), watch.bookmarks);
        }
    }
    if !watcher.is_judged() {
        return Err(LiveReason::Selector.into());
    }
    if !watcher.is_writable() {
        return Err(LiveReason::Representation.into());
    }
    Ok((watcher, held))
}

/// The lines of a watch, or its frames in protobuf, as they come; each frame of HTTP is of whole ones.
pub(crate) fn lines(
    watcher: Watcher,
    watch: &CachedWatch,
    grace: Duration,
) -> impl HttpBody<Data = Bytes, Error = BoxError> + Send + Unpin + use<> {
    Stream::new(watcher, watch, grace)
}

/// A watch of one line.
pub(crate) fn one_line(line: Bytes) -> Body {
    let body = StreamBody::new(stream::iter([Ok::<_, Infallible>(Frame::data(line))]));
    body.map_err(|never| match never {}).boxed_unsync()
}

/// The lines of a watch, as they come.
struct Stream {
    watcher: Watcher,
    ends: Instant,
    next_bookmark: Option<Instant>,
    timer: Rarely<Pin<Box<Sleep>>>,
    /// When the timer fires.
    wakes_at: Instant,
    /// Bytes told since others had their turn.
    since_turn: usize,
    /// For how long the server may be silent.
    grace: Duration,
}

impl Stream {
    fn new(watcher: Watcher, watch: &CachedWatch, grace: Duration) -> Self {
        let now = Instant::now();
        let lasts = watch
            .timeout
            .unwrap_or_else(|| LASTS + rand::random_range(Duration::ZERO..LASTS));
        let ends = now + lasts;
        Self {
            watcher,
            ends,
            next_bookmark: watch.bookmarks.then(|| next_bookmark(now, ends)).flatten(),
            timer: timer(ends),
            wakes_at: ends,
            since_turn: 0,
            grace,
        }
    }

    /// The next lines; `None` at the end.
    fn poll_lines(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // Others get their turn: whoever is woken at once comes after them.
        let give_way = |context: &mut Context<'_>| {
            context.waker().wake_by_ref();
            Poll::Pending
        };
        let now = Instant::now();
        if now >= self.ends {
            return Poll::Ready(None);
        }
        if self.since_turn >= TURN_BYTES {
            self.since_turn = 0;
            return give_way(context);
        }
        let silent_since = match self.watcher.tell(context.waker()) {
            Err(Ended) => return Poll::Ready(None),
            Ok(Told::Lines(lines)) if lines.is_empty() => return give_way(context),
            Ok(Told::Lines(lines)) => {
                self.since_turn += lines.len();
                return Poll::Ready(Some(lines));
            }
            Ok(Told::Nothing { silent_since }) => silent_since,
        };
        self.since_turn = 0;
        let gives_up = silent_since.map(|since| since + self.grace);
        if gives_up.is_some_and(|at| now >= at) {
            return Poll::Ready(None);
        }
        if self.next_bookmark.is_some_and(|at| now >= at) {
            self.next_bookmark = next_bookmark(now, self.ends);
            if let Some(line) = self.watcher.bookmark() {
                return Poll::Ready(Some(line));
            }
        }
        let at = [Some(self.ends), self.next_bookmark, gives_up];
        let at = at.into_iter().flatten().min().unwrap_or(self.ends);
        if self.wakes_at != at {
            (self.timer, self.wakes_at) = (timer(at), at);
        }
        // It may have fired a moment ago.
        match Pin::new(&mut self.timer).poll(context) {
            Poll::Ready(()) => {
                self.wakes_at = now;
                give_way(context)
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

fn timer(at: Instant) -> Rarely<Pin<Box<Sleep>>> {
    Rarely::new(Box::pin(tokio::time::sleep_until(at)))
}

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let lines = self.poll_lines(context);
        lines.map(|lines| lines.map(|lines| Ok(Frame::data(lines))))
    }
}

/// When the next bookmark is due; `None` where the last was.
fn next_bookmark(now: Instant, ends: Instant) -> Option<Instant> {
    let last = ends.checked_sub(BOOKMARK_BEFORE_END)?;
    let jitter = rand::random_range(Duration::ZERO..BOOKMARK_EVERY / 4);
    (last > now).then(|| last.min(now + BOOKMARK_EVERY + jitter))
}
