//! What a cluster says about itself and not about its objects: discovery, its version, OpenAPI, as its server wrote it.
//!
//! A client cannot ask for anything before it knows what is served, so these documents are kept for the time when the
//! cluster cannot be asked. While it can, whoever asks makes sure with the cluster first.

mod bodies;
mod fetch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_TYPE, ETAG, EXPIRES, HeaderName, LAST_MODIFIED,
    STRICT_TRANSPORT_SECURITY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::bodies::Bodies;
use self::bodies::Body;
pub(crate) use self::fetch::keep_fetched;

/// A longer body is not kept. Those of a cluster without custom resources have 1.6 MB at most.
pub const MAX_BODY: usize = 8 << 20;

/// Documents of one cluster.
const MAX_DOCUMENTS: usize = 512;

/// Bytes of one cluster's documents, those that it shares with others included: all of OpenAPI is 12 MB in both its forms.
const MAX_BYTES: usize = 32 << 20;

/// The headers that are about the document, and not about the answer that brought it.
const KEPT_HEADERS: [HeaderName; 9] = [
    ACCEPT_RANGES,
    CACHE_CONTROL,
    CONTENT_TYPE,
    ETAG,
    EXPIRES,
    LAST_MODIFIED,
    STRICT_TRANSPORT_SECURITY,
    VARY,
    X_CONTENT_TYPE_OPTIONS,
];

/// What a document answers: all of a request that the server's choice of bytes depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    /// The path, and the query where it chooses among documents.
    pub path: String,
    /// The `Accept` header as written; "" where there was none.
    pub accept: String,
    /// Whether the request came from an agent for which the server indents JSON.
    pub indented: bool,
}

/// A document as the server wrote it.
#[derive(Debug)]
pub struct Document {
    /// Its headers, without those of one answer only (`Audit-ID`, `Date`, `Content-Length`, …).
    pub headers: HeaderMap,
    body: Body,
}

impl Document {
    /// The body; no byte is copied.
    pub fn body(&self) -> Bytes {
        self.body.bytes()
    }

    /// By what the server recognises it.
    pub fn etag(&self) -> Option<&HeaderValue> {
        self.headers.get(ETAG)
    }
}

/// A document that is held.
#[derive(Clone, Debug)]
pub struct Held {
    /// What it answered.
    pub key: DocumentKey,
    /// The document.
    pub document: Arc<Document>,
    /// Time since the cluster last said that this is it.
    pub age: Duration,
}

/// The documents of one cluster. The least recently used go when there are too many, but for those that the proxy itself
/// fetched.
#[derive(Debug)]
pub struct Documents {
    bodies: Arc<Bodies>,
    /// Held for a look-up, never across an await.
    state: Mutex<State>,
    /// The server's version is another one: what else it says may be, too.
    version_changed: Notify,
}

#[derive(Debug)]
struct State {
    epoch: u64,
    kept: HashMap<DocumentKey, Kept>,
    bytes: usize,
    /// Counts uses.
    clock: u64,
}

#[derive(Debug)]
struct Kept {
    document: Arc<Document>,
    /// When the request was sent whose answer says that this is the document.
    asked: Instant,
    bytes: usize,
    /// The clock at its last use.
    used: u64,
}

impl Documents {
    /// None yet; bodies are shared with the other users of `bodies`.
    pub fn new(bodies: &Arc<Bodies>) -> Self {
        Self {
            bodies: Arc::clone(bodies),
            state: Mutex::new(State {
                epoch: 1,
                kept: HashMap::new(),
                bytes: 0,
                clock: 0,
            }),
            version_changed: Notify::new(),
        }
    }

    /// The document that answered this before, in this epoch. Whether it still does, only the cluster can say.
    pub fn get(&self, epoch: u64, key: &DocumentKey) -> Option<Arc<Document>> {
        let mut state = self.state.lock();
        if state.epoch != epoch {
            return None;
        }
        state.clock += 1;
        let now = state.clock;
        let kept = state.kept.get_mut(key)?;
        kept.used = now;
        Some(Arc::clone(&kept.document))
    }

