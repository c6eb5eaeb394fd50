//! What an informer makes of answers that come compressed.

use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::*;
use crate::upstream::fake::within;

const KINDS: &str = r#"{"resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["list","watch"]}]}"#;

const ITEM: &str =
    r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"4"},"spec":{}}"#;

/// How a server sends its first pages: as one after the other of these makes of what was compressed.
type Spoil = fn(Vec<u8>) -> Vec<u8>;

/// A server without Tables and without streaming lists that compresses whatever it may, and counts the pages that it was
/// asked for.
async fn start(spoiled: Vec<Spoil>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (spoiled, pages) = (Arc::new(spoiled), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&pages);
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.unwrap();
            let (spoiled, pages) = (Arc::clone(&spoiled), Arc::clone(&pages));
            let service = service_fn(move |request: Request<Incoming>| {
                let target = request.uri().to_string();
                let accepts_gzip = request.headers().get("accept-encoding");
                let is_watch = target.contains("watch=1");
                assert_eq!(accepts_gzip.is_some_and(|it| it == "gzip"), !is_watch);
                let list = format!(
                    "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"5\"}},\"items\":[{ITEM}]}}\n"
                );
                let (code, body) = match &*target {
                    "/api/v1" => (200, KINDS.to_owned()),
                    _ if target.contains("sendInitialEvents") => (400, "{}".to_owned()),
                    _ if target.contains("includeObject") => (406, "{}".to_owned()),
                    _ if target.starts_with("/api/v1/pods?") => (200, list),
                    _ => (200, "{}".to_owned()),
                };
                let mut answer = Response::builder().status(code);
                let mut body = body.into_bytes();
                if !is_watch {
                    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                    encoder.write_all(&body).unwrap();
                    body = encoder.finish().unwrap();
                    answer = answer.header("content-encoding", "gzip");
                }
                if target.contains("limit=500") {
                    let nth = pages.fetch_add(1, Ordering::Relaxed);
                    body = spoiled
                        .get(nth)
                        .map_or_else(|| body.clone(), |it| it(body.clone()));
                }
                let answer = answer.body(Full::new(Bytes::from(body))).unwrap();
                std::future::ready(Ok::<_, Infallible>(answer))
            });
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(connection), service));
        }
    });
    (address, counted)
}

#[tokio::test]
async fn pages_are_inflated_and_asked_for_again_where_that_fails() {
    let cut: Spoil = |body| body[..body.len() - 9].to_vec();
    let longer: Spoil = |body| [&body[..], b"x"].concat();
    let other: Spoil = |_| b"{}".to_vec();
    for spoiled in [vec![], vec![cut, longer, other]] {
        let bad = spoiled.len();
        let (address, pages) = start(spoiled).await;
        let stop = CancellationToken::new();
        let fleet = Fleet::start(InformersConfig::default(), &TaskTracker::new(), &stop);
        let gvr = Gvr::new("", "v1", "pods");
        let informer = Arc::new(Informer::new(gvr, Arc::default(), stop.child_token()));
        let reflector = Reflector::new(Arc::clone(&informer), Arc::new(Settings::new(&fleet)));
        let server = Endpoint::new(config(&format!("http://{address}")).endpoint);
        let timeout = Duration::from_secs(5);
        let connection = Connection::new(&server, &Credential::default(), timeout, None).unwrap();
        let (_connections, connected) = watch::channel(Some(Arc::new(connection)));
        let synced = async {
            while informer.lists() < 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(informer.size().0, 1);
            assert!(pages.load(Ordering::Relaxed) > bad);
        };
        within(async {
            tokio::select! {
                refusal = reflector.run(connected) => panic!("{refusal:?}"),
                () = synced => {}
            }
        })
        .await;
        stop.cancel();
    }
}
