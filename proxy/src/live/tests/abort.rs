//! A side that stalls or goes away.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::body::BoxError;
use crate::live::testing::Gone;

#[tokio::test]
async fn a_client_that_goes_away_ends_its_request() {
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
    for request in [get("/clusters/a/x"), post("/clusters/a/x")] {
        let client = proxy.send(&request).await;
        assert_eq!(events.recv().await, Some("asked"));
        drop(client);
        assert_eq!(events.recv().await, Some("gone"));
    }
    assert_eq!(proxy.suspected(), 0);
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_silent_watch() {
    let (told, mut events) = mpsc::unbounded_channel();
    let address = cluster(move |mut stream| {
        let told = told.clone();
        async move {
            read_head(&mut stream).await;
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                .await
                .unwrap();
            gone(&mut stream).await;
            told.send("gone").unwrap();
        }
    })
    .await;
    let proxy = Proxy::start(address, WATCH).await;
    let mut client = proxy.send(&get("/clusters/a/x?watch=1")).await;
    read_head(&mut client).await;
    drop(client);
    assert_eq!(events.recv().await, Some("gone"));
    assert_eq!(proxy.suspected(), 0);
}

#[tokio::test]
async fn a_client_that_breaks_its_upload_is_no_reason_to_suspect_the_cluster() {
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
    let proxy = Proxy::start(address, PLAIN).await;
    let client = proxy
        .send("POST /clusters/a/x HTTP/1.1\r\nhost: p\r\ncontent-length: 10\r\n\r\n{")
        .await;
    assert_eq!(events.recv().await, Some("asked"));
    drop(client);
    assert_eq!(events.recv().await, Some("gone"));
    assert_eq!(proxy.suspected(), 0);
}

/// A cluster that reads a write of so many bytes and answers when it is told to.
async fn answers_when_told(
    length: usize,
) -> (SocketAddr, UnboundedReceiver<&'static str>, Arc<Notify>) {
    let (told, events) = mpsc::unbounded_channel();
    let answer = Arc::new(Notify::new());
    let may_answer = Arc::clone(&answer);
    let address = cluster(move |mut stream| {
        let (told, answer) = (told.clone(), Arc::clone(&may_answer));
        async move {
            read_head(&mut stream).await;
            stream.read_exact(&mut vec![0; length]).await.unwrap();
            told.send("asked").unwrap();
            tokio::select! {
                () = answer.notified() => {
                    let refused = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
                    stream.write_all(refused.as_bytes()).await.unwrap();
                }
                () = gone(&mut stream) => told.send("gone").unwrap(),
            }
        }
    })
    .await;
    (address, events, answer)
}

#[tokio::test]
async fn a_write_that_has_passed_goes_on_to_its_answer_without_its_client() {
    let (address, mut events, answer) = answers_when_told(2).await;
    let mut proxy = Proxy::start(address, PLAIN).await;
    let client = proxy.send(&post("/clusters/a/x")).await;
    assert_eq!(events.recv().await, Some("asked"));
    drop(client);
    assert_eq!(proxy.gone.recv().await, Some(Gone::Client));
    answer.notify_one();
    assert_eq!(proxy.gone.recv().await, Some(Gone::Answered(403)));
    assert_eq!(proxy.suspected(), 0);
}

/// The cluster has all that was announced; that the client's stream does not end is nothing to it.
#[tokio::test]
async fn a_write_is_whole_when_its_length_has_passed() {
    let (address, mut events, answer) = answers_when_told(2).await;
    let mut proxy = Proxy::start(address, PLAIN).await;
    let (frames, body) = mpsc::unbounded_channel();
    let body = futures_util::stream::unfold(body, |mut body| async {
        body.recv().await.map(|frame| (frame, body))
    });
    let request = http::Request::post("https://p/clusters/a/x")
        .header("content-length", "2")
        .body(BodyExt::boxed(StreamBody::new(body)))
        .unwrap();
    let mut client = proxy.http2().await;
    let asked = tokio::spawn(async move { client.send_request(request).await });
    let piece = bytes::Bytes::from_static(b"{}");
    frames.send(Ok::<_, BoxError>(Frame::data(piece))).unwrap();
    assert_eq!(events.recv().await, Some("asked"));
    asked.abort();
    assert_eq!(proxy.gone.recv().await, Some(Gone::Client));
    answer.notify_one();
    assert_eq!(proxy.gone.recv().await, Some(Gone::Answered(403)));
}

#[tokio::test]
async fn a_write_that_has_not_passed_ends_with_its_client() {
    // One byte is missing, and the last chunk.
    for (framing, length) in [("content-length: 3", 2), ("transfer-encoding: chunked", 7)] {
        let (address, mut events, _answer) = answers_when_told(length).await;
        let mut proxy = Proxy::start(address, PLAIN).await;
        let piece = if length == 2 { "{}" } else { "2\r\n{}\r\n" };
        let client = proxy
            .send(&format!(
                "POST /clusters/a/x HTTP/1.1\r\nhost: p\r\n{framing}\r\n\r\n{piece}"
            ))
            .await;
        assert_eq!(events.recv().await, Some("asked"));
        drop(client);
        assert_eq!(events.recv().await, Some("gone"));
        assert_ne!(proxy.gone.try_recv(), Ok(Gone::Answered(403)));
    }
}

#[tokio::test]
async fn a_stalled_upload_times_out() {
    let (told, mut events) = mpsc::unbounded_channel();
    let address = cluster(move |mut stream| {
        let told = told.clone();
        async move {
            read_head(&mut stream).await;
            gone(&mut stream).await;
            told.send("gone").unwrap();
        }
    })
    .await;
    let kind = Kind {
        request_timeout: Duration::from_millis(50),
        ..PLAIN
    };
    let proxy = Proxy::start(address, kind).await;
    let mut client = proxy
        .send("POST /clusters/a/x HTTP/1.1\r\nhost: p\r\ncontent-length: 10\r\n\r\n{")
        .await;
    let head = read_head(&mut client).await;
    assert_eq!(request_line(&head), "HTTP/1.1 504 Gateway Timeout");
    let mut body = vec![0; 1000];
    let length = client.read(&mut body).await.unwrap();
    let body = String::from_utf8_lossy(&body[..length]);
    assert!(body.contains("did not answer in time"), "{body}");
    assert!(!body.contains("OutcomeUnknown"), "{body}");
    assert_eq!(events.recv().await, Some("gone"));
}

#[tokio::test]
async fn a_slow_cluster_times_out_unless_the_request_is_long_running() {
    let address = cluster(|mut stream| async move {
        read_head(&mut stream).await;
        gone(&mut stream).await;
    })
    .await;
    let request_timeout = Duration::from_millis(50);
    let proxy = Proxy::start(
        address,
        Kind {
            request_timeout,
            ..PLAIN
        },
    )
    .await;
    let answer = proxy.ask(&get("/clusters/a/x")).await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(!answer.contains("OutcomeUnknown"), "{answer}");
    let answer = proxy.ask(&post("/clusters/a/x")).await;
    assert!(
        answer.contains("the request may have been carried out"),
        "{answer}"
    );

    let proxy = Proxy::start(
        address,
        Kind {
            request_timeout,
            ..LONG
        },
    )
    .await;
    let mut client = proxy.send(&get("/clusters/a/x")).await;
    let silent = tokio::time::timeout(4 * request_timeout, client.read_u8()).await;
    assert!(silent.is_err(), "long-running requests wait");
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_cluster() {
    // More than all socket buffers on the way hold; the cluster must block, not the proxy take it in.
    const MUCH: usize = 256 << 20;
    let (told, mut events) = mpsc::unbounded_channel();
    let address = cluster(move |mut stream| {
        let told = told.clone();
        async move {
            read_head(&mut stream).await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {MUCH}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let block = vec![0; 1 << 20];
            for _ in 0..MUCH >> 20 {
                if stream.write_all(&block).await.is_err() {
                    told.send("stopped").unwrap();
                    return;
                }
            }
            told.send("all taken").unwrap();
        }
    })
    .await;
    let proxy = Proxy::start(address, PLAIN).await;
    let mut client = proxy.send(&get("/clusters/a/x")).await;
    read_head(&mut client).await;
    let blocked = tokio::time::timeout(Duration::from_millis(300), events.recv()).await;
    assert!(blocked.is_err(), "{blocked:?}");
    drop(client);
    assert_eq!(events.recv().await, Some("stopped"));
}
