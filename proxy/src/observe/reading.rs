//! Answers to reads, told to the floor while they pass: an object, a list or an event is in the floor before the bytes
//! that complete it reach the client. Nothing is held back.

use std::io::{self, Write};
use std::sync::Arc;

use flate2::write::GzDecoder;
use fleetcache_cache::floor::Floor;
use fleetcache_cache::gvr::Storage;
use fleetcache_cache::informers::Informers;
use fleetcache_cache::resource_version::ResourceVersion;

use super::list::{ListReading, Told};
use super::scan::Scan;
use super::seen::{Document, Meta, Seen};

/// A longer answer is not inflated to its end. Lists of the most objects that a cluster is made for are shorter.
const INFLATED_BYTES: u64 = 4 << 30;

/// The answer to a read on its way.
pub(super) struct Reading {
    pub(super) informers: Arc<Informers>,
    /// The connection's generation and epoch.
    pub(super) on: (u64, u64),
    pub(super) storage: Storage,
    /// `None` while no informer of the storage starts or runs: an informer's first list comes after what passes now.
    pub(super) floor: Option<Arc<Floor>>,
    pub(super) scan: Scan,
    pub(super) of: Of,
}

/// What the answer is.
#[derive(Debug)]
pub(super) enum Of {
    /// One object, or a Table with one row.
    Object {
        /// The version of the row.
        row: Option<ResourceVersion>,
    },
    /// A list; `None` once it is told.
    List(Option<ListReading>),
    /// A watch.
    Watch {
        /// The initial events so far; `None` where there are none, or they have ended.
        initial: Option<ListReading>,
        /// The row of the Table under way.
        row: Option<Meta>,
    },
}

impl Reading {
    /// Reads the bytes that pass next.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if matches!(self.of, Of::Watch { .. }) && self.scan.is_between_documents() {
                self.begin_event();
            }
            let Ok((taken, seen)) = self.scan.next(rest) else {
                self.unreadable();
                return;
            };
            rest = &rest[taken..];
            match seen {
                Some(Seen::Item(item)) => self.item(item),
                Some(Seen::Document(document)) => self.document(&document),
                None => {}
            }
        }
        if let Of::List(Some(list)) = &self.of
            && let Some(newest) = list.newest()
        {
            self.raise(newest);
        }
    }

    /// An informer may have started or stopped since the last event.
    fn begin_event(&mut self) {
        self.floor = self.informers.floor(&self.storage);
        if self.floor.is_none() {
            self.scan.skip_document();
            if let Of::Watch { initial, .. } = &mut self.of {
                *initial = None;
            }
        }
    }

    fn item(&mut self, item: Meta) {
        match &mut self.of {
            Of::Object { row } => *row = (*row).max(item.version()),
            Of::List(Some(list)) => list.push(&item),
            Of::List(None) => {}
            Of::Watch { row, .. } => *row = Some(item),
        }
    }

    fn document(&mut self, document: &Document) {
        let version = document.meta.version();
        match &mut self.of {
            Of::Object { row } => {
                let row = row.take().filter(|_| document.is_table());
                if let Some(version) = row.max(version) {
                    self.raise(version);
                }
            }
            Of::List(list) => {
                if let Some(list) = list.take() {
                    self.list(list, &document.meta);
                }
            }
            Of::Watch { initial, row } => {
                let row = row.take().filter(|_| document.is_table());
                match &*document.event_type {
                    // No object's state.
                    "ERROR" => {}
                    "BOOKMARK" => {
                        let ends = |meta: &&Meta| meta.initial_events_end;
                        let end = [Some(&document.meta), row.as_ref()];
                        let end = end.into_iter().flatten().find(ends).cloned();
                        if let Some(end) = end
                            && let Some(initial) = initial.take()
                        {
                            self.list(initial, &end);
                        }
                    }
                    event_type => {
                        let object = row.as_ref().unwrap_or(&document.meta);
                        match initial {
                            Some(initial) if event_type == "ADDED" => initial.push(object),
                            _ => *initial = None,
                        }
                        match object.version().max(version) {
                            Some(version) => self.raise(version),
                            None => self.unconfirmed(),
                        }
                    }
                }
            }
        }
    }

    /// A list is whole.
    fn list(&self, list: ListReading, own: &Meta) {
        let Some(floor) = &self.floor else {
            return;
        };
        if let Some(newest) = list.newest() {
            self.raise(newest);
        }
        match list.end(own) {
            Told::List(list) => self.informers.told_list(floor, self.on, *list),
            Told::Version(version) => self.informers.told_version(floor, self.on.1, version),
            Told::Nothing => {}
        }
    }

    fn raise(&self, to: ResourceVersion) {
        if let Some(floor) = &self.floor {
            floor.raise(self.on.1, to);
        }
    }

    /// What passes cannot be read: it may tell anything. A list or object does so once, a watch with all that comes.
    fn unreadable(&mut self) {
        self.scan = Scan::Unreadable;
        self.unconfirmed();
        if !matches!(self.of, Of::Watch { .. }) {
            self.floor = None;
        }
    }

    fn unconfirmed(&self) {
        if self.floor.is_some() {
            self.informers.unconfirmed(&self.storage, self.on.1);
        }
    }
}

/// Reads bytes as they come, inflated where they were deflated.
pub(super) enum Reader {
    Plain(Box<Reading>),
    Gzip(Box<GzDecoder<Inflated>>),
}

/// What was inflated, up to a limit.
pub(super) struct Inflated {
    reading: Reading,
    left: u64,
}

impl Reader {
    /// A reader of an answer with this `Content-Encoding`.
    pub(super) fn new(mut reading: Reading, encoding: Option<&[u8]>) -> Self {
        match encoding {
            None | Some(b"identity") => Self::Plain(Box::new(reading)),
            Some(b"gzip") => Self::Gzip(Box::new(GzDecoder::new(Inflated {
                reading,
                left: INFLATED_BYTES,
            }))),
            Some(_) => {
                reading.scan = Scan::Unreadable;
                Self::Plain(Box::new(reading))
            }
        }
    }

    /// Reads the bytes that pass next.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(reading) => reading.read(bytes),
            Self::Gzip(gzip) => {
                // What is inflated of these bytes is read before they pass.
                if gzip.write_all(bytes).and_then(|()| gzip.flush()).is_err() {
                    gzip.get_mut().reading.unreadable();
                }
            }
        }
    }
}

impl Write for Inflated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| io::Error::other("too long"))?;
        self.reading.read(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
