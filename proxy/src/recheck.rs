//! A watch lasts no longer than its user may see it. Who that is, and what it may, is asked again all the while, of what is in
//! force then: a credential may be taken back, a right too, and the configuration may change.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use fleetcache_auth::{
    Authenticated, AuthenticationError, Credentials, KeptCredentials, Question, UserInfo,
};
use fleetcache_cache::cluster_accessor::ClusterAccessor;
use futures_util::future::BoxFuture;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame};
use tokio::time::{Instant, sleep_until};

use crate::authentication::{Authentication, authenticate};
use crate::authorization::{Access, AuthorizationSettings, Verdict};
use crate::body::{Body, BoxError};
use crate::identity::{Identity, own_authorization};
use crate::limits::Limits;
use crate::rarely::Rarely;
use crate::reviewer::Reviewer;

/// No watch looks more often, however short an Allow counts.
const AT_MOST_EVERY: Duration = Duration::from_millis(250);

/// Every watch looks so often, however long an Allow counts: as long as is known of a token what was said of it.
const AT_LEAST_EVERY: Duration = Duration::from_secs(10);

/// A client that does not read keeps its watch from looking. After so long nothing is shown before it has looked.
const LATE: Duration = Duration::from_secs(1);

/// The pauses while it cannot be said: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// What a watch shows.
pub(crate) enum Shows {
    /// What is in memory of a cluster: this question says who may see it.
    Memory(Arc<ClusterAccessor>, Box<Question>),
    /// What the cluster itself tells the user. It was asked whether the user may, and does not end watches for that.
    Live {
        cluster: Arc<ClusterAccessor>,
        /// As whom; `None` where as the proxy itself.
        user: Option<Arc<UserInfo>>,
    },
    /// The fleet.
    Fleet,
}

/// What it takes to look again.
pub(crate) struct Recheck {
    /// What is in force, as of each request.
    pub(crate) authentication: Arc<ArcSwapOption<Authentication>>,
    pub(crate) limits: Arc<Limits>,
    /// Those that the watch was asked for with.
    pub(crate) credentials: KeptCredentials,
    pub(crate) shows: Shows,
}

/// What a look finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The user may see it.
    May {
        /// When to look again.
        again: Instant,
        /// When the watch ends, where nobody can say any more whether the user may.
        at_last: Instant,
    },
    /// The user may not see it any more, or is nobody.
    MayNot,
    /// Nobody could say.
    Unknown,
}

/// A watch that ends, cleanly, as soon as its user may not have it any more, or nobody could say so for too long. Its client
/// watches again, and is told why it may not.
pub(crate) fn while_allowed(body: Body, recheck: Arc<Recheck>) -> Body {
    let patience = recheck.settings().stale_allow_ttl;
    until(body, recheck.looks(), patience)
}

/// The end of a watch that is no body, but a tunnel. Its client finds the tunnel broken, and watches again.
pub(crate) fn allowed_no_more(recheck: Arc<Recheck>) -> BoxFuture<'static, ()> {
    let patience = recheck.settings().stale_allow_ttl;
    // A tunnel looks whether its client reads or not.
    Box::pin(over(recheck.looks(), patience, Arc::default()))
}

