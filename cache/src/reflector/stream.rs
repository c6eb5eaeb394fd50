//! The events of an open watch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::ReflectorError;
use super::protocol::{self, WatchEvent};
use crate::envelope::Envelope;
use crate::frame::{FRAME_LIMIT, LineFramer};
use crate::informer::Informer;

/// An open watch, read line by line. Its informer hears whatever arrives.
pub(super) struct Stream {
    body: Incoming,
    framer: LineFramer,
    envelope: Arc<Envelope>,
    informer: Arc<Informer>,
    ends: Instant,
}

impl Stream {
    /// Reads `body`, which the server was asked to end after `lasts`.
    pub(super) fn new(
        body: Incoming,
        lasts: Duration,
        envelope: &Arc<Envelope>,
        informer: &Arc<Informer>,
    ) -> Self {
        Self {
            body,
            framer: LineFramer::new(FRAME_LIMIT),
            envelope: Arc::clone(envelope),
            informer: Arc::clone(informer),
            ends: Instant::now() + lasts,
        }
    }

    /// When the server was asked to end it.
    pub(super) fn ends_by(&self) -> Instant {
        self.ends
    }

    /// The next events, all that arrived together; `None` at a clean end.
    pub(super) async fn next_batch(&mut self) -> Result<Option<Vec<WatchEvent>>, ReflectorError> {
        let mut batch = Vec::new();
        loop {
            while let Some(line) = self.framer.next_line()? {
                batch.push(protocol::event(&self.envelope, &line)?);
            }
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
            match self.next_chunk().await? {
                Some(chunk) => {
                    self.informer.hear();
                    self.framer.push(&chunk);
                }
                None if self.framer.has_partial_line() => return Err(ReflectorError::Truncated),
                None => return Ok(None),
            }
        }
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, ReflectorError> {
        loop {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ReflectorError::Broken(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}
