//! Live requests over real sockets.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::testing::{
    Kind, LONG, PLAIN, Proxy, WATCH, cluster, cluster_saying, gone, nobody, read_head, read_until,
};

mod abort;
mod disconnect;
mod http2;
mod unauthorized;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-unknown: 1\r\n\r\nok";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n")
}

fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: p\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}")
}

fn request_line(head: &str) -> &str {
    head.lines().next().unwrap()
}

#[tokio::test]
async fn paths_and_methods_pass_byte_for_byte() {
    let (address, mut requests) = cluster_saying(OK).await;
    let proxy = Proxy::start(address, PLAIN).await;
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/api/v1/pods?limit=500&x[]=%20+;a"),
        ("GET", "//"),
        ("GET", "/api//v1/"),
        ("GET", "/x/%2F/%2e%2e/cm%31"),
        ("GET", "/x/../../b/api"),
        ("GET", "/./x?"),
        ("GET", "/?"),
        ("GET", "/a:b@c!$&'()*+,;=~\"{}|"),
        ("HEAD", "/api"),
        ("OPTIONS", "/api"),
        ("FOO", "/api"),
        ("DELETE", "/api?x=//y"),
    ] {
        let asked =
            format!("{method} /clusters/a{path} HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n");
        let answer = proxy.ask(&asked).await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n"),
            "{path}: {answer}"
        );
        let head = requests.recv().await.unwrap();
        assert_eq!(request_line(&head), format!("{method} {path} HTTP/1.1"));
    }
}

#[tokio::test]
async fn answers_pass_with_their_headers() {
    let (address, _requests) = cluster_saying(
        "HTTP/1.1 299 Sort Of\r\ncontent-length: 2\r\nwarning: 299 - \"a\"\r\nwarning: 299 - \"b\"\r\nkeep-alive: timeout=1\r\n\
         location: /openapi/v3?hash=1\r\naudit-id: 7\r\n\r\nok",
    )
    .await;
    let proxy = Proxy::start(address, PLAIN).await;
    let answer = proxy.ask(&get("/clusters/a/x")).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(request_line(head), "HTTP/1.1 299 Sort Of");
    assert!(
        head.contains("warning: 299 - \"a\"\r\nwarning: 299 - \"b\""),
        "{head}"
    );
    assert!(
        head.contains("location: /clusters/a/openapi/v3?hash=1"),
        "{head}"
    );
    assert!(head.contains("audit-id: 7"), "{head}");
    assert!(head.contains("content-length: 2"), "{head}");
    assert!(!head.contains("keep-alive"), "{head}");
    assert_eq!(body, "ok");
}

#[tokio::test]
async fn redirects_within_a_base_path_lose_it() {
    let (address, mut requests) =
        cluster_saying("HTTP/1.1 301 Moved\r\ncontent-length: 0\r\nlocation: /base/y/\r\n\r\n")
            .await;
    let proxy = Proxy::start_below(address, "/base", PLAIN).await;
    let answer = proxy.ask(&get("/clusters/a/y")).await;
    assert!(answer.contains("location: /clusters/a/y/\r\n"), "{answer}");
    let head = requests.recv().await.unwrap();
    assert_eq!(request_line(&head), "GET /base/y HTTP/1.1");
}

