//! What a reflector asks its server.

use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT_ENCODING;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use serde::Deserialize;

use crate::connection::{Connection, InformerShard};
use crate::gvr::Gvr;
use crate::holding::Holding;
use crate::informers::Refusal;
use crate::object::{ListMeta, StatusHead, protobuf};
use crate::reflector::{ReflectorError, body};
use crate::resource_version::ResourceVersion;
use crate::upstream::RequestBody;

/// Time until an answer begins.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What is asked for where the answer is read here.
const JSON: &str = "application/json";

/// What is asked for where only the list's own metadata count; plain JSON where a server has no other form.
const METADATA: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// What is asked for where only the objects' metadata count, and plain JSON would be too much.
const METADATA_ALONE: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Bytes of an error answer that are read.
const ERROR_BYTES: usize = 64 << 10;

/// Bytes of an answer about one object, or none. A server that sends more has not understood `limit=1`, or means no good.
const ANSWER_BYTES: usize = 64 << 20;

/// Bytes of a page of a list: all of its objects as large as etcd takes them.
const PAGE_BYTES: usize = 1 << 30;

/// Bytes of a page of metadata: 500 times 32 KiB.
const METADATA_BYTES: usize = 16 << 20;

/// What is asked for where the objects count.
pub(super) const fn accept(holding: Holding) -> &'static str {
    match holding {
        Holding::Objects => JSON,
        // Nothing else: a server that has no protobuf of a kind says so.
        Holding::Protobuf => "application/vnd.kubernetes.protobuf",
    }
}

/// The path of a kind's LIST, across namespaces.
pub(crate) fn list_path(gvr: &Gvr, query: &str) -> String {
    format!("{}/{}?{query}", gvr.group_version_path(), gvr.resource)
}

/// Opens a watch; its answer is a 200 whose body follows.
pub(crate) async fn open(
    connection: &Connection,
    shard: &InformerShard,
    path: &str,
    accept: &'static str,
) -> Result<Response<Incoming>, ReflectorError> {
    let request = connection.informer_request(path, accept);
    answer(connection, shard, request).await
}

/// The headers and the whole body of a request's answer.
async fn whole(
    connection: &Connection,
    shard: &InformerShard,
    path: &str,
    accept: &'static str,
    limit: usize,
) -> Result<(HeaderMap, Bytes), ReflectorError> {
    let mut request = connection.informer_request(path, accept);
    request.headers_mut().insert(ACCEPT_ENCODING, body::GZIP);
    let (head, body) = answer(connection, shard, request).await?.into_parts();
    let body = body::read(&head.headers, body, limit).await?;
    Ok((head.headers, body))
}

