//! The end: what is asked is answered, in its time, and nothing more is taken.

use super::*;

#[tokio::test]
async fn a_drain_lets_requests_finish_and_takes_no_more() {
    let server = TestServer::start(PATIENT).await;
    let mut one = server.http1().await;
    let (mut two, connection) = server.http2().await;
    // A connection that never asked must not hold the drain up.
    let mut silent = server.tls(&["http/1.1"]).await.into_inner();
    let one = tokio::spawn(one.send_request(get("/stall")));
    let other = tokio::spawn(two.send_request(get("/stall")));
    server.stall.arrived(2).await;

    server.draining.cancel();
    assert_eq!(read_to_end(&mut silent).await, b"");
    while TcpStream::connect(server.addr).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!server.task.is_finished());
    server.stall.go_on.cancel();
    assert_eq!(text(one.await.unwrap().unwrap()).await, "went on");
    assert_eq!(text(other.await.unwrap().unwrap()).await, "went on");
    connection.await.unwrap().unwrap();
    server.task.await.unwrap();
}

#[tokio::test]
async fn a_drain_ends_after_its_time() {
    let server = TestServer::start(Timeouts {
        drain: SHORT,
        ..PATIENT
    })
    .await;
    let mut one = server.http1().await;
    let (mut two, _) = server.http2().await;
    let one = tokio::spawn(one.send_request(get("/stall")));
    let two = tokio::spawn(two.send_request(get("/stall")));
    server.stall.arrived(2).await;
    server.draining.cancel();
    server.task.await.unwrap();
    assert!(one.await.unwrap().is_err());
    assert!(two.await.unwrap().is_err());
}
