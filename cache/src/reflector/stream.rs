//! The events of an open watch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::Instant;

use super::ReflectorError;
use super::protocol::{self, WatchEvent};
use crate::envelope::Envelope;
use crate::frame::{FRAME_LIMIT, Framer};
use crate::informer::Informer;

/// Bytes of lines that are read in one go: less than a millisecond of a worker thread. Only one object can be longer.
const STEP: usize = 64 << 10;

/// An open watch, read line by line. Its informer hears whatever arrives.
pub(super) struct Stream<B = Incoming> {
    body: B,
    framer: Framer,
    envelope: Arc<Envelope>,
    informer: Arc<Informer>,
    ends: Instant,
    /// Bytes read since others had their turn.
    since_turn: usize,
}

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> Stream<B> {
    /// Reads `body`, which the server was asked to end after `lasts`.
    pub(super) fn new(
        body: B,
        lasts: Duration,
        envelope: &Arc<Envelope>,
        informer: &Arc<Informer>,
    ) -> Self {
        Self {
            body,
            framer: Framer::new(envelope.holding(), FRAME_LIMIT),
            envelope: Arc::clone(envelope),
            informer: Arc::clone(informer),
            ends: Instant::now() + lasts,
            since_turn: 0,
        }
    }

    /// When the server was asked to end it.
    pub(super) fn ends_by(&self) -> Instant {
        self.ends
    }

    /// The next events, those that arrived together and no more than are read in one go; `None` at a clean end.
    /// Dropped at an await it has taken nothing.
    pub(super) async fn next_batch(&mut self) -> Result<Option<Vec<WatchEvent>>, ReflectorError> {
        let mut batch = Vec::new();
        loop {
            // A burst is there at once: nothing below would wait for it.
            if self.since_turn >= STEP {
                self.since_turn = 0;
                tokio::task::yield_now().await;
            }
            while self.since_turn < STEP
                && let Some(line) = self.framer.next()?
            {
                self.since_turn += line.len();
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
                None if self.framer.has_partial() => return Err(ReflectorError::Truncated),
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

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::floor::Floor;
    use crate::gvr::Gvr;
    use crate::store::{Event, Store};
    use crate::turns::turns_during;

    /// A streaming list that is there as fast as it can be taken.
    fn burst(objects: usize) -> Stream<impl Body<Data = Bytes, Error = hyper::Error> + Unpin> {
        let lines: String = (0..objects)
            .map(|at| {
                format!(
                    r#"{{"type":"ADDED","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"p{at}","namespace":"n","uid":"u","resourceVersion":"{}"}}}}}}{}"#,
                    at + 1,
                    '\n'
                )
            })
            .collect();
        let bytes = Bytes::from(lines);
        // As large as a server may make the frames of HTTP/2 at all.
        let step = 1 << 24;
        let frames = (0..bytes.len())
            .step_by(step)
            .map(|at| Ok(Frame::data(bytes.slice(at..bytes.len().min(at + step)))))
            .collect::<Vec<_>>();
        let list = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Envelope::learn(list.as_bytes(), "Pod").unwrap().envelope;
        let gvr = Gvr::new("", "v1", "pods");
        let informer = Informer::new(gvr, Arc::new(Floor::default()), CancellationToken::new());
        Stream::new(
            StreamBody::new(stream::iter(frames)),
            Duration::from_secs(1),
            &Arc::new(envelope),
            &Arc::new(informer),
        )
    }

    #[tokio::test]
    async fn a_burst_of_events_lets_others_work() {
        let objects = 100_000;
        let mut stream = burst(objects);
        let take_all = async {
            let mut store = Store::default();
            while let Some(batch) = stream.next_batch().await.unwrap() {
                for event in batch {
                    match event {
                        WatchEvent::Change(Event::Applied(element)) => store.stage(element),
                        other => panic!("{other:?}"),
                    }
                }
            }
            store
        };
        let (store, turns) = turns_during(take_all).await;
        assert_eq!(store.len(), objects);
        // Each line is more than a hundred bytes.
        assert!(turns >= objects * 100 / STEP, "{turns} turns");
    }

    #[tokio::test]
    async fn a_wait_for_the_next_events_may_be_given_up() {
        let mut stream = burst(10_000);
        let mut events = 0;
        loop {
            let given_up = std::future::ready(());
            tokio::select! {
                biased;
                batch = stream.next_batch() => match batch.unwrap() {
                    Some(batch) => events += batch.len(),
                    None => break,
                },
                () = given_up => {}
            }
        }
        assert_eq!(events, 10_000);
    }
}
