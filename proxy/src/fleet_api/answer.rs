//! GET, LIST and WATCH of clusterconnections.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fleetcache_cache::form::Form as CacheForm;
use fleetcache_cache::informer::NotServable;
use fleetcache_cache::own_kind::CONNECTION;
use fleetcache_cache::store::Page;
use fleetcache_cache::watcher::Watcher;
use http::Response;
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt;

use super::lines::{Lines, Written};
use super::object::ClusterConnection;
use super::options;
use super::refusal::Refusal;
use super::representation::{Form, Representation};
use super::table;
use super::{FleetApi, FleetRequest};
use crate::body::{Body, empty};
use crate::cached::{self, from_memory};
use crate::decision::watch::{Begin, CachedWatch};
use crate::decision::{CachedRead, Freshness, LiveReason};
use crate::error::Error;
use crate::memory::{scope, snapshot};
use crate::request_info::{ResourcePath, Verb};
use crate::sent::{indented, pieces, whole};
use crate::status;
use crate::watch::{self, NotBegun, one_line};
use crate::writing::JSON;

/// There is no server that could fall silent.
const NO_GRACE: Duration = Duration::ZERO;

impl FleetApi {
    pub(super) async fn read(
        &self,
        request: &FleetRequest<'_>,
        resource: &ResourcePath<'_>,
        representation: Representation,
    ) -> Result<Response<Body>, Error> {
        let list = request.verb == Verb::List;
        let read = match list {
            true => options::list(request.query)?,
            false => options::get(request.query)?,
        };
        let held = snapshot(&self.informer, CONNECTION, scope(resource), read.freshness).await;
        let snapshot = held.map_err(|why| self.not_held(why, &read))?;
        let chunks = match &resource.name {
            Some(name) => {
                let not_found = || Refusal::NotFound {
                    name: name.to_string(),
                };
                let element = snapshot.get(name).ok_or_else(not_found)?;
                self.one(&element.item, representation)?
            }
            None => {
                let page = cached::page(resource, &read, &snapshot).await;
                let (page, at, token) = page.map_err(|_| Error::Internal)?;
                if page.rest.is_some() {
                    self.informer.keep_for_pages(&snapshot);
                }
                let around = match representation.form {
                    Form::Object => {
                        let page = self.shown(page, |object| object.to_json()).await;
                        let list = snapshot.list_body(page, CacheForm::Object, at, &token);
                        let list = list.await.map_err(|_| Error::Internal)?;
                        return Ok(respond(list, representation.pretty));
                    }
                    Form::Metadata(_) => {
                        let why = "you requested PartialObjectMetadata, but the requested object is a list (*unstructured.UnstructuredList)";
                        return Err(Refusal::NotAcceptable(why.to_owned()).into());
                    }
                    form => form,
                };
                let metadata = list_metadata(&at.to_string(), &token, &page);
                self.many(page, around, &metadata).await
            }
        };
        Ok(respond(chunks.into_iter(), representation.pretty))
    }

