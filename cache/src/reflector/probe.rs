//! The consistent probe of one informer: asks what is newest, and brings the informer there without an event.
//!
//! It runs beside the informer's own watch, in the same task and on the same connection, and ends with it. One question
//! and one second watch are under way at a time, however many readers wait: see [`crate::informer`] for who is served by
//! which question, and [`super::attestation`] for what a second watch proves.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, OptionFuture};
use tokio::sync::watch;
use tokio::time::Instant;

use super::attestation::{Attestation, Goal};
use super::protocol::WatchEvent;
use super::requests::{self, latest_resource_version};
use super::stream::Stream;
use super::{Reflector, ReflectorError};
use crate::connection::{Connection, InformerShard};
use crate::envelope::Envelope;
use crate::informer::{Asked, Informer};
use crate::informers::Settings;
use crate::resource_version::ResourceVersion;
use crate::store::Store;

/// Readers wait no longer for an answer.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(3);

/// A second watch is asked to last this long. A server sends its last bookmark 2 s before a watch ends, and looks once a
/// second whether it is time: so it comes within 1.3 s. A watch of 2 s never gets one.
const ATTESTS_FOR: Duration = Duration::from_secs(3);

/// A second watch that is still silent after this long is given up, with what its opening takes.
const ATTEST_TIMEOUT: Duration = Duration::from_secs(4);

/// Where a second watch gave nothing (a server without bookmarks, a resource without watch cache), the next is not opened
/// sooner: readers would wait in vain each time.
const BARREN_FOR: Duration = Duration::from_secs(60);

/// What the probe has found.
pub(super) enum Found {
    /// More is asked: [`Probe::start_due`] starts it.
    Asked,
    /// The newest version, as the answer to a question.
    Newest(Answer),
    /// What a second watch attests.
    Attested(Result<Attestation, ReflectorError>),
}

/// The answer to one question.
pub(super) struct Answer {
    /// The last reader's ticket that it is for.
    ticket: u64,
    /// What was known before it was asked: the cluster has been at this version.
    known: ResourceVersion,
    newest: Result<ResourceVersion, ReflectorError>,
}

/// What a question or a second watch is sent with, and about.
pub(super) struct Probe {
    connection: Arc<Connection>,
    shard: Arc<InformerShard>,
    informer: Arc<Informer>,
    settings: Arc<Settings>,
    envelope: Arc<Envelope>,
    epoch: u64,
    asked: watch::Receiver<Asked>,
    catch_ups: u64,
    /// Ask, though no reader waits for the answer.
    ask: bool,
    question: Option<BoxFuture<'static, Answer>>,
    attesting: Option<BoxFuture<'static, Result<Attestation, ReflectorError>>>,
    goal: Goal,
    barren_until: Option<Instant>,
}

impl Probe {
    /// Beside a watch that runs on this connection now.
    pub(super) fn new(
        reflector: &Reflector,
        connection: &Arc<Connection>,
        shard: &Arc<InformerShard>,
    ) -> Result<Self, ReflectorError> {
        let informer = &reflector.informer;
        let mut probe = Self {
            connection: Arc::clone(connection),
            shard: Arc::clone(shard),
            informer: Arc::clone(informer),
            settings: Arc::clone(&reflector.settings),
            envelope: Arc::clone(reflector.envelope()?),
            epoch: reflector.epoch,
            asked: informer.questions().asked(),
            catch_ups: 0,
            ask: false,
            question: None,
            attesting: None,
            goal: Goal::default(),
            barren_until: None,
        };
        // What was asked while no watch ran.
        probe.catch_ups = probe.asked.borrow().catch_ups;
        probe.goal.want(informer.floor().goal(probe.epoch));
        Ok(probe)
    }

    /// Asks what is newest, though nobody waits: an answer below what is known ends the epoch.
    pub(super) fn check(&mut self) {
        self.ask = true;
    }

    /// Starts what is due for an informer that stands where `store` does.
    pub(super) fn start_due(&mut self, store: &Store) {
        let asked = *self.asked.borrow_and_update();
        if self.question.is_none()
            && (self.ask || asked.ticket > self.informer.questions().answered())
        {
            self.ask = false;
            self.question = Some(self.question(asked.ticket, store.resource_version()));
        }
        if std::mem::replace(&mut self.catch_ups, asked.catch_ups) != asked.catch_ups {
            self.goal.want(self.informer.floor().goal(self.epoch));
        }
        let held = store.resource_version();
        if self.goal.is_reached(held) {
            self.attesting = None;
        }
        if self.attesting.is_none()
            && !self.is_barren()
            && let Some(target) = self.goal.next_to_try(held)
        {
            self.attesting = Some(self.attest(held, target));
        }
    }

    /// The next finding. May be dropped at any await.
    pub(super) async fn next(&mut self) -> Found {
        tokio::select! {
            Some(answer) = OptionFuture::from(self.question.as_mut()) => {
                self.question = None;
                Found::Newest(answer)
            }
            Some(attested) = OptionFuture::from(self.attesting.as_mut()) => {
                self.attesting = None;
                Found::Attested(attested)
            }
            // Never an error: the sender is in the informer, which is held here.
            _ = self.asked.changed() => Found::Asked,
        }
    }

