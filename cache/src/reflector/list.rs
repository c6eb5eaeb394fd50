//! Lists: by stream where the server offers it, else by pages; and the swap of what was held for what was listed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::protobuf;
use super::protocol::WatchEvent;
use super::requests;
use super::stream::Stream;
use super::{Reflector, ReflectorError, State, table, taken_in};
use crate::connection::{Connection, InformerShard};
use crate::envelope::Envelope;
use crate::holding::Holding;
use crate::informers::Refusal;
use crate::object::{ListHead, ObjectHead};
use crate::resource_version::ResourceVersion;
use crate::store::{Element, Event, Store};

/// A streaming list that sends nothing for this long does not stream, or will not end: an older server ignores
/// `sendInitialEvents`.
const STREAMING_LIST_SILENCE: Duration = Duration::from_secs(10);

/// Objects of a page where lists are paged.
const PAGE: usize = 500;

impl Reflector {
    /// Fills a new store and swaps it in. `from` is the version that the list may not be older than; a list without one
    /// is a consistent one.
    pub(super) async fn list(
        &mut self,
        connection: &Arc<Connection>,
        shard: &Arc<InformerShard>,
        from: Option<ResourceVersion>,
    ) -> Result<State, ReflectorError> {
        if self.settings.pages_lists() {
            let store = self.list_pages(connection, shard, from).await?;
            self.swap(connection, store).await?;
            return Ok(State::Watch);
        }
        let mut stream = match self.open_streaming_list(connection, shard, from).await {
            Err(error) if error.is_refused_option() => {
                self.settings.page_lists();
                return Ok(State::List { from });
            }
            stream => stream?,
        };
        let mut store = Store::default();
        loop {
            let batch = tokio::time::timeout(STREAMING_LIST_SILENCE, stream.next_batch()).await;
            let Ok(batch) = batch else {
                // Silent before the end: perhaps an older server, perhaps a dead one. Pages work on the first and
                // fail on the second, so this is not remembered.
                let store = self.list_pages(connection, shard, from).await?;
                self.swap(connection, store).await?;
                return Ok(State::Watch);
            };
            let batch = batch?.ok_or(ReflectorError::Ended)?;
            let mut events = batch.into_iter();
            for event in events.by_ref() {
                match event {
                    WatchEvent::Change(Event::Applied(element)) => store.stage(element),
                    WatchEvent::Change(Event::Deleted(element)) => store.unstage(&element.key),
                    WatchEvent::Change(Event::Bookmark(_))
                    | WatchEvent::Bookmark {
                        ends_initial_events: false,
                        ..
                    } => {
                        self.settings.page_lists();
                        return Ok(State::List { from });
                    }
                    WatchEvent::Bookmark {
                        resource_version,
                        form,
                        ..
                    } => {
                        if let Some(form) = form {
                            self.informer.history().learn_bookmark(form, true);
                        }
                        store.complete(resource_version);
                        if !self.swap(connection, store).await? {
                            return Ok(State::Watch);
                        }
                        let rest: Vec<WatchEvent> = events.collect();
                        self.apply(connection, rest)?;
                        return self.follow(connection, shard, stream).await;
                    }
                }
            }
            if store.len() as u64 > self.settings.max_objects_per_kind() {
                return Err(ReflectorError::Refused(Refusal::TooManyObjects));
            }
        }
    }

    async fn open_streaming_list(
        &self,
        connection: &Connection,
        shard: &InformerShard,
        from: Option<ResourceVersion>,
    ) -> Result<Stream, ReflectorError> {
        let from = from.map(|version| version.to_string()).unwrap_or_default();
        let options = format!(
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={from}&allowWatchBookmarks=true"
        );
        self.open_watch(connection, shard, &options).await
    }

    /// Lists by pages, for servers without streaming lists.
    async fn list_pages(
        &self,
        connection: &Connection,
        shard: &InformerShard,
        from: Option<ResourceVersion>,
    ) -> Result<Store, ReflectorError> {
        let gvr = &self.informer.gvr;
        let envelope = self.envelope()?;
        // A limit with a version alone means exactly that version, so the match is said.
        let mut query = match from {
            Some(from) => {
                format!("limit={PAGE}&resourceVersion={from}&resourceVersionMatch=NotOlderThan")
            }
            None => format!("limit={PAGE}"),
        };
        let mut store = Store::default();
        loop {
            let (accept, include) = self.asks_for()?;
            let path = requests::list_path(gvr, &format!("{query}{include}"));
            let body = requests::fetch_page(connection, shard, &path, accept).await?;
            let page = Page::read(body, Arc::clone(envelope)).await?;
            for element in page.elements {
                store.stage(element);
            }
            if store.len() as u64 > self.settings.max_objects_per_kind() {
                return Err(ReflectorError::Refused(Refusal::TooManyObjects));
            }
            if page.continue_token.is_empty() {
                let at = page.resource_version;
                store.complete(at.ok_or(ReflectorError::NoResourceVersion)?);
                return Ok(store);
            }
            query = format!("limit={PAGE}&continue={}", page.continue_token);
        }
    }

