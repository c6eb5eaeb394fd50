//! A request that is in the log once it has ended, whatever ends it.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::thread;

use bytes::Bytes;
use fleetcache_auth::UserInfo;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use jiff::Timestamp;

use super::event::{Event, Stage, USER_AGENT_BYTES};
use super::queue::Queue;
use crate::body::{Body, BoxError};
use crate::listener::ClientAddress;
use crate::metrics::Source;

/// Bytes of an answer that are kept, since it may be a Status; a longer one is none that says much.
const STATUS: usize = 16 << 10;

/// A request under way. Its last line is written when the last clone goes: one is in the request, one in its answer's body,
/// and one in the tunnel that it may become.
#[derive(Clone)]
pub struct Record(Arc<Open>);

struct Open {
    queue: Arc<Queue>,
    facts: Arc<Facts>,
    answered: OnceLock<Answered>,
    body: OnceLock<Bytes>,
    panicked: AtomicBool,
    /// Whether that the answer has begun is told when it has ended: what it says is not known before.
    refused: AtomicBool,
}

/// What is known of a request. Copies: a slice of what a connection has read keeps all of that in memory.
pub(super) struct Facts {
    pub(super) audit_id: Box<[u8]>,
    pub(super) method: Method,
    pub(super) target: String,
    /// No more of it than is told, and one byte that tells that there is more.
    pub(super) user_agent: Option<Box<[u8]>>,
    pub(super) source: Option<IpAddr>,
    pub(super) received: Timestamp,
    pub(super) known: OnceLock<Known>,
}

/// Who asks.
pub(super) struct Known {
    pub(super) user: Arc<UserInfo>,
    /// How that is known.
    pub(super) by: &'static str,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// The status code.
    pub code: u16,
    /// Where the answer came from.
    pub source: Source,
    /// Why not from memory, or what went wrong; "" where there is nothing to say.
    pub reason: &'static str,
}

impl Record {
    pub(super) fn new<B>(
        queue: &Arc<Queue>,
        request: &Request<B>,
        target: &str,
        audit_id: &HeaderValue,
        received: Timestamp,
    ) -> Self {
        let address = request.extensions().get::<ClientAddress>();
        let user_agent = request.headers().get(USER_AGENT);
        let user_agent = user_agent.map(HeaderValue::as_bytes);
        let facts = Facts {
            audit_id: audit_id.as_bytes().into(),
            method: request.method().clone(),
            target: target.to_owned(),
            user_agent: user_agent.map(|it| it[..it.len().min(USER_AGENT_BYTES + 1)].into()),
            source: address.map(|ClientAddress(address)| address.to_canonical()),
            received,
            known: OnceLock::new(),
        };
        Self(Arc::new(Open {
            queue: Arc::clone(queue),
            facts: Arc::new(facts),
            answered: OnceLock::new(),
            body: OnceLock::new(),
            panicked: AtomicBool::new(false),
            refused: AtomicBool::new(false),
        }))
    }

    /// Who asks, and how that is known.
    pub(crate) fn known(&self, user: &Arc<UserInfo>, by: &'static str) {
        let user = Arc::clone(user);
        let _ = self.0.facts.known.set(Known { user, by });
    }

    /// Answering panicked.
    pub(crate) fn panicked(&self) {
        self.0.panicked.store(true, Ordering::Relaxed);
    }

    /// There is an answer; the record lasts as long as its body. Of one that may last long there is a line now, too.
    pub(crate) fn answer(
        self,
        response: Response<Body>,
        answered: Answered,
        long_running: bool,
    ) -> Response<Body> {
        let open = &self.0;
        let _ = open.answered.set(answered);
        let kept = may_be_status(&open.facts.method, &response).then(Vec::new);
        let refused = answered.code >= 400;
        if long_running && refused {
            open.refused.store(true, Ordering::Relaxed);
        } else if long_running {
            open.queue.push(open.event(Stage::ResponseStarted));
        }
        response.map(|body| {
            let body = RecordedBody {
                body,
                kept,
                polled: false,
                record: self,
            };
            body.boxed_unsync()
        })
    }
}

/// An error, or what became of a deletion: kube-apiserver's log has what such a Status says.
fn may_be_status(method: &Method, response: &Response<Body>) -> bool {
    let status = response.status();
    let says = status.is_client_error() || status.is_server_error() || *method == Method::DELETE;
    let headers = response.headers();
    let json = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    says && !headers.contains_key(CONTENT_ENCODING)
        && json.is_some_and(|it| it.starts_with(b"application/json"))
}

impl Open {
    fn event(&self, stage: Stage) -> Event {
        let facts = Arc::clone(&self.facts);
        let body = self.body.get().cloned().unwrap_or_default();
        Event::new(facts, stage, self.answered.get().copied(), body)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Where nobody caught it yet, it is what drops this.
        let panics = self.answered.get().is_none() && thread::panicking();
        let stage = match *self.panicked.get_mut() || panics {
            true => Stage::Panic,
            false => Stage::ResponseComplete,
        };
        if *self.refused.get_mut() && stage == Stage::ResponseComplete {
            self.queue.push(self.event(Stage::ResponseStarted));
        }
        self.queue.leave(self.event(stage));
    }
}

/// The body of an answer. It holds the record, and keeps what may be a Status.
struct RecordedBody {
    body: Body,
    /// None where it is none, or too long for one.
    kept: Option<Vec<u8>>,
    /// While it is; what panics then is dropped so.
    polled: bool,
    record: Record,
}

impl HttpBody for RecordedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.polled = true;
        let polled = Pin::new(&mut self.body).poll_frame(context);
        self.polled = false;
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.keep(data);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl RecordedBody {
    fn keep(&mut self, data: &Bytes) {
        let Some(kept) = &mut self.kept else { return };
        match kept.len() + data.len() <= STATUS {
            true => kept.extend_from_slice(data),
            false => self.kept = None,
        }
    }
}

impl Drop for RecordedBody {
    fn drop(&mut self) {
        if self.polled {
            self.record.panicked();
        }
        if let Some(kept) = self.kept.take() {
            // What it had grown for is given back.
            let _ = self.record.0.body.set(kept.into_boxed_slice().into());
        }
    }
}
