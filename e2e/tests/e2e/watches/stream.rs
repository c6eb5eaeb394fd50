//! A watch that is read to its end by a task of its own, as fast as it comes.

use std::sync::Arc;

use bytes::Bytes;
use fleetcache_e2e::client::{Answer, Client};
use fleetcache_e2e::poll::{PATIENCE, wait_for};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As an answer ends that is whole.
    Clean,
    /// In the middle: the reason of the client's library.
    Broken(String),
}

/// What came, and whether more may come.
#[derive(Debug, Default)]
struct Seen {
    bytes: Vec<u8>,
    end: Option<(End, Instant)>,
}

/// An answer that is still coming.
#[derive(Debug)]
pub(crate) struct Stream {
    path: String,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// When its headers were there.
    pub(crate) opened: Instant,
    seen: Arc<Mutex<Seen>>,
    reading: JoinHandle<()>,
}

const JSON: [(&str, &str); 1] = [("accept", "application/json")];

impl Stream {
    /// A watch for plain JSON; returns when its headers are there.
    pub(crate) async fn open(client: &Client, path: &str) -> Self {
        Self::request(client, Method::GET, path, &JSON).await
    }

    /// A watch that must be answered 200.
    pub(crate) async fn watch(client: &Client, path: &str) -> Self {
        let stream = Self::open(client, path).await;
        if stream.status != StatusCode::OK {
            stream.ended().await;
            panic!("{path}: {} {}", stream.status, stream.text());
        }
        stream
    }

    /// A watch that comes from memory, as soon as one does: what was read live a moment ago may be newer than memory.
    pub(crate) async fn from_memory(client: &Client, path: &str) -> Self {
        wait_for(&format!("{path} from memory"), PATIENCE, async || {
            let stream = Self::watch(client, path).await;
            anyhow::ensure!(stream.is_hit(), "{}", stream.cache_status());
            Ok(stream)
        })
        .await
        .unwrap()
    }

    /// Any request.
    pub(crate) async fn request(
        client: &Client,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Self {
        let response = timeout(PATIENCE, client.open(method, path, headers, ""))
            .await
            .unwrap_or_else(|_| panic!("{path}: no headers"))
            .unwrap_or_else(|error| panic!("{path}: {error:#}"));
        let (parts, body) = response.into_parts();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let reading = tokio::spawn(read(body, seen.clone()));
        Self {
            path: path.to_owned(),
            status: parts.status,
            headers: parts.headers,
            opened: Instant::now(),
            seen,
            reading,
        }
    }

    /// All that came.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.seen.lock().bytes.clone()
    }

    /// All that came, for messages and searches.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().bytes).into_owned()
    }

    /// The events that came whole.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.text();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        whole.lines().map(parse).collect()
    }

    /// How it ended, if it has.
    pub(crate) fn end(&self) -> Option<End> {
        self.seen.lock().end.as_ref().map(|(end, _)| end.clone())
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) -> End {
        wait_for(&format!("{} to end", self.path), PATIENCE, async || {
            self.end().ok_or_else(|| self.tail())
        })
        .await
        .unwrap()
    }

    /// Waits for the end, which must be that of a whole answer.
    pub(crate) async fn ended_clean(&self) {
        let end = self.ended().await;
        assert_eq!(end, End::Clean, "{}: {}", self.path, self.tail());
    }

    /// From the headers to the end, of a stream that has ended.
    pub(crate) fn lasted(&self) -> std::time::Duration {
        let seen = self.seen.lock();
        let ended = seen.end.as_ref().map(|(_, at)| *at);
        ended.map_or_else(Default::default, |at| at - self.opened)
    }

    /// Waits until this is in what came.
    pub(crate) async fn has(&self, text: &str) {
        let what = format!("{} to tell of {text}", self.path);
        wait_for(&what, PATIENCE, async || {
            if self.text().contains(text) {
                Ok(())
            } else {
                Err(format!("ended: {:?}, {}", self.end(), self.tail()))
            }
        })
        .await
        .unwrap();
    }

    /// What `Cache-Status` says.
    pub(crate) fn cache_status(&self) -> &str {
        let value = self.headers.get("cache-status");
        value.map_or("", |value| value.to_str().unwrap())
    }

    fn is_hit(&self) -> bool {
        self.cache_status().starts_with("fleetcache; hit")
    }

    /// Fails unless it is from memory.
    #[track_caller]
    pub(crate) fn assert_hit(&self) {
        assert!(self.is_hit(), "{}: {}", self.path, self.cache_status());
    }

    /// As an answer that is whole.
    pub(crate) fn answer(&self) -> Answer {
        Answer {
            status: self.status,
            headers: self.headers.clone(),
            body: Bytes::from(self.bytes()),
            elapsed: self.lasted(),
        }
    }

    fn tail(&self) -> String {
        let text = self.text();
        let from = text.len().saturating_sub(500);
        format!(
            "{} bytes, …{}",
            text.len(),
            String::from_utf8_lossy(&text.as_bytes()[from..])
        )
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

async fn read(mut body: Incoming, seen: Arc<Mutex<Seen>>) {
    let end = loop {
        match body.frame().await {
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                seen.lock().bytes.extend_from_slice(&data);
            }
            Some(Err(error)) => break End::Broken(format!("{error:?}")),
            None => break End::Clean,
        }
    };
    seen.lock().end = Some((end, Instant::now()));
}
