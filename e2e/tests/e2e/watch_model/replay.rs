//! Whether what one watch shows is what happened: byte for byte, from where it began, without loss or duplicate.

use std::sync::Arc;

use bytes::Bytes;
use fleetcache_e2e::sim::Object;
use serde_json::Value;

use super::log::{History, Log, key};
use super::selection::{Selection, event};
use super::told::Moment;

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// With a state at least as new as this, whose end a bookmark marks, or does not, or may.
    State { at_least: Moment, mark: Mark },
    /// After this.
    After(Moment),
}

/// Whether a bookmark comes after the state that a watch begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Yes,
    No,
    /// An older server does not mark a state that nobody asked for by name.
    Perhaps,
}

/// One open watch, held against the log.
pub(super) struct Replay {
    pub(super) selection: Selection,
    start: Start,
    bookmarks: bool,
    /// No state or event of an epoch before this.
    oldest_epoch: usize,
    /// The positions at which all that came so far is what it should be. Empty until the first line has come.
    positions: Vec<Position>,
    begun: bool,
    /// The highest version that this watch has told.
    told: u64,
}

#[derive(Clone, Debug)]
struct Position {
    epoch: usize,
    /// What is still to come of the state that this watch began with, last one first.
    initial: Vec<Arc<Object>>,
    /// Whether the bookmark that ends the state is still to come.
    mark: bool,
    /// The next event.
    next: usize,
    /// Events up to this version are not for this watch; it may be one that is yet to come.
    after: u64,
}

/// What a line said.
#[derive(Debug)]
pub(super) enum Said {
    /// An object was added or changed, or is gone.
    Object {
        key: String,
        object: Option<Arc<Object>>,
        version: u64,
    },
    /// The watch is complete up to this version.
    Bookmark(u64),
    /// The version is too old; nothing comes after that.
    Expired,
}

impl Replay {
    pub(super) fn new(
        selection: Selection,
        start: Start,
        bookmarks: bool,
        oldest_epoch: usize,
    ) -> Self {
        Self {
            selection,
            start,
            bookmarks,
            oldest_epoch,
            positions: Vec::new(),
            begun: false,
            told: 0,
        }
    }

    /// The headers are there: a watch from a version is one of the data that there was until now.
    pub(super) fn opened(&mut self, log: &Log) {
        if let Start::After(Moment { epoch, version }) = self.start {
            self.begun = true;
            let oldest = self.oldest_epoch.max(epoch);
            for epoch in oldest..=log.current() {
                // What an older epoch told means nothing here, and below its first version a new one knows it.
                if epoch > oldest && version < log.epoch(epoch).base {
                    continue;
                }
                let next = log.history(epoch, self.selection.kind).index_at(version);
                self.positions.push(Position {
                    epoch,
                    initial: Vec::new(),
                    mark: false,
                    next,
                    after: version,
                });
            }
        }
    }

    /// The oldest epoch that what came can be from.
    pub(super) fn epoch(&self) -> usize {
        self.positions
            .iter()
            .map(|position| position.epoch)
            .min()
            .unwrap_or(self.oldest_epoch)
    }

    /// The version that it began after, where it goes on in a later epoch than the one that told it.
    pub(super) fn crossed(&self) -> Option<u64> {
        match self.start {
            Start::After(after) if self.epoch() > after.epoch => Some(after.version),
            _ => None,
        }
    }

    /// Whether everything that happened has come.
    pub(super) fn complete(&mut self, log: &Log) -> bool {
        self.begin(log);
        let selection = &self.selection;
        self.positions
            .iter()
            .any(|position| position.is_complete(selection, log))
    }

    /// Takes the next line; an error says why it should not have come.
    pub(super) fn take(&mut self, log: &Log, line: &Bytes) -> Result<Said, String> {
        self.begin(log);
        if line.starts_with(br#"{"type":"ERROR","#) {
            return self.error(log, line);
        }
        let said = if line.starts_with(br#"{"type":"BOOKMARK","#) {
            self.bookmark(log, line)
        } else {
            self.event(log, line)
        };
        said.map_err(|why| {
            let positions: Vec<String> = self
                .positions
                .iter()
                .map(|position| position.describe(&self.selection, log))
                .collect();
            format!(
                "{why}\n{:?} from {:?}, told up to {}\nexpected one of:\n{}",
                self.selection,
                self.start,
                self.told,
                positions.join("\n")
            )
        })
    }

    /// A watch that begins with a state may begin with any one since then: the first lines say which it was.
    fn begin(&mut self, log: &Log) {
        let Start::State { at_least, mark } = self.start else {
            return;
        };
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        for epoch in self.oldest_epoch..=log.current() {
            let history = log.history(epoch, self.selection.kind);
            let first = if epoch == at_least.epoch {
                history.index_at(at_least.version)
            } else {
                0
            };
            // States in which nothing selected differs are one.
            let seen =
                |next: &usize| *next == first || self.selection.sees(&history.events[*next - 1]);
            for next in (first..=history.events.len()).filter(seen) {
                let state = &history.states[next];
                let mut initial: Vec<_> = self.selection.of(state).cloned().collect();
                initial.reverse();
                let marks: &[bool] = match mark {
                    Mark::Yes => &[true],
                    Mark::No => &[false],
                    Mark::Perhaps => &[true, false],
                };
                let positions = marks.iter().map(|&mark| Position {
                    epoch,
                    initial: initial.clone(),
                    mark,
                    next,
                    after: 0,
                });
                self.positions.extend(positions);
            }
        }
    }

