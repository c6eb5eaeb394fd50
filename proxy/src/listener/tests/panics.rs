//! A panic stays with its request.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[tokio::test]
async fn a_panic_is_a_500_and_is_counted() {
    let server = TestServer::start(PATIENT).await;
    let mut sender = server.http1().await;
    let before = telemetry::panics();
    let mut request = get("/panic");
    let audit_id = "the client's own";
    request
        .headers_mut()
        .insert("audit-id", audit_id.parse().unwrap());
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 500);
    assert_eq!(answer.headers()["audit-id"], audit_id);
    let status: serde_json::Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!(status["kind"], "Status");
    assert_eq!(status["code"], 500);
    assert!(telemetry::panics() > before);
    // The connection goes on.
    sender.ready().await.unwrap();
    assert_eq!(sender.send_request(get("/")).await.unwrap().status(), 200);
    let (mut sender, _) = server.http2().await;
    let answer = sender.send_request(get("/panic")).await.unwrap();
    assert_eq!(answer.status(), 500);
    assert!(!answer.headers()["audit-id"].is_empty());
    assert_eq!(sender.send_request(get("/")).await.unwrap().status(), 200);
}

/// Reads an answer that begins well.
async fn half_an_answer(answer: Response<Incoming>) -> hyper::Error {
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    let first = body.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "first");
    body.frame()
        .await
        .expect("an end would make it look whole")
        .unwrap_err()
}

#[tokio::test]
async fn an_answer_that_panics_half_way_is_broken_off_and_others_go_on() {
    let server = TestServer::start(PATIENT).await;
    let before = telemetry::panics();
    let mut sender = server.http1().await;
    let answer = sender.send_request(get("/panic-half-way")).await.unwrap();
    half_an_answer(answer).await;

    let (mut sender, _) = server.http2().await;
    let neighbour = tokio::spawn(sender.send_request(get("/stall")));
    server.stall.arrived(1).await;
    let answer = sender.send_request(get("/panic-half-way")).await.unwrap();
    let error = half_an_answer(answer).await;
    // Not CANCEL, which would say that somebody wanted it so.
    let reset = format!("{error:?}");
    assert!(reset.contains("INTERNAL_ERROR"), "{reset}");
    server.stall.go_on.cancel();
    assert_eq!(text(neighbour.await.unwrap().unwrap()).await, "went on");
    assert_eq!(sender.send_request(get("/")).await.unwrap().status(), 200);
    assert!(telemetry::panics() >= before + 2);
}

#[tokio::test]
async fn the_port_goes_on_after_a_panic() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (stop, accepted) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&accepted);
    let stopped = stop.clone();
    let task = tokio::spawn(async move {
        let start = |_stream| {
            let before = counted.fetch_add(1, Ordering::Relaxed);
            assert_ne!(before, 0, "on purpose");
        };
        accept_until(&listener, &stopped, start).await;
    });
    let _first = TcpStream::connect(addr).await.unwrap();
    let _second = TcpStream::connect(addr).await.unwrap();
    while accepted.load(Ordering::Relaxed) < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    task.await.unwrap();
}
