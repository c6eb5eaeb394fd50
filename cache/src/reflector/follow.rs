//! An open watch: its events, and what makes sure between them that the informer is as new as its readers need.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::fields::Confirmation;
use super::probe::Probe;
use super::protocol::WatchEvent;
use super::requests;
use super::self_check::SelfCheck;
use super::stream::Stream;
use super::{Reflector, ReflectorError, State};
use crate::connection::{Connection, InformerShard};
use crate::informers::Refusal;
use crate::resource_version::ResourceVersion;
use crate::store::Event;

/// A watch is asked to last this long, plus as much again at random, as client-go asks.
const WATCH_SECONDS: u64 = 300;

/// A floor that an informer has not reached for this long is compared with the server.
const FLOOR_CHECK: Duration = Duration::from_secs(10);

/// A watch that is still open this long after its time is not one any more.
const WATCH_OVERDUE: Duration = Duration::from_secs(30);

impl Reflector {
    pub(super) async fn watch(
        &mut self,
        connection: &Arc<Connection>,
        shard: &Arc<InformerShard>,
    ) -> Result<State, ReflectorError> {
        let options = format!(
            "resourceVersion={}&allowWatchBookmarks=true",
            self.store.resource_version()
        );
        let stream = self.open_watch(connection, shard, &options).await?;
        self.informer.hear();
        self.publish(connection)?;
        self.follow(connection, shard, stream).await
    }

    pub(super) async fn open_watch(
        &self,
        connection: &Connection,
        shard: &InformerShard,
        options: &str,
    ) -> Result<Stream, ReflectorError> {
        let seconds = WATCH_SECONDS + rand::random_range(0..WATCH_SECONDS);
        let (accept, include) = self.asks_for()?;
        let path = requests::list_path(
            &self.informer.gvr,
            &format!("watch=1&{options}&timeoutSeconds={seconds}{include}"),
        );
        let body = requests::open(connection, shard, &path, accept)
            .await?
            .into_body();
        let lasts = Duration::from_secs(seconds);
        Ok(Stream::new(body, lasts, self.envelope()?, &self.informer))
    }

    /// Takes the events of an open watch until it ends.
    pub(super) async fn follow(
        &mut self,
        connection: &Arc<Connection>,
        shard: &Arc<InformerShard>,
        mut stream: Stream,
    ) -> Result<State, ReflectorError> {
        self.state = State::Watch;
        self.informer.watching_on(Arc::clone(shard));
        let ends = stream.ends_by();
        let mut floor_checks = tokio::time::interval(FLOOR_CHECK);
        let mut below_at = None;
        let mut probe = Probe::new(self, connection, shard)?;
        let mut check = SelfCheck::new(self, connection, shard);
        let mut confirmation = Box::pin(self.confirm_fields(connection, shard));
        let mut fields_confirmed = false;
        loop {
            probe.start_due(&self.store);
            let said = tokio::select! {
                said = stream.next_batch() => Some(said?),
                found = probe.next() => {
                    // What this watch has to say by now comes before what the probe found: an end that comes with another
                    // server must not be overtaken by that server's answers.
                    if !self.hear_out(connection, &mut stream).await? {
                        return Ok(self.ended(ends));
                    }
                    probe.take(found, &self.store)?;
                    None
                }
                found = check.next() => {
                    // As above: a watch that has ended says more than any difference.
                    if !self.hear_out(connection, &mut stream).await? {
                        return Ok(self.ended(ends));
                    }
                    if let Some(next) = self.take_self_check(&mut check, found)? {
                        return Ok(next);
                    }
                    None
                }
                confirmed = &mut confirmation, if !fields_confirmed => {
                    fields_confirmed = true;
                    match confirmed? {
                        Confirmation::Accepted => {}
                        Confirmation::Refused => self.drop_fields(connection)?,
                        Confirmation::More => {
                            self.informer.suspend();
                            return Ok(State::Learn { from: Some(self.store.resource_version()) });
                        }
                    }
                    None
                }
                () = tokio::time::sleep_until(ends + WATCH_OVERDUE) => return Err(ReflectorError::Overdue),
                _ = floor_checks.tick() => {
                    below_at = self.check_floor(&mut probe, below_at);
                    None
                }
            };
            match said {
                None => {}
                Some(Some(batch)) => self.take(connection, batch)?,
                Some(None) => return Ok(self.ended(ends)),
            }
            if let Some(through) = probe.settle(&self.store) {
                self.attested = through;
                let bookmark = Event::Bookmark(through);
                self.apply(connection, vec![WatchEvent::Change(bookmark)])?;
            }
        }
    }

