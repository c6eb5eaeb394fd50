//! GET and LIST.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::Response;
use tokio::time::timeout;

use super::Service;
use super::body::{self, Body};
use super::continue_token::ContinueToken;
use super::object::Object;
use super::options::{ListOptions, ReadAt, version_or_unexpected};
use super::query::Query;
use super::representation::Representation;
use super::resource::Resource;
use super::scale;
use super::status::Status;
use super::store::{Page, PageRequest, Store};
use super::table;
use super::target::ResourcePath;

/// A list body is sent in pieces of about this size, so that a large list is never held whole.
const CHUNK: usize = 64 * 1024;

/// Answers a GET of one object.
pub(super) async fn get(
    service: &Service,
    path: &ResourcePath,
    query: &Query,
    representation: Representation,
) -> Result<Response<Body>, Status> {
    let version = version_or_unexpected(query.get("resourceVersion").unwrap_or_default())?;
    wait_for(
        &service.store,
        path.resource,
        version.unwrap_or_default(),
        service.fresh_wait,
    )
    .await?;
    let object = service
        .store
        .get(path.resource.plural, &path.namespace, &path.name);
    let object = object.ok_or_else(|| Status::not_found(path.resource, &path.name))?;
    let mut bytes = match path.subresource.as_str() {
        "scale" => scale::encode(&object),
        _ => representation.encode(path.resource, &object, true),
    };
    bytes.push(b'\n');
    Ok(body::json(bytes))
}

/// Answers a LIST.
pub(super) async fn list(
    service: &Service,
    path: &ResourcePath,
    options: &ListOptions,
    representation: Representation,
) -> Result<Response<Body>, Status> {
    let page = read(service, path, options).await?;
    let bad_bytes = service.faults.in_force().bad_bytes;
    let pieces = ListPieces::new(path.resource, page, representation);
    if let Some(bad) = bad_bytes {
        let sound: Vec<u8> = pieces.flatten().collect();
        return Ok(body::broken_response(bad, &sound));
    }
    let goes_on = service.faults.lists_go_on(path);
    Ok(body::held_up(pieces.respond(), goes_on))
}

/// A list of whole objects.
pub(super) fn respond(resource: &'static Resource, page: Page) -> Response<Body> {
    ListPieces::new(resource, page, Representation::Object).respond()
}

/// The page that a LIST shows.
pub(super) async fn read(
    service: &Service,
    path: &ResourcePath,
    options: &ListOptions,
) -> Result<Page, Status> {
    let plan = options.list_plan()?;
    let at = match plan.at {
        ReadAt::Any | ReadAt::Newest => None,
        ReadAt::NotOlderThan(version) => {
            wait_for(&service.store, path.resource, version, service.fresh_wait).await?;
            None
        }
        ReadAt::Exact(version) => {
            wait_for(&service.store, path.resource, version, service.fresh_wait).await?;
            Some(version)
        }
    };
    let request = PageRequest {
        resource: path.resource,
        namespace: &path.namespace,
        selector: &options.selector,
        at,
        after: plan.after.as_deref(),
        limit: plan.limit,
    };
    service
        .store
        .page(&request)
        .ok_or_else(|| match &plan.after {
            Some(after) => Status::expired_page(
                ContinueToken {
                    revision: None,
                    after: after.clone(),
                }
                .encode(),
            ),
            None => Status::expired_list(),
        })
}

/// Waits until the store has reached `version`.
pub(super) async fn wait_for(
    store: &Store,
    resource: &Resource,
    version: u64,
    patience: Duration,
) -> Result<(), Status> {
    let mut positions = store.positions();
    let reached = timeout(
        patience,
        positions.wait_for(|position| position.revision >= version),
    )
    .await;
    match reached {
        Ok(_) => Ok(()),
        Err(_) => Err(Status::too_large(resource, version, store.revision())),
    }
}

/// The bytes of a list, piece by piece.
struct ListPieces {
    resource: &'static Resource,
    representation: Representation,
    items: std::vec::IntoIter<Arc<Object>>,
    first: bool,
    head: Option<Vec<u8>>,
    tail: Option<Vec<u8>>,
}

