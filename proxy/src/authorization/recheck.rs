//! A watch lasts no longer than its user may see it.

use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use fleetcache_auth::Question;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame};
use tokio::time::{Instant, sleep_until};

use super::{Access, Verdict};
use crate::body::{Body, BoxError};
use crate::rarely::Rarely;

/// No watch asks more often.
const AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// A watch that ends, cleanly, as soon as the cluster says that its user may not have it any more, or could not be asked for
/// as long as the last Allow counts. Its client watches again, and is told by the cluster itself why it may not.
///
/// `verdict` is the one that it began with.
pub(crate) fn while_allowed(
    body: Body,
    access: &Access,
    verdict: Verdict,
    question: impl FnOnce() -> Question,
) -> Body {
    let until = match verdict {
        Verdict::Allowed { until: None } => return body,
        Verdict::Allowed { until: Some(until) } => until,
        Verdict::Denied | Verdict::Unknown => Instant::now(),
    };
    let revoked: BoxFuture<'static, ()> = Box::pin(revoked(access.clone(), question(), until));
    WhileAllowed {
        body,
        revoked: Rarely::new(revoked),
    }
    .boxed_unsync()
}

async fn revoked(access: Access, question: Question, mut until: Instant) {
    let mut gives_up = Instant::now() + access.settings.stale_allow_ttl;
    loop {
        sleep_until(until.max(Instant::now() + AT_MOST_EVERY)).await;
        let verdict = match access.cluster.current() {
            Some(connection) => access.verdict(&connection, || question.clone()).await,
            None => Verdict::Unknown,
        };
        let now = Instant::now();
        match verdict {
            Verdict::Allowed { until: Some(next) } => {
                until = next;
                gives_up = now + access.settings.stale_allow_ttl;
            }
            Verdict::Allowed { until: None } => pending().await,
            Verdict::Denied => return,
            Verdict::Unknown if now >= gives_up => return,
            Verdict::Unknown => {}
        }
    }
}

struct WhileAllowed {
    body: Body,
    revoked: Rarely<BoxFuture<'static, ()>>,
}

impl HttpBody for WhileAllowed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // First: a watch that is never silent ends, too.
        if Pin::new(&mut self.revoked).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.body).poll_frame(context)
    }
}