    fn error(&self, log: &Log, line: &Bytes) -> Result<Said, String> {
        let error: Value = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let status = &error["object"];
        let message = status["message"].as_str().unwrap_or_default();
        let (code, words) = match self.start {
            Start::After(after) => (
                410,
                format!("too old resource version: {} (", after.version),
            ),
            // A version of the data that was before may never come.
            Start::State { at_least, .. } if at_least.epoch < log.current() => {
                let words = "Timeout: Too large resource version";
                (504, format!("{words}: {},", at_least.version))
            }
            Start::State { .. } => return Err(format!("an error: {status}")),
        };
        if status["code"] != code || status["kind"] != "Status" || !message.starts_with(&words) {
            return Err(format!("an error that is no {code}: {status}"));
        }
        Ok(Said::Expired)
    }

    fn bookmark(&mut self, log: &Log, line: &Bytes) -> Result<Said, String> {
        let text = String::from_utf8_lossy(line);
        let bookmark: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let metadata = &bookmark["object"]["metadata"];
        let version: u64 = metadata["resourceVersion"]
            .as_str()
            .and_then(|version| version.parse().ok())
            .ok_or_else(|| format!("a bookmark without a version: {text}"))?;
        let initial = !metadata["annotations"].is_null();
        if !self.bookmarks {
            return Err(format!("a bookmark that nobody asked for: {text}"));
        }
        if text != self.selection.kind.bookmark(version, initial) {
            return Err(format!("a bookmark in other bytes: {text}"));
        }
        if version < self.told {
            return Err(format!("a bookmark that goes back to {version}"));
        }
        let (Start::State { at_least, .. } | Start::After(at_least)) = self.start;
        let selection = &self.selection;
        let fits = |position: &mut Position| {
            let next = position.upcoming(selection, log);
            let truthful = version <= log.epoch(position.epoch).newest
                && next.is_none_or(|(_, next)| next > version);
            // What it was to begin with may be of an epoch before.
            let begun = position.epoch > at_least.epoch || version >= at_least.version;
            let fits = position.initial.is_empty() && position.mark == initial && truthful && begun;
            position.mark = false;
            fits
        };
        let mut positions = self.positions.clone();
        positions.retain_mut(fits);
        if positions.is_empty() {
            return Err(format!("a bookmark that is not true: {text}"));
        }
        self.positions = positions;
        self.told = version;
        Ok(Said::Bookmark(version))
    }

    fn event(&mut self, log: &Log, line: &Bytes) -> Result<Said, String> {
        let mut found = None;
        let selection = &self.selection;
        let mut positions = self.positions.clone();
        positions.retain_mut(|position| match position.take(selection, log, line) {
            Some(said) => {
                found = Some(said);
                true
            }
            None => false,
        });
        let Some((said, version)) = found else {
            return Err(format!(
                "an event that should not come: {}",
                shortened(line)
            ));
        };
        self.positions = positions;
        self.told = self.told.max(version);
        Ok(said)
    }
}

impl Position {
    fn history<'a>(&self, selection: &Selection, log: &'a Log) -> &'a History {
        log.history(self.epoch, selection.kind)
    }

    /// The index and the version of the next event that is seen.
    fn upcoming(&self, selection: &Selection, log: &Log) -> Option<(usize, u64)> {
        let later = self.history(selection, log).events.iter().enumerate();
        later
            .skip(self.next)
            .find(|(_, event)| event.revision > self.after && selection.sees(event))
            .map(|(at, event)| (at, event.revision))
    }

    fn is_complete(&self, selection: &Selection, log: &Log) -> bool {
        let waits = self.upcoming(selection, log).is_some();
        self.initial.is_empty() && !self.mark && !waits && self.epoch == log.current()
    }

    /// What it says if `line` is what comes next, and its version.
    fn take(&mut self, selection: &Selection, log: &Log, line: &Bytes) -> Option<(Said, u64)> {
        if let Some(object) = self.initial.last() {
            if event("ADDED", object.json()) != line {
                return None;
            }
            let object = self.initial.pop()?;
            let version = object.revision;
            let said = Said::Object {
                key: key(&object),
                object: Some(object),
                version,
            };
            return Some((said, version));
        }
        if self.mark {
            return None;
        }
        let (at, version) = self.upcoming(selection, log)?;
        let change = &self.history(selection, log).events[at];
        if selection.line(change)? != line {
            return None;
        }
        self.next = at + 1;
        let gone = line.starts_with(br#"{"type":"DELETED""#);
        let said = Said::Object {
            key: key(&change.object),
            object: (!gone).then(|| change.object.clone()),
            version,
        };
        Some((said, version))
    }

    fn describe(&self, selection: &Selection, log: &Log) -> String {
        let next = match self.initial.last() {
            Some(object) => event("ADDED", object.json()),
            None if self.mark => "the bookmark that ends the state".into(),
            None => {
                let upcoming = self.upcoming(selection, log);
                let events = &self.history(selection, log).events;
                upcoming
                    .and_then(|(at, _)| selection.line(&events[at]))
                    .unwrap_or_else(|| "nothing".into())
            }
        };
        format!("  in epoch {}: {}", self.epoch, shortened(&next))
    }
}

/// A line for a message.
pub(super) fn shortened(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line).into_owned();
    match text.char_indices().nth(400) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}

#[cfg(test)]
mod tests;
