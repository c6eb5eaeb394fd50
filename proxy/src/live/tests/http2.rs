//! Clients over HTTP/2, before clusters on HTTP/1.1.

use bytes::Bytes;
use http::Request;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Frame;

use super::*;
use crate::body::BoxError;

fn none() -> BoxBody<Bytes, BoxError> {
    Empty::new().map_err(|never| match never {}).boxed()
}

fn uri(path: &str) -> String {
    format!("https://p{path}")
}

#[tokio::test]
async fn a_get_has_no_body_and_one_cookie() {
    let (address, mut requests) = cluster_saying(
        "HTTP/1.1 200 OK\r\nconnection: close\r\nkeep-alive: 1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    )
    .await;
    let proxy = Proxy::start(address, PLAIN).await;
    let request = Request::get(uri("/clusters/a//x/../%2F?y"))
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .body(none())
        .unwrap();
    let answer = proxy.http2().await.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let names: Vec<&str> = answer.headers().keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["date"]);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "ok");

    let head = requests.recv().await.unwrap();
    let mut lines: Vec<&str> = head.trim_end().split("\r\n").collect();
    lines.retain(|line| !line.starts_with("host: "));
    assert_eq!(lines, ["GET //x/../%2F?y HTTP/1.1", "cookie: a=1; b=2"]);
}

#[tokio::test]
async fn uploads_keep_their_length_or_have_none() {
    let address = cluster(|mut stream| async move {
        let head = read_head(&mut stream).await;
        if head.contains("content-length: 2\r\n") {
            read_until(&mut stream, "{}").await;
        } else {
            assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
            read_until(&mut stream, "2\r\n{}\r\n0\r\n\r\n").await;
        }
        stream.write_all(OK.as_bytes()).await.unwrap();
    })
    .await;
    let whole = || Full::from("{}").map_err(|never| match never {}).boxed();
    let stream = || {
        let frame = Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{}")));
        StreamBody::new(futures_util::stream::iter([frame])).boxed()
    };
    for method in ["POST", "GET", "DELETE"] {
        for body in [whole(), stream()] {
            let proxy = Proxy::start(address, PLAIN).await;
            let request = Request::builder()
                .method(method)
                .uri(uri("/clusters/a/x"))
                .body(body)
                .unwrap();
            let answer = proxy.http2().await.send_request(request).await.unwrap();
            assert_eq!(answer.status(), 200, "{method}");
        }
    }
}

#[tokio::test]
async fn half_an_answer_resets_its_stream() {
    let (address, _requests) =
        cluster_saying("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n").await;
    let proxy = Proxy::start(address, PLAIN).await;
    let request = Request::get(uri("/clusters/a/x")).body(none()).unwrap();
    let answer = proxy.http2().await.send_request(request).await.unwrap();
    assert!(answer.into_body().collect().await.is_err());
}

#[tokio::test]
async fn a_reset_stream_ends_its_request() {
    let (told, mut events) = mpsc::unbounded_channel();
    let address = cluster(move |mut stream| {
        let told = told.clone();
        async move {
            read_head(&mut stream).await;
            told.send("asked").unwrap();
            gone(&mut stream).await;
            told.send("gone").unwrap();
        }
    })
    .await;
    let proxy = Proxy::start(address, LONG).await;
    let mut client = proxy.http2().await;
    let request = Request::get(uri("/clusters/a/x")).body(none()).unwrap();
    let asking = client.send_request(request);
    tokio::select! {
        _ = asking => panic!("nobody answers"),
        event = events.recv() => assert_eq!(event, Some("asked")),
    }
    // The future is dropped now, the HTTP/2 connection is not.
    assert_eq!(events.recv().await, Some("gone"));
}
