//! The list+watch loop of one informer, as an explicit state machine.
//!
//! ```text
//!            ┌────────────── another epoch ───────────────┐
//!            ▼                                            │
//!          Learn ──► List ──complete──► Watch ──ended──► Resume
//!            ▲        ▲                   │                │ │
//!            │        └──410, bad bytes───┘                │ │
//!            └── ended early: custom resource, new server ─┘ └──same cluster──► Watch
//! ```
//! `Learn` asks what the kind is, how its lists are written and how many objects there are. `List` fills a new store, by
//! a streaming list where the server offers it, else by pages; the old store stays readable until the swap. `Resume`
//! makes sure that the server is the one it was before the watch goes on: a watch from a resourceVersion in the future
//! is accepted and stays mute. A self-check beside the watch may send it back to `List` too.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::watch;

use crate::backoff::Backoff;
use crate::connection::{Connection, InformerShard, next_connection};
use crate::envelope::{Envelope, Learned};
use crate::error_chain::error_chain;
use crate::fields::Fields;
use crate::holding::Holding;
use crate::informer::Informer;
use crate::informers::{Refusal, Settings};
use crate::panics::{Pauses, caught};
use crate::resource_version::ResourceVersion;
use crate::store::Store;

mod attestation;
mod body;
mod error;
mod fields;
mod follow;
mod list;
mod probe;
mod protobuf;
mod protocol;
mod requests;
mod self_check;
mod stream;
mod table;
mod taken_in;
#[cfg(test)]
mod tests;

pub(crate) use error::ReflectorError;
use requests::ApiResource;
pub(crate) use requests::{latest_resource_version, preferred_version};

/// The pauses after a failure.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

enum State {
    Learn { from: Option<ResourceVersion> },
    List { from: Option<ResourceVersion> },
    Resume { early: bool },
    Watch,
}

/// The loop of one informer. Ends when the informer is stopped, or by itself with the reason why the kind stays live.
pub(crate) struct Reflector {
    informer: Arc<Informer>,
    settings: Arc<Settings>,
    state: State,
    epoch: u64,
    kind: Kind,
    store: Store,
    /// The highest version that a second watch has attested.
    attested: ResourceVersion,
    self_checked: self_check::Progress,
    backoff: Backoff,
    /// What came last could not be read, and no list has since been complete.
    malformed: bool,
    tables: table::Tables,
    /// What is listed is to be compared with what is held: where nothing contradicts it, its watch goes on.
    comparing: bool,
}

/// What is known of the kind once it was learned.
#[derive(Clone, Default, PartialEq, Eq)]
struct Kind {
    namespaced: bool,
    envelope: Option<Arc<Envelope>>,
    /// How it is called, as long as OpenAPI does not tell of it and its fields are unknown.
    untold: Option<String>,
    /// What `/version` said then: another version of the server may write the same objects in other bytes.
    server_version: Bytes,
}

impl Reflector {
    pub(crate) fn new(informer: Arc<Informer>, settings: Arc<Settings>) -> Self {
        Self {
            informer,
            settings,
            state: State::Learn { from: None },
            epoch: 0,
            kind: Kind::default(),
            store: Store::default(),
            attested: ResourceVersion::default(),
            self_checked: self_check::Progress::default(),
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
            malformed: false,
            tables: table::Tables::default(),
            comparing: false,
        }
    }

    /// Lists and watches on each connection the cluster has, until stopped.
    pub(crate) async fn run(
        mut self,
        connections: watch::Receiver<Option<Arc<Connection>>>,
    ) -> Option<Refusal> {
        let mut pauses = Pauses::default();
        let refusal = loop {
            let running = Box::pin(self.run_until_stopped(connections.clone()));
            if let Ok(refusal) = caught(running).await {
                break refusal;
            }
            self.distrust();
            let pause = pauses.next();
            tracing::error!(retry_in = ?pause, "informer panicked, lists anew");
            let stopped = self.informer.stopped().clone();
            stopped.run_until_cancelled(tokio::time::sleep(pause)).await;
        };
        // First what readers have: the store is the last to hold the objects.
        self.informer.close();
        self.store.retire();
        refusal
    }

