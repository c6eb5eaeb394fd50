//! What waits to be written holds nothing that came with it.

use super::*;

/// A part of what a connection has read.
fn part(read: &Bytes, length: usize) -> HeaderValue {
    HeaderValue::from_maybe_shared(read.slice(..length)).unwrap()
}

#[tokio::test]
async fn a_record_keeps_nothing_of_what_was_read() {
    let log = Log::start();
    let head = Bytes::from("x".repeat(100_000));
    let mut request = Request::get("/").body(()).unwrap();
    let headers = request.headers_mut();
    headers.insert("user-agent", part(&head, 50_000));
    headers.insert(AUDIT_ID, part(&head, 50_000));
    let id = crate::status::audit_id(request.headers());
    let record = log.audit.begin(&mut request, "/", &id).await.unwrap();
    // The id goes on to the answer.
    drop(request);
    assert!(head.is_unique());
    // An error in pieces of a byte, each a slice of as much.
    let status = format!(
        r#"{{"kind":"Status","apiVersion":"v1","message":"{}"}}"#,
        "m".repeat(15_000)
    );
    let read = Bytes::from(status);
    let pieces = (0..read.len()).map(|at| Ok::<_, BoxError>(Frame::data(read.slice(at..=at))));
    let pieces: Vec<_> = pieces.collect();
    let body = StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync();
    let answer = json_answer(404, "").map(|_| body);
    let last = record.clone();
    let answer = record.answer(answer, answered(404), false);
    drop(answer.into_body().collect().await);
    assert!(read.is_unique());
    drop(last);
    let lines = log.lines().await;
    let message = lines[0]["responseStatus"]["message"].as_str();
    assert_eq!(message, Some(&*"m".repeat(15_000)));
    let agent = lines[0]["userAgent"].as_str();
    assert_eq!(agent, Some(&*format!("{}...TRUNCATED", "x".repeat(1024))));
    assert_eq!(lines[0]["auditID"].as_str().map(str::len), Some(50_000));
}

#[tokio::test]
async fn a_long_user_agent_is_cut_and_a_big_user_is_not() {
    let log = Log::start();
    let mut request = Request::get("/").body(()).unwrap();
    let agent = HeaderValue::try_from("x".repeat(1025)).unwrap();
    request.headers_mut().insert("user-agent", agent);
    let id = HeaderValue::from_static("id");
    let record = log.audit.begin(&mut request, "/", &id).await.unwrap();
    let values: Vec<_> = (0..5000)
        .map(|at| format!("value-{at}-{}", "y".repeat(50)))
        .collect();
    let user = UserInfo {
        name: "jane".to_owned(),
        extra: BTreeMap::from([("k".to_owned(), values.clone())]),
        ..UserInfo::default()
    };
    record.known(&Arc::new(user), "tokenReview");
    drop((request, record));
    let lines = log.lines().await;
    assert_eq!(lines.len(), 1);
    assert_eq!(
        lines[0]["userAgent"],
        format!("{}...TRUNCATED", "x".repeat(1024))
    );
    assert_eq!(lines[0]["user"]["extra"]["k"], json!(values));
}
