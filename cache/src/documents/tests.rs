use super::*;

fn key(path: &str, accept: &str) -> DocumentKey {
    DocumentKey {
        path: path.to_owned(),
        accept: accept.to_owned(),
        indented: false,
    }
}

fn etag(value: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ETAG, HeaderValue::from_static(value));
    headers.insert("audit-id", HeaderValue::from_static("of one answer"));
    headers
}

fn documents() -> Documents {
    Documents::new(&Arc::default())
}

/// Keeps a body of the first epoch, asked for now.
fn keep(documents: &Documents, key: &DocumentKey, body: &[u8]) {
    documents.keep(1, key, Instant::now(), &etag("\"1\""), body);
}

fn body(documents: &Documents, key: &DocumentKey) -> Option<Bytes> {
    documents.get(1, key).map(|document| document.body())
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_the_latest_question_counts_and_its_age_begins_there() {
    let documents = documents();
    let key = key("/apis", "a");
    let first = Instant::now();
    tokio::time::advance(Duration::from_secs(5)).await;
    keep(&documents, &key, b"second");
    documents.keep(1, &key, first, &etag("\"0\""), b"first");
    assert_eq!(body(&documents, &key).unwrap(), "second");
    let held = documents.of_path("/apis").remove(0);
    assert!(!held.document.headers.contains_key("audit-id"));
    assert_eq!(held.document.etag().unwrap(), "\"1\"");

    tokio::time::advance(Duration::from_secs(7)).await;
    let age = || documents.of_path("/apis")[0].age.as_secs();
    assert_eq!(age(), 7);
    documents.confirm(1, &key, Instant::now());
    assert_eq!(age(), 0);
    documents.confirm(1, &key, first);
    assert_eq!(age(), 0);
}

#[test]
fn the_buffer_that_an_answer_was_read_into_is_not_held() {
    let documents = documents();
    let key = key("/apis", "a");
    let buffer = Bytes::from(b"HTTP/1.1 200 OK\r\netag: \"1\"\r\n\r\nbody".to_vec());
    let value = HeaderValue::from_maybe_shared(buffer.slice(23..26)).unwrap();
    let headers = [(ETAG, value)].into_iter().collect();
    documents.keep(1, &key, Instant::now(), &headers, &buffer.slice(30..));
    drop(headers);
    assert_eq!(documents.get(1, &key).unwrap().etag().unwrap(), "\"1\"");
    assert!(buffer.is_unique());
}

#[test]
fn forms_are_kept_apart_and_go_together() {
    let documents = documents();
    let (one, other) = (key("/apis", "a"), key("/apis", "b"));
    keep(&documents, &one, b"1");
    keep(&documents, &other, b"2");
    keep(&documents, &key("/api", "a"), b"3");
    assert_eq!(body(&documents, &one).unwrap(), "1");
    assert_eq!(body(&documents, &other).unwrap(), "2");
    assert_eq!(body(&documents, &key("/apis", "c")), None);
    assert_eq!(documents.of_path("/apis").len(), 2);
    documents.forget(1, "/apis");
    assert!(documents.of_path("/apis").is_empty());
    assert_eq!(body(&documents, &key("/api", "a")).unwrap(), "3");
}

#[test]
fn another_epoch_knows_nothing_and_takes_nothing_of_the_one_before() {
    let documents = documents();
    let key = key("/apis", "a");
    keep(&documents, &key, b"1");
    documents.adopt(1);
    assert!(documents.get(1, &key).is_some());
    documents.adopt(2);
    assert!(documents.of_path("/apis").is_empty());
    keep(&documents, &key, b"1");
    assert!(documents.get(1, &key).is_none());
    assert!(documents.get(2, &key).is_none());
}

#[test]
fn the_least_recently_used_go_when_there_are_too_many_or_too_much() {
    let documents = documents();
    let first = key("/first", "");
    keep(&documents, &first, b"1");
    for fetched in fetch::fetched() {
        keep(&documents, &fetched, b"1");
    }
    for n in 0..MAX_DOCUMENTS {
        keep(&documents, &key(&format!("/{n}"), ""), b"1");
        assert!(documents.get(1, &first).is_some());
    }
    assert_eq!(documents.state.lock().kept.len(), MAX_DOCUMENTS);
    assert!(documents.get(1, &key("/0", "")).is_none());

    let long = vec![b'x'; MAX_BODY];
    for n in 0..20 {
        keep(&documents, &key(&format!("/long/{n}"), ""), &long);
        assert!(documents.get(1, &first).is_some());
        let state = documents.state.lock();
        let sum: usize = state.kept.values().map(|kept| kept.bytes).sum();
        assert!(state.bytes == sum && sum <= MAX_BYTES);
    }
    assert!(documents.get(1, &key("/long/19", "")).is_some());
    assert!(documents.get(1, &key("/long/0", "")).is_none());
    for fetched in fetch::fetched() {
        assert!(documents.get(1, &fetched).is_some(), "{fetched:?}");
    }
}

#[test]
fn what_is_empty_or_too_long_is_not_kept() {
    let documents = documents();
    keep(&documents, &key("/a", ""), b"");
    keep(&documents, &key("/b", ""), &vec![b'x'; MAX_BODY + 1]);
    assert!(documents.state.lock().kept.is_empty());
}

#[tokio::test(start_paused = true)]
async fn another_version_of_the_server_is_told() {
    let documents = documents();
    let told = async || {
        let notified = documents.version_changed.notified();
        tokio::time::timeout(Duration::from_secs(1), notified)
            .await
            .is_ok()
    };
    keep(&documents, &fetch::version(), b"1.35");
    keep(&documents, &key(fetch::VERSION, "*/*"), b"1.35");
    assert!(!told().await);
    keep(&documents, &key(fetch::VERSION, "*/*"), b"1.36");
    assert!(told().await);
    keep(&documents, &fetch::version(), b"1.36");
    assert!(told().await);
    keep(&documents, &key(fetch::VERSION, "*/*"), b"1.36");
    assert!(!told().await);
}