    /// A complete list takes the place of what was held. False where it does not, since all of it that the informer's watch
    /// will not tell is what is held: the watch goes on from there, and with it those of clients.
    async fn swap(
        &mut self,
        connection: &Connection,
        store: Store,
    ) -> Result<bool, ReflectorError> {
        if store.resource_version() < self.store.resource_version() {
            connection.epoch_ended();
            return Err(ReflectorError::WentBack);
        }
        self.malformed = false;
        self.tables.listed();
        self.informer.count_list();
        self.settings.count_list();
        if self.comparing && store.agrees_with(&self.store).await {
            self.comparing = false;
            store.retire();
            return Ok(false);
        }
        self.comparing = false;
        let snapshot = store.snapshot(self.envelope()?);
        tracing::info!(
            rv = %store.resource_version(), objects = store.len(), "informer synced"
        );
        // Readers get the new state before the floor forgets what is gone.
        let on = (connection.generation, connection.epoch);
        self.informer.publish(on, self.kind.namespaced, snapshot);
        let (at, envelope) = (store.resource_version(), Arc::clone(self.envelope()?));
        self.informer.history().begin(self.epoch, at, envelope);
        // After the publish, which lets go of the old snapshot: the old store is the last to hold its objects.
        std::mem::replace(&mut self.store, store).retire();
        self.informer.floor().replaced(self.epoch, at);
        self.backoff.reset();
        Ok(true)
    }
}

/// A page of a list.
pub(super) struct Page {
    pub(super) elements: Vec<Element>,
    pub(super) continue_token: String,
    pub(super) resource_version: Option<ResourceVersion>,
}

impl Page {
    /// Reads a page on a thread for such work: it cannot be read in part, and 500 large objects are several megabytes.
    async fn read(body: Bytes, envelope: Arc<Envelope>) -> Result<Self, ReflectorError> {
        let page = tokio::task::spawn_blocking(move || match envelope.holding() {
            Holding::Objects => {
                table::page(&body, &envelope).unwrap_or_else(|| Self::parse(&body, &envelope))
            }
            Holding::Protobuf => protobuf::page(&body, &envelope),
        });
        // Else it has panicked, or the runtime ends.
        page.await.unwrap_or(Err(ReflectorError::Ended))
    }

    fn parse(body: &[u8], envelope: &Envelope) -> Result<Self, ReflectorError> {
        let page = ListHead::parse(body).map_err(ReflectorError::BadBytes)?;
        let element = |item: &&RawValue| {
            let item = item.get().as_bytes();
            let head = ObjectHead::parse(item).map_err(ReflectorError::BadBytes)?;
            let kept = envelope.item_from_list(item)?;
            let element = taken_in::element(envelope, &head.metadata, item, kept)?;
            Ok::<_, ReflectorError>(element.with_values(envelope.fields(), item))
        };
        Ok(Self {
            elements: page
                .items
                .iter()
                .flatten()
                .map(element)
                .collect::<Result<_, _>>()?,
            continue_token: page.metadata.continue_token.into_owned(),
            resource_version: ResourceVersion::parse(&page.metadata.resource_version),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns::turns_during;

    #[tokio::test]
    async fn a_page_is_read_while_others_work() {
        let item = |at: usize| {
            format!(
                r#"{{"metadata":{{"name":"p{at}","namespace":"n","resourceVersion":"{at}"}},"data":"{}"}}"#,
                "x".repeat(10_000)
            )
        };
        let items: Vec<String> = (1..=PAGE).map(item).collect();
        let body = format!(
            "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"900\",\"continue\":\"t\"}},\"items\":[{}]}}\n",
            items.join(",")
        );
        let envelope = Envelope::learn(body.as_bytes(), "Pod").unwrap().envelope;
        let read = Page::read(body.into(), Arc::new(envelope));
        let (page, turns) = turns_during(read).await;
        let page = page.unwrap();
        assert_eq!(page.elements.len(), PAGE);
        assert_eq!(page.continue_token, "t");
        assert_eq!(page.resource_version, ResourceVersion::parse("900"));
        assert!(turns > 0);
    }
}
