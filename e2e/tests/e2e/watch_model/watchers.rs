//! Watches that come and go, by every way to begin one, read fast or slowly.

use bytes::Bytes;
use fleetcache_e2e::client::Client;
use rand::Rng as _;
use rand::rngs::StdRng;
use tokio::time::{Instant, timeout_at};

use super::replay::{Mark, Replay, Said, Start, shortened};
use super::selection::Selection;
use super::stream::{self, Next, Opened, Stream};
use super::told::Moment;
use super::{OpenWatch, World};

/// How a watch came to its end.
pub(super) enum Ended {
    /// The stream ended, or broke where it may.
    Eof,
    Expired,
    /// The cluster itself sent what is no event, which passed.
    Garbage,
    /// The client left.
    Left,
}

/// One watch that is open.
pub(super) struct Watch {
    pub(super) stream: Stream,
    pub(super) replay: Replay,
    target: String,
    /// How often bytes were bad when it was opened.
    garbled: u64,
    /// The version that memory began with in the epoch in which it was opened.
    listed: u64,
    _open: OpenWatch,
}

/// How to open a watch.
pub(super) struct Request {
    pub(super) selection: Selection,
    pub(super) start: Start,
    pub(super) bookmarks: bool,
    pub(super) target: String,
}

impl Request {
    /// With the present state first, and its end marked.
    pub(super) fn initial(selection: Selection) -> Self {
        let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=&allowWatchBookmarks=true";
        Self {
            start: Start::State {
                at_least: Moment::default(),
                mark: Mark::Yes,
            },
            bookmarks: true,
            target: selection.target(&[query.to_owned()]),
            selection,
        }
    }

    /// From a version.
    pub(super) fn after(selection: Selection, at: Moment, timeout: u64) -> Self {
        // Short, since a bookmark comes two seconds before the end.
        let query = format!(
            "watch=1&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds={timeout}",
            at.version
        );
        Self {
            start: Start::After(at),
            bookmarks: true,
            target: selection.target(&[query]),
            selection,
        }
    }

    /// By every way that memory has an answer to while it holds the state of `at`.
    pub(super) fn of_every_form(world: &World, selection: &Selection, at: Moment) -> Vec<Self> {
        let state = |query: &str| Self {
            start: Start::State {
                at_least: Moment::default(),
                mark: Mark::No,
            },
            bookmarks: false,
            target: selection.target(&[format!("watch=1{query}")]),
            selection: selection.clone(),
        };
        let mut forms = vec![
            state(""),
            state("&resourceVersion=0"),
            Self::after(selection.clone(), at, 60),
        ];
        // Refused where the server does not know it, and by memory where the server may not have known it then.
        if !world.older {
            forms.push(Self::initial(selection.clone()));
            let streamed = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
            forms.push(state(&format!("{streamed}&resourceVersion=0")));
        }
        forms
    }

    fn random(world: &World, rng: &mut StdRng) -> Self {
        let selection = Selection::random(rng);
        let known = world.told(|told| told.any_version(rng, selection.kind));
        let known = known.unwrap_or_default();
        let version = known.version;
        let bookmarks = rng.random_bool(0.7);
        let state = |at_least, mark| Start::State { at_least, mark };
        let marked = if bookmarks { Mark::Yes } else { Mark::No };
        let unasked = match bookmarks {
            true if world.older => Mark::Perhaps,
            _ => marked,
        };
        let after = Start::After(known);
        let any = Moment::default();
        let (start, query) = match rng.random_range(0..10) {
            _ if version == 0 => (state(any, unasked), String::new()),
            0 => (state(any, unasked), String::new()),
            1 => (state(any, unasked), "&resourceVersion=0".to_owned()),
            2 => (
                state(any, marked),
                "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
            ),
            3 => (
                state(any, marked),
                "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0"
                    .to_owned(),
            ),
            4 => (
                state(known, marked),
                format!(
                    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={version}"
                ),
            ),
            5 => (
                after,
                format!(
                    "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={version}"
                ),
            ),
            _ => (after, format!("&resourceVersion={version}")),
        };
        let timeout = match rng.random_range(0..3) {
            0 => "&timeoutSeconds=3",
            _ => "",
        };
        let bookmark = if bookmarks {
            "&allowWatchBookmarks=true"
        } else {
            ""
        };
        Self {
            start,
            bookmarks,
            target: selection.target(&[format!("watch=1{query}{bookmark}{timeout}")]),
            selection,
        }
    }
}

impl World {
    /// Opens one watch after the other until the run is over; the last one must get everything.
    pub(super) async fn watch(&self, mut rng: StdRng, shared: Client) {
        while !self.is_over() {
            let slow = rng.random_bool(0.15);
            // A stream that is not read holds up all others of its connection.
            let own = slow || rng.random_bool(0.5);
            let client = if own { self.client() } else { shared.clone() };
            let request = Request::random(self, &mut rng);
            let Some(mut watch) = self.open(&client, request).await else {
                continue;
            };
            if slow {
                self.steps(rng.random_range(1..400)).await;
            }
            let patience = if rng.random_bool(0.3) {
                u64::MAX
            } else {
                rng.random_range(1..800)
            };
            let leave = self.steps(patience);
            tokio::pin!(leave);
            let read = async { while self.read(&mut watch, None).await.is_ok() {} };
            // At the end of the run nobody leaves.
            tokio::select! {
                () = read => {}
                () = &mut leave, if !self.is_over() => {}
                () = self.over() => self.expect_all(&mut watch).await,
            }
        }
    }

