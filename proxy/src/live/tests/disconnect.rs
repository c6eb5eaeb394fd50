//! A cluster that breaks or is disconnected.

use super::*;

/// A cluster that starts an answer and then keeps silent; it tells when the proxy has gone.
async fn starting(answer: &'static str) -> (std::net::SocketAddr, mpsc::UnboundedReceiver<()>) {
    let (told, events) = mpsc::unbounded_channel();
    let address = cluster(move |mut stream| {
        let told = told.clone();
        async move {
            read_head(&mut stream).await;
            told.send(()).unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            gone(&mut stream).await;
            told.send(()).unwrap();
        }
    })
    .await;
    (address, events)
}

#[tokio::test]
async fn who_waits_for_an_answer_is_told_at_once() {
    for (request, code) in [
        (get("/clusters/a/x"), "503"),
        (post("/clusters/a/x"), "504"),
    ] {
        let (address, mut events) = starting("").await;
        let proxy = Proxy::start(address, LONG).await;
        let mut client = proxy.send(&request).await;
        events.recv().await.unwrap();
        proxy.connection.disconnect();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
        assert!(answer.contains("ended before the answer"), "{answer}");
        assert_eq!(answer.contains("OutcomeUnknown"), code == "504");
        events.recv().await.unwrap();
        assert_eq!(proxy.suspected(), 0, "the owner knows already");
    }
}

#[tokio::test]
async fn half_an_answer_does_not_look_like_an_answer() {
    for answer in [
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nhalf",
    ] {
        // Disconnected in the middle.
        let (address, mut events) = starting(answer).await;
        let proxy = Proxy::start(address, PLAIN).await;
        let mut client = proxy.send(&get("/clusters/a/x")).await;
        read_until(&mut client, "half").await;
        proxy.connection.disconnect();
        let mut rest = String::new();
        client.read_to_string(&mut rest).await.unwrap();
        assert!(!rest.contains("0\r\n"), "{rest:?}");
        events.recv().await.unwrap();
        events.recv().await.unwrap();
        assert_eq!(proxy.suspected(), 0);

        // Broken in the middle.
        let (address, _requests) = cluster_saying(answer).await;
        let proxy = Proxy::start(address, PLAIN).await;
        let answer = proxy.ask(&get("/clusters/a/x")).await;
        assert!(answer.contains("half"), "{answer}");
        assert!(!answer.contains("0\r\n\r\n"), "{answer}");
        assert_eq!(proxy.suspected(), 1);
    }
}

#[tokio::test]
async fn a_watch_ends_cleanly_after_its_cluster_is_gone() {
    let (address, mut events) =
        starting("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nevent\n\r\n").await;
    let kind = Kind {
        watch_disconnect_grace: Duration::from_millis(20),
        ..WATCH
    };
    let proxy = Proxy::start(address, kind).await;
    let mut client = proxy.send(&get("/clusters/a/x?watch=1")).await;
    read_until(&mut client, "event\n\r\n").await;
    events.recv().await.unwrap();
    proxy.connection.disconnect();
    // The cluster's side does not wait for the grace to end.
    events.recv().await.unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "0\r\n\r\n");
}

#[tokio::test]
async fn a_watch_that_its_cluster_ends_ends_at_once() {
    let (address, _requests) = cluster_saying(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nevent\n\r\n0\r\n\r\n",
    )
    .await;
    let proxy = Proxy::start(address, WATCH).await;
    let answer = proxy.ask(&get("/clusters/a/x?watch=1")).await;
    assert!(answer.ends_with("6\r\nevent\n\r\n0\r\n\r\n"), "{answer}");
    assert_eq!(proxy.suspected(), 0);
}
