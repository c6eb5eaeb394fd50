//! The self-check: now and then an informer is compared with its server.
//!
//! A snapshot that is complete through N is exactly what the kind was at N. So the server is asked, beside the watch, for
//! a LIST of exactly N, of metadata alone and by pages, and each page must name the same objects, uids and versions in the
//! same order. Of a kind with many objects a round takes a few pages, and the next one goes on behind them.
//!
//! Whatever is no answer about N finds nothing out: an expired version, a server that lags behind, one that does not know
//! `Exact`, an error. What is not the same is not believed at once:
//! - *Another history* (a restored etcd, another cluster) answers for another N. So the informer's own watch is heard first,
//!   since it ends where the server is another; then the server is asked which cluster it is and how new, as before a watch
//!   resumes; and then the page is asked for once more, with the newest snapshot.
//! - *A moving kind* is compared at one version: what happens meanwhile is in neither.
//!
//! What differs twice in a row is counted and told, what is held is given to no reader any more, and the kind is listed
//! again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, OptionFuture};
use tokio::sync::watch;
use tokio::time::Instant;

use super::requests::{self, latest_resource_version};
use super::{Reflector, ReflectorError, State};
use crate::connection::{Connection, InformerShard};
use crate::informer::Informer;
use crate::informers::Settings;
use crate::store::Snapshot;

mod page;

use page::{Compared, Difference, Next};

/// Objects of a page.
const PAGE: usize = 500;

/// Pages of a round.
const PAGES: usize = 4;

/// Time that an answer may take. A server that is asked for a version it has not reached says so after three seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// What outlives a watch.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// When the next round is due; none where nothing was scheduled yet, or there is no self-check.
    due: Option<Instant>,
    /// Where the next round goes on; from the start where there is none.
    after: Option<String>,
}

/// What a round has found.
pub(super) enum Found {
    /// All of its pages are the same; the next round goes on behind this key.
    Equal(Option<String>),
    /// The page behind this key is not the same.
    Different(Option<String>, Difference),
    /// Another cluster is behind the name.
    AnotherCluster,
    /// Nothing, at the page behind this key.
    Nothing(Option<String>, NotChecked),
    /// Others have used up what may be asked for now.
    Postponed,
}