    /// Opens a watch; `None` where it was refused as it may be.
    pub(super) async fn open(&self, client: &Client, request: Request) -> Option<Watch> {
        let _turn = self.turn().await;
        self.open_now(client, request).await
    }

    /// As above, whoever's turn it is.
    pub(super) async fn open_now(&self, client: &Client, request: Request) -> Option<Watch> {
        let newest = self.told(|told| told.newest(request.selection.kind));
        let (garbled, disturbed) = (self.garbled(), self.disturbed());
        let Request {
            selection,
            mut start,
            bookmarks,
            target,
        } = request;
        // Initial events with an unset version are a read like any other: nothing older than was told.
        let unset = !target.contains("resourceVersion=") || target.contains("resourceVersion=&");
        if let Start::State { at_least, .. } = &mut start
            && unset
        {
            *at_least = newest;
        }
        let epochs = self.epochs_begun();
        match stream::open(client, &target).await {
            Opened::Stream(stream) => {
                // Whatever is wrong sends watches to the cluster; what counts is what comes from memory otherwise.
                if self.disturbed_since(disturbed) {
                    self.tally().count("watches opened amid trouble");
                } else {
                    self.tally().read("watches", stream.hit);
                }
                if !stream.hit {
                    self.miss(&target, &stream.cache_status);
                }
                let mut replay = Replay::new(selection, start, bookmarks, newest.epoch);
                self.log(|log| replay.opened(log));
                let listed = match start {
                    Start::After(after) if stream.hit && self.is_former(after) => {
                        self.listed_since(epochs, replay.selection.kind)
                    }
                    _ => 0,
                };
                Some(Watch {
                    stream,
                    replay,
                    target,
                    garbled,
                    listed,
                    _open: self.opened(),
                })
            }
            Opened::Refused(status, body) => {
                let refused = match status.as_u16() {
                    503 | 504 => true,
                    422 => body.contains("WatchList"),
                    500 => self.garbled_since(garbled),
                    _ => false,
                };
                self.check(refused, || format!("{target}: {status} {body}"));
                self.miss(&target, status.as_str());
                self.tally().count("watches refused");
                self.pause().await;
                None
            }
            Opened::Broken(why) => {
                // A refusal is an answer like any other: it may break, before anything of it was sent on too.
                self.check(self.disturbed_since(disturbed), || {
                    format!("{target}: no answer: {why}")
                });
                self.miss(&target, "no answer");
                self.tally().count("watches broken");
                self.pause().await;
                None
            }
        }
    }

    /// Reads one line, `within` a time if one is given.
    pub(super) async fn read(
        &self,
        watch: &mut Watch,
        within: Option<Instant>,
    ) -> Result<Said, Ended> {
        let next = match within {
            None => watch.stream.next().await,
            Some(deadline) => timeout_at(deadline, watch.stream.next())
                .await
                .map_err(|_| Ended::Left)?,
        };
        let garbled = !watch.stream.hit && self.garbled_since(watch.garbled);
        match next {
            Next::Line(line) => self.line(watch, &line, garbled),
            Next::End => {
                self.tally().count("watches ended");
                Err(Ended::Eof)
            }
            Next::Broken(why) => {
                self.check(!watch.stream.hit, || {
                    format!("{}: a watch from memory broke: {why}", watch.target)
                });
                self.tally().count("watches broken");
                Err(Ended::Eof)
            }
        }
    }

    fn line(&self, watch: &mut Watch, line: &Bytes, garbled: bool) -> Result<Said, Ended> {
        let said = self.log(|log| watch.replay.take(log, line));
        let said = match said {
            Ok(said) => said,
            Err(_) if garbled => return Err(Ended::Garbage),
            Err(why) => {
                let hit = if watch.stream.hit { "hit" } else { "live" };
                self.fail(&format!(
                    "{} ({hit}): {why}\nin: {}",
                    watch.target,
                    shortened(line)
                ));
            }
        };
        let (kind, epoch) = (watch.replay.selection.kind, watch.replay.epoch());
        if let (Some(after), false) = (watch.replay.crossed(), matches!(said, Said::Expired)) {
            let what = "lines of a watch of a version of another epoch";
            self.tally().read(what, watch.stream.hit);
            if watch.stream.hit {
                // Memory goes on at a version of another epoch only where its own list was not later: below that it knows
                // better.
                self.check(after >= watch.listed, || {
                    let (target, first) = (&watch.target, watch.listed);
                    format!("{target}: it goes on in an epoch whose list was {first}")
                });
            }
        }
        match &said {
            &Said::Object { version, .. } => {
                self.tally().count("events");
                let at = Moment { epoch, version };
                self.shown(kind, at);
                self.told(|told| told.version(kind, at));
            }
            &Said::Bookmark(version) => {
                self.tally().count("bookmarks");
                self.told(|told| told.version(kind, Moment { epoch, version }));
            }
            Said::Expired => {
                self.tally().count("watches expired");
                return Err(Ended::Expired);
            }
        }
        Ok(said)
    }

    /// Nothing happens any more: what has happened comes, or the watch ends.
    async fn expect_all(&self, watch: &mut Watch) {
        let deadline = self.settled().await;
        loop {
            if self.log(|log| watch.replay.complete(log)) {
                self.tally().count("watches open and complete at the end");
                return;
            }
            match self.read(watch, Some(deadline)).await {
                Ok(_) => {}
                Err(Ended::Left) => {
                    let hit = if watch.stream.hit { "hit" } else { "live" };
                    self.fail(&format!("{} ({hit}) is open and mute", watch.target));
                }
                Err(_) => return,
            }
        }
    }
}
