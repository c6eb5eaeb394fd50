//! GET and LIST answered from a snapshot.

use std::sync::Arc;
use std::time::Duration;

use fleetcache_cache::continue_token::{ContinueToken, Style};
use fleetcache_cache::resource_version::ResourceVersion;
use fleetcache_cache::store::{Page, Snapshot, key};
use http::header::{
    AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY, WARNING,
};
use http::{HeaderValue, Response};

use crate::body::Body;
use crate::decision::{CachedRead, Freshness, LiveReason};
use crate::request_info::ResourcePath;
use crate::sent::send;

/// An answer from a snapshot.
#[derive(Debug)]
pub struct FromSnapshot {
    /// The answer.
    pub response: Response<Body>,
    /// Whether it is a page after which another one comes, of the same snapshot.
    pub continues: bool,
}

/// Answers from a snapshot, or says why it cannot.
///
/// # Errors
/// Memory cannot write it so, or one of the objects, the name is not held, only the server knows whether a full list is the whole one, the kind has no such field, or it is
/// empty and perhaps gone.
pub async fn answer(
    resource: &ResourcePath<'_>,
    read: &CachedRead,
    snapshot: &Arc<Snapshot>,
    age: Duration,
) -> Result<FromSnapshot, LiveReason> {
    let namespace = resource.namespace.as_deref();
    let written = read.writing.of_kind(snapshot.is_unstructured())?;
    let mut continues = false;
    let sent = match resource.name.as_deref() {
        Some(name) => {
            let element = snapshot
                .get(&key(namespace.unwrap_or_default(), name))
                .ok_or(LiveReason::Absent)?;
            let object = snapshot.object(element, written.form)?;
            let length = object.len() as u64;
            send([object].into_iter(), Some(length), written)
        }
        None if snapshot.may_be_removed() => return Err(LiveReason::Empty),
        None => {
            let (page, at, token) = page(resource, read, snapshot).await?;
            continues = page.rest.is_some();
            let list = snapshot.list_body(page, written.form, at, &token).await?;
            let length = list.length();
            send(list, length, written)
        }
    };
    let mut response = from_memory(
        sent.body,
        written.media_type(),
        Some(age),
        snapshot.warnings(),
    );
    let headers = response.headers_mut();
    if let Some(length) = sent.length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    if sent.is_compressed {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    Ok(FromSnapshot {
        response,
        continues,
    })
}

/// The page of a list, its version, and the token that goes on behind it; "" where nothing follows.
pub(crate) async fn page(
    resource: &ResourcePath<'_>,
    read: &CachedRead,
    snapshot: &Snapshot,
) -> Result<(Page, ResourceVersion, String), LiveReason> {
    let namespace = resource.namespace.as_deref();
    let selector = snapshot.bind(&read.selector).ok_or(LiveReason::Selector)?;
    let from = read.from.as_ref().map(|token| token.first_key(namespace));
    let limit = read
        .limit
        .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let page = snapshot
        .page(namespace, from.as_deref(), &selector, limit)
        .await;
    if page.is_full && read.by_index {
        return Err(LiveReason::Limit);
    }
    let at = match read.freshness {
        Freshness::Exact(version) => version,
        _ => snapshot.resource_version,
    };
    let token = page.rest.as_ref().map_or_else(String::new, |rest| {
        let namespace = namespace.map_or(0, |namespace| namespace.len() + 1);
        let last = rest.after.get(namespace..).unwrap_or_default();
        ContinueToken::after(at, last, Style::of(&resource.gvr)).to_string()
    });
    Ok((page, at, token))
}

/// The headers of every answer from memory, around its body. Without an age it is nobody else's than this process's own.
pub(crate) fn from_memory(
    body: Body,
    media_type: &'static str,
    age: Option<Duration>,
    warnings: &[HeaderValue],
) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if let Some(age) = age {
        headers.insert(AGE, age.as_secs().into());
    }
    for warning in warnings {
        headers.append(WARNING, warning.clone());
    }
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use base64::Engine;
    use fleetcache_cache::envelope::Envelope;
    use fleetcache_cache::form::{Form, MetaVersion};
    use fleetcache_cache::object::ObjectHead;
    use fleetcache_cache::selector::Selector;
    use fleetcache_cache::store::{Element, Store};
    use http_body_util::BodyExt;

    use super::*;
    use crate::sent::TURN_BYTES;
    use crate::writing::{Writing, Written};

    fn snapshot() -> Arc<Snapshot> {
        holding(["a", "b"].map(|name| (name.to_owned(), name.to_owned())))
    }

    fn many(objects: usize, each: usize) -> Arc<Snapshot> {
        let label = format!("x\",\"long\":\"{}", "x".repeat(each));
        holding((0..objects).map(|at| (format!("p{at}"), label.clone())))
    }

    /// Pods with a label, by their names.
    fn holding(pods: impl IntoIterator<Item = (String, String)>) -> Arc<Snapshot> {
        let list = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}\n";
        let envelope = Envelope::learn(list.as_bytes(), "Pod").unwrap().envelope;
        let mut store = Store::default();
        for (name, label) in pods {
            let object = format!(
                r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"n","resourceVersion":"7","labels":{{"is":"{label}"}}}}}}"#
            );
            let head = ObjectHead::parse(object.as_bytes()).unwrap();
            let item = envelope.item_from_object(object.as_bytes()).unwrap();
            store.stage(Element::new(&head.metadata, object.as_bytes(), item).unwrap());
        }
        store.complete(ResourceVersion::from_number(9));
        store.snapshot(&Arc::new(envelope))
    }

    fn writing(pretty: bool, gzip: bool) -> Writing {
        Writing::always(Written {
            pretty,
            gzip,
            ..Written::default()
        })
    }

    fn read(limit: Option<u64>, labels: &str) -> CachedRead {
        CachedRead {
            freshness: Freshness::Latest,
            max_age: None,
            limit,
            from: None,
            by_index: false,
            writing: Writing::default(),
            selector: Selector::parse(labels, "").unwrap(),
        }
    }

    async fn check(path: &str, limit: Option<u64>) -> Result<String, LiveReason> {
        ask(path, read(limit, "")).await
    }

    async fn select(path: &str, limit: Option<u64>, labels: &str) -> Result<String, LiveReason> {
        ask(path, read(limit, labels)).await
    }

    async fn ask(path: &str, read: CachedRead) -> Result<String, LiveReason> {
        let resource = ResourcePath::parse_strict(path).unwrap();
        let response = answer(&resource, &read, &snapshot(), Duration::from_secs(3)).await?;
        let response = response.response;
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
        assert!(
            check("/api/v1/namespaces/m/pods", Some(1))
                .await
                .unwrap()
                .contains("\"items\":[]")
        );
    }

    #[tokio::test]
    async fn a_selector_chooses() {
        let one = select("/api/v1/pods", None, "is=a").await.unwrap();
        assert_eq!(one.matches("\"name\"").count(), 1);
        assert_eq!(select("/api/v1/pods", Some(2), "is=a").await, Ok(one));
        let none = select("/api/v1/pods", None, "is=c").await.unwrap();
        assert!(none.contains("\"items\":[]"));
    }

    #[tokio::test]
    async fn a_page_tells_where_the_next_one_begins() {
        let token = |start| {
            let token =
                format!("{{\"v\":\"meta.k8s.io/v1\",\"rv\":9,\"start\":\"{start}\\u0000\"}}");
            base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(token)
        };
        let meta =
            |rest: &str| format!("\"metadata\":{{\"resourceVersion\":\"9\"{rest}}},\"items\":[");
        for (path, labels, rest) in [
            // What follows is counted where everything is selected, and may not be selected.
            (
                "/api/v1/pods",
                "",
                format!(
                    ",\"continue\":\"{}\",\"remainingItemCount\":1",
                    token("/n/a")
                ),
            ),
            (
                "/api/v1/namespaces/n/pods",
                "",
                format!(",\"continue\":\"{}\",\"remainingItemCount\":1", token("/a")),
            ),
            (
                "/api/v1/pods",
                "is=a",
                format!(",\"continue\":\"{}\"", token("/n/a")),
            ),
            ("/api/v1/pods", "is=b", String::new()),
        ] {
            let page = select(path, Some(1), labels).await.unwrap();
            assert!(page.contains(&meta(&rest)), "{page}");
            assert_eq!(page.matches("\"name\"").count(), 1, "{page}");
        }
        let next = CachedRead {
            from: ContinueToken::parse(&token("/n/a")),
            // The state at this version too: the last change was at 9.
            freshness: Freshness::Exact(ResourceVersion::from_number(9)),
            ..read(Some(1), "")
        };
        let page = ask("/api/v1/pods", next).await.unwrap();
        assert!(page.contains(&meta("")), "{page}");
        assert!(page.contains("\"name\":\"b\""), "{page}");
        let full = CachedRead {
            by_index: true,
            ..read(Some(1), "")
        };
        let full = ask("/api/v1/pods", full).await;
        assert_eq!(full, Err(LiveReason::Limit));
    }

    #[tokio::test]
    async fn what_is_asked_for_indented_is() {
        for path in ["/api/v1/namespaces/n/pods/a", "/api/v1/pods"] {
            let compact = check(path, None).await.unwrap();
            let pretty = CachedRead {
                writing: writing(true, false),
                ..read(None, "")
            };
            let pretty = ask(path, pretty).await.unwrap();
            assert!(pretty.starts_with("{\n  \"kind\": \"Pod"), "{pretty}");
            assert!(pretty.ends_with("\n}"), "{pretty}");
            let value = |text| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(value(&pretty), value(&compact));
        }
    }

    #[tokio::test]
    async fn protobuf_is_as_long_as_it_says_or_goes_live() {
        let protobuf = |list| CachedRead {
            writing: Writing::always(Written {
                form: Form::ProtobufMetadata(MetaVersion::V1),
                pretty: false,
                gzip: false,
            }),
            ..read(None, list)
        };
        // Bytes that are no text, which JSON has a mark for.
        let odd = r"\ufffd";
        let pods = [("a", "x"), ("odd", odd)];
        let snapshots = [
            many(3_000, 100),
            holding(pods.map(|(name, label)| (name.to_owned(), label.to_owned()))),
        ];
        for (snapshot, path, labels, expected) in [
            (0, "/api/v1/pods", "", Ok(())),
            (0, "/api/v1/namespaces/none/pods", "", Ok(())),
            (0, "/api/v1/namespaces/n/pods/p7", "", Ok(())),
            (1, "/api/v1/pods", "is=x", Ok(())),
            (1, "/api/v1/pods", "", Err(LiveReason::Representation)),
            (
                1,
                "/api/v1/namespaces/n/pods/odd",
                "",
                Err(LiveReason::Representation),
            ),
        ] {
            let resource = ResourcePath::parse_strict(path).unwrap();
            let read = protobuf(labels);
            let answer = answer(&resource, &read, &snapshots[snapshot], Duration::ZERO).await;
            let answer = match answer {
                Ok(answer) => answer.response,
                Err(why) => {
                    assert_eq!(Err(why), expected, "{path} {labels}");
                    continue;
                }
            };
            assert_eq!(expected, Ok(()), "{path} {labels}");
            let media_type = "application/vnd.kubernetes.protobuf";
            assert_eq!(answer.headers()[CONTENT_TYPE], media_type);
            let length = answer.headers()[CONTENT_LENGTH].clone();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(length, body.len().to_string(), "{path}");
            assert!(body.starts_with(b"k8s\0"), "{path}");
            assert!(body.ends_with(&[0x1a, 0, 0x22, 0]), "{path}");
        }
    }

    /// A task that is always ready gets its turns while an answer of many megabytes is made for a reader who never waits.
    #[tokio::test]
    async fn a_long_answer_lets_others_work() {
        let (objects, each) = (10_000, 2_000);
        let snapshot = many(objects, each);
        for (pretty, gzip, labels) in [
            (false, false, ""),
            (true, false, ""),
            (true, false, "is=x"),
            (false, true, ""),
            (true, true, ""),
        ] {
            let turns = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&turns);
            let neighbour = tokio::spawn(async move {
                loop {
                    counted.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            });
            let read = CachedRead {
                writing: writing(pretty, gzip),
                ..read(None, labels)
            };
            let resource = ResourcePath::parse_strict("/api/v1/pods").unwrap();
            let answer = answer(&resource, &read, &snapshot, Duration::ZERO).await;
            let response = answer.unwrap().response;
            let length = response.headers().get(CONTENT_LENGTH).cloned();
            assert_eq!(length.is_some(), !pretty && !gzip);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            neighbour.abort();
            let plain = objects * each;
            assert_eq!(body.len() > plain, !gzip);
            let turns = turns.load(Ordering::Relaxed);
            assert!(turns >= plain / TURN_BYTES, "{turns} turns");
        }
    }
}