impl ListPieces {
    fn new(resource: &'static Resource, page: Page, representation: Representation) -> Self {
        let token = page.next.map(|after| {
            ContinueToken {
                revision: Some(page.revision),
                after,
            }
            .encode()
        });
        let metadata = ListMetadata {
            revision: page.revision,
            token,
            remaining: page.remaining,
        };
        let (head, tail) = envelope(resource, representation, &metadata);
        Self {
            resource,
            representation,
            items: page.items.into_iter(),
            first: true,
            head: Some(head),
            tail: Some(tail),
        }
    }

    /// One piece if the list is small, and a stream otherwise, as the apiserver does it.
    fn respond(mut self) -> Response<Body> {
        let first = self.next().unwrap_or_default();
        match self.next() {
            None => body::json(first),
            Some(second) => {
                let pieces = [first, second].into_iter().chain(self);
                body::streamed(stream::iter(pieces.map(|piece| Ok(Bytes::from(piece)))))
            }
        }
    }

    fn push_item(&mut self, piece: &mut Vec<u8>, object: &Object) {
        if !std::mem::take(&mut self.first) {
            piece.push(b',');
        }
        match self.representation {
            Representation::Object => {
                piece.push(b'{');
                piece.extend_from_slice(object.item_tail());
            }
            Representation::Metadata => {
                piece.extend_from_slice(&self.representation.encode(self.resource, object, false))
            }
            Representation::Table(include) => {
                table::push_row(piece, self.resource, object, include)
            }
        }
    }
}

impl Iterator for ListPieces {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut piece = self.head.take().unwrap_or_default();
        while piece.len() < CHUNK {
            let Some(object) = self.items.next() else {
                piece.extend(self.tail.take().unwrap_or_default());
                break;
            };
            self.push_item(&mut piece, &object);
        }
        (!piece.is_empty()).then_some(piece)
    }
}

struct ListMetadata {
    revision: u64,
    token: Option<String>,
    remaining: Option<usize>,
}

impl ListMetadata {
    fn built_in(&self) -> String {
        let mut text = format!(r#"{{"resourceVersion":"{}""#, self.revision);
        if let Some(token) = &self.token {
            text.push_str(&format!(r#","continue":"{token}""#));
        }
        if let Some(remaining) = self.remaining {
            text.push_str(&format!(r#","remainingItemCount":{remaining}"#));
        }
        text.push('}');
        text
    }

    /// Alphabetical, and with a token even where there is none.
    fn custom(&self) -> String {
        let token = self.token.as_deref().unwrap_or_default();
        let remaining = self
            .remaining
            .map(|count| format!(r#""remainingItemCount":{count},"#))
            .unwrap_or_default();
        format!(
            r#"{{"continue":"{token}",{remaining}"resourceVersion":"{}"}}"#,
            self.revision
        )
    }
}

/// What stands before and after the items.
fn envelope(
    resource: &Resource,
    representation: Representation,
    metadata: &ListMetadata,
) -> (Vec<u8>, Vec<u8>) {
    let (version, kind) = (resource.api_version(), resource.kind);
    let (head, tail) = match representation {
        Representation::Table(_) => {
            let head = table::open(resource, &metadata.built_in(), true);
            return (head, [table::CLOSE, b"\n"].concat());
        }
        Representation::Metadata => {
            let metadata = metadata.built_in();
            let kind = r#""kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1""#;
            (
                format!(r#"{{{kind},"metadata":{metadata},"items":["#),
                "]}\n".to_owned(),
            )
        }
        Representation::Object if resource.custom => {
            let tail = format!(
                r#"],"kind":"{kind}List","metadata":{}}}"#,
                metadata.custom()
            );
            (
                format!(r#"{{"apiVersion":"{version}","items":["#),
                tail + "\n",
            )
        }
        Representation::Object => {
            let metadata = metadata.built_in();
            let head = format!(
                r#"{{"kind":"{kind}List","apiVersion":"{version}","metadata":{metadata},"items":["#
            );
            (head, "]}\n".to_owned())
        }
    };
    (head.into_bytes(), tail.into_bytes())
}