    async fn run_until_stopped(
        &mut self,
        mut connections: watch::Receiver<Option<Arc<Connection>>>,
    ) -> Option<Refusal> {
        let stopped = self.informer.stopped().clone();
        loop {
            let connection = tokio::select! {
                () = stopped.cancelled() => return None,
                connection = next_connection(&mut connections) => connection?,
            };
            self.adopt(&connection);
            let shard = Arc::new(connection.informer_shard());
            let outcome = tokio::select! {
                () = stopped.cancelled() => return None,
                () = connection.closed().cancelled() => Ok(()),
                refusal = self.run_on(&connection, &shard) => Err(refusal),
            };
            self.informer.suspend();
            if let Err(refusal) = outcome {
                return Some(refusal);
            }
            if matches!(self.state, State::Watch) {
                self.state = State::Resume { early: true };
            }
        }
    }

    /// After a panic: what it left may be half changed, so nobody reads from it, watches end, and all is listed anew. The
    /// store stays for its version, as no list may be older, and goes when there is one.
    fn distrust(&mut self) {
        self.informer.suspend();
        self.informer.history().end();
        self.state = State::Learn { from: None };
        self.kind = Kind::default();
        self.attested = ResourceVersion::default();
        self.self_checked = self_check::Progress::default();
        self.malformed = false;
        self.comparing = false;
    }

    /// Another epoch is another cluster: nothing that was held is true there.
    fn adopt(&mut self, connection: &Connection) {
        // Whether it is the same cluster was asked on another connection.
        self.comparing = false;
        if connection.epoch != self.epoch {
            self.epoch = connection.epoch;
            self.attested = ResourceVersion::default();
            self.kind = Kind::default();
            self.state = State::Learn { from: None };
            self.informer.clear();
            std::mem::take(&mut self.store).retire();
        } else if connection.lists_anew && matches!(self.state, State::Resume { .. }) {
            // What was watched goes on where it was if the list says nothing else.
            self.comparing = true;
            self.state = State::Learn {
                from: Some(self.store.resource_version()),
            };
        }
    }

    /// Steps on one connection until the kind turns out to be one that stays live.
    async fn run_on(
        &mut self,
        connection: &Arc<Connection>,
        shard: &Arc<InformerShard>,
    ) -> Refusal {
        loop {
            #[cfg(test)]
            crate::panics::planned::here("reflector");
            let step = match self.state {
                State::Learn { from } => self.learn(connection, shard, from).await,
                State::List { from } => self.list(connection, shard, from).await,
                State::Resume { early } => self.resume(connection, shard, early).await,
                State::Watch => self.watch(connection, shard).await,
            };
            let error = match step {
                Ok(next) => {
                    self.state = next;
                    continue;
                }
                Err(error) => error,
            };
            if let Some(refusal) = error.refusal().or_else(|| self.refused_bytes(&error)) {
                // Where that is all the error says, the reason says it.
                let error = match error {
                    ReflectorError::Refused(_) => None,
                    error => Some(error.to_string()),
                };
                tracing::info!(reason = refusal.as_str(), error, "kind stays live");
                return refusal;
            }
            self.recover(connection, &error).await;
        }
    }

    /// What cannot be read twice, with no list between that could, will not be read by listing once more.
    fn refused_bytes(&mut self, error: &ReflectorError) -> Option<Refusal> {
        if !matches!(error, ReflectorError::Malformed(_)) {
            return None;
        }
        std::mem::replace(&mut self.malformed, true).then_some(Refusal::UnknownForm)
    }

    /// After an error that another try may mend: who is told, where to go on, and how long to wait.
    async fn recover(&mut self, connection: &Connection, error: &ReflectorError) {
        tracing::debug!(error = error_chain(error), "reflector failed");
        self.informer.failed(error.to_string());
        self.informer.suspend();
        if error.is_unauthorized() {
            connection.credential_rejected();
        } else if error.is_broken() {
            connection.suspect();
        }
        let held = self.store.resource_version();
        let is_no_table = self.tables.failed(error);
        self.state = match self.state {
            State::List { from } if is_no_table => State::Learn { from },
            State::Watch | State::Resume { .. } if is_no_table => State::Learn { from: Some(held) },
            State::Learn { from } => State::Learn { from },
            // The version asked for is unknown to the server: it may have gone back. Without one the list is a
            // consistent one, whose version tells.
            State::List { .. } if error.is_expired() || error.is_future() => {
                State::List { from: None }
            }
            State::List { from } => State::List { from },
            State::Watch | State::Resume { .. } if error.is_expired() || error.is_bad_bytes() => {
                // Those who watch are about to be ended, and this is why.
                tracing::info!(error = error_chain(error), rv = %held, "informer lists anew");
                State::List { from: Some(held) }
            }
            State::Watch | State::Resume { .. } => State::Resume { early: true },
        };
        tokio::time::sleep(self.backoff.next_pause()).await;
    }