fn until<F>(body: Body, look: impl Fn() -> F + Send + Sync + 'static, patience: Duration) -> Body
where
    F: Future<Output = Look> + Send + 'static,
{
    let is_late = Arc::new(AtomicBool::new(false));
    let over: BoxFuture<'static, ()> = Box::pin(over(look, patience, Arc::clone(&is_late)));
    WhileAllowed {
        body,
        over: Rarely::new(over),
        is_late,
    }
    .boxed_unsync()
}

/// Ends when the user may not see it any more, or nobody has said so for that long. Looks at once: what it began with may have
/// been known for a while. `is_late` while it looks that should have looked before.
async fn over<F: Future<Output = Look>>(
    look: impl Fn() -> F,
    patience: Duration,
    is_late: Arc<AtomicBool>,
) {
    let mut ends = Instant::now() + patience;
    let mut pause = PAUSES.0;
    loop {
        let found = look().await;
        let now = Instant::now();
        // The client may have stopped to read while it was asked: what was said then is of then.
        let is_of_then = matches!(found, Look::May { again, .. } if again + LATE < now);
        is_late.store(is_of_then, Ordering::Relaxed);
        let next = match found {
            Look::May { again, at_last } => {
                (ends, pause) = (at_last, PAUSES.0);
                again
            }
            Look::MayNot => return,
            Look::Unknown if now >= ends => return,
            Look::Unknown => {
                let next = ends.min(now + pause);
                pause = PAUSES.1.min(pause * 2);
                next
            }
        };
        let next = next.max(now + AT_MOST_EVERY);
        sleep_until(next).await;
        is_late.fetch_or(next.elapsed() > LATE, Ordering::Relaxed);
    }
}

impl Shows {
    fn cluster(&self) -> Option<&Arc<ClusterAccessor>> {
        match self {
            Self::Memory(cluster, _) | Self::Live { cluster, .. } => Some(cluster),
            Self::Fleet => None,
        }
    }
}

impl Recheck {
    /// Those of the cluster; the usual ones where there is none.
    fn settings(&self) -> AuthorizationSettings {
        let cluster = self.shows.cluster();
        let limits = cluster.and_then(|cluster| self.limits.get(cluster.name()));
        limits.map_or_else(AuthorizationSettings::default, |limits| {
            limits.settings.authorization
        })
    }

    fn looks(self: Arc<Self>) -> impl Fn() -> BoxFuture<'static, Look> + Send + Sync + 'static {
        move || {
            let recheck = Arc::clone(&self);
            // A look is seldom, and large.
            Box::pin(async move { recheck.look().await })
        }
    }

    async fn look(&self) -> Look {
        let headers = self.credentials.headers();
        let credentials = Credentials {
            headers: &headers,
            certificates: self.credentials.certificates(),
        };
        // As for a request that comes now.
        let (cluster, limits) = match self.shows.cluster() {
            None => (None, None),
            Some(cluster) => match self.limits.get(cluster.name()) {
                Some(limits) => (Some(cluster), Some(limits)),
                None => return Look::MayNot,
            },
        };
        let own_users = limits
            .as_ref()
            .is_some_and(|it| it.settings.asks_about_users());
        let target = cluster.filter(|_| own_users);
        let known = match authenticate(&self.authentication, credentials, target).await {
            Ok(known) => known,
            Err(AuthenticationError::Unauthenticated(_)) => return Look::MayNot,
            Err(AuthenticationError::Unavailable(_)) => return Look::Unknown,
        };
        let (Some(cluster), Some(limits)) = (cluster, limits) else {
            let readers = self.limits.fleet_readers();
            let verdict = match readers.include(&known.user) {
                true => Verdict::Allowed { until: None },
                false => Verdict::Denied,
            };
            return found(verdict, &known, &AuthorizationSettings::default());
        };
        let identity = limits.settings.identity.for_whom(known.method);
        let own = own_authorization(identity, &known, &headers);
        if identity.of(&known.user, own).is_none() {
            return Look::MayNot;
        }
        let verdict = match &self.shows {
            Shows::Memory(_, question) => {
                let access = Access::of(cluster, &limits, identity, &known.user);
                now(&access, cluster.current(), question).await
            }
            // Other credentials of the same request may be somebody else's, and the proxy's own rights nobody's any more.
            Shows::Live { user, .. }
                if !user
                    .as_ref()
                    .map_or(identity == Identity::Proxy, |it| is_same(it, &known.user)) =>
            {
                return Look::MayNot;
            }
            Shows::Live { .. } | Shows::Fleet => Verdict::Allowed { until: None },
        };
        found(verdict, &known, &limits.settings.authorization)
    }
}

/// Groups may change. A cluster's own user is nobody else by that name.
fn is_same(one: &UserInfo, other: &UserInfo) -> bool {
    (&one.name, &one.uid, &one.named_by) == (&other.name, &other.uid, &other.named_by)
}

/// What the cluster says now, where it is connected or need not be asked.
async fn now<R: Reviewer>(
    access: &Access,
    reviewer: Option<Arc<R>>,
    question: &Question,
) -> Verdict {
    match reviewer {
        Some(reviewer) => access.verdict(&reviewer, || question.clone()).await,
        None if access.asks_nobody() => Verdict::Allowed { until: None },
        None => Verdict::Unknown,
    }
}

/// What it means that the cluster says so of a user who is known like that.
fn found(verdict: Verdict, known: &Authenticated, settings: &AuthorizationSettings) -> Look {
    let now = Instant::now();
    let allowed = match verdict {
        Verdict::Allowed { until } => until.unwrap_or(now + settings.allow_ttl),
        Verdict::Denied => return Look::MayNot,
        Verdict::Unknown => return Look::Unknown,
    };
    let (often, stale) = (now + AT_LEAST_EVERY, settings.stale_allow_ttl);
    // From when it was said, which is before it is told.
    let last_known = allowed + stale.saturating_sub(settings.allow_ttl);
    let expires = known.expires.and_then(|at| {
        let left = at.duration_since(SystemTime::now()).ok()?;
        now.checked_add(left)
    });
    let first =
        |times: [Option<Instant>; 3], other| times.into_iter().flatten().fold(other, Instant::min);
    Look::May {
        again: first([Some(allowed), known.known_until, expires], often),
        // Who cannot be judged when the credential has expired is nobody.
        at_last: first([Some(last_known), expires, None], now + stale),
    }
}

struct WhileAllowed {
    body: Body,
    over: Rarely<BoxFuture<'static, ()>>,
    /// What has piled up may be of after the user lost its right.
    is_late: Arc<AtomicBool>,
}

impl HttpBody for WhileAllowed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // First: a watch that is never silent ends, too.
        if Pin::new(&mut self.over).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if self.is_late.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.body).poll_frame(context)
    }
}

#[cfg(test)]
mod tests;