    /// Takes a finding. `store` must have had all that the informer's own watch had to say by now.
    ///
    /// # Errors
    /// The cluster went back: it is another one.
    pub(super) fn take(&mut self, found: Found, store: &Store) -> Result<(), ReflectorError> {
        match found {
            Found::Asked => Ok(()),
            Found::Newest(answer) => self.answered(answer, store),
            Found::Attested(Ok(attestation)) => {
                self.goal.attested(attestation);
                Ok(())
            }
            Found::Attested(Err(error)) => {
                tracing::debug!(error = %error, "nothing attested");
                // What was cut off or garbled says nothing about the next one.
                if error.is_nothing() {
                    self.barren_until = Some(Instant::now() + BARREN_FOR);
                }
                Ok(())
            }
        }
    }

    fn answered(&mut self, answer: Answer, store: &Store) -> Result<(), ReflectorError> {
        let questions = self.informer.questions();
        let generation = self.connection.generation;
        let newest = match answer.newest {
            // An answer that is not cached by anybody (a consistent LIST) is never older than what was known before.
            Ok(newest) if newest < answer.known => {
                questions.answer(answer.ticket, generation, None);
                self.connection.epoch_ended();
                return Err(ReflectorError::WentBack);
            }
            Ok(newest) => newest,
            Err(error) => {
                tracing::debug!(error = %error, "newest version not known");
                if error.is_unauthorized() {
                    self.connection.credential_rejected();
                }
                questions.answer(answer.ticket, generation, None);
                return Ok(());
            }
        };
        // Where no second watch will help, nobody waits for it.
        let hopeless = newest > store.resource_version() && self.is_barren();
        questions.answer(answer.ticket, generation, (!hopeless).then_some(newest));
        self.goal.want_again(newest);
        Ok(())
    }

    /// The version through which the store turns out to be complete, where something pending can be believed now.
    pub(super) fn settle(&mut self, store: &Store) -> Option<ResourceVersion> {
        self.goal
            .settle(store.resource_version(), store.last_event())
    }

    fn is_barren(&self) -> bool {
        self.barren_until
            .is_some_and(|until| Instant::now() < until)
    }

    fn question(&self, ticket: u64, held: ResourceVersion) -> BoxFuture<'static, Answer> {
        // Before the question is sent: what is told from then on may be newer than its answer.
        let known = held.max(self.informer.floor().told(self.epoch));
        let (connection, shard) = (Arc::clone(&self.connection), Arc::clone(&self.shard));
        let informer = Arc::clone(&self.informer);
        async move {
            let asked = latest_resource_version(&connection, &shard, &informer.gvr);
            let newest = tokio::time::timeout(QUESTION_TIMEOUT, asked).await;
            Answer {
                ticket,
                known,
                newest: newest.unwrap_or(Err(ReflectorError::TimedOut)),
            }
        }
        .boxed()
    }

    fn attest(
        &self,
        from: ResourceVersion,
        target: ResourceVersion,
    ) -> BoxFuture<'static, Result<Attestation, ReflectorError>> {
        let (connection, shard) = (Arc::clone(&self.connection), Arc::clone(&self.shard));
        let (informer, envelope) = (Arc::clone(&self.informer), Arc::clone(&self.envelope));
        let settings = Arc::clone(&self.settings);
        let path = requests::list_path(
            &informer.gvr,
            &format!(
                "watch=1&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds={}",
                ATTESTS_FOR.as_secs()
            ),
        );
        let attest = async move {
            let answer = requests::open(
                &connection,
                &shard,
                &path,
                requests::accept(informer.holding),
            )
            .await?;
            let body = answer.into_body();
            let stream = Stream::new(body, ATTESTS_FOR, &envelope, &informer);
            attested(stream, from, target).await
        };
        async move {
            // Informers share the streams of a connection: many that catch up at once must not use them all. The time that
            // this takes says nothing about the server.
            let _place = settings.second_watches().acquire().await;
            let attested = tokio::time::timeout(ATTEST_TIMEOUT, attest).await;
            attested.unwrap_or(Err(ReflectorError::TimedOut))
        }
        .boxed()
    }
}

/// Reads a second watch up to a bookmark that is new enough.
async fn attested(
    mut stream: Stream,
    from: ResourceVersion,
    target: ResourceVersion,
) -> Result<Attestation, ReflectorError> {
    let mut last_event = from;
    while let Some(batch) = stream.next_batch().await? {
        for event in batch {
            match event {
                WatchEvent::Change(event) => {
                    let at = event.resource_version();
                    if at < last_event {
                        return Err(ReflectorError::OutOfOrder);
                    }
                    last_event = at;
                }
                WatchEvent::Bookmark {
                    resource_version: through,
                    ends_initial_events: false,
                    ..
                } => {
                    if through < last_event {
                        return Err(ReflectorError::OutOfOrder);
                    }
                    // Else a server that lags behind: it may yet get there.
                    if through >= target {
                        return Ok(Attestation {
                            last_event,
                            through,
                        });
                    }
                }
                WatchEvent::Bookmark { .. } => return Err(ReflectorError::UnknownEvent),
            }
        }
    }
    Err(ReflectorError::Ended)
}