    /// Which kind it is, whether it can be listed and watched, how its lists are written, how many objects it has, and
    /// which of their fields may be selected by.
    async fn learn(
        &mut self,
        connection: &Connection,
        shard: &InformerShard,
        from: Option<ResourceVersion>,
    ) -> Result<State, ReflectorError> {
        let gvr = &self.informer.gvr;
        let (resource, other) = requests::api_resource(connection, shard, gvr).await?;
        let (learned, headers) = match self.informer.holding {
            Holding::Objects => self.learn_objects(connection, shard, &resource).await?,
            Holding::Protobuf => self.learn_protobuf(connection, shard, &resource).await?,
        };
        if learned
            .count
            .is_none_or(|count| count > self.settings.max_objects_per_kind())
        {
            return Err(ReflectorError::Refused(Refusal::TooManyObjects));
        }
        let fields = self
            .learn_fields(connection, shard, &learned.envelope, &resource)
            .await?;
        let untold = fields.is_none().then_some(resource.kind);
        let known = fields.unwrap_or_else(|| Fields::custom(&[], resource.namespaced));
        let envelope = learned.envelope.with_warnings(&headers, &other);
        let envelope = match self.informer.holding {
            Holding::Objects => self.with_columns(connection, shard, envelope).await?,
            Holding::Protobuf => envelope,
        };
        let envelope = match self.informer.keeps.managed_fields {
            true => envelope,
            false => envelope.without_managed_fields(),
        };
        let kind = Kind {
            namespaced: resource.namespaced,
            envelope: Some(Arc::new(envelope.with_fields(known))),
            untold,
            server_version: requests::server_version(connection, shard).await?,
        };
        self.comparing &= kind == self.kind;
        self.kind = kind;
        Ok(State::List { from })
    }

    async fn learn_objects(
        &self,
        connection: &Connection,
        shard: &InformerShard,
        resource: &ApiResource,
    ) -> Result<(Learned, HeaderMap), ReflectorError> {
        let path = requests::list_path(&self.informer.gvr, "limit=1");
        let accept = requests::accept(self.informer.holding);
        let (headers, body) =
            requests::fetch_with_headers(connection, shard, &path, accept).await?;
        Ok((Envelope::learn(&body, &resource.kind)?, headers))
    }

    /// Makes sure that the server is the one it was, before a watch goes on where it stood. `early`: the watch ended
    /// before its time, so the server may be another process.
    async fn resume(
        &mut self,
        connection: &Connection,
        shard: &InformerShard,
        early: bool,
    ) -> Result<State, ReflectorError> {
        let held = self.store.resource_version();
        if early && !connection.is_same_cluster().await? {
            connection.epoch_ended();
            return Err(ReflectorError::WentBack);
        }
        let now = latest_resource_version(connection, shard, &self.informer.gvr).await?;
        if now < held {
            connection.epoch_ended();
            return Err(ReflectorError::WentBack);
        }
        // A changed CRD ends its watches: its objects may read otherwise now, at the resourceVersions they had, and the
        // kind may be called otherwise. So may those of any kind after an upgrade of the server.
        let changed = early
            && (self.envelope()?.is_unstructured()
                || requests::server_version(connection, shard).await? != self.kind.server_version);
        Ok(if changed {
            self.comparing = true;
            State::Learn { from: Some(held) }
        } else {
            State::Watch
        })
    }

    fn envelope(&self) -> Result<&Arc<Envelope>, ReflectorError> {
        self.kind
            .envelope
            .as_ref()
            .ok_or(ReflectorError::NotLearned)
    }
}
