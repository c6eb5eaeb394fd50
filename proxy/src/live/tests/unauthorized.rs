//! Requests that meet the end of the proxy's credential.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fleetcache_cache::credential::RENEWAL_PATIENCE;

use super::*;
use crate::live::testing::FakeConnection;

/// A cluster that accepts credentials from this number on, and tells each request and its body.
async fn accepting(
    accepted: Arc<AtomicUsize>,
) -> (
    std::net::SocketAddr,
    mpsc::UnboundedReceiver<(String, String)>,
) {
    let (told, requests) = mpsc::unbounded_channel();
    let address = cluster(move |mut stream| {
        let (told, accepted) = (told.clone(), Arc::clone(&accepted));
        async move {
            let head = read_head(&mut stream).await;
            let body = if head.contains("content-length: 2\r\n") {
                read_until(&mut stream, "{}").await
            } else if head.contains("transfer-encoding: chunked\r\n") {
                read_until(&mut stream, "0\r\n\r\n").await
            } else {
                String::new()
            };
            let number = head.split_once("x-credential: ");
            let number = number.map_or("0", |(_, rest)| rest.lines().next().unwrap());
            let number: usize = number.parse().unwrap();
            told.send((head, body)).unwrap();
            let answer = if number >= accepted.load(Ordering::SeqCst) {
                OK
            } else {
                "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno"
            };
            // The proxy may have closed it for want of interest.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await;
    (address, requests)
}

/// Waits until the owner was told so often that its credential is refused.
async fn rejected(proxy: &Proxy, times: usize) {
    while proxy.rejected() < times {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_proxys_own_401_is_not_the_clients() {
    let (address, mut requests) = accepting(Arc::new(AtomicUsize::new(9))).await;
    let proxy = Proxy::start(address, PLAIN).await;
    // The owner finds no other, and gives the cluster up.
    let given_up = async {
        rejected(&proxy, 1).await;
        proxy.connection.closed.cancel();
    };
    let request = get("/clusters/a/api/v1/pods");
    let (answer, ()) = tokio::join!(proxy.ask(&request), given_up);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("CredentialInvalid"), "{answer}");
    assert_eq!((proxy.rejected(), proxy.suspected()), (2, 0));
    requests.recv().await.unwrap();
    assert!(requests.try_recv().is_err(), "nothing was sent again");

    // A service that asks its own users to log in.
    let path = "/clusters/a/api/v1/namespaces/n/services/s/proxy/";
    let answer = proxy.ask(&get(path)).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert_eq!((proxy.rejected(), proxy.suspected()), (2, 1));
}

#[tokio::test]
async fn a_401_to_the_callers_own_token_is_the_callers() {
    let refused = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\nx-unknown: 1\r\n\r\nno";
    let (address, mut requests) = cluster_saying(refused).await;
    let kind = Kind {
        as_caller: Some("Bearer theirs"),
        ..PLAIN
    };
    let proxy = Proxy::start(address, kind).await;
    // The proxy has another credential, which is not for this.
    proxy.connection.credential.send_replace(1);
    let request = post("/clusters/a/api/v1/pods")
        .replace("host: p", "host: p\r\nauthorization: Bearer other");
    let answer = proxy.ask(&request).await;
    assert!(
        answer.starts_with("HTTP/1.1 401 Unauthorized\r\n"),
        "{answer}"
    );
    assert!(
        answer.contains("x-unknown: 1\r\n") && answer.ends_with("\r\n\r\nno"),
        "{answer}"
    );
    let head = requests.recv().await.unwrap();
    assert!(head.contains("authorization: Bearer theirs\r\n"), "{head}");
    assert!(requests.try_recv().is_err(), "nothing was sent again");
    assert_eq!((proxy.rejected(), proxy.suspected()), (0, 0));
}

#[tokio::test]
async fn a_refused_request_is_sent_once_more_when_there_is_another_credential() {
    let chunked = "POST /clusters/a/x HTTP/1.1\r\nhost: p\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    let delete = get("/clusters/a/x").replace("GET", "DELETE");
    for request in [
        get("/clusters/a/x?y"),
        delete,
        post("/clusters/a/x"),
        chunked.to_owned(),
    ] {
        let (address, mut requests) = accepting(Arc::new(AtomicUsize::new(1))).await;
        let proxy = Proxy::start(address, PLAIN).await;
        let renewed = async {
            rejected(&proxy, 1).await;
            proxy.connection.credential.send_replace(1);
        };
        let (answer, ()) = tokio::join!(proxy.ask(&request), renewed);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{request}: {answer}");
        let (first, first_body) = requests.recv().await.unwrap();
        let (second, second_body) = requests.recv().await.unwrap();
        assert_eq!(first, second.replace("x-credential: 1\r\n", ""));
        assert_eq!(first_body, second_body);
        assert_eq!((proxy.rejected(), proxy.suspected()), (1, 0));
    }
}

#[tokio::test]
async fn a_credential_that_was_renewed_meanwhile_is_used_without_asking_the_owner() {
    let (began, mut begun) = mpsc::unbounded_channel();
    let address = cluster(move |mut stream| {
        let began = began.clone();
        async move {
            let head = read_head(&mut stream).await;
            let answer = if !head.contains("x-credential") {
                let (go, gone_on) = tokio::sync::oneshot::channel();
                began.send(go).unwrap();
                gone_on.await.unwrap();
                "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"
            } else {
                OK
            };
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let proxy = Proxy::start(address, PLAIN).await;
    let renewed = async {
        let go = begun.recv().await.unwrap();
        proxy.connection.credential.send_replace(1);
        go.send(()).unwrap();
    };
    let request = get("/clusters/a/x");
    let (answer, ()) = tokio::join!(proxy.ask(&request), renewed);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(proxy.rejected(), 0);
}

/// A kubeconfig with another address and another credential, or a refresh just after the old one was revoked.
#[tokio::test]
async fn a_request_goes_on_with_the_connection_that_takes_the_place_of_the_refused_one() {
    let (address, mut requests) = accepting(Arc::new(AtomicUsize::new(1))).await;
    let proxy = Proxy::start(address, PLAIN).await;
    let (address, mut others) =
        cluster_saying("HTTP/1.1 301 Moved\r\ncontent-length: 0\r\nlocation: /y/\r\n\r\n").await;
    let replaced = async {
        rejected(&proxy, 1).await;
        let other = Arc::new(FakeConnection::to(address));
        assert!(proxy.connection.successor.set(other).is_ok());
        proxy.connection.closed.cancel();
    };
    let request = post("/clusters/a/y");
    let (answer, ()) = tokio::join!(proxy.ask(&request), replaced);
    assert!(answer.starts_with("HTTP/1.1 301 "), "{answer}");
    assert!(answer.contains("location: /clusters/a/y/\r\n"), "{answer}");
    requests.recv().await.unwrap();
    let head = others.recv().await.unwrap();
    assert_eq!(request_line(&head), "POST /y HTTP/1.1");
    assert!(requests.try_recv().is_err() && others.try_recv().is_err());
    assert_eq!(proxy.rejected(), 1);
}

#[tokio::test]
async fn a_request_is_sent_again_once_and_no_more() {
    let (address, mut requests) = accepting(Arc::new(AtomicUsize::new(9))).await;
    let proxy = Proxy::start(address, WATCH).await;
    let renewed = async {
        rejected(&proxy, 1).await;
        proxy.connection.credential.send_replace(1);
        rejected(&proxy, 2).await;
        proxy.connection.credential.send_replace(2);
    };
    let request = get("/clusters/a/x");
    let (answer, ()) = tokio::join!(proxy.ask(&request), renewed);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("CredentialInvalid"), "{answer}");
    for _ in 0..2 {
        requests.recv().await.unwrap();
    }
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn a_body_that_is_long_or_not_all_there_is_not_sent_again() {
    let long = "x".repeat(100_000);
    for (length, body) in [(long.len(), &*long), (3, "xx")] {
        let address = cluster(|mut stream| async move {
            read_head(&mut stream).await;
            let refusal = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno";
            read_until(&mut stream, "xx").await;
            stream.write_all(refusal).await.unwrap();
            gone(&mut stream).await;
        })
        .await;
        let proxy = Proxy::start(address, PLAIN).await;
        let mut client = proxy
            .send(&format!(
                "POST /clusters/a/x HTTP/1.1\r\nhost: p\r\ncontent-length: {length}\r\n\r\n{body}"
            ))
            .await;
        // At once, since another credential is of no use.
        let head = read_head(&mut client).await;
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        assert_eq!(proxy.rejected(), 1);
    }
}

#[tokio::test]
async fn another_credential_is_waited_for_a_little_and_within_the_requests_own_time() {
    // Real time: what waits for sockets knows no other.
    let limit = Duration::from_millis(50);
    let kind = Kind {
        request_timeout: limit,
        ..PLAIN
    };
    assert!(limit < RENEWAL_PATIENCE);
    for kind in [kind, PLAIN] {
        let (address, _requests) = accepting(Arc::new(AtomicUsize::new(9))).await;
        let proxy = Proxy::start(address, kind).await;
        let begun = tokio::time::Instant::now();
        let answer = proxy.ask(&get("/clusters/a/x")).await;
        assert!(begun.elapsed() >= kind.request_timeout.min(RENEWAL_PATIENCE));
        assert!(
            answer.starts_with("HTTP/1.1 503 ") || kind.request_timeout == limit,
            "{answer}"
        );
    }
}