/// Why a page says nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotChecked {
    #[error(transparent)]
    Failed(#[from] ReflectorError),
    #[error("{0}")]
    OtherAnswer(&'static str),
}

/// The rounds beside one watch.
pub(super) struct SelfCheck {
    asker: Asker,
    interval: watch::Receiver<Duration>,
    progress: Progress,
    running: Option<BoxFuture<'static, Found>>,
    /// The last round has found a difference, and what runs is the second look at it.
    suspects: bool,
}

/// Whom to ask, and about what.
#[derive(Clone)]
struct Asker {
    connection: Arc<Connection>,
    shard: Arc<InformerShard>,
    informer: Arc<Informer>,
    settings: Arc<Settings>,
}

impl SelfCheck {
    /// Beside a watch that runs on this connection now.
    pub(super) fn new(
        reflector: &Reflector,
        connection: &Arc<Connection>,
        shard: &Arc<InformerShard>,
    ) -> Self {
        let mut check = Self {
            asker: Asker {
                connection: Arc::clone(connection),
                shard: Arc::clone(shard),
                informer: Arc::clone(&reflector.informer),
                settings: Arc::clone(&reflector.settings),
            },
            interval: reflector.settings.self_checks().interval(),
            progress: reflector.self_checked.clone(),
            running: None,
            suspects: false,
        };
        if check.progress.due.is_none() {
            // Informers start together: their checks do not.
            check.schedule(0.0..=1.0);
        }
        check
    }

    fn schedule(&mut self, part: std::ops::RangeInclusive<f64>) {
        let interval = *self.interval.borrow_and_update();
        self.progress.due = (!interval.is_zero())
            .then(|| Instant::now() + interval.mul_f64(rand::random_range(part)));
    }

    /// The end of the next round. May be dropped at any await.
    pub(super) async fn next(&mut self) -> Found {
        loop {
            let due = self.progress.due;
            tokio::select! {
                Some(found) = OptionFuture::from(self.running.as_mut()) => {
                    self.running = None;
                    return found;
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() && self.running.is_none() => {
                    let after = self.progress.after.clone();
                    self.running = Some(self.asker.clone().round(after).boxed());
                }
                // Never an error: the sender is in the settings, which are held here.
                _ = self.interval.changed() => self.schedule(0.0..=1.0),
            }
        }
    }

    /// Takes what a round has found. The informer's own watch must have been heard after it. True where the informer
    /// holds something else than its cluster.
    fn take(&mut self, found: Found) -> Result<bool, ReflectorError> {
        let checks = self.asker.settings.self_checks();
        let second_look = std::mem::take(&mut self.suspects);
        match found {
            Found::Equal(after) => {
                checks.count_equal();
                self.progress.after = after;
            }
            Found::Different(after, difference) if second_look => {
                checks.count_mismatch();
                tracing::warn!(
                    key = difference.key,
                    difference = %difference.what,
                    rv = self.asker.informer.resource_version().map(tracing::field::display),
                    "memory differs from the cluster: the kind is listed again"
                );
                self.progress.after = after;
                self.schedule(0.75..=1.25);
                return Ok(true);
            }
            Found::Different(after, difference) => {
                tracing::debug!(key = difference.key, difference = %difference.what, "memory may differ from the cluster");
                self.suspects = true;
                self.running = Some(self.asker.clone().look_again(after).boxed());
                return Ok(false);
            }
            Found::AnotherCluster => {
                self.asker.connection.epoch_ended();
                return Err(ReflectorError::WentBack);
            }
            Found::Nothing(after, why) => {
                checks.count_skipped();
                tracing::debug!(error = %why, "memory was not compared with the cluster");
                if matches!(&why, NotChecked::Failed(error) if error.is_unauthorized()) {
                    self.asker.connection.credential_rejected();
                }
                // A server with tokens of another form, or none: only the first pages can be looked at.
                self.progress.after = after.filter(|_| !why.is_about_the_token());
            }
            Found::Postponed => {}
        }
        self.schedule(0.75..=1.25);
        Ok(false)
    }
}

impl Reflector {
    /// Takes what a self-check has found; the next state where that ends the watch.
    pub(super) fn take_self_check(
        &mut self,
        check: &mut SelfCheck,
        found: Found,
    ) -> Result<Option<State>, ReflectorError> {
        let differs = check.take(found)?;
        self.self_checked = check.progress.clone();
        if !differs {
            return Ok(None);
        }
        self.informer.suspend();
        // A consistent list: its version is the cluster's newest, which as good as always is above what was held. So
        // watches from a version that was told with something wrong are told that it is too old.
        Ok(Some(State::List { from: None }))
    }
}

impl NotChecked {
    fn is_about_the_token(&self) -> bool {
        matches!(
            self,
            Self::OtherAnswer(_) | Self::Failed(ReflectorError::Status { code: 400, .. })
        )
    }
}

impl Asker {
    /// Compares the next few pages, from behind a key on, with what readers have now.
    async fn round(self, mut after: Option<String>) -> Found {
        // Of each cluster one informer at a time: what they ask takes a stream of a connection that they share.
        let _turn = self.settings.self_check_turn().acquire().await;
        if !self.waits_for_budget().await {
            return Found::Postponed;
        }
        let Some(snapshot) = self.newest() else {
            return Found::Postponed;
        };
        let mut next = after
            .as_deref()
            .map(|after| Next::behind(after, snapshot.resource_version));
        for page in 0..PAGES {
            if page > 0 && !self.waits_for_budget().await {
                break;
            }
            match self.compare(&snapshot, next.as_ref()).await {
                Ok(Compared::Equal) => return Found::Equal(None),
                Ok(Compared::EqualUpTo(more)) => {
                    after = Some(more.after.clone());
                    next = Some(more);
                }
                Ok(Compared::Different(difference)) => return Found::Different(after, difference),
                Ok(Compared::Nothing(why)) => {
                    return Found::Nothing(after, NotChecked::OtherAnswer(why));
                }
                Err(error) => return Found::Nothing(after, error.into()),
            }
        }
        Found::Equal(after)
    }

    /// Compares a page that was not the same once more, after the server has said that it is the one it was.
    async fn look_again(self, after: Option<String>) -> Found {
        let _turn = self.settings.self_check_turn().acquire().await;
        let Some(before) = self.newest() else {
            return Found::Postponed;
        };
        match self.is_same_cluster(&before).await {
            Ok(true) => {}
            Ok(false) => return Found::AnotherCluster,
            Err(error) => return Found::Nothing(after, error.into()),
        }
        let Some(snapshot) = self.newest() else {
            return Found::Postponed;
        };
        let next = after
            .as_deref()
            .map(|after| Next::behind(after, snapshot.resource_version));
        match self.compare(&snapshot, next.as_ref()).await {
            // The next round begins here once more.
            Ok(Compared::Equal | Compared::EqualUpTo(_)) => Found::Equal(after),
            Ok(Compared::Different(difference)) => Found::Different(after, difference),
            Ok(Compared::Nothing(why)) => Found::Nothing(after, NotChecked::OtherAnswer(why)),
            Err(error) => Found::Nothing(after, error.into()),
        }
    }

    /// What readers have now.
    fn newest(&self) -> Option<Arc<Snapshot>> {
        self.informer
            .publications()
            .newest(self.connection.generation)
    }

    /// Waits until a page may be asked for; false where that is too long.
    async fn waits_for_budget(&self) -> bool {
        let objects = self.informer.size().0.min(PAGE);
        match self.settings.self_checks().reserve(objects) {
            Some(at) => {
                tokio::time::sleep_until(at).await;
                true
            }
            None => false,
        }
    }

    async fn is_same_cluster(&self, held: &Snapshot) -> Result<bool, ReflectorError> {
        let asked = async {
            if !self.connection.is_same_cluster().await? {
                return Ok(false);
            }
            let gvr = &self.informer.gvr;
            let newest = latest_resource_version(&self.connection, &self.shard, gvr).await?;
            Ok(newest >= held.resource_version)
        };
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        answer.unwrap_or(Err(ReflectorError::TimedOut))
    }

    /// Asks for a page at the snapshot's version and compares it.
    async fn compare(
        &self,
        snapshot: &Arc<Snapshot>,
        next: Option<&Next>,
    ) -> Result<Compared, ReflectorError> {
        let query = match next {
            Some(next) => format!("limit={PAGE}&continue={}", next.token),
            None => format!(
                "limit={PAGE}&resourceVersion={}&resourceVersionMatch=Exact",
                snapshot.resource_version
            ),
        };
        let path = requests::list_path(&self.informer.gvr, &query);
        let asked = requests::fetch_metadata(&self.connection, &self.shard, &path);
        let body = tokio::time::timeout(PATIENCE, asked).await;
        let body = body.unwrap_or(Err(ReflectorError::TimedOut))?;
        let (snapshot, after) = (Arc::clone(snapshot), next.map(|next| next.after.clone()));
        // The metadata of 500 objects is a megabyte or more, which cannot be read in part.
        let compared =
            tokio::task::spawn_blocking(move || page::compare(&body, &snapshot, after.as_deref()));
        // Else it has panicked, or the runtime ends.
        let compared = compared.await.map_err(|_| ReflectorError::Ended)?;
        compared.map_err(ReflectorError::BadBytes)
    }
}