/// The answer to a request; it is a 200 whose body follows.
async fn answer(
    connection: &Connection,
    shard: &InformerShard,
    request: Request<RequestBody>,
) -> Result<Response<Incoming>, ReflectorError> {
    // Boxed: the future of a request is large, and all that wait for one would be as large.
    let sent = Box::pin(connection.send_informer(shard, request));
    let response = tokio::time::timeout(ANSWER_TIMEOUT, sent)
        .await
        .map_err(|_| ReflectorError::TimedOut)??;
    let code = response.status().as_u16();
    if code == 200 {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let body = body::read(&head.headers, body, ERROR_BYTES)
        .await
        .unwrap_or_default();
    let message = serde_json::from_slice::<StatusHead>(&body)
        .map(|status| status.message)
        .or_else(|error| {
            protobuf::status(&body)
                .map(|(_, message)| message)
                .ok_or(error)
        })
        .unwrap_or_else(|_| String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned());
    Err(ReflectorError::Status { code, message })
}

/// The whole body of a request's answer.
pub(crate) async fn fetch(
    connection: &Connection,
    shard: &InformerShard,
    path: &str,
) -> Result<Bytes, ReflectorError> {
    Ok(fetch_with_headers(connection, shard, path, JSON).await?.1)
}

/// The headers and the whole body of a request's answer.
pub(crate) async fn fetch_with_headers(
    connection: &Connection,
    shard: &InformerShard,
    path: &str,
    accept: &'static str,
) -> Result<(HeaderMap, Bytes), ReflectorError> {
    whole(connection, shard, path, accept, ANSWER_BYTES).await
}

/// The whole body of a page of a list.
pub(super) async fn fetch_page(
    connection: &Connection,
    shard: &InformerShard,
    path: &str,
    accept: &'static str,
) -> Result<Bytes, ReflectorError> {
    Ok(whole(connection, shard, path, accept, PAGE_BYTES).await?.1)
}

/// The whole body of a page of a list, of metadata alone.
pub(super) async fn fetch_metadata(
    connection: &Connection,
    shard: &InformerShard,
    path: &str,
) -> Result<Bytes, ReflectorError> {
    let (_, body) = whole(connection, shard, path, METADATA_ALONE, METADATA_BYTES).await?;
    Ok(body)
}

/// The newest version of a kind, from a consistent `LIST limit=1`.
pub(crate) async fn latest_resource_version(
    connection: &Connection,
    shard: &InformerShard,
    gvr: &Gvr,
) -> Result<ResourceVersion, ReflectorError> {
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        metadata: ListMeta<'a>,
    }
    let path = list_path(gvr, "limit=1");
    let (_, body) = whole(connection, shard, &path, METADATA, ANSWER_BYTES).await?;
    let list: List<'_> = serde_json::from_slice(&body).map_err(ReflectorError::BadBytes)?;
    ResourceVersion::parse(&list.metadata.resource_version).ok_or(ReflectorError::NoResourceVersion)
}

/// What the server says of its own version, byte for byte; empty where it does not say.
pub(crate) async fn server_version(
    connection: &Connection,
    shard: &InformerShard,
) -> Result<Bytes, ReflectorError> {
    match fetch(connection, shard, "/version").await {
        Err(ReflectorError::Status { code, .. }) if code < 500 && code != 401 => Ok(Bytes::new()),
        version => version,
    }
}

/// A resource as discovery tells it.
#[derive(Debug, Deserialize)]
pub(crate) struct ApiResource {
    name: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}

/// A kind that can be listed and watched, as its group version's discovery tells it, and the headers of that answer.
pub(crate) async fn api_resource(
    connection: &Connection,
    shard: &InformerShard,
    gvr: &Gvr,
) -> Result<(ApiResource, HeaderMap), ReflectorError> {
    #[derive(Deserialize)]
    struct ApiResourceList {
        resources: Vec<ApiResource>,
    }
    let path = gvr.group_version_path();
    let (headers, body) = fetch_with_headers(connection, shard, &path, JSON).await?;
    let list: ApiResourceList = serde_json::from_slice(&body).map_err(ReflectorError::BadBytes)?;
    let has = |resource: &ApiResource, verb: &str| resource.verbs.iter().any(|known| known == verb);
    list.resources
        .into_iter()
        .find(|resource| *resource.name == *gvr.resource)
        .filter(|resource| has(resource, "list") && has(resource, "watch"))
        .map(|resource| (resource, headers))
        .ok_or(ReflectorError::Refused(Refusal::NotListable))
}

/// The version that a group prefers; `v1` for the core group.
pub(crate) async fn preferred_version(
    connection: &Connection,
    shard: &InformerShard,
    group: &str,
) -> Result<String, ReflectorError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ApiGroup {
        preferred_version: Version,
    }
    #[derive(Deserialize)]
    struct Version {
        version: String,
    }
    if group.is_empty() {
        return Ok("v1".to_owned());
    }
    let body = fetch(connection, shard, &format!("/apis/{group}")).await?;
    let group: ApiGroup = serde_json::from_slice(&body).map_err(ReflectorError::BadBytes)?;
    Ok(group.preferred_version.version)
}
