//! What a reflector asks its server.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use serde::Deserialize;

use crate::connection::{Connection, InformerShard};
use crate::gvr::Gvr;
use crate::holding::Holding;
use crate::informers::Refusal;
use crate::object::{ListMeta, StatusHead, protobuf};
use crate::reflector::ReflectorError;
use crate::resource_version::ResourceVersion;

/// Time until an answer begins, and longest silence inside one that is read whole.
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

/// Opens a request; its answer is a 200 whose body follows.
pub(crate) async fn open(
    connection: &Connection,
    shard: &InformerShard,
    path: &str,
    accept: &'static str,
) -> Result<Response<Incoming>, ReflectorError> {
    let request = connection.informer_request(path, accept);
    // Boxed: the future of a request is large, and all that wait for one would be as large.
    let sent = Box::pin(connection.send_informer(shard, request));
    let response = tokio::time::timeout(ANSWER_TIMEOUT, sent)
        .await
        .map_err(|_| ReflectorError::TimedOut)??;
    let code = response.status().as_u16();
    if code == 200 {
        return Ok(response);
    }
    let body = read(response.into_body(), ERROR_BYTES)
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
    let (head, body) = open(connection, shard, path, accept).await?.into_parts();
    Ok((head.headers, read(body, ANSWER_BYTES).await?))
}

/// The whole body of a page of a list.
pub(super) async fn fetch_page(
    connection: &Connection,
    shard: &InformerShard,
    path: &str,
    accept: &'static str,
) -> Result<Bytes, ReflectorError> {
    let answer = open(connection, shard, path, accept).await?;
    read(answer.into_body(), PAGE_BYTES).await
}

/// The whole body of a page of a list, of metadata alone.
pub(super) async fn fetch_metadata(
    connection: &Connection,
    shard: &InformerShard,
    path: &str,
) -> Result<Bytes, ReflectorError> {
    let answer = open(connection, shard, path, METADATA_ALONE).await?;
    read(answer.into_body(), METADATA_BYTES).await
}

/// A body of no more than `limit` bytes.
async fn read<B>(mut body: B, limit: usize) -> Result<Bytes, ReflectorError>
where
    B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
{
    let mut bytes = BytesMut::new();
    while let Some(frame) = tokio::time::timeout(ANSWER_TIMEOUT, body.frame())
        .await
        .map_err(|_| ReflectorError::TimedOut)?
    {
        if let Ok(data) = frame.map_err(ReflectorError::Broken)?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > limit {
            return Err(ReflectorError::TooLong(limit));
        }
    }
    Ok(bytes.freeze())
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
    let answer = open(connection, shard, &path, METADATA).await?;
    let body = read(answer.into_body(), ANSWER_BYTES).await?;
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

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn no_answer_is_read_beyond_its_limit() {
        for (length, whole) in [(9, true), (10, true), (11, false)] {
            let body = Full::new(Bytes::from(vec![b'x'; length])).map_err(|never| match never {});
            match read(body, 10).await {
                Ok(bytes) => assert_eq!((bytes.len(), whole), (length, true)),
                Err(error) => {
                    assert!(!whole && matches!(error, ReflectorError::TooLong(10)));
                    assert_eq!(error.refusal(), Some(Refusal::TooManyObjects));
                }
            }
        }
    }
}