#[tokio::test]
async fn head_keeps_the_length_of_what_it_does_not_send() {
    let (address, _requests) =
        cluster_saying("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n").await;
    let proxy = Proxy::start(address, PLAIN).await;
    let answer = proxy
        .ask("HEAD /clusters/a/x HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n")
        .await;
    assert!(answer.contains("content-length: 1234\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    // The cluster answers to each line as it comes, so neither side can have waited for the other's end.
    let address = cluster(|mut stream| async move {
        let head = read_head(&mut stream).await;
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
        stream
            .write_all(
                b"HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n",
            )
            .await
            .unwrap();
        read_until(&mut stream, "1\r\na\r\n").await;
        stream.write_all(b"1\r\nA\r\n").await.unwrap();
        read_until(&mut stream, "1\r\nb\r\n").await;
        stream.write_all(b"1\r\nB\r\n0\r\n\r\n").await.unwrap();
        read_until(&mut stream, "0\r\n\r\n").await;
    })
    .await;
    let proxy = Proxy::start(address, PLAIN).await;
    // A GET too: services behind the apiserver's proxy take bodies with it.
    for method in ["POST", "GET"] {
        let mut client = proxy
            .send(&format!(
                "{method} /clusters/a/x HTTP/1.1\r\nhost: p\r\ntransfer-encoding: chunked\r\n\r\n"
            ))
            .await;
        client.write_all(b"1\r\na\r\n").await.unwrap();
        read_until(&mut client, "1\r\nA\r\n").await;
        client.write_all(b"1\r\nb\r\n").await.unwrap();
        read_until(&mut client, "1\r\nB\r\n0\r\n\r\n").await;
        client.write_all(b"0\r\n\r\n").await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it() {
    let address = cluster(|mut stream| async move {
        let head = read_head(&mut stream).await;
        assert!(head.contains("expect: 100-continue\r\n"), "{head}");
        stream
            .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            .await
            .unwrap();
        read_until(&mut stream, "{}").await;
        stream.write_all(OK.as_bytes()).await.unwrap();
    })
    .await;
    let proxy = Proxy::start(address, PLAIN).await;
    let mut client = proxy
        .send("POST /clusters/a/x HTTP/1.1\r\nhost: p\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
        .await;
    let interim = read_head(&mut client).await;
    assert_eq!(request_line(&interim), "HTTP/1.1 100 Continue");
    client.write_all(b"{}").await.unwrap();
    let head = read_head(&mut client).await;
    assert_eq!(request_line(&head), "HTTP/1.1 200 OK");
}

#[tokio::test]
async fn trailers_pass() {
    let (address, _requests) = cluster_saying(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n",
    )
    .await;
    let proxy = Proxy::start(address, PLAIN).await;
    let answer = proxy
        .ask("GET /clusters/a/x HTTP/1.1\r\nhost: p\r\nte: trailers\r\nconnection: close\r\n\r\n")
        .await;
    assert!(
        answer.ends_with("2\r\nok\r\n0\r\nx-sum: 7\r\n\r\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn an_early_answer_does_not_wait_for_the_upload() {
    let address = cluster(|mut stream| async move {
        read_head(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno")
            .await
            .unwrap();
        gone(&mut stream).await;
    })
    .await;
    let proxy = Proxy::start(address, PLAIN).await;
    let mut client = proxy
        .send("POST /clusters/a/x HTTP/1.1\r\nhost: p\r\ncontent-length: 9000000\r\n\r\n{")
        .await;
    let head = read_head(&mut client).await;
    assert_eq!(request_line(&head), "HTTP/1.1 413 Too Large");
}

#[tokio::test]
async fn connect_is_not_allowed() {
    let proxy = Proxy::start(nobody().await, PLAIN).await;
    let answer = proxy
        .ask("CONNECT a:443 HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}

#[tokio::test]
async fn what_was_not_sent_is_unavailable_for_any_verb() {
    let proxy = Proxy::start(nobody().await, PLAIN).await;
    for request in [get("/clusters/a/x"), post("/clusters/a/x")] {
        let answer = proxy.ask(&request).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(
            answer.contains("did not answer: connection refused"),
            "{answer}"
        );
    }
    assert_eq!(proxy.suspected(), 2);
}

#[tokio::test]
async fn what_was_sent_and_not_answered_is_unknown_for_a_write() {
    let (address, _requests) = cluster_saying("").await;
    let proxy = Proxy::start(address, PLAIN).await;
    let answer = proxy.ask(&get("/clusters/a/x")).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let answer = proxy.ask(&post("/clusters/a/x")).await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(answer.contains("OutcomeUnknown"), "{answer}");
    assert_eq!(proxy.suspected(), 2);
}
