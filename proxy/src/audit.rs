//! The audit log: who asked for what, and what became of it, one line a request, in the form of kube-apiserver's own log at
//! the level `Metadata`.
//!
//! ```text
//! handler ── Record ──► Queue ──► one thread ──► a file, or standard output
//!              │ lives as long as the request, its answer's body and its tunnel; the last of them to go writes the line
//! ```
//!
//! A request begins only while there is room in the queue. One that has begun always finds room for its lines, so that
//! nothing waits where it cannot, when an answer is dropped, and nothing is lost.

mod attributes;
mod event;
mod output;
mod queue;
mod record;
mod request_uri;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use http::{HeaderValue, Request};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::metrics::Metrics;
use crate::status::AUDIT_ID;
pub use output::{AuditTarget, Output, check};
use queue::Queue;
pub use record::{Answered, Record};

/// Bytes of events that may wait to be written, about. At a kilobyte each and ten thousand requests a second that is a disk
/// that stands still for more than a second.
const QUEUE_BYTES: usize = 16 << 20;

/// The audit log, on or off. A clone is the same log. The last one to go lets the thread end, once all is written.
#[derive(Clone)]
pub struct Audit(Arc<Inner>);

struct Inner {
    on: AtomicBool,
    queue: Arc<Queue>,
    metrics: Arc<Metrics>,
    /// Whether there is a thread that writes: none before there is anything to write to.
    writes: Mutex<bool>,
}

impl Audit {
    /// A log that is off.
    pub fn new(metrics: &Arc<Metrics>) -> Self {
        Self::with_room(metrics, QUEUE_BYTES)
    }

    fn with_room(metrics: &Arc<Metrics>, bytes: usize) -> Self {
        Self(Arc::new(Inner {
            on: AtomicBool::new(false),
            queue: Arc::new(Queue::new(bytes)),
            metrics: Arc::clone(metrics),
            writes: Mutex::new(false),
        }))
    }

    /// From now on the log is written there; none turns it off, and requests that are under way end where they began.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn write_to(&self, output: Option<Output>) -> io::Result<()> {
        let inner = &self.0;
        inner.on.store(output.is_some(), Ordering::Relaxed);
        let Some(output) = output else { return Ok(()) };
        inner.metrics.audited(0, 0);
        inner.queue.write_to(output);
        let mut writes = inner.writes.lock();
        if !*writes {
            let (queue, metrics) = (Arc::clone(&inner.queue), Arc::clone(&inner.metrics));
            let run = move || writer::run(&queue, &metrics);
            thread::Builder::new().name("audit".to_owned()).spawn(run)?;
            *writes = true;
        }
        Ok(())
    }

    /// Opens the file again: what was renamed is left.
    pub fn reopen(&self) {
        self.0.queue.reopen();
    }

    /// Begins the record of a request, which is among its extensions then; none where the log is off. Waits while there is no
    /// room for more lines.
    ///
    /// The cluster is sent the `Audit-ID` too, so that its own log has the request under the same one.
    pub(crate) async fn begin<B>(
        &self,
        request: &mut Request<B>,
        target: &str,
        audit_id: &HeaderValue,
    ) -> Option<Record> {
        let inner = &self.0;
        if !inner.on.load(Ordering::Relaxed) {
            return None;
        }
        let received = Timestamp::now();
        inner.queue.enter(|| inner.metrics.audit_wait()).await;
        let record = Record::new(&inner.queue, request, target, audit_id, received);
        request.headers_mut().insert(AUDIT_ID, audit_id.clone());
        request.extensions_mut().insert(record.clone());
        Some(record)
    }

    /// Waits until all requests that have begun have ended and all lines are written, so long at most.
    pub async fn close(&self, patience: Duration) {
        let inner = &self.0;
        inner.queue.close();
        if !*inner.writes.lock() {
            return;
        }
        let ended = inner.queue.ended();
        if tokio::time::timeout(patience, ended).await.is_err() {
            let (requests, events) = inner.queue.left();
            tracing::error!(requests, events, "audit log not written to its end in time");
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
    }
}
