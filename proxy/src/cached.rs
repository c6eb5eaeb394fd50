//! GET and LIST answered from a snapshot.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fleetcache_cache::store::{Snapshot, key};
use futures_util::stream;
use http::header::{AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;

use crate::body::{Body, full};
use crate::decision::{CachedRead, LiveReason};
use crate::request_info::ResourcePath;

/// Answers from a snapshot, or says why it cannot.
///
/// # Errors
/// The name is not held, the list is longer than its limit, or it is empty and its kind perhaps gone.
pub fn answer(
    resource: &ResourcePath<'_>,
    read: &CachedRead,
    snapshot: &Arc<Snapshot>,
    age: Duration,
) -> Result<Response<Body>, LiveReason> {
    let namespace = resource.namespace.as_deref();
    let (body, length) = match resource.name.as_deref() {
        Some(name) => {
            let element = snapshot
                .get(&key(namespace.unwrap_or_default(), name))
                .ok_or(LiveReason::Absent)?;
            let object: Vec<u8> = snapshot.object(element).concat();
            let length = object.len() as u64;
            (full(object), length)
        }
        None if snapshot.may_be_removed() => return Err(LiveReason::Empty),
        None => {
            // With a selector the server does not look past a full page, and says that there may be more.
            let short = u64::from(!read.selector.is_empty());
            let most = read
                .limit
                .map(|limit| usize::try_from(limit - short).unwrap_or(usize::MAX));
            let list = snapshot
                .list(namespace, &read.selector, most)
                .ok_or(LiveReason::Limit)?;
            let length = list.length();
            (chunks(list), length)
        }
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(AGE, age.as_secs().into());
    Ok(response)
}

/// A body of chunks that are made as they are sent: a slow reader holds one of them and the snapshot.
fn chunks(list: impl Iterator<Item = Bytes> + Send + 'static) -> Body {
    let frames = stream::iter(list.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk))));
    StreamBody::new(frames)
        .map_err(|never| match never {})
        .boxed_unsync()
}

#[cfg(test)]
mod tests {
    use fleetcache_cache::envelope::Envelope;
    use fleetcache_cache::object::ObjectHead;
    use fleetcache_cache::resource_version::ResourceVersion;
    use fleetcache_cache::selector::Selector;
    use fleetcache_cache::store::{Element, Store};

    use super::*;
    use crate::decision::Freshness;

    fn snapshot() -> Arc<Snapshot> {
        let list = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Envelope::learn(list.as_bytes(), "Pod").unwrap().envelope;
        let mut store = Store::default();
        for name in ["a", "b"] {
            let object = format!(
                r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"n","resourceVersion":"7","labels":{{"is":"{name}"}}}}}}"#
            );
            let head = ObjectHead::parse(object.as_bytes()).unwrap();
            let item = envelope.item_from_object(object.as_bytes()).unwrap();
            store.stage(Element::new(&head.metadata, object.as_bytes(), item).unwrap());
        }
        store.complete(ResourceVersion::from_number(9));
        store.snapshot(&Arc::new(envelope))
    }

    async fn check(path: &str, limit: Option<u64>) -> Result<String, LiveReason> {
        select(path, limit, "").await
    }

    async fn select(path: &str, limit: Option<u64>, labels: &str) -> Result<String, LiveReason> {
        let resource = ResourcePath::parse_strict(path).unwrap();
        let read = CachedRead {
            freshness: Freshness::Latest,
            limit,
            selector: Selector::parse(labels, "").unwrap(),
        };
        let response = answer(&resource, &read, &snapshot(), Duration::from_secs(3))?;
        let length = response.headers()[CONTENT_LENGTH].clone();
        assert_eq!(response.headers()[AGE], "3");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(length, body.len().to_string());
        Ok(String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn an_object_is_the_servers_bytes() {
        let expected = "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\",\"namespace\":\"n\",\"resourceVersion\":\"7\",\"labels\":{\"is\":\"a\"}}}\n";
        assert_eq!(
            check("/api/v1/namespaces/n/pods/a", None).await.as_deref(),
            Ok(expected)
        );
    }

    #[tokio::test]
    async fn a_name_that_is_not_held_goes_live() {
        assert_eq!(
            check("/api/v1/namespaces/n/pods/c", None).await,
            Err(LiveReason::Absent)
        );
        assert_eq!(
            check("/api/v1/namespaces/m/pods/a", None).await,
            Err(LiveReason::Absent)
        );
    }

    #[tokio::test]
    async fn a_list_that_fits_its_limit_is_served_whole() {
        let whole = check("/api/v1/pods", None).await.unwrap();
        assert_eq!(whole.matches("\"name\"").count(), 2);
        assert_eq!(check("/api/v1/pods", Some(2)).await.as_ref(), Ok(&whole));
        assert_eq!(check("/api/v1/pods", Some(1)).await, Err(LiveReason::Limit));
        assert!(
            check("/api/v1/namespaces/m/pods", Some(1))
                .await
                .unwrap()
                .contains("\"items\":[]")
        );
    }

    #[tokio::test]
    async fn a_selector_chooses_and_a_full_page_of_it_goes_live() {
        let one = select("/api/v1/pods", None, "is=a").await.unwrap();
        assert_eq!(one.matches("\"name\"").count(), 1);
        assert_eq!(select("/api/v1/pods", Some(2), "is=a").await, Ok(one));
        let full = select("/api/v1/pods", Some(1), "is=a").await;
        assert_eq!(full, Err(LiveReason::Limit));
        let none = select("/api/v1/pods", None, "is=c").await.unwrap();
        assert!(none.contains("\"items\":[]"));
    }
}