    /// Takes what has arrived of a watch; false where that is its end.
    async fn hear_out(
        &mut self,
        connection: &Connection,
        stream: &mut Stream,
    ) -> Result<bool, ReflectorError> {
        loop {
            // The first look may only have given others their turn.
            let said = match stream.next_batch().now_or_never() {
                None => stream.next_batch().now_or_never(),
                said => said,
            };
            match said.transpose()? {
                None => return Ok(true),
                Some(None) => return Ok(false),
                Some(Some(batch)) => self.take(connection, batch)?,
            }
            tokio::task::yield_now().await;
        }
    }

    /// The watch ended in good order.
    fn ended(&self, ends: Instant) -> State {
        // Servers end a watch at its time; a second before may still be the server's clock.
        let early = Instant::now() + Duration::from_secs(1) < ends;
        if early {
            self.informer.suspend();
        }
        State::Resume { early }
    }

    /// Applies the events of the watch.
    fn take(
        &mut self,
        connection: &Connection,
        batch: Vec<WatchEvent>,
    ) -> Result<(), ReflectorError> {
        self.apply(connection, batch)?;
        self.backoff.reset();
        if self.store.len() as u64 > self.settings.max_objects_per_kind() {
            return Err(ReflectorError::Refused(Refusal::TooManyObjects));
        }
        Ok(())
    }

    /// A floor that stays out of reach was told by another history: the cluster was restored to a state that this
    /// informer had not passed yet. `below_at` is the version at which the last check found the informer below.
    fn check_floor(
        &self,
        probe: &mut Probe,
        below_at: Option<ResourceVersion>,
    ) -> Option<ResourceVersion> {
        let held = self.store.resource_version();
        if self.informer.floor().told(self.epoch) <= held {
            return None;
        }
        if below_at == Some(held) {
            probe.check();
        }
        Some(held)
    }

    /// Applies events and publishes the state after the last of them.
    pub(super) fn apply(
        &mut self,
        connection: &Connection,
        batch: Vec<WatchEvent>,
    ) -> Result<(), ReflectorError> {
        let mut deleted = Vec::new();
        let mut changes = Vec::new();
        for event in batch {
            let held = self.store.resource_version();
            let event = match event {
                WatchEvent::Change(event) => event,
                // A second watch may have been told more by then: its bookmark and this one crossed.
                WatchEvent::Bookmark {
                    resource_version: at,
                    ..
                } if at < held && at < self.attested => continue,
                WatchEvent::Bookmark {
                    resource_version,
                    form,
                    ends_initial_events,
                } => {
                    if let Some(form) = form {
                        let history = self.informer.history();
                        history.learn_bookmark(form, ends_initial_events);
                    }
                    Event::Bookmark(resource_version)
                }
            };
            let at = event.resource_version();
            // A second change of one version would be lost on those who watch from it. Objects with a lease (Events) expire
            // together, and no server has another way.
            if at < held || (at == held && matches!(event, Event::Applied(_))) {
                return Err(ReflectorError::OutOfOrder);
            }
            if let Event::Deleted(element) = &event {
                deleted.push((element.uid.clone(), at));
            }
            changes.extend(self.store.apply(event));
        }
        self.publish(connection)?;
        let through = self.store.resource_version();
        self.informer.history().append(changes.into_iter(), through);
        // After the publish: a reader that no longer finds the uid in the floor must find it gone in the snapshot.
        for (uid, at) in deleted {
            self.informer.floor().deleted(self.epoch, &uid, at);
        }
        Ok(())
    }

    /// Gives readers what is held now.
    pub(super) fn publish(&self, connection: &Connection) -> Result<(), ReflectorError> {
        let snapshot = self.store.snapshot(self.envelope()?);
        let on = (connection.generation, connection.epoch);
        self.informer.publish(on, self.kind.namespaced, snapshot);
        Ok(())
    }
}