    /// One object, as it is asked for.
    fn one(&self, item: &Bytes, representation: Representation) -> Result<Vec<Bytes>, Error> {
        let object = self.now(item);
        let newline = Bytes::from_static(b"\n");
        Ok(match representation.form {
            Form::Object => vec![object.to_json(), newline],
            Form::Metadata(version) => {
                vec![table::metadata_alone(&object.metadata, version), newline]
            }
            Form::MetadataList(_) => return Err(Refusal::NotAList.into()),
            Form::Table(version, include) => {
                let at = &object.metadata.resource_version;
                let metadata = format!(r#"{{"resourceVersion":"{at}"}}"#);
                let (head, tail) = table::around(version, &metadata, true);
                vec![head, table::row(&object, version, include), tail, newline]
            }
        })
    }

    /// The objects of a page as a table, or as metadata.
    async fn many(&self, page: Page, form: Form, metadata: &str) -> Vec<Bytes> {
        let (head, items, tail) = match form {
            Form::Table(version, include) => {
                let (head, tail) = table::around(version, metadata, true);
                let rows = |object: ClusterConnection| table::row(&object, version, include);
                (head, self.shown(page, rows).await, tail)
            }
            Form::MetadataList(version) | Form::Metadata(version) if page.is_empty() => {
                // A slice that was never filled.
                let list = format!(
                    r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/{version}","metadata":{metadata},"items":null"#
                );
                (list.into(), page, "}".into())
            }
            Form::MetadataList(version) | Form::Metadata(version) => {
                let head = format!(
                    r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/{version}","metadata":{metadata},"items":["#
                );
                let items =
                    |object: ClusterConnection| table::metadata_alone(&object.metadata, version);
                (head.into(), self.shown(page, items).await, "]}".into())
            }
            Form::Object => unreachable!("objects are written by their envelope"),
        };
        let mut chunks = vec![head];
        for (at, item) in items.items().enumerate() {
            if at > 0 {
                chunks.push(Bytes::from_static(b","));
            }
            chunks.push(item.clone());
        }
        chunks.extend([tail, Bytes::from_static(b"\n")]);
        chunks
    }

    /// A page with its objects as they are now, written otherwise.
    async fn shown(&self, page: Page, write: impl Fn(ClusterConnection) -> Bytes) -> Page {
        page.map_items(|item| write(self.now(item))).await
    }

    /// An object with the figures of this moment; those that it was told with, where its cluster is gone.
    fn now(&self, item: &Bytes) -> ClusterConnection {
        let object = ClusterConnection::from_json(item).unwrap_or_default();
        object.with_figures_of(&self.clusters)
    }

    fn not_held(&self, why: NotServable, read: &CachedRead) -> Error {
        let current = self.informer.resource_version().unwrap_or_default();
        match (why, read.freshness, &read.from) {
            (NotServable::TooOld, Freshness::NotOlderThan(asked), _) => {
                Refusal::TooLarge { asked, current }.into()
            }
            (NotServable::NotHeld, _, Some(token)) => Error::PageExpired {
                continue_token: token.clone().at_newest().to_string(),
            },
            (NotServable::NotHeld, ..) => Refusal::Expired.into(),
            _ => Error::Internal,
        }
    }

    pub(super) async fn watch(
        &self,
        query: &str,
        resource: &ResourcePath<'_>,
        representation: Representation,
    ) -> Result<Response<Body>, Error> {
        let Some(asked) = options::watch(query)? else {
            return Ok(from_memory(empty(), JSON, None, &[]));
        };
        let written = match representation.form {
            Form::Object => Written::Object,
            Form::Table(version, include) => Written::Table(version, include),
            Form::Metadata(version) | Form::MetadataList(version) => Written::Metadata(version),
        };
        let body = match self.begin(resource, &asked).await {
            Err(line) => one_line(line),
            Ok(watcher) => {
                let lines = watch::lines(watcher, &asked, NO_GRACE);
                Lines::new(lines, written, Arc::clone(&self.clusters)).boxed_unsync()
            }
        };
        Ok(from_memory(body, JSON, None, &[]))
    }

    /// Begins a watch, or gives the event that it ends with at once.
    async fn begin(
        &self,
        resource: &ResourcePath<'_>,
        asked: &CachedWatch,
    ) -> Result<Watcher, Bytes> {
        let current = self.informer.resource_version().unwrap_or_default();
        let begin = asked.begin;
        if let Begin::After(after) = begin
            && after > current
        {
            // Nobody was told of it here: it is of another process, and would never be reached in order.
            return Err(status::too_old_event(after, current));
        }
        match watch::begin(&self.informer, CONNECTION, resource, asked).await {
            Ok((watcher, _)) => Ok(watcher),
            Err(NotBegun::Expired { asked, from }) => Err(status::too_old_event(asked, from)),
            Err(NotBegun::Live(reason)) => Err(match (reason, begin) {
                (LiveReason::History, Begin::After(after)) => status::too_old_event(after, current),
                (
                    LiveReason::ResourceVersion,
                    Begin::State {
                        freshness: Freshness::NotOlderThan(asked),
                        ..
                    },
                ) => status::error_event(Refusal::TooLarge { asked, current }),
                _ => status::error_event(Refusal::InvalidVersion(reason.as_str().to_owned())),
            }),
        }
    }
}

fn list_metadata(at: &str, token: &str, page: &Page) -> String {
    let mut metadata = format!(r#"{{"resourceVersion":"{at}""#);
    if !token.is_empty() {
        metadata += &format!(r#","continue":"{token}""#);
    }
    if let Some(count) = page.rest.as_ref().and_then(|rest| rest.count) {
        metadata += &format!(r#","remainingItemCount":{count}"#);
    }
    metadata + "}"
}

fn respond(chunks: impl Iterator<Item = Bytes> + Send + 'static, pretty: bool) -> Response<Body> {
    let (body, length) = if pretty {
        indented(chunks)
    } else {
        let chunks: Vec<_> = chunks.collect();
        let length = chunks.iter().map(Bytes::len).sum::<usize>() as u64;
        match length {
            // A small body in one piece.
            0..=65_536 => whole(chunks.concat()),
            _ => (pieces(chunks.into_iter()), Some(length)),
        }
    };
    let mut response = from_memory(body, JSON, None, &[]);
    if let Some(length) = length {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    response
}