    /// All documents of a path, in whatever form: for when the cluster cannot be asked.
    pub fn of_path(&self, path: &str) -> Vec<Held> {
        let state = self.state.lock();
        let of_path = state.kept.iter().filter(|(key, _)| key.path == path);
        of_path
            .map(|(key, kept)| Held {
                key: key.clone(),
                document: Arc::clone(&kept.document),
                age: kept.asked.elapsed(),
            })
            .collect()
    }

    /// Keeps a complete answer to a request that was sent at `asked`, unless the answer to a later one is kept already.
    pub fn keep(
        &self,
        epoch: u64,
        key: &DocumentKey,
        asked: Instant,
        headers: &HeaderMap,
        body: &[u8],
    ) {
        if body.is_empty() || body.len() > MAX_BODY {
            return;
        }
        // Before the lock: a long body takes milliseconds.
        let body = self.bodies.share(body);
        let mut state = self.state.lock();
        if state.epoch != epoch || state.kept.get(key).is_some_and(|it| it.asked > asked) {
            return;
        }
        if key.path == fetch::VERSION {
            let known = state.kept.get(&fetch::version());
            if known.is_some_and(|known| known.document.body != body) {
                self.version_changed.notify_one();
            }
        }
        let mut kept_headers = HeaderMap::new();
        for name in KEPT_HEADERS {
            for value in headers.get_all(&name) {
                kept_headers.append(&name, copied(value));
            }
        }
        let document = Document {
            headers: kept_headers,
            body,
        };
        state.insert(key, asked, document);
    }

    /// The cluster said, to a request that was sent at `asked`, that the document is still this one.
    pub fn confirm(&self, epoch: u64, key: &DocumentKey, asked: Instant) {
        let mut state = self.state.lock();
        if state.epoch != epoch {
            return;
        }
        if let Some(kept) = state.kept.get_mut(key) {
            kept.asked = kept.asked.max(asked);
        }
    }

    /// The cluster said that there is no such document.
    pub fn forget(&self, epoch: u64, path: &str) {
        let mut state = self.state.lock();
        if state.epoch == epoch {
            state.kept.retain(|key, _| key.path != path);
            state.bytes = state.kept.values().map(|kept| kept.bytes).sum();
        }
    }

    /// Another epoch is another cluster: nothing that was kept is true there.
    pub(crate) fn adopt(&self, epoch: u64) {
        let mut state = self.state.lock();
        if state.epoch != epoch {
            state.epoch = epoch;
            state.kept.clear();
            state.bytes = 0;
        }
    }
}

/// A value that holds nothing else: one that came with an answer is a part of the 8 KiB it was read into, and keeps them.
pub(crate) fn copied(value: &HeaderValue) -> HeaderValue {
    let mut copy = HeaderValue::from_bytes(value.as_bytes()).expect("it is the value of a header");
    copy.set_sensitive(value.is_sensitive());
    copy
}

impl State {
    fn insert(&mut self, key: &DocumentKey, asked: Instant, document: Document) {
        self.clock += 1;
        let bytes = document.body.len() + key.path.len() + key.accept.len();
        let kept = Kept {
            document: Arc::new(document),
            asked,
            bytes,
            used: self.clock,
        };
        self.bytes += bytes;
        if let Some(before) = self.kept.insert(key.clone(), kept) {
            self.bytes -= before.bytes;
        }
        let fetched = fetch::fetched();
        while self.kept.len() > MAX_DOCUMENTS || self.bytes > MAX_BYTES {
            // What was fetched is for those who come while the cluster is down: no words of another client push it out.
            let others = self.kept.iter().filter(|(key, _)| !fetched.contains(key));
            let least = others.min_by_key(|(_, kept)| kept.used);
            let Some(least) = least.map(|(key, _)| key.clone()) else {
                return;
            };
            if let Some(gone) = self.kept.remove(&least) {
                self.bytes -= gone.bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests;
