//! A watch lasts no longer than its user may see it.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
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
use crate::reviewer::Reviewer;

/// No watch asks more often, however short an Allow counts.
const AT_MOST_EVERY: Duration = Duration::from_millis(250);

/// The pauses while the cluster does not say: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

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
    let (access, question) = (access.clone(), question());
    let revoked =
        async move { revoked(&access, || access.cluster.current(), question, until).await };
    let revoked: BoxFuture<'static, ()> = Box::pin(revoked);
    WhileAllowed {
        body,
        revoked: Rarely::new(revoked),
    }
    .boxed_unsync()
}

/// Ends when it is not allowed any more. `until` is how long the first Allow counts.
pub(super) async fn revoked<R: Reviewer>(
    access: &Access,
    reviewer: impl Fn() -> Option<Arc<R>>,
    question: Question,
    mut until: Instant,
) {
    let settings = access.settings;
    // From when it was said, which is before it is told.
    let gives_up = |until: Instant| {
        let outlasts = settings.stale_allow_ttl.saturating_sub(settings.allow_ttl);
        until + outlasts
    };
    let mut ends = gives_up(until);
    let mut pause = PAUSES.0;
    loop {
        sleep_until(until.max(Instant::now() + AT_MOST_EVERY)).await;
        let verdict = match reviewer() {
            Some(reviewer) => access.verdict(&reviewer, || question.clone()).await,
            None => Verdict::Unknown,
        };
        let now = Instant::now();
        match verdict {
            Verdict::Allowed { until: Some(next) } => {
                (until, ends, pause) = (next, gives_up(next), PAUSES.0);
            }
            Verdict::Allowed { until: None } => pending().await,
            Verdict::Denied => return,
            Verdict::Unknown if now >= ends => return,
            Verdict::Unknown => {
                until = ends.min(now + pause);
                pause = PAUSES.1.min(pause * 2);
            }
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
